"""Experiments as tables on the console."""

"""Experiments as self-contained HTML pages."""

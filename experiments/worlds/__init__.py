"""Worlds that experiments run in, with target policies, loggers and logs of their own."""

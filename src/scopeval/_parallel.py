"""Threads that share independent work, and torch on one thread."""

from __future__ import annotations

__all__: list[str] = []

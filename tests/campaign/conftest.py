from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")  # a commit there does not wait for a disk


@pytest.fixture
def place():
    """A folder in memory, where there is one: campaigns commit several times a step."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)

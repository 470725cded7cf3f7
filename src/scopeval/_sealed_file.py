"""Archives with a checksum: what behavior policies and worlds are saved as.

The file is a NumPy archive (a zip file) whose comment is the SHA-256 of all before it. That shows
damage, not intent: a stranger can compute it too, so the reader still checks every array.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._archive import Archive, open_archive, pack, read_file, reading
from scopeval._files import replace_file
from scopeval.errors import DataError

__all__ = ["open_sealed", "read_header", "write_sealed"]

CHECKSUM = 32  # bytes of a SHA-256


def write_sealed(
    path: str | os.PathLike[str], header: bytes, arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write one file, whole or not at all."""
    buffer = io.BytesIO()
    pack(buffer, {**arrays, "header": np.frombuffer(header, dtype=np.uint8)})
    content = buffer.getvalue()[:-2] + CHECKSUM.to_bytes(2, "little")  # length of the comment
    replace_file(path, content + hashlib.sha256(content).digest())


@contextmanager
def open_sealed(
    path: str | os.PathLike[str], max_bytes: int, *, what: str, remedy: str
) -> Iterator[Archive]:
    """Open a file that `write_sealed` wrote; whatever is wrong in the block is a `DataError`.

    Args:
        path: of the file.
        max_bytes: most bytes of memory that it may ask for.
        what: it should be, with its article.
        remedy: what was expected, and what to try.
    """
    name = f"{path}"
    raw = read_file(path, max_bytes)
    content, checksum = raw[:-CHECKSUM], raw[-CHECKSUM:]
    if hashlib.sha256(content).digest() != checksum:
        raise DataError(
            f"{name}: not {what}, or damaged (its checksum is not there or wrong); {remedy}"
        )
    with reading(name, what), open_archive(name, io.BytesIO(raw), len(raw), max_bytes) as archive:
        yield archive


def read_header(archive: Archive, largest: int) -> bytes:
    """The header that `write_sealed` was given, of at most so many bytes."""
    dtype, shape = archive.headers["header"]
    if dtype != np.uint8 or len(shape) != 1 or shape[0] > largest:
        raise ValueError(f"a header of type {dtype} and shape {shape}")
    return archive.read("header").tobytes()

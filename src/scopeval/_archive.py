"""The one file container: arrays and a header in JSON, sealed; and NumPy archives from anyone.

An archive (.npz) is a zip file of .npy files. A stranger writes both kinds of header, so neither is
believed: what the headers say is compared with each other, with limits, and with the size of the
file itself before memory is allocated. Nothing is ever unpickled.

Behavior policies, worlds and episodes are saved as an archive with an array ``header`` of bytes,
whose comment is the SHA-256 of all before it. That shows damage, not intent: a stranger can compute
it too, so the reader still checks every array. (Not safetensors: logs come as .npz, so that this
reader is needed anyway, and sealed files are compressed.)
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from scopeval._files import replace_file
from scopeval.errors import DataError

__all__ = [
    "CHECKSUM",
    "MAX_BYTES",
    "MAX_RATIO",
    "PLAIN_KINDS",
    "Archive",
    "Header",
    "most_unpacked",
    "npy_of_bytes",
    "open_archive",
    "open_regular",
    "open_sealed",
    "pack",
    "read_header",
    "read_npy",
    "reading",
    "write_sealed",
]

#: Most bytes that the arrays of one file may take in memory, unless the caller says otherwise.
MAX_BYTES = 8 << 30
#: A file may unpack to this many times its own size, or to `FREE_BYTES`, whichever is more.
MAX_RATIO = 200
FREE_BYTES = 256 << 20
#: Most arrays in a file, and most characters of the header of one.
MAX_ARRAYS = 4096
MAX_HEADER = 10_000

#: What to try if a file is larger than `max_bytes`.
TRUST = "if you trust the file, try a larger max_bytes"

#: Types of the arrays in files of scopeval: truth values, whole and real numbers, text.
PLAIN_KINDS = "biufU"

#: What the standard library and NumPy raise at files that are damaged, or made to do harm.
UNREADABLE = (
    *(ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError),  # odd headers
    *(SyntaxError, tokenize.TokenError, RecursionError, MemoryError),
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, OSError),
    *(NotImplementedError, RuntimeError),  # an unknown or encrypted zip file
)


class Header(NamedTuple):
    """What a .npy file says of its array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of bytes; Python's integers do not overflow."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


class Archive:
    """An open archive whose headers have been checked.

    Args:
        archive: the zip file.
        names: only these arrays, whatever else is in the file; None: all, and nothing else may be
            in it.
        kinds: NumPy's letters of the types of arrays that are accepted.

    Attributes:
        headers: of the arrays, by name.
    """

    def __init__(
        self,
        archive: zipfile.ZipFile,
        names: Collection[str] | None = None,
        kinds: str = PLAIN_KINDS,
    ) -> None:
        self._archive = archive
        members = archive.infolist()
        if len(members) > MAX_ARRAYS:
            raise ValueError(f"{len(members):,} arrays, expected at most {MAX_ARRAYS:,}")
        if names is not None:
            members = [m for m in members if m.filename.removesuffix(".npy") in names]
        self._members = {_name(member): member for member in members}
        if len(self._members) < len(members):
            raise ValueError("two arrays of the same name")
        self.headers = {
            name: self._header(name, member, kinds) for name, member in self._members.items()
        }

    @property
    def size(self) -> int:
        """Bytes of all arrays together."""
        return sum(header.size for header in self.headers.values())

    def read(self, name: str) -> NDArray[Any]:
        """One array; the zip file's checksum of it is verified."""
        with self._archive.open(self._members[name]) as file:
            return _read_array(file, name)

    def _header(self, name: str, member: zipfile.ZipInfo, kinds: str) -> Header:
        """Read the header of an array, without the array."""
        with self._archive.open(member) as file:
            return _read_header(file, name, member.file_size, kinds)


def _read_header(file: IO[bytes], name: str, size: int, kinds: str) -> Header:
    """The header of a .npy file of so many bytes, checked."""
    version = npy.read_magic(file)
    readers: dict[tuple[int, int], Callable[..., tuple[Any, ...]]] = {
        (1, 0): npy.read_array_header_1_0,
        (2, 0): npy.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"array {name!r} is written in .npy format {version}")
    shape, _, dtype = readers[version](file, max_header_size=MAX_HEADER)
    header = Header(dtype, shape)
    if dtype.kind not in kinds or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(
            f"array {name!r} has type {dtype} and shape {shape}, expected plain numbers; object "
            "arrays are never unpickled"
        )
    stored = size - file.tell()
    if header.size != stored:
        raise ValueError(
            f"array {name!r} of shape {shape} takes {header.size:,} bytes, the file holds "
            f"{stored:,}"
        )
    return header


def _read_array(file: IO[bytes], name: str) -> NDArray[Any]:
    """The array of a .npy file whose header was checked."""
    array = npy.read_array(file, allow_pickle=False, max_header_size=MAX_HEADER)
    if file.read(1):  # at the end of a zip file's member the checksum is compared
        raise ValueError(f"array {name!r} is longer than its header says")
    # a byte that is neither 0 nor 1 is no truth value: compiled code would misread it
    if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise ValueError(f"array {name!r} holds bytes that are neither true nor false")
    return np.asarray(array, order="C")  # what compiled code was built for


@contextmanager
def open_archive(
    source: str,
    file: IO[bytes],
    size: int,
    max_bytes: int = MAX_BYTES,
    *,
    names: Collection[str] | None = None,
    kinds: str = PLAIN_KINDS,
    remedy: str = TRUST,
) -> Iterator[Archive]:
    """Open an archive, and refuse what would not fit.

    Args:
        source: the name of the file, for messages.
        file: its content.
        size: how many bytes that is.
        max_bytes: most bytes of all arrays together.
        names: as in `Archive`.
        kinds: as in `Archive`.
        remedy: what to try if the arrays are larger than `max_bytes`.

    Raises:
        DataError: the arrays are too large. Other trouble is one of `UNREADABLE`.
    """
    with zipfile.ZipFile(file) as opened:
        archive = Archive(opened, names, kinds)
        _check_size(source, archive.size, max_bytes, remedy)
        if archive.size > most_unpacked(size):
            raise DataError(
                f"{source}: {size:,} bytes would unpack to {archive.size:,}, expected at most "
                f"{MAX_RATIO} times as many; if you trust the file, store it without compression"
            )
        yield archive


def most_unpacked(size: int) -> int:
    """Most bytes of memory that a file of so many bytes may unpack to."""
    return max(FREE_BYTES, MAX_RATIO * size)


def npy_of_bytes(source: str, content: bytes, kinds: str = PLAIN_KINDS) -> NDArray[Any]:
    """The array of a .npy file in memory. Whatever is wrong with it is a `DataError`."""
    with reading(source, "an array as NumPy writes it"):
        _read_header(io.BytesIO(content), source, len(content), kinds)
        return _read_array(io.BytesIO(content), source)


def read_npy(path: str | os.PathLike[str], kinds: str = PLAIN_KINDS) -> NDArray[Any]:
    """The array in a .npy file. Whatever is wrong with the file is a `DataError`."""
    with open_regular(path) as file, reading(f"{path}", "an array as NumPy writes it"):
        size = os.fstat(file.fileno()).st_size
        _check_size(f"{path}", size, MAX_BYTES, "no table is that large")
        _read_header(file, Path(path).stem, size, kinds)
        file.seek(0)
        return _read_array(file, Path(path).stem)


@contextmanager
def reading(source: str, what: str) -> Iterator[None]:
    """Turn whatever a bad file causes into a `DataError` that names the file.

    Args:
        source: the name of the file.
        what: it should be, with its article.
    """
    try:
        yield
    except DataError:
        raise
    except UNREADABLE as error:
        said = f"{error}" if str(error) else type(error).__name__
        raise DataError(f"{source}: not {what}, or damaged ({said})") from error


@contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a regular file: a pipe or a device may have no end."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise OSError("it is a folder, a pipe or a device, not a regular file")
        file = Path(path).open("rb")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise _cannot_be_read(path, error) from error
    with file:
        yield file


CHECKSUM = 32  # bytes of a SHA-256


def write_sealed(
    path: str | os.PathLike[str], header: bytes, arrays: Mapping[str, NDArray[Any]]
) -> Path:
    """Write one sealed file, whole or not at all.

    Raises:
        DataError: a full disk, or another reason why the file cannot be written.
    """

    def write(file: IO[bytes]) -> None:
        try:
            pack(file, {**arrays, "header": np.frombuffer(header, dtype=np.uint8)})
        except ValueError as error:
            # After a full disk, `zipfile` fails again when it is closed, with this error.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise
        file.seek(-2, io.SEEK_END)  # the length of the comment
        file.write(CHECKSUM.to_bytes(2, "little"))
        end = file.tell()
        file.write(_checksum(file, end))

    return replace_file(path, write)


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
    with open_regular(path) as file, reading(f"{path}", what):
        size = os.fstat(file.fileno()).st_size
        _check_size(f"{path}", size, max_bytes)
        end = max(size - CHECKSUM, 0)
        seal = _checksum(file, end)
        if file.read() != seal:
            raise DataError(
                f"{path}: not {what}, or damaged (its checksum is not there or wrong); {remedy}"
            )
        with open_archive(f"{path}", file, size, max_bytes) as archive:
            yield archive


def _checksum(file: IO[bytes], end: int) -> bytes:
    """Of the first bytes of a file, which is left at their end."""
    file.seek(0)
    digest = hashlib.sha256()
    while left := end - file.tell():
        part = file.read(min(left, 1 << 20))
        if not part:
            break
        digest.update(part)
    return digest.digest()


def read_header(archive: Archive, largest: int) -> bytes:
    """The header that `write_sealed` was given, of at most so many bytes."""
    dtype, shape = archive.headers["header"]
    if dtype != np.uint8 or len(shape) != 1 or shape[0] > largest:
        raise ValueError(f"a header of type {dtype} and shape {shape}")
    return archive.read("header").tobytes()


def pack(file: IO[bytes], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an archive that `open_archive` accepts: not compressed where that would be extreme."""
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    if sum(a.nbytes for a in arrays.values()) > most_unpacked(file.tell()):
        file.seek(0)
        file.truncate()
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _check_size(source: str, size: int, most: int, remedy: str = TRUST) -> None:
    if size > most:
        raise DataError(f"{source}: takes {size:,} bytes, expected at most {most:,}; {remedy}")


def _cannot_be_read(path: str | os.PathLike[str], error: BaseException) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: no such file")
    return DataError(f"{path}: cannot be read ({str(error) or type(error).__name__})")


def _name(member: zipfile.ZipInfo) -> str:
    """Name of the array in a member of the zip file."""
    plain = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if not member.filename.endswith(".npy") or not plain or member.flag_bits & 1:
        raise ValueError(f"{member.filename!r} is no array as NumPy writes it")
    return member.filename.removesuffix(".npy")

"""Parquet, the format for logs on disk: reads files larger than memory, writes one file.

Parquet has checksums of the pages of a file, but not of their headers nor of the footer, which
holds the schema and the offsets. A file that scopeval wrote therefore also has a fingerprint of
each column (in the footer's metadata) and a seal (the checksum of the footer, in the unused space
before it). A damaged file is refused instead of being read as other data. Any Parquet reader can
read it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scopeval._files import replace_file
from scopeval.data.columns import Origin
from scopeval.data.table_sources import Part, from_arrow, reading
from scopeval.data.transitions import Transitions
from scopeval.errors import DataError, InputError

__all__ = ["SUFFIXES", "ParquetTable", "open_parquet", "write_logged"]

SUFFIXES = (".parquet", ".pq")
_KEY = b"scopeval"
_FORMAT = 1
_SEAL = b"scopeval-seal"  # followed by the footer's CRC-32; then footer, its length, PAR1
_TAIL = 8


def write_logged(transitions: Transitions, path: str | os.PathLike[str]) -> None:
    """Write a log as one Parquet file that `read_logged` reads back exactly, notes included.

    The file appears whole or not at all, and a file that was there before survives any failure.

    Args:
        transitions: the log; at least one row.
        path: the file to write; ends in ``.parquet`` or ``.pq``.

    Raises:
        InputError: no rows, or another ending.
        DataError: the file cannot be written there.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise InputError(f"logs are written as Parquet: {target} must end in .parquet")
    if not len(transitions):
        raise InputError(f"no rows to write to {target}")
    table = _to_arrow(transitions)

    def write(file: IO[bytes]) -> None:
        pq.write_table(table, file, write_page_checksum=True)
        _seal(file)

    try:
        replace_file(target, write)
    except pa.ArrowException as cause:
        raise DataError(f"{path}: cannot be written ({cause})") from cause


@dataclass(frozen=True)
class ParquetFile:
    """The content of a file's footer; `group` is the only row group that is read, if not None."""

    path: Path
    names: tuple[str, ...]
    rows: int
    fingerprints: dict[str, str]
    notes: tuple[str, ...]
    group: int | None = None


@dataclass(frozen=True)
class ParquetTable:
    """One or more Parquet files with the same columns, in the order of their names."""

    source: str
    files: tuple[ParquetFile, ...]
    batch_rows: int = 1 << 18

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns, in the first file."""
        return self.files[0].names

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes that were written with the logs."""
        return tuple(dict.fromkeys(note for file in self.files for note in file.notes))

    def pieces(self) -> list[ParquetTable]:
        """Each file alone."""
        return [replace(self, files=(file,)) for file in self.files]

    def row_groups(self) -> list[ParquetTable]:
        """Each row group of each file alone; fingerprints, which are of whole files, are left out.

        Checksums of pages are still compared.
        """
        found = []
        for file in self.files:
            with reading(str(file.path), "Parquet"), _opened(file.path) as content:
                sizes = [
                    content.metadata.row_group(k).num_rows for k in range(content.num_row_groups)
                ]
            part = replace(file, fingerprints={})
            found += [
                replace(self, files=(replace(part, rows=rows, group=k),))
                for k, rows in enumerate(sizes)
                if rows
            ]
        return found

    def without_rows(self) -> ParquetTable:
        """No file."""
        return replace(self, files=())

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        """At most `batch_rows` rows at a time; never more than one batch in memory."""
        for file in self.files:
            yield from self._parts_of(file, names)

    def _parts_of(self, file: ParquetFile, names: Sequence[str]) -> Iterator[Part]:
        source = str(file.path)
        missing = sorted(set(names) - set(file.names))
        if missing:
            raise DataError(
                f"{source}: no column {missing[0]!r}, which {self.files[0].path} has; it has "
                f"{', '.join(file.names)}; all files of a folder must have the same columns"
            )
        seen = {name: _Fingerprint() for name in names if name in file.fingerprints}
        row = 0
        groups = None if file.group is None else [file.group]
        # of a group, pages are read as they are needed: several may be open at the same time
        buffer = 0 if file.group is None else 1 << 20
        with reading(source, "Parquet"), _opened(file.path, buffer) as content:
            batches = content.iter_batches(self.batch_rows, row_groups=groups, columns=list(names))
            for batch in batches:
                part = Part(source, {name: batch.column(name) for name in names}, row)
                for name, fingerprint in seen.items():
                    fingerprint.add(from_arrow(part.columns[name], _origin(source, name, row)))
                row += batch.num_rows
                if batch.num_rows:
                    yield part
        if row != file.rows:
            raise DataError(f"{source}: {file.rows:,} rows promised, {row:,} found; it is corrupt")
        for name, fingerprint in seen.items():
            if row and str(fingerprint) != file.fingerprints[name]:
                raise DataError(
                    f"{source}: column {name!r} is not what was written (fingerprint "
                    f"{fingerprint}, expected {file.fingerprints[name]}); the file is corrupt"
                )


def open_parquet(path: Path) -> ParquetTable:
    """A Parquet file, or a folder with Parquet files at any depth."""
    paths = [path]
    if path.is_dir():
        paths = sorted(
            found
            for found in path.rglob("*")
            if found.suffix.lower() in SUFFIXES and not found.name.startswith((".", "_"))
        )
        if not paths:
            others = sorted(found.name for found in path.iterdir())[:5]
            raise DataError(
                f"{path}: no Parquet files in this folder (it has {', '.join(others) or 'nothing'})"
                "; name a single CSV or NPZ file by its own path"
            )
    return ParquetTable(str(path), tuple(_inspect(one) for one in paths))


def _opened(path: Path, buffer: int = 0) -> Any:
    return pq.ParquetFile(
        str(path), page_checksum_verification=True, pre_buffer=False, buffer_size=buffer
    )


def _inspect(path: Path) -> ParquetFile:
    source = str(path)
    with reading(source, "Parquet"):
        if not path.stat().st_size:
            raise DataError(f"{source}: the file is empty (0 bytes); write it again")
        _check_seal(path)
        with _opened(path) as content:
            names = tuple(content.schema_arrow.names)
            written = json.loads((content.metadata.metadata or {}).get(_KEY, b"{}"))
            if written.get("format", _FORMAT) != _FORMAT:
                raise DataError(
                    f"{source}: written in format {written['format']!r}, this version of scopeval "
                    f"reads format {_FORMAT}; update scopeval"
                )
            fingerprints = dict(written.get("fingerprints", {}))
            lost = sorted(set(fingerprints) - set(names))
            if lost:
                raise DataError(f"{source}: column {lost[0]!r} is lost; the file is corrupt")
            notes = tuple(str(note) for note in written.get("notes", ()))
            return ParquetFile(path, names, content.metadata.num_rows, fingerprints, notes)


def _seal(file: IO[bytes]) -> None:
    """Insert the checksum of the footer before it; the offsets in the footer stay right."""
    file.seek(-_TAIL, os.SEEK_END)
    size = int.from_bytes(file.read(4), "little")
    start = file.seek(-_TAIL - size, os.SEEK_END)
    footer = file.read()
    file.seek(start)
    file.write(_SEAL + zlib.crc32(footer).to_bytes(4, "little") + footer)


def _check_seal(path: Path) -> None:
    """Check the seal of the footer; files of other writers have none."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        if end < _TAIL:
            return
        file.seek(-_TAIL, os.SEEK_END)
        size = int.from_bytes(file.read(4), "little")
        start = end - _TAIL - size - 4 - len(_SEAL)
        if start < 0:
            return
        file.seek(start)
        if file.read(len(_SEAL)) == _SEAL:
            checksum = int.from_bytes(file.read(4), "little")
            if zlib.crc32(file.read()) != checksum:
                raise DataError(f"{path}: the footer is not what was written; the file is corrupt")


class _Fingerprint:
    """Type, width and checksum of a column that is read in pieces."""

    def __init__(self) -> None:
        self.kind = ""
        self.checksum = 0

    def add(self, values: NDArray[Any]) -> None:
        width = values.shape[1] if values.ndim > 1 else 0
        kind = f"{values.dtype.newbyteorder('<').str}[{width}]"
        self.kind = kind if self.kind in ("", kind) else "mixed"
        self.checksum = zlib.crc32(np.ascontiguousarray(values).data, self.checksum)

    def __str__(self) -> str:
        return f"{self.kind} {self.checksum:08x}"


def _to_arrow(transitions: Transitions) -> Any:
    columns, fingerprints = {}, {}
    for name in ("t", "obs", "action", "reward", "cost", "next_obs", "terminated"):
        values = getattr(transitions, name)
        fingerprint = _Fingerprint()
        fingerprint.add(values)
        fingerprints[name] = str(fingerprint)
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        columns[name] = (
            flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        )
    about = {"format": _FORMAT, "fingerprints": fingerprints, "notes": transitions.notes}
    return pa.table(columns).replace_schema_metadata({_KEY: json.dumps(about).encode()})


def _origin(source: str, name: str, row: int) -> Origin:
    return Origin(f"{source}: column {name!r}", first_row=row, error=DataError)

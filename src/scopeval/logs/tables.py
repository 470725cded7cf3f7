"""Tables of logged data: CSV, JSON lines, NPZ, Parquet, data frames, arrays, Ray datasets.

A `Table` has column names and yields `Part`s with the requested columns. The meaning of the columns
is decided elsewhere.

Parquet is the format for logs on disk: files larger than memory are read in batches. It has
checksums of the pages of a file, but not of their headers nor of the footer, which holds the schema
and the offsets. A file that scopeval wrote therefore has a seal, the checksum of all of it in the
unused space before the footer, which is compared when the file is opened. A damaged file is refused
instead of being read as other data. Any Parquet reader can read it.

The blocks of a Ray dataset stay in the object store, which moves them to disk where memory is
short; one block at a time is in this process. Their order is that of the dataset, so that results
can be repeated.
"""

from __future__ import annotations

import json
import os
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scopeval._archive import MAX_RATIO, PLAIN_KINDS, most_unpacked, open_archive, open_regular
from scopeval._files import replace_file
from scopeval.errors import DataError, InputError, ScopevalError
from scopeval.logs.transitions import Transitions

__all__ = [
    "SUFFIXES",
    "BlockTable",
    "InMemory",
    "NpzTable",
    "ParquetTable",
    "Part",
    "Table",
    "block_of",
    "content_of",
    "is_ray_dataset",
    "open_frame",
    "open_json_lines",
    "open_parquet",
    "open_ray_dataset",
    "reading",
    "write_logs",
]

_NPZ_KINDS = PLAIN_KINDS + "S"  # episodes may be named by bytes
SUFFIXES = (".parquet", ".pq")
_KEY = b"scopeval"
_FORMAT = 2
_SEAL = b"scopeval-whole"  # followed by the CRC-32 of all else; then footer, its length, PAR1
_FOOTER_SEAL = b"scopeval-seal"  # of format 1: followed by the CRC-32 of what follows it
_TAIL = 8
_BLOCK = 1 << 20  # bytes that are read together for the checksum


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a table: Arrow columns or array-likes by name."""

    source: str
    columns: Mapping[str, Any]
    first_row: int = 0
    starts: NDArray[np.int64] | None = None  # first row of each episode, where that is known


class Table(Protocol):
    """A source of named columns."""

    @property
    def source(self) -> str:
        """Name of the table in error messages."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""

    @property
    def exogenous(self) -> tuple[int, ...] | tuple[str, ...]:
        """What no action changes, as the log says: see `Transitions`."""

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        """These columns, in order, in one or more parts."""


@dataclass(frozen=True)
class InMemory:
    """Arrays, or Arrow columns, by name; `starts` as in `Part`."""

    source: str
    columns: Mapping[str, Any]
    starts: NDArray[np.int64] | None = None
    names: Sequence[str] = ()
    exogenous: tuple[int, ...] | tuple[str, ...] = ()

    @classmethod
    def of_arrow(cls, source: str, table: Any) -> InMemory:
        """The columns of a pyarrow table; names that occur twice are still named twice."""
        with reading(source, "a table"):  # names may not be text
            names = list(table.column_names)
            return cls(source, dict(zip(names, table.columns, strict=True)), names=names)

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        """One part, not copied; none if a table has no rows."""
        columns = {name: self.columns[name] for name in names}
        if not any(isinstance(one, pa.ChunkedArray) and not len(one) for one in columns.values()):
            yield Part(self.source, columns, starts=self.starts)


@dataclass(frozen=True)
class NpzTable:
    """Arrays in a ``.npz`` file; only requested arrays are read, and none is unpickled."""

    path: Path
    exogenous: tuple[int, ...] | tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def names(self) -> Sequence[str]:
        """The names of the arrays."""
        with reading(self.source, "NPZ"), zipfile.ZipFile(self.path) as archive:
            members = archive.infolist()
            for member in members:
                archive.open(member).close()  # compares its name with the one in the zip directory
            end = _last_bytes(self.path, 22)  # the record that closes the directory
            promised = int.from_bytes(end[10:12], "little")
            if end.startswith(b"PK\5\6") and promised not in (len(members), 0xFFFF):
                raise DataError(
                    f"{self.source}: the zip directory promises {promised} arrays and lists "
                    f"{len(members)}; the file is corrupt"
                )
            return [m.filename[:-4] for m in members if m.filename.endswith(".npy")]

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        """One part; sizes are checked before, and the zip checksum of each array after reading."""
        with reading(self.source, "NPZ"), open_regular(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            remedy = "write such a log as Parquet, which stream_logs reads in batches"
            with open_archive(
                self.source, file, size, names=names, kinds=_NPZ_KINDS, remedy=remedy
            ) as archive:
                arrays = {name: archive.read(name) for name in names}
        yield Part(self.source, arrays)


def open_json_lines(path: Path) -> InMemory:
    """A file with one JSON object per line, perhaps compressed (``.gz``)."""
    with reading(str(path), "JSON lines"):
        content = content_of(path)
        table = pa.json.read_json(
            pa.BufferReader(content),
            read_options=pa.json.ReadOptions(block_size=block_of(content.size)),
        )
    return InMemory.of_arrow(str(path), table)


def content_of(path: Path) -> Any:
    """The bytes of a file, decompressed; types can only be inferred from all of them."""
    if path.suffix.lower() != ".gz":
        with pa.input_stream(str(path), compression=None) as stream:
            return stream.read_buffer()
    size = path.stat().st_size
    blocks, most, have = list[bytes](), most_unpacked(size), 0
    with pa.input_stream(str(path), compression="gzip") as stream:
        while block := stream.read(_BLOCK):
            have += len(block)
            if have > most:
                raise DataError(
                    f"{path}: {size:,} bytes unpack to more than {most:,}, expected at most "
                    f"{MAX_RATIO} times as many; if you trust the file, unpack it and read that"
                )
            blocks.append(block)
    return pa.py_buffer(b"".join(blocks))


def block_of(size: int) -> int:
    """Bytes that are parsed together: all of them, so that types are inferred from the whole."""
    return min(max(size, 1 << 20), 1 << 30)


def open_frame(frame: Any) -> InMemory:
    """A pandas, polars or pyarrow table, or any object with the Arrow C stream interface."""
    kind = type(frame)
    source = f"{kind.__module__.partition('.')[0]} {kind.__name__}"
    with reading(source, "a table"):
        if isinstance(frame, pa.Table):
            return InMemory.of_arrow(source, frame)
        if isinstance(frame, pa.RecordBatch):
            return InMemory.of_arrow(source, pa.Table.from_batches([frame]))
        if kind.__module__.startswith("pandas"):
            table = pa.Table.from_pandas(frame, preserve_index=False)
            return InMemory.of_arrow(source, table)
        if hasattr(frame, "__arrow_c_stream__"):
            return InMemory.of_arrow(source, pa.table(frame))
        if hasattr(frame, "to_arrow"):
            return InMemory.of_arrow(source, frame.to_arrow())
    raise InputError(
        f"cannot read logged data from {kind.__module__}.{kind.__qualname__}; expected a path "
        "(.parquet, .csv, .jsonl, .npz or a folder of Parquet files), a data frame, a dict of "
        'arrays, a list of episodes, a Minari dataset or "minari:NAME"'
    )


@contextmanager
def reading(source: str, kind: str) -> Iterator[None]:
    """Turn any exception inside the block into a `DataError` with the cause chained."""
    try:
        yield
    except ScopevalError:
        raise
    except MemoryError as cause:
        raise DataError(
            f"{source}: reading as {kind} needs more memory than there is ({cause}); if the file "
            "is sound, read it in batches with stream_logs"
        ) from cause
    except Exception as cause:
        reason = str(cause).strip().partition("\n")[0]
        raise DataError(
            f"{source}: cannot be read as {kind} ({type(cause).__name__}: {reason}); it may be "
            "truncated, corrupt, or of another format than its name says"
        ) from cause


def _last_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(-min(count, path.stat().st_size), os.SEEK_END)
        return file.read()


def write_logs(transitions: Transitions, path: str | os.PathLike[str]) -> None:
    """Write a log as one Parquet file that `read_logs` reads back exactly, notes included.

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
        if table.nbytes > most_unpacked(file.tell()):  # else `read_logs` would refuse it
            file.seek(0)
            file.truncate()
            plain: Any = {"compression": "none", "use_dictionary": False}
            pq.write_table(table, file, write_page_checksum=True, **plain)
        _seal(file)

    try:
        replace_file(target, write)
    except pa.ArrowException as cause:
        raise DataError(f"{path}: cannot be written ({cause})") from cause


@dataclass(frozen=True)
class ParquetFile:
    """The content of a file's footer.

    `unpacked` is how many bytes all columns take in memory, by the footer. `group` is the only row
    group that is read, if not None.
    """

    path: Path
    names: tuple[str, ...]
    rows: int
    notes: tuple[str, ...]
    unpacked: int = 0
    group: int | None = None
    exogenous: tuple[int, ...] | tuple[str, ...] = ()


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
    def exogenous(self) -> tuple[int, ...] | tuple[str, ...]:
        """As all files say; else nothing."""
        said = {file.exogenous for file in self.files}
        return said.pop() if len(said) == 1 else ()

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes that were written with the logs."""
        return tuple(dict.fromkeys(note for file in self.files for note in file.notes))

    def check_memory(self) -> None:
        """Refuse files that would unpack to far more than they are, before all of it is read.

        Raises:
            DataError: one of them would; reading in batches is not limited.
        """
        for file in self.files:
            size = file.path.stat().st_size
            if file.unpacked > most_unpacked(size):
                raise DataError(
                    f"{file.path}: {size:,} bytes would unpack to {file.unpacked:,}, expected at "
                    f"most {MAX_RATIO} times as many; read it with stream_logs in batches, or, "
                    "if you trust the file, write it again without compression and dictionaries"
                )

    def pieces(self) -> list[ParquetTable]:
        """Each file alone."""
        return [replace(self, files=(file,)) for file in self.files]

    def row_groups(self) -> list[ParquetTable]:
        """Each row group of each file alone."""
        pieces = []
        for file in self.files:
            with reading(str(file.path), "Parquet"), _opened(file.path) as content:
                sizes = [
                    content.metadata.row_group(k).num_rows for k in range(content.num_row_groups)
                ]
            pieces += [
                replace(self, files=(replace(file, rows=rows, group=k),))
                for k, rows in enumerate(sizes)
                if rows
            ]
        return pieces

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
        row = 0
        groups = None if file.group is None else [file.group]
        # of a group, pages are read as they are needed: several may be open at the same time
        buffer = 0 if file.group is None else 1 << 20
        with reading(source, "Parquet"), _opened(file.path, buffer) as content:
            for batch in content.iter_batches(
                self.batch_rows, row_groups=groups, columns=list(names)
            ):
                if batch.num_rows:
                    yield Part(source, {name: batch.column(name) for name in names}, row)
                row += batch.num_rows
        if row != file.rows:
            raise DataError(f"{source}: {file.rows:,} rows promised, {row:,} found; it is corrupt")


def open_parquet(path: Path) -> ParquetTable:
    """A Parquet file, or a folder with Parquet files at any depth."""
    paths = [path]
    if path.is_dir():
        paths = sorted(
            file
            for file in path.rglob("*")
            if file.suffix.lower() in SUFFIXES and not file.name.startswith((".", "_"))
        )
        if not paths:
            others = sorted(file.name for file in path.iterdir())[:5]
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
            if written.get("format", _FORMAT) > _FORMAT:
                raise DataError(
                    f"{source}: written in format {written['format']!r}, this version of scopeval "
                    f"reads format {_FORMAT}; update scopeval"
                )
            notes = tuple(str(note) for note in written.get("notes", ()))
            about, exogenous = content.metadata, tuple(written.get("exogenous", ()))
            return ParquetFile(
                path, names, about.num_rows, notes, _unpacked(about), exogenous=exogenous
            )


def _unpacked(about: Any) -> int:
    """Bytes in memory by the footer: 8 for every value, or what the pages hold, if that is more."""
    return sum(
        max(8 * chunk.num_values, chunk.total_uncompressed_size)
        for group in map(about.row_group, range(about.num_row_groups))
        for chunk in map(group.column, range(group.num_columns))
    )


def _seal(file: IO[bytes]) -> None:
    """Insert the checksum before the footer; the offsets in the footer stay right."""
    start = _footer(file)
    checksum, footer = _checksum(file, start), file.read()
    file.seek(start)
    file.write(_SEAL + zlib.crc32(footer, checksum).to_bytes(4, "little") + footer)


def _check_seal(path: Path) -> None:
    """Compare the checksum; files of other writers have none."""
    with path.open("rb") as file:
        end = _footer(file) - 4
        for seal in (_SEAL, _FOOTER_SEAL):
            start = end - len(seal)
            if start < 0 or file.seek(start) != start or file.read(len(seal)) != seal:
                continue
            written = int.from_bytes(file.read(4), "little")
            footer = file.read()
            before = _checksum(file, start) if seal == _SEAL else 0
            if zlib.crc32(footer, before) != written:
                raise DataError(f"{path}: is not what was written; the file is corrupt")


def _footer(file: IO[bytes]) -> int:
    """Where the footer begins; below 0 where there cannot be one."""
    end = file.seek(0, os.SEEK_END)
    if end < _TAIL:
        return -1
    file.seek(end - _TAIL)
    return end - _TAIL - int.from_bytes(file.read(4), "little")


def _checksum(file: IO[bytes], size: int) -> int:
    """CRC-32 of the first bytes of a file, which is then at their end."""
    file.seek(0)
    checksum = 0
    for start in range(0, size, _BLOCK):
        checksum = zlib.crc32(file.read(min(_BLOCK, size - start)), checksum)
    return checksum


def _to_arrow(transitions: Transitions) -> Any:
    columns = {}
    for name, values in transitions.stored_columns().items():
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        columns[name] = (
            flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        )
    about: dict[str, Any] = {"format": _FORMAT, "notes": transitions.notes}
    if transitions.exogenous:
        about["exogenous"] = transitions.exogenous
    return pa.table(columns).replace_schema_metadata({_KEY: json.dumps(about).encode()})


@dataclass(frozen=True)
class BlockTable:
    """Blocks of a dataset.

    Attributes:
        source: name in messages.
        names: of the columns.
        blocks: references of Arrow tables.
        sizes: rows of each block.
        batch_rows: the most rows of a part.
    """

    source: str
    names: Sequence[str]
    blocks: tuple[Any, ...]
    sizes: tuple[int, ...]
    batch_rows: int
    exogenous: tuple[int, ...] | tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows in all blocks."""
        return sum(self.sizes)

    def pieces(self) -> list[BlockTable]:
        """Each block alone."""
        return [
            replace(self, source=f"{self.source}, block {k}", blocks=(block,), sizes=(size,))
            for k, (block, size) in enumerate(zip(self.blocks, self.sizes, strict=True))
        ]

    def without_rows(self) -> BlockTable:
        """No block."""
        return replace(self, blocks=(), sizes=())

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        """At most `batch_rows` rows at a time; never more than one block in memory."""
        import ray

        for block in self.blocks:
            with reading(self.source, "a block"):
                table = ray.get(block)
            for row in range(0, table.num_rows, self.batch_rows):
                some = table.slice(row, self.batch_rows)
                yield Part(self.source, {name: some.column(name) for name in names}, row)


def is_ray_dataset(source: object) -> bool:
    """Whether it is one; who has one has loaded ray.data."""
    module = sys.modules.get("ray.data")
    return module is not None and isinstance(source, module.Dataset)


def open_ray_dataset(source: Any, batch_rows: int) -> BlockTable:
    """Compute the dataset, in its own order."""
    import ray

    source.context.execution_options.preserve_order = True
    blocks = tuple(source.to_arrow_refs())
    if not blocks:
        raise InputError("source: got a Ray dataset without blocks, expected rows")
    shape = ray.remote(_shape)  # counted where the blocks are
    shapes = ray.get([shape.remote(block) for block in blocks])
    names = next((names for size, names in shapes if size), shapes[0][1])
    return BlockTable("Ray dataset", names, blocks, tuple(size for size, _ in shapes), batch_rows)


def _shape(table: Any) -> tuple[int, list[str]]:
    """Rows and names of a block."""
    return int(table.num_rows), list(table.column_names)

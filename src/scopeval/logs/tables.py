"""Tables of logged data: CSV, JSON lines, NPZ, Parquet, data frames, arrays, Ray datasets.

A `Table` has column names and yields `Part`s with the requested columns, piece by piece: arrays in
memory are one piece; a folder has one for each file, and a Ray dataset one for each block. The
meaning of the columns is decided elsewhere.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

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
    "BATCH_ROWS",
    "SUFFIXES",
    "Part",
    "Piece",
    "Table",
    "block_of",
    "content_of",
    "is_ray_dataset",
    "open_frame",
    "open_json_lines",
    "open_npz",
    "open_parquet",
    "open_ray_dataset",
    "reading",
    "write_logs",
]

#: Rows of a batch, unless the caller says otherwise.
BATCH_ROWS = 1 << 18
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


#: Reads columns of a piece, at most so many rows at a time.
ReadParts = Callable[[Sequence[str], int], Iterator[Part]]


@dataclass(frozen=True)
class Piece:
    """Rows that are stored together: arrays in memory, a file, a row group of it, or a block.

    Attributes:
        source: its name in messages.
        names: of its columns.
        read: reads some of them.
        rows: how many; 0 where only reading them shows it.
        groups: its row groups.
        packed: bytes of the file.
        unpacked: bytes that all columns take in memory, by the footer of the file.
    """

    source: str
    names: Sequence[str]
    read: ReadParts
    rows: int = 0
    groups: tuple[Piece, ...] = ()
    packed: int = 0
    unpacked: int = 0


@dataclass(frozen=True)
class Table:
    """Rows with named columns, in pieces that follow each other.

    Attributes:
        source: its name in messages.
        pieces: in their order.
        names: of the columns, in the first piece.
        batch_rows: most rows of a part; None: each piece is read as a whole.
        exogenous: what no action changes, as the log says: see `Transitions`.
        notes: that were written with the log.
        first_row: number of its first row in the log that it is a part of.
    """

    source: str
    pieces: tuple[Piece, ...]
    names: Sequence[str]
    batch_rows: int | None = None
    exogenous: tuple[int, ...] | tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    first_row: int = 0

    @classmethod
    def of_arrays(
        cls,
        source: str,
        columns: Mapping[str, Any],
        starts: NDArray[np.int64] | None = None,
        exogenous: tuple[int, ...] | tuple[str, ...] = (),
    ) -> Table:
        """Arrays, or Arrow columns, by name; `starts` as in `Part`."""
        names = list(columns)
        piece = Piece(source, names, partial(_array_parts, source, columns, starts))
        return cls(source, (piece,), names, exogenous=exogenous)

    @classmethod
    def of_arrow(cls, source: str, table: Any) -> Table:
        """The columns of a pyarrow table; names that occur twice are still named twice."""
        with reading(source, "a table"):  # names may not be text
            names = list(table.column_names)
            made = cls.of_arrays(source, dict(zip(names, table.columns, strict=True)))
        return replace(made, names=names)

    @property
    def rows(self) -> int:
        """Rows in all pieces."""
        return sum(piece.rows for piece in self.pieces)

    def each(self) -> list[Table]:
        """The pieces that have rows, each alone."""
        first = np.cumsum([0, *(piece.rows for piece in self.pieces)]).tolist()
        return [
            replace(self, source=piece.source, pieces=(piece,), first_row=row)
            for piece, row in zip(self.pieces, first, strict=False)
            if piece.rows
        ]

    def row_groups(self, batch_rows: int) -> list[Table]:
        """The row groups of the files, or the blocks, each alone, in smaller batches."""
        groups = [group for piece in self.pieces for group in piece.groups or (piece,)]
        return replace(self, pieces=tuple(groups), batch_rows=batch_rows).each()

    def check_memory(self) -> None:
        """Refuse files that would unpack to far more than they are, before all of it is read.

        Raises:
            DataError: one of them would; reading in batches is not limited.
        """
        for piece in self.pieces:
            if piece.unpacked > most_unpacked(piece.packed):
                raise DataError(
                    f"{piece.source}: {piece.packed:,} bytes would unpack to {piece.unpacked:,}, "
                    f"expected at most {MAX_RATIO} times as many; read it with stream_logs in "
                    "batches, or, if you trust the file, write it again without compression and "
                    "dictionaries"
                )

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        """These columns, in order; never more than one part is in memory."""
        for piece in self.pieces:
            missing = sorted(set(names) - set(piece.names))
            if missing:
                raise DataError(
                    f"{piece.source}: no column {missing[0]!r}, which {self.pieces[0].source} has; "
                    f"it has {', '.join(piece.names)}; all files of a folder must have the same "
                    "columns"
                )
            yield from piece.read(names, self.batch_rows or piece.rows)


def _array_parts(
    source: str,
    arrays: Mapping[str, Any],
    starts: NDArray[np.int64] | None,
    names: Sequence[str],
    _batch_rows: int,
) -> Iterator[Part]:
    """One part, not copied; none if a table has no rows."""
    columns = {name: arrays[name] for name in names}
    if not any(isinstance(one, pa.ChunkedArray) and not len(one) for one in columns.values()):
        yield Part(source, columns, starts=starts)


def open_npz(path: Path) -> Table:
    """Arrays in a ``.npz`` file; only requested arrays are read, and none is unpickled."""
    source = str(path)
    with reading(source, "NPZ"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            archive.open(member).close()  # compares its name with the one in the zip directory
        end = _last_bytes(path, 22)  # the record that closes the directory
        promised = int.from_bytes(end[10:12], "little")
        if end.startswith(b"PK\5\6") and promised not in (len(members), 0xFFFF):
            raise DataError(
                f"{source}: the zip directory promises {promised} arrays and lists "
                f"{len(members)}; the file is corrupt"
            )
        names = [m.filename[:-4] for m in members if m.filename.endswith(".npy")]
    return Table(source, (Piece(source, names, partial(_npz_parts, path)),), names)


def _npz_parts(path: Path, names: Sequence[str], _batch_rows: int) -> Iterator[Part]:
    """One part; sizes are checked before, and the zip checksum of each array after reading."""
    source = str(path)
    with reading(source, "NPZ"), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        remedy = "write such a log as Parquet, which stream_logs reads in batches"
        with open_archive(
            source, file, size, names=names, kinds=_NPZ_KINDS, remedy=remedy
        ) as archive:
            arrays = {name: archive.read(name) for name in names}
    yield Part(source, arrays)


def open_json_lines(path: Path) -> Table:
    """A file with one JSON object per line, perhaps compressed (``.gz``)."""
    with reading(str(path), "JSON lines"):
        content = content_of(path)
        table = pa.json.read_json(
            pa.BufferReader(content),
            read_options=pa.json.ReadOptions(block_size=block_of(content.size)),
        )
    return Table.of_arrow(str(path), table)


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


def open_frame(frame: Any) -> Table:
    """A pandas, polars or pyarrow table, or any object with the Arrow C stream interface."""
    kind = type(frame)
    source = f"{kind.__module__.partition('.')[0]} {kind.__name__}"
    with reading(source, "a table"):
        if isinstance(frame, pa.Table):
            return Table.of_arrow(source, frame)
        if isinstance(frame, pa.RecordBatch):
            return Table.of_arrow(source, pa.Table.from_batches([frame]))
        if kind.__module__.startswith("pandas"):
            table = pa.Table.from_pandas(frame, preserve_index=False)
            return Table.of_arrow(source, table)
        if hasattr(frame, "__arrow_c_stream__"):
            return Table.of_arrow(source, pa.table(frame))
        if hasattr(frame, "to_arrow"):
            return Table.of_arrow(source, frame.to_arrow())
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


def open_parquet(path: Path) -> Table:
    """A Parquet file, or a folder with Parquet files at any depth, in the order of their names."""
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
    pieces, written = zip(*map(_inspect, paths), strict=True)
    exogenous = {tuple(one.get("exogenous", ())) for one in written}
    return Table(
        str(path),
        pieces,
        pieces[0].names,
        BATCH_ROWS,
        exogenous.pop() if len(exogenous) == 1 else (),  # as all files say; else nothing
        tuple(dict.fromkeys(str(note) for one in written for note in one.get("notes", ()))),
    )


def _opened(path: Path, buffer: int = 0) -> Any:
    return pq.ParquetFile(
        str(path), page_checksum_verification=True, pre_buffer=False, buffer_size=buffer
    )


def _inspect(path: Path) -> tuple[Piece, dict[str, Any]]:
    """A file by its footer, and what was written about the log."""
    source = str(path)
    with reading(source, "Parquet"):
        if not path.stat().st_size:
            raise DataError(f"{source}: the file is empty (0 bytes); write it again")
        _check_seal(path)
        with _opened(path) as content:
            names, about = tuple(content.schema_arrow.names), content.metadata
        written = json.loads((about.metadata or {}).get(_KEY, b"{}"))
        if written.get("format", _FORMAT) > _FORMAT:
            raise DataError(
                f"{source}: written in format {written['format']!r}, this version of scopeval "
                f"reads format {_FORMAT}; update scopeval"
            )
        groups = [about.row_group(k) for k in range(about.num_row_groups)]
        chunks = [group.column(k) for group in groups for k in range(group.num_columns)]

        def piece(rows: int, group: int | None) -> Piece:
            return Piece(source, names, partial(_parquet_parts, path, rows, group), rows)

        return replace(
            piece(about.num_rows, None),
            groups=tuple(piece(group.num_rows, k) for k, group in enumerate(groups)),
            packed=path.stat().st_size,
            # 8 bytes for every value, or what the pages hold, if that is more
            unpacked=sum(max(8 * x.num_values, x.total_uncompressed_size) for x in chunks),
        ), written


def _parquet_parts(
    path: Path, rows: int, group: int | None, names: Sequence[str], batch_rows: int
) -> Iterator[Part]:
    """Of a file or of one row group, at most `batch_rows` rows at a time."""
    source, row = str(path), 0
    groups = None if group is None else [group]
    # of a group, pages are read as they are needed: several may be open at the same time
    buffer = 0 if group is None else 1 << 20
    with reading(source, "Parquet"), _opened(path, buffer) as content:
        for batch in content.iter_batches(batch_rows, row_groups=groups, columns=list(names)):
            if batch.num_rows:
                yield Part(source, {name: batch.column(name) for name in names}, row)
            row += batch.num_rows
    if row != rows:
        raise DataError(f"{source}: {rows:,} rows promised, {row:,} found; it is corrupt")


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


def is_ray_dataset(source: object) -> bool:
    """Whether it is one; who has one has loaded ray.data."""
    module = sys.modules.get("ray.data")
    return module is not None and isinstance(source, module.Dataset)


def open_ray_dataset(dataset: Any) -> Table:
    """Compute the dataset, in its own order; its blocks are the pieces."""
    import ray

    dataset.context.execution_options.preserve_order = True
    blocks = tuple(dataset.to_arrow_refs())
    if not blocks:
        raise InputError("source: got a Ray dataset without blocks, expected rows")
    shape = ray.remote(_shape)  # counted where the blocks are
    shapes = ray.get([shape.remote(block) for block in blocks])
    names = next((names for size, names in shapes if size), shapes[0][1])
    sources = [f"Ray dataset, block {k}" for k in range(len(blocks))]
    pieces = [
        Piece(source, columns if size else names, partial(_block_parts, source, block), size)
        for source, block, (size, columns) in zip(sources, blocks, shapes, strict=True)
    ]
    return Table("Ray dataset", tuple(pieces), names, BATCH_ROWS)


def _shape(table: Any) -> tuple[int, list[str]]:
    """Rows and names of a block."""
    return int(table.num_rows), list(table.column_names)


def _block_parts(source: str, block: Any, names: Sequence[str], batch_rows: int) -> Iterator[Part]:
    """Of a block of a dataset, at most `batch_rows` rows at a time."""
    import ray

    with reading(source, "a block"):
        table = ray.get(block)
    for row in range(0, table.num_rows, batch_rows):
        batch = table.slice(row, batch_rows)
        yield Part(source, {name: batch.column(name) for name in names}, row)

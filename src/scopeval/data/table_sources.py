"""Tables of logged data: CSV, JSON lines, NPZ, data frames, dictionaries of arrays.

A `Table` has column names and yields `Part`s with the requested columns. Parquet, the format that
scopeval writes, has a module of its own. The meaning of the columns is decided elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
from numpy.typing import NDArray

from scopeval._archive import PLAIN_KINDS, open_archive, open_regular
from scopeval.data.columns import Origin, wholes
from scopeval.errors import DataError, InputError, ScopevalError

__all__ = [
    "ArrowTable",
    "Mapped",
    "NpzTable",
    "Part",
    "Table",
    "from_arrow",
    "identities",
    "open_csv",
    "open_frame",
    "open_json_lines",
    "reading",
]

_NUMBER = r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"
_NPZ_KINDS = PLAIN_KINDS + "S"  # episodes may be named by bytes
#: Start of base64 text whose bytes are an LZ4 frame.
_LZ4 = "BCJNG"
_MISSING = "remove these rows or fill in the values"


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

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        """These columns, in order, in one or more parts."""


@dataclass(frozen=True)
class Mapped:
    """A dictionary of arrays; `starts` has the first row of each episode, where that is known."""

    source: str
    arrays: Mapping[str, Any]
    starts: NDArray[np.int64] | None = None

    @property
    def names(self) -> Sequence[str]:
        """The names of the arrays."""
        return list(self.arrays)

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        """One part, not copied."""
        yield Part(self.source, {name: self.arrays[name] for name in names}, starts=self.starts)


@dataclass(frozen=True)
class ArrowTable:
    """A pyarrow table."""

    source: str
    table: Any

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        with reading(self.source, "a table"):  # names may not be text
            return list(self.table.column_names)

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        """One part, not copied; none if there are no rows."""
        if self.table.num_rows:
            yield Part(self.source, {name: self.table.column(name) for name in names})


@dataclass(frozen=True)
class NpzTable:
    """Arrays in a ``.npz`` file; only requested arrays are read, and none is unpickled."""

    path: Path

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
            remedy = "write such a log as Parquet, which stream_logged reads in batches"
            with open_archive(
                self.source, file, size, names=names, kinds=_NPZ_KINDS, remedy=remedy
            ) as archive:
                arrays = {name: archive.read(name) for name in names}
        yield Part(self.source, arrays)


def open_csv(path: Path, separator: str = ",") -> ArrowTable:
    """A CSV file with a header line, perhaps compressed (``.gz``).

    Types are inferred from the whole file, not from its start.
    """
    if len(separator) != 1 or separator in '"\r\n':
        raise InputError(f"separator: got {separator!r}, expected one character such as ';'")
    with reading(str(path), "CSV"):
        content = _content(path)
        table = pa.csv.read_csv(
            pa.BufferReader(content),
            read_options=pa.csv.ReadOptions(block_size=_block(content.size)),
            parse_options=pa.csv.ParseOptions(delimiter=separator),
            convert_options=pa.csv.ConvertOptions(null_values=["", "NA", "N/A", "null", "NULL"]),
        )
    _check_separator(str(path), table.column_names, separator)
    return ArrowTable(str(path), table)


def _check_separator(source: str, names: list[str], separator: str) -> None:
    """One column whose name holds several words was separated by something else."""
    others = [x for x in ",;\t|" if len(names) == 1 and x != separator and names[0].count(x) > 2]
    if others:
        raise DataError(
            f"{source}: has one column, {names[0][:60]!r}, where {separator!r} separates columns; "
            f"try separator={others[0]!r}"
        )


def open_json_lines(path: Path) -> ArrowTable:
    """A file with one JSON object per line, perhaps compressed (``.gz``)."""
    with reading(str(path), "JSON lines"):
        content = _content(path)
        table = pa.json.read_json(
            pa.BufferReader(content),
            read_options=pa.json.ReadOptions(block_size=_block(content.size)),
        )
    return ArrowTable(str(path), table)


def _content(path: Path) -> Any:
    """The bytes of a file, decompressed; types can only be inferred from all of them."""
    packed = "gzip" if path.suffix.lower() == ".gz" else None
    with pa.input_stream(str(path), compression=packed) as stream:
        return stream.read_buffer()


def _block(size: int) -> int:
    return min(max(size, 1 << 20), 1 << 30)


def open_frame(frame: Any) -> ArrowTable:
    """A pandas, polars or pyarrow table, or any object with the Arrow C stream interface."""
    kind = type(frame)
    source = f"{kind.__module__.partition('.')[0]} {kind.__name__}"
    with reading(source, "a table"):
        if isinstance(frame, pa.Table):
            return ArrowTable(source, frame)
        if isinstance(frame, pa.RecordBatch):
            return ArrowTable(source, pa.Table.from_batches([frame]))
        if kind.__module__.startswith("pandas"):
            table = pa.Table.from_pandas(frame, preserve_index=False)
            return ArrowTable(source, table)
        if hasattr(frame, "__arrow_c_stream__"):
            return ArrowTable(source, pa.table(frame))
        if hasattr(frame, "to_arrow"):
            return ArrowTable(source, frame.to_arrow())
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
            "is sound, read it in batches with stream_logged"
        ) from cause
    except Exception as cause:
        said = str(cause).strip().partition("\n")[0]
        raise DataError(
            f"{source}: cannot be read as {kind} ({type(cause).__name__}: {said}); it may be "
            "truncated, corrupt, or of another format than its name says"
        ) from cause


def from_arrow(column: Any, origin: Origin) -> NDArray[Any]:
    """An Arrow column as numpy: [N], or [N, d] for a column of lists; no copy where possible."""
    array = _one_array(column)
    _refuse_null(array, origin)
    kind = array.type
    if pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    elif pa.types.is_dictionary(kind):
        return from_arrow(array.dictionary_decode(), origin)
    elif _is_text(kind):
        _refuse_text(array, origin)
    elif _is_list(kind):
        return _from_lists(array, origin)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        origin.fail(f"has type {kind}, expected numbers", "convert the column")
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def identities(column: Any, origin: Origin) -> NDArray[np.int64]:
    """A column of names (numbers or text) as int64 that are equal exactly where the names are."""
    if not isinstance(column, (pa.Array, pa.ChunkedArray)):
        values = np.asarray(column)
        if values.dtype.kind not in "US" or values.ndim != 1:
            return wholes(values, origin)
        column = pa.array(values.astype(str))
    array = _one_array(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not _is_text(array.type):
        values = from_arrow(array, origin)
        return values.view(np.int64) if values.dtype == np.uint64 else wholes(values, origin)
    _refuse_null(array, origin)
    encoded = array.dictionary_encode()
    names = encoded.dictionary.to_pylist()  # one per episode, not per row
    digests = [hashlib.blake2b(repr(name).encode(), digest_size=8).digest() for name in names]
    codes: NDArray[np.int64] = np.frombuffer(b"".join(digests), np.int64)
    rows: NDArray[np.int64] = codes[encoded.indices.to_numpy()]
    return rows


def _last_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(-min(count, path.stat().st_size), os.SEEK_END)
        return file.read()


def _one_array(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column


def _refuse_null(array: Any, origin: Origin) -> None:
    if array.null_count:
        origin.refuse_where(
            array.is_null().to_numpy(zero_copy_only=False), "is missing (null)", _MISSING
        )


def _is_text(kind: Any) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or str(kind) in ("string_view", "binary_view")
    )


def _is_list(kind: Any) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _refuse_text(array: Any, origin: Origin) -> None:
    text = array.cast(pa.large_string())
    bad = ~pc.match_substring_regex(text, _NUMBER).to_numpy(zero_copy_only=False)
    if bad.any():
        example = text[int(np.argmax(bad))].as_py()[:40]
        advice = "expected numbers"
        if example.startswith(_LZ4):
            advice += (
                "; it is compressed, as RLlib does with observations: let RLlib write it with "
                "output_compress_columns=[]"
            )
        origin.refuse_where(bad, f"is text such as {example!r}", advice)
    origin.fail("holds numbers stored as text", "store the column as numbers")


def _from_lists(array: Any, origin: Origin) -> NDArray[Any]:
    widths = (
        np.broadcast_to(array.type.list_size, len(array))
        if (pa.types.is_fixed_size_list(array.type))
        else pc.list_value_length(array).to_numpy(zero_copy_only=False)
    )
    width = int(widths[0]) if len(widths) else 0
    origin.refuse_where(
        widths != width,
        f"is a list of another width than row {origin.first_row} ({width})",
        "every vector must have the same width",
    )
    values = _one_array(array.flatten())
    if _is_list(values.type):
        origin.fail("holds lists of lists", "flatten each row to one list")
    if values.null_count:
        missing = values.is_null().to_numpy(zero_copy_only=False).reshape(-1, width)
        origin.refuse_where(missing, "has a missing (null) entry", _MISSING)
    flat = from_arrow(values, origin)
    return flat.reshape(len(array), width)

"""CSV files: which character separates columns, which the fraction of a number.

Both are seen from the file where they are not stated: exports of a German historian have semicolons
and decimal commas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from scopeval.errors import InputError
from scopeval.logs.tables import InMemory, block_of, content_of, reading

__all__ = ["CsvFormat", "open_csv"]


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV file is written; None: its first lines show it.

    Attributes:
        separator: between columns, such as ``;``.
        decimal: between the whole part of a number and its fraction: ``.`` or ``,``.
    """

    separator: str | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '"\r\n'):
            raise InputError(
                f"separator: got {self.separator!r}, expected one character such as ';'"
            )
        if self.decimal not in (None, ".", ","):
            raise InputError(f"decimal: got {self.decimal!r}, expected '.' or ','")
        if self.separator is not None and self.separator == self.decimal:
            raise InputError(
                f"decimal: got {self.decimal!r}, which also separates the columns; expected "
                "another one"
            )

    @property
    def stated(self) -> str | None:
        """The first argument that was given, in words; None: nothing was."""
        for name in ("separator", "decimal"):
            if getattr(self, name) is not None:
                return f"{name}: got {getattr(self, name)!r}"
        return None


def open_csv(path: Path, written: CsvFormat = CsvFormat()) -> InMemory:  # noqa: B008  (frozen)
    """A CSV file with a header line, perhaps compressed (``.gz``).

    Types are inferred from the whole file, not from its start. Without a stated format the
    separator is the one that the first lines agree on; and where columns hold nothing but numbers
    with commas, these are decimal commas.
    """
    with reading(str(path), "CSV"):
        content = content_of(path)
        separator = written.separator or _separator_of(content)
        table = _csv_table(content, separator, written.decimal or ".")
        if written.decimal is None and separator != "," and _has_decimal_commas(table):
            table = _csv_table(content, separator, ",")
    return InMemory.of_arrow(str(path), table)


def _csv_table(content: Any, separator: str, decimal: str) -> Any:
    dates = [pa.csv.ISO8601, "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M"]
    return pa.csv.read_csv(
        pa.BufferReader(content),
        read_options=pa.csv.ReadOptions(block_size=block_of(content.size)),
        parse_options=pa.csv.ParseOptions(delimiter=separator),
        convert_options=pa.csv.ConvertOptions(
            null_values=["", "NA", "N/A", "null", "NULL"],
            decimal_point=decimal,
            timestamp_parsers=dates,
        ),
    )


def _separator_of(content: Any) -> str:
    """What occurs in the first lines, outside of quotes, and equally often in each; else a comma.

    The heading decides between several: numbers may have commas, names of columns seldom do.
    """
    start = bytes(memoryview(content)[: 1 << 16]).decode("utf-8", "replace")
    lines = [line for line in re.sub('"[^"]*"', "", start).splitlines() if line.strip()][:5]
    if len(lines) > 1 and len(content) > 1 << 16:
        lines = lines[:-1]  # the last one may be cut
    counts = {x: [line.count(x) for line in lines] for x in ",;\t|"}
    agreed = [x for x, n in counts.items() if n and n[0] and len(set(n)) == 1]
    candidates = agreed or [x for x, n in counts.items() if n and n[0]]
    return max(candidates, key=lambda x: counts[x][0], default=",")


#: Numbers of which at least one has a comma, and any number.
_COMMA_NUMBER = r"^\s*[-+]?[0-9]*,[0-9]+([eE][-+]?[0-9]+)?\s*$"
_ANY_NUMBER = r"^\s*[-+]?[0-9]*,?[0-9]+([eE][-+]?[0-9]+)?\s*$"


def _has_decimal_commas(table: Any) -> bool:
    """Whether some column of text holds numbers with commas and nothing else."""
    for column in table.columns:
        if pa.types.is_string(column.type) and len(column) > column.null_count:
            text = column.drop_null()
            if (
                pc.all(pc.match_substring_regex(text, _ANY_NUMBER)).as_py()
                and pc.any(pc.match_substring_regex(text, _COMMA_NUMBER)).as_py()
            ):
                return True
    return False

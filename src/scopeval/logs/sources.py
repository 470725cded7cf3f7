"""Open what a user has as a table: a path, a data frame, arrays, episodes, a Minari dataset.

An episode of L steps is a dictionary or an object with L actions and rewards, and with L + 1
observations (the last one follows the last action) or L pairs of `obs` and `next_obs`.

Which character separates the columns of a CSV file, and which the fraction of a number, is seen
from the file where it is not stated: exports of a German historian have semicolons and decimal
commas.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from scopeval.errors import DataError, InputError, MissingExtraError
from scopeval.logs.columns import Choice, ColumnMap, choose_columns
from scopeval.logs.tables import (
    SUFFIXES,
    Table,
    block_of,
    content_of,
    open_frame,
    open_json_lines,
    open_npz,
    open_parquet,
    reading,
)
from scopeval.logs.transitions import Recorded

__all__ = ["CsvFormat", "load_minari", "open_csv", "open_episodes", "open_path", "open_source"]


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


def open_csv(path: Path, written: CsvFormat = CsvFormat()) -> Table:  # noqa: B008  (frozen)
    """A CSV file with a header line, perhaps compressed (``.gz``).

    Types are inferred from the whole file, not from its start. Without a stated format the
    separator is the one that the first lines agree on; and where columns hold nothing but numbers
    with commas, these are decimal commas.
    """
    with reading(str(path), "CSV"):
        content = content_of(path)
        encoding = _encoding_of(content)
        separator = written.separator or _separator_of(content, encoding)
        table = _csv_table(content, encoding, separator, written.decimal or ".")
        if written.decimal is None and separator != "," and _has_decimal_commas(table):
            table = _csv_table(content, encoding, separator, ",")
    return Table.of_arrow(str(path), table)


def _csv_table(content: Any, encoding: str, separator: str, decimal: str) -> Any:
    dates = [pa.csv.ISO8601, "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M"]
    return pa.csv.read_csv(
        pa.BufferReader(content),
        read_options=pa.csv.ReadOptions(block_size=block_of(content.size), encoding=encoding),
        parse_options=pa.csv.ParseOptions(delimiter=separator),
        convert_options=pa.csv.ConvertOptions(
            null_values=["", "NA", "N/A", "null", "NULL"],
            decimal_point=decimal,
            timestamp_parsers=dates,
        ),
    )


def _encoding_of(content: Any) -> str:
    """UTF-8, or what spreadsheets and historians write in its place: UTF-16 or Windows-1252."""
    data = memoryview(content)
    if bytes(data[:2]) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), 1 << 20):
            decoder.decode(data[start : start + (1 << 20)])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _separator_of(content: Any, encoding: str) -> str:
    """What occurs in the first lines, outside of quotes, and equally often in each; else a comma.

    The heading decides between several: numbers may have commas, names of columns seldom do.
    """
    start = bytes(memoryview(content)[: 1 << 16]).decode(encoding, "replace")
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


# -- any source ------------------------------------------------------------------------------------


def open_source(
    source: object,
    columns: ColumnMap | None,
    *,
    cost_needed: bool,
    csv: CsvFormat = CsvFormat(),  # noqa: B008  (frozen)
) -> tuple[Table, ColumnMap | None]:
    """Open whatever `read_logs` accepts: a table, and the column map that still applies to it."""
    name = "Minari dataset"
    if isinstance(source, str) and source.startswith("minari:"):
        name = source
        source = load_minari(source.removeprefix("minari:"))
    if isinstance(source, (str, os.PathLike)):
        return open_path(source, csv), columns
    if csv.stated:
        raise InputError(f"{csv.stated}, but only CSV files have one; leave it out")
    if isinstance(source, Mapping):
        arrays = {str(key): values for key, values in source.items()}
        return Table.of_arrays("dict", arrays), columns
    if isinstance(source, Recorded):
        arrays = source.transitions()
        reported = tuple(arrays.pop("exogenous", np.zeros(0)).tolist())
        return Table.of_arrays("episodes", arrays, exogenous=reported), columns
    if hasattr(source, "iterate_episodes"):
        episodes = source.iterate_episodes()
    elif isinstance(source, (list, tuple)):
        name, episodes = "list of episodes", source
    else:
        return open_frame(source), columns
    return open_episodes(episodes, columns, name, cost_needed=cost_needed), None


def open_path(
    source: str | os.PathLike[str],
    csv: CsvFormat = CsvFormat(),  # noqa: B008  (frozen)
) -> Table:
    """Open a file or a folder; its name tells the format."""
    path = Path(source)
    ending = path.suffix.lower()
    if ending == ".gz":
        ending = path.with_suffix("").suffix.lower() + ending
    with reading(str(path), "a file"):
        if not path.exists():
            raise DataError(f"{path}: no such file or folder (looked in {Path.cwd()})")
        if ending in (".csv", ".csv.gz"):
            return open_csv(path, csv)
        if csv.stated:
            raise InputError(f"{csv.stated}, but {path} is no CSV file")
        if path.is_dir() or ending in SUFFIXES:
            return open_parquet(path)
        if ending in (".jsonl", ".jsonl.gz"):
            return open_json_lines(path)
        if ending == ".npz":
            return open_npz(path)
    raise DataError(
        f"{path}: cannot tell the format from {ending or 'a name without ending'!r}; expected "
        ".parquet, .pq, .csv, .csv.gz, .jsonl, .jsonl.gz, .npz, or a folder of Parquet files"
    )


def load_minari(name: str) -> Any:
    """The Minari dataset of this name, from the local store."""
    try:
        import minari
    except ImportError as cause:
        raise MissingExtraError("minari", "minari", f"reading minari:{name}") from cause
    with reading(f"minari:{name}", "a Minari dataset"):
        try:
            return minari.load_dataset(name)
        except FileNotFoundError as cause:
            raise DataError(
                f"minari:{name}: the dataset is not on this machine ({cause}); "
                f"try: minari download {name}"
            ) from cause


def open_episodes(
    episodes: Iterable[Any], columns: ColumnMap | None, source: str, *, cost_needed: bool
) -> Table:
    """All episodes as one table with our field names.

    The cost may also be in an episode's ``infos["cost"]``, where Minari stores it.
    """
    choices: dict[str, Choice] | None = None
    pieces: dict[str, list[NDArray[Any]]] = {}
    starts: list[int] = []
    rows = 0
    iterator = enumerate(iter(episodes))
    while True:
        with reading(source, "episodes"):
            number, episode = next(iterator, (-1, None))
        if number < 0:
            break
        where = f"{source}: episode {number}"
        record = _record(episode, where)
        if choices is None:
            choices = choose_columns(list(record), columns, where, cost_needed=cost_needed)
            choices = {f: c for f, c in choices.items() if f not in ("truncated", "episode")}
        steps = _steps(record, choices, where)
        for field, values in steps.items():
            before = pieces.setdefault(field, [])
            if before and before[0].shape[1:] != values.shape[1:]:
                raise DataError(
                    f"{where}: {field} has shape {list(values.shape)}, in the first episode "
                    f"{list(before[0].shape)}; every step must have the same width"
                )
            before.append(values)
        starts.append(rows)
        rows += len(steps.get("t", ()))
    if not rows:
        raise DataError(f"{source}: no episodes with at least one step")
    with reading(source, "episodes"):
        arrays = {field: np.concatenate(values) for field, values in pieces.items()}
    return Table.of_arrays(source, arrays, np.asarray(starts, np.int64))


def _record(episode: Any, where: str) -> dict[str, Any]:
    if isinstance(episode, Mapping):
        record = {str(key): value for key, value in episode.items()}
    elif episode is None or isinstance(episode, (str, bytes, int, float, list, tuple, np.ndarray)):
        raise DataError(
            f"{where} is a {type(episode).__name__}, expected a dict or object with observations, "
            "actions, rewards and costs"
        )
    else:
        public = [name for name in dir(episode) if not name.startswith("_")]
        values = {name: getattr(episode, name, None) for name in public}
        record = {name: value for name, value in values.items() if not callable(value)}
    infos = record.pop("infos", None)
    if isinstance(infos, Mapping) and "cost" in infos:
        record.setdefault("cost", infos["cost"])
    return record


def _steps(
    record: dict[str, Any], choices: Mapping[str, Choice], where: str
) -> dict[str, NDArray[Any]]:
    """The columns of one episode, each with one entry per step; none if it has no steps."""
    fields = {field: _values(record, choice, field, where) for field, choice in choices.items()}
    length = len(fields["action"])
    if not length:
        return {}
    if "next_obs" not in fields:
        if len(fields["obs"]) != length + 1:
            advice = (
                "; if the last one was not stored, try scopeval.integrations.tables.episodes: it "
                "marks the last step of every episode that did not terminate (has_next)"
            )
            raise DataError(
                f"{where} has {len(fields['obs'])} observations for {length} actions, expected "
                f"{length + 1} (the last one follows the last action), or next_obs"
                + (advice if len(fields["obs"]) == length else "")
            )
        fields["obs"], fields["next_obs"] = fields["obs"][:-1], fields["obs"][1:]
    if "cost" in fields and len(fields["cost"]) == length + 1:
        fields["cost"] = fields["cost"][1:]  # the first info belongs to the reset
    fields.setdefault("t", np.arange(length))
    terminated = fields.setdefault("terminated", np.zeros(length, np.bool_))
    if terminated.ndim == 0:
        fields["terminated"] = terminated = np.append(np.zeros(length - 1, np.bool_), terminated)
    for field, values in fields.items():
        if len(values) != length:
            raise DataError(f"{where}: {field} has {len(values)} entries for {length} actions")
    if terminated[:-1].any():
        raise DataError(
            f"{where} is terminated at step {int(np.argmax(terminated))} of {length}, before its "
            "end; split it into two episodes"
        )
    return fields


def _values(record: dict[str, Any], choice: Choice, field: str, where: str) -> NDArray[Any]:
    arrays = []
    for name in choice.names:
        if name not in record:
            raise DataError(f"{where} has no {name!r}, which the first episode has")
        value = record[name]
        if isinstance(value, Mapping) and field in ("obs", "next_obs", "action"):
            raise DataError(
                f"{where}: {name} is composite (a dict), expected one array; "
                "flatten it first, as gymnasium.wrappers.FlattenObservation does"
            )
        with reading(f"{where}: {name}", "an array"):
            arrays.append(np.column_stack(value) if _columns(value) else np.asarray(value))
        if arrays[-1].ndim == 0 and field != "terminated":
            raise DataError(f"{where}: {name} is a single value, expected one per step")
    if not choice.stacked:
        return arrays[0]
    with reading(f"{where}: {field}", "an array"):
        return np.column_stack(arrays)


def _columns(value: Any) -> bool:
    """Whether these are parts of a composite observation, each with one entry per step."""
    return isinstance(value, tuple) and all(
        isinstance(part, np.ndarray) and part.ndim == 1 for part in value
    )

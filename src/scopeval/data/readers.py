"""Read logged data from files, tables or episodes; whole or in batches.

Each source is opened as a table. Its columns are matched to our fields (`column_names`), checked
(`columns`), completed where `t` or `next_obs` follow from the order of the rows (`infer_fields`),
searched for contradictions (`diagnosis`), and returned as `Transitions`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopeval.arrays import Bools, Ints
from scopeval.data import columns as column
from scopeval.data.column_names import (
    ColumnMap,
    choose_columns,
    refuse_other_columns,
    swapped_columns,
)
from scopeval.data.columns import Origin
from scopeval.data.diagnosis import Diagnosis, Examined, Problem, diagnosis_of, examine
from scopeval.data.field_reader import FieldReader
from scopeval.data.infer_fields import Fields, rebuild
from scopeval.data.log_statistics import LogStatistics
from scopeval.data.open_source import open_path, open_source
from scopeval.data.parquet import ParquetTable
from scopeval.data.table_sources import Table
from scopeval.data.transitions import Transitions, check_below
from scopeval.errors import DataError, InputError

__all__ = [
    "Batch",
    "CostFunction",
    "LoggedStream",
    "examine_logged",
    "logged_batches",
    "read_logged",
    "stream_logged",
]

CostFunction = Callable[[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], ArrayLike]


def read_logged(
    source: object,
    *,
    columns: ColumnMap | None = None,
    horizon: int | None = None,
    actions: int | None = None,
    cost: CostFunction | None = None,
    discrete: bool | None = None,
    separator: str | None = None,
) -> Transitions:
    """Read a log of transitions into memory.

    *Columns.* Each field is found under its own name or a common alias (`column_names`); a
    vector is one column of lists or several numbered columns (``obs_0, obs_1, ...``). A flat
    integer column of observations is state numbers; a flat float column is vectors of width 1, even
    if all its values are whole. `discrete` overrides this.

    *Missing columns.* `terminated`: then no row is terminated. `t`: counted from the start of each
    episode, if there is an `episode` or a `truncated` column and the rows are in order. `next_obs`:
    the `obs` of the next row of the episode (found by `episode`, `truncated`, or `t` going up by
    one); a terminated row gets its own `obs`, and other last rows of an episode are dropped. The
    `notes` say what was done. Episode ids must be unique over the files of a folder.

    *Contradictions.* A log whose columns contradict each other is refused, and what is suspicious
    becomes a note (see "Logs" in the documentation). If every row is stored several times, each
    counts once.

    Args:
        source: a path (``.parquet``, ``.csv``, ``.csv.gz``, ``.jsonl``, ``.jsonl.gz``, ``.npz``, a
            folder of Parquet files), a pandas, polars or pyarrow table, a dict of arrays, recorded
            `Episodes`, a list of episodes (dicts or objects with observations, actions, rewards,
            costs, terminated), a Minari dataset or ``"minari:NAME"``.
        columns: our field -> name of the column, or list of scalar columns that make a vector, or
            None for a field to leave out: ``{"obs": ["x", "y"], "reward": "r"}``.
        horizon: steps in an episode; every t must be below this.
        actions: size of the action set; every action must be below this.
        cost: computes the cost from (obs, action, reward, next_obs), all rows at once; replaces
            the cost column.
        discrete: True: observations are state numbers; False: they are vectors.
        separator: what separates the columns of a CSV file; a comma by default.

    Returns:
        The log, with notes about what was changed and what looks suspicious.

    Raises:
        DataError: the source cannot be read, or contradicts itself; the message names file, column
            and rows.
        InputError: an argument is wrong.
        MissingExtraError: ``minari:`` without minari.
    """
    examined = examine_logged(
        source,
        columns=columns,
        problem=Problem(horizon=horizon, actions=actions),
        cost=cost,
        discrete=discrete,
        separator=separator,
    )
    examined.diagnosis.raise_errors(_name(source))
    return examined.log


def examine_logged(
    source: object,
    *,
    columns: ColumnMap | None = None,
    problem: Problem = Problem(),  # noqa: B008  (frozen)
    cost: CostFunction | None = None,
    discrete: bool | None = None,
    separator: str | None = None,
) -> Examined:
    """Read a log like `read_logged`, but return its diagnosis instead of raising its errors."""
    batch, notes = _read(source, columns, problem, cost, discrete, separator)
    found = examine(batch.log, problem, episode=batch.episode, truncated=batch.truncated)
    return Examined(found.log.with_notes((*notes, *found.diagnosis.warnings)), found.diagnosis)


def logged_batches(
    source: object,
    *,
    columns: ColumnMap | None = None,
    problem: Problem = Problem(),  # noqa: B008  (frozen)
    discrete: bool | None = None,
    separator: str | None = None,
    batch_rows: int = 1 << 18,
) -> tuple[Iterator[Batch], tuple[str, ...]]:
    """The rows of a log as they are stored, in batches where possible, and notes about them.

    Nothing is judged, and nothing is counted once.
    """
    if isinstance(source, str | os.PathLike) and separator is None:
        table = open_path(source)
        if isinstance(table, ParquetTable):
            reader = _reader(
                replace(table, batch_rows=batch_rows), columns, problem, None, discrete
            )
            if {"t", "next_obs"} <= set(reader.choices):
                stream = LoggedStream(reader, table.rows, problem)
                return stream.batches(), tuple(_notes(table, reader))
    batch, notes = _read(source, columns, problem, None, discrete, separator)
    return iter([batch]), tuple(notes)


def _read(
    source: object,
    columns: ColumnMap | None,
    problem: Problem,
    cost: CostFunction | None,
    discrete: bool | None,
    separator: str | None,
) -> tuple[Batch, list[str]]:
    """The whole log, with missing fields filled in, and notes about it."""
    _check_sizes(problem.horizon, problem.actions)
    opened = open_source(source, columns, cost_needed=cost is None, separator=separator)
    reader = _reader(opened.table, opened.columns, problem, cost, discrete)
    fields, borders = reader.gather()
    notes = _notes(opened.table, reader)
    if "terminated" not in fields:
        fields["terminated"] = np.zeros(len(fields["obs"]), np.bool_)
    notes += rebuild(fields, borders, reader.table.source)
    if cost is not None:
        fields["cost"] = _computed_cost(cost, fields)
    batch = _batch(fields, reader.table.source)
    batch.log.check(problem.horizon, problem.actions, source=reader.table.source)
    return batch, notes


def stream_logged(
    source: str | os.PathLike[str],
    *,
    columns: ColumnMap | None = None,
    horizon: int | None = None,
    actions: int | None = None,
    batch_rows: int = 1_000_000,
    cost: CostFunction | None = None,
    discrete: bool | None = None,
) -> LoggedStream:
    """Read a log that is larger than memory, batch by batch, from Parquet.

    The log must have `t` and `next_obs` (nothing is rebuilt), and a log that stores every row
    several times is refused; all else is as in `read_logged`. Each batch is checked when it is
    read. Contradictions are found in all rows together, and raised before the last batch, which
    carries the notes.

    Args:
        source: a Parquet file, or a folder of them (read in the order of their paths).
        columns: as in `read_logged`.
        horizon: as in `read_logged`.
        actions: as in `read_logged`.
        batch_rows: the most rows of a batch; bounds the memory.
        cost: as in `read_logged`.
        discrete: as in `read_logged`.

    Raises:
        DataError: the source cannot be read or used.
        InputError: an argument is wrong.
    """
    _check_sizes(horizon, actions)
    if not isinstance(batch_rows, int) or batch_rows < 1:
        raise InputError(f"batch_rows must be a positive integer, got {batch_rows!r}")
    table = open_path(source)
    if not isinstance(table, ParquetTable):
        raise DataError(f"{source}: only Parquet can be read in batches; use read_logged")
    problem = Problem(horizon=horizon, actions=actions)
    table = replace(table, batch_rows=batch_rows)
    reader = _reader(table, columns, problem, cost, discrete)
    missing = [name for name in ("t", "next_obs") if name not in reader.choices]
    if missing:
        raise DataError(
            f"{table.source}: no column for {' and '.join(missing)}, which a stream needs; "
            "read_logged can rebuild it for a log that fits into memory"
        )
    if not table.rows:
        raise DataError(f"{table.source}: no rows")
    return LoggedStream(reader, table.rows, problem, tuple(_notes(table, reader)), cost)


class Batch(NamedTuple):
    """Consecutive rows of a log, with the columns that only describe episodes."""

    log: Transitions
    episode: Ints | None
    truncated: Bools | None


@dataclass(frozen=True)
class LoggedStream:
    """Batches of a log on disk; can be iterated any number of times.

    Attributes:
        rows: rows in all batches together.
    """

    _reader: FieldReader
    rows: int
    _problem: Problem
    _notes: tuple[str, ...] = ()
    _cost: CostFunction | None = None

    def __iter__(self) -> Iterator[Transitions]:
        statistics = LogStatistics()
        read = 0
        for batch in self.batches():
            statistics.add(batch.log, episode=batch.episode, truncated=batch.truncated)
            read += len(batch.log)
            if read < self.rows:
                yield batch.log
            else:
                yield batch.log.with_notes((*self._notes, *self._judge(statistics).warnings))

    def diagnose(self, states: int | None = None) -> Diagnosis:
        """Read the whole log and return its diagnosis; contradictions are not raised.

        Args:
            states: number of states of the target policy.
        """
        statistics = LogStatistics()
        for batch in self.batches():
            statistics.add(batch.log, episode=batch.episode, truncated=batch.truncated)
        return diagnosis_of(statistics, replace(self._problem, states=states))

    def batches(self) -> Iterator[Batch]:
        """The batches as they are stored, without a diagnosis."""
        for part, fields in self._reader.parts():
            if self._cost is not None:
                fields["cost"] = _computed_cost(self._cost, fields)
            yield _batch(fields, part.source)

    def _judge(self, statistics: LogStatistics) -> Diagnosis:
        source = self._reader.table.source
        diagnosis = diagnosis_of(statistics, self._problem)
        diagnosis.raise_errors(source)
        if diagnosis.copies > 1:
            raise DataError(
                f"{source}: every row occurs {diagnosis.copies:,} times or a multiple of it, which "
                "a stream cannot undo; use read_logged, which counts such rows once"
            )
        return diagnosis


def _reader(
    table: Table,
    columns: ColumnMap | None,
    problem: Problem,
    cost: CostFunction | None,
    discrete: bool | None,
) -> FieldReader:
    choices = choose_columns(table.names, columns, table.source, cost_needed=cost is None)
    if isinstance(table, ParquetTable):
        for file in table.files[1:]:
            refuse_other_columns(
                choices, columns, file.names, str(file.path), str(table.files[0].path)
            )
    wanted = {field: c for field, c in choices.items() if cost is None or field != "cost"}
    return FieldReader(table, wanted, problem.horizon, problem.actions, discrete)


def _notes(table: Table, reader: FieldReader) -> list[str]:
    """What to know about the log before its rows are read."""
    notes = list(table.notes) if isinstance(table, ParquetTable) else []
    if "terminated" not in reader.choices:
        notes.append("no terminated column: no row counts as terminated")
    return notes + swapped_columns(reader.choices)


def _name(source: object) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else "log"


def _check_sizes(horizon: int | None, actions: int | None) -> None:
    nothing = np.zeros(0, np.int64)
    check_below(nothing, horizon, "horizon", Origin("t"))
    check_below(nothing, actions, "actions", Origin("action"))


def _computed_cost(cost: CostFunction, fields: Fields) -> NDArray[np.float64]:
    origin = Origin("result of the cost function", error=DataError)
    values = cost(*(fields[name] for name in ("obs", "action", "reward", "next_obs")))
    costs = column.reals(values, origin)
    if len(costs) != len(fields["obs"]):
        origin.fail(f"has {len(costs):,} values for {len(fields['obs']):,} rows")
    origin.refuse_where(costs < 0, "is negative", "costs are amounts, at least 0")
    return costs


def _batch(fields: Fields, source: str) -> Batch:
    episode, truncated = fields.pop("episode", None), fields.pop("truncated", None)
    values: dict[str, Any] = dict(fields)
    try:
        return Batch(Transitions(**values), episode, truncated)
    except InputError as cause:
        raise DataError(f"{source}: {cause}") from cause

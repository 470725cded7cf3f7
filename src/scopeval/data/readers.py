"""Read logged data from files, tables or episodes; whole or in batches.

Each source is opened as a table. Its columns are matched to our fields (`column_names`), checked
(`columns`), completed where `t` or `next_obs` follow from the order of the rows (`infer_fields`),
searched for contradictions (`diagnosis`), and returned as `Transitions`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from scopeval.data.column_names import ColumnMap
from scopeval.data.diagnosis import Examined, Problem, examine
from scopeval.data.infer_fields import rebuild
from scopeval.data.log_reader import (
    Batch,
    CostFunction,
    batch_of,
    check_sizes,
    computed_cost,
    notes_of,
    reader_of,
)
from scopeval.data.open_source import open_path, open_source
from scopeval.data.parquet import ParquetTable
from scopeval.data.streams import LoggedStream, stream_logged
from scopeval.data.transitions import Transitions

__all__ = [
    "Batch",
    "CostFunction",
    "LoggedStream",
    "examine_logged",
    "logged_batches",
    "read_logged",
    "stream_logged",
]


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
            reader = reader_of(
                replace(table, batch_rows=batch_rows), columns, problem, None, discrete
            )
            if {"t", "next_obs"} <= set(reader.choices):
                stream = LoggedStream(reader, table.rows, problem)
                return stream.batches(), tuple(notes_of(table, reader))
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
    check_sizes(problem.horizon, problem.actions)
    opened = open_source(source, columns, cost_needed=cost is None, separator=separator)
    reader = reader_of(opened.table, opened.columns, problem, cost, discrete)
    fields, borders = reader.gather()
    notes = notes_of(opened.table, reader)
    if "terminated" not in fields:
        fields["terminated"] = np.zeros(len(fields["obs"]), np.bool_)
    notes += rebuild(fields, borders, reader.table.source)
    if cost is not None:
        fields["cost"] = computed_cost(cost, fields)
    batch = batch_of(fields, reader.table.source)
    batch.log.check(problem.horizon, problem.actions, source=reader.table.source)
    return batch, notes


def _name(source: object) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else "log"

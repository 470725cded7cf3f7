"""What reading a whole log and reading it in batches have in common: columns, checks, notes."""

from __future__ import annotations

from collections.abc import Callable
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
from scopeval.data.diagnosis import Problem
from scopeval.data.field_reader import FieldReader
from scopeval.data.infer_fields import Fields
from scopeval.data.parquet import ParquetTable
from scopeval.data.table_sources import Table
from scopeval.data.transitions import Transitions, check_below
from scopeval.errors import DataError, InputError

__all__ = [
    "Batch",
    "CostFunction",
    "batch_of",
    "check_sizes",
    "computed_cost",
    "notes_of",
    "reader_of",
]

CostFunction = Callable[[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], ArrayLike]


class Batch(NamedTuple):
    """Consecutive rows of a log, with the columns that only describe episodes."""

    log: Transitions
    episode: Ints | None
    truncated: Bools | None


def reader_of(
    table: Table,
    columns: ColumnMap | None,
    problem: Problem,
    cost: CostFunction | None,
    discrete: bool | None,
) -> FieldReader:
    """The reader of a table, with its columns chosen."""
    choices = choose_columns(table.names, columns, table.source, cost_needed=cost is None)
    if isinstance(table, ParquetTable):
        for file in table.files[1:]:
            refuse_other_columns(
                choices, columns, file.names, str(file.path), str(table.files[0].path)
            )
    wanted = {field: c for field, c in choices.items() if cost is None or field != "cost"}
    return FieldReader(table, wanted, problem.horizon, problem.actions, discrete)


def notes_of(table: Table, reader: FieldReader) -> list[str]:
    """What to know about the log before its rows are read."""
    notes = list(table.notes) if isinstance(table, ParquetTable) else []
    if "terminated" not in reader.choices:
        notes.append("no terminated column: no row counts as terminated")
    return notes + swapped_columns(reader.choices)


def check_sizes(horizon: int | None, actions: int | None) -> None:
    """Refuse what is no number of steps or actions."""
    nothing = np.zeros(0, np.int64)
    check_below(nothing, horizon, "horizon", Origin("t"))
    check_below(nothing, actions, "actions", Origin("action"))


def computed_cost(cost: CostFunction, fields: Fields) -> NDArray[np.float64]:
    """The costs by the user's function, checked."""
    origin = Origin("result of the cost function", error=DataError)
    values = cost(*(fields[name] for name in ("obs", "action", "reward", "next_obs")))
    costs = column.reals(values, origin)
    if len(costs) != len(fields["obs"]):
        origin.fail(f"has {len(costs):,} values for {len(fields['obs']):,} rows")
    origin.refuse_where(costs < 0, "is negative", "costs are amounts, at least 0")
    return costs


def batch_of(fields: Fields, source: str) -> Batch:
    """Fields as a batch."""
    episode, truncated = fields.pop("episode", None), fields.pop("truncated", None)
    values: dict[str, Any] = dict(fields)
    try:
        return Batch(Transitions(**values), episode, truncated)
    except InputError as cause:
        raise DataError(f"{source}: {cause}") from cause

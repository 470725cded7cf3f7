"""Read logged data from files, tables or episodes; whole or in batches.

Each source is opened as a table. Its columns are matched to our fields (`column_names`), checked
(`columns`), completed where `t` or `next_obs` follow from the order of the rows (`infer_fields`),
and returned as `Transitions`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from scopeval.data import columns as column
from scopeval.data.column_names import Choice, ColumnMap, choose_columns
from scopeval.data.columns import Origin
from scopeval.data.episode_sources import load_minari, open_episodes
from scopeval.data.infer_fields import Fields, notice_repeats, rebuild
from scopeval.data.parquet import SUFFIXES, ParquetTable, open_parquet
from scopeval.data.table_sources import (
    Mapped,
    NpzTable,
    Part,
    Table,
    from_arrow,
    identities,
    open_csv,
    open_frame,
    reading,
)
from scopeval.data.transitions import Transitions, check_below
from scopeval.errors import DataError, InputError

__all__ = ["CostFunction", "LoggedStream", "read_logged", "stream_logged"]

CostFunction = Callable[[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], ArrayLike]


def read_logged(
    source: object,
    *,
    columns: ColumnMap | None = None,
    horizon: int | None = None,
    actions: int | None = None,
    cost: CostFunction | None = None,
    discrete: bool | None = None,
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

    Args:
        source: a path (``.parquet``, ``.csv``, ``.npz``, a folder of Parquet files), a pandas,
            polars or pyarrow table, a dict of arrays, a list of episodes (dicts or objects with
            observations, actions, rewards, costs, terminated), a Minari dataset or
            ``"minari:NAME"``.
        columns: our field -> name of the column, or list of scalar columns that make a vector, or
            None for a field to leave out: ``{"obs": ["x", "y"], "reward": "r"}``.
        horizon: steps in an episode; every t must be below this.
        actions: size of the action set; every action must be below this.
        cost: computes the cost from (obs, action, reward, next_obs), all rows at once; replaces
            the cost column.
        discrete: True: observations are state numbers; False: they are vectors.

    Returns:
        The log, with notes about rows that were dropped or look duplicated.

    Raises:
        DataError: the source cannot be read or used; the message names file, column and rows.
        InputError: an argument is wrong.
        MissingExtraError: ``minari:`` without minari.
    """
    _check_sizes(horizon, actions)
    table, columns = _open(source, columns, cost_needed=cost is None)
    choices = choose_columns(table.names, columns, table.source, cost_needed=cost is None)
    reader = _Reader(table, _without_cost(choices, cost), horizon, actions, discrete)
    fields, borders = reader.gather()
    notes = list(table.notes) if isinstance(table, ParquetTable) else []
    if "terminated" not in fields:
        notes.append("no terminated column: no row counts as terminated")
        fields["terminated"] = np.zeros(len(fields["obs"]), np.bool_)
    notes += rebuild(fields, borders, table.source)
    notes += notice_repeats(fields)
    if cost is not None:
        fields["cost"] = _computed_cost(cost, fields)
    logged = _transitions(fields, notes, table.source)
    logged.check(horizon=horizon, actions=actions, source=table.source)
    return logged


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

    The log must have `t` and `next_obs` (nothing is rebuilt), and duplicates are not searched for;
    all else is as in `read_logged`. Each batch is checked when it is read, so that an error in the
    last rows appears late.

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
    table = _open_path(source)
    if not isinstance(table, ParquetTable):
        raise DataError(f"{source}: only Parquet can be read in batches; use read_logged")
    choices = choose_columns(table.names, columns, table.source, cost_needed=cost is None)
    missing = [name for name in ("t", "next_obs") if name not in choices]
    if missing:
        raise DataError(
            f"{table.source}: no column for {' and '.join(missing)}, which a stream needs; "
            "read_logged can rebuild it for a log that fits into memory"
        )
    if not table.rows:
        raise DataError(f"{table.source}: no rows")
    table = replace(table, batch_rows=batch_rows)
    return LoggedStream(
        _Reader(table, _without_cost(choices, cost), horizon, actions, discrete), table.rows, cost
    )


@dataclass(frozen=True)
class LoggedStream:
    """Batches of a log on disk; can be iterated any number of times.

    Attributes:
        rows: rows in all batches together.
    """

    _reader: _Reader
    rows: int
    _cost: CostFunction | None = None

    def __iter__(self) -> Iterator[Transitions]:
        for part, fields in self._reader.parts():
            if self._cost is not None:
                fields["cost"] = _computed_cost(self._cost, fields)
            yield _transitions(fields, [], part.source)


@dataclass(frozen=True)
class _Reader:
    """A table, the choice of its columns, and the limits on their values."""

    table: Table
    choices: Mapping[str, Choice]
    horizon: int | None
    actions: int | None
    discrete: bool | None

    def parts(self) -> Iterator[tuple[Part, Fields]]:
        """The checked fields of each part."""
        names = dict.fromkeys(name for choice in self.choices.values() for name in choice.names)
        kinds: dict[str, tuple[Any, ...]] = {}
        first = ""
        for part in self.table.parts(list(names)):
            fields = self._checked(part)
            for field in ("obs", "action"):
                kind = fields[field].dtype, fields[field].shape[1:]
                if kind != kinds.setdefault(field, kind):
                    raise DataError(
                        f"{part.source}: {field} is {kind[0]} of width {list(kind[1])}, in {first} "
                        f"{kinds[field][0]} of width {list(kinds[field][1])}; all parts of a log "
                        "must have the same kind"
                    )
            first = first or part.source
            yield part, fields

    def gather(self) -> tuple[Fields, list[int]]:
        """All parts as one, and the rows where a new file begins."""
        pieces: dict[str, list[NDArray[Any]]] = {field: [] for field in self.choices}
        borders: list[int] = []
        rows = 0
        for part, fields in self.parts():
            for field, values in fields.items():
                pieces[field].append(values)
            if part.first_row == 0 and rows:
                borders.append(rows)
            rows += len(fields["obs"])
        if not rows:
            raise DataError(f"{self.table.source}: no rows; a log needs at least one transition")
        gathered: Fields = {}
        for field in self.choices:  # one field at a time: only one field is in memory twice
            several = pieces.pop(field)
            if len(several) == 1:
                gathered[field] = several[0]
            else:
                gathered[field] = np.concatenate(several)
                gathered[field].flags.writeable = False  # Transitions then shares it
        return gathered, borders

    def _checked(self, part: Part) -> Fields:
        fields: Fields = {}
        for field in sorted(self.choices, key=lambda name: name == "next_obs"):  # obs comes first
            with reading(part.source, "a table"):
                fields[field] = self._field(part, field, fields)
        lengths = {field: len(values) for field, values in fields.items()}
        if len(set(lengths.values())) > 1:
            got = ", ".join(f"{field} {length:,}" for field, length in lengths.items())
            raise DataError(
                f"{part.source}: columns have different numbers of rows ({got}); to read one "
                "episode with an observation more than actions pass a list, [episode]"
            )
        if "next_obs" in fields and fields["next_obs"].shape != fields["obs"].shape:
            raise DataError(
                f"{part.source}: obs has width {list(fields['obs'].shape[1:])} and next_obs "
                f"{list(fields['next_obs'].shape[1:])}; they must be the same"
            )
        return fields

    def _field(self, part: Part, field: str, before: Fields) -> NDArray[Any]:
        choice = self.choices[field]
        origins = [_origin(part, name, field) for name in choice.names]
        raw = [part.columns[name] for name in choice.names]
        origin = origins[0]
        if field == "episode":
            return identities(raw[0], origin)
        arrays = [_as_numpy(one, at) for one, at in zip(raw, origins, strict=True)]
        values: Any = arrays[0]
        if choice.stacked:
            scalars = [column.reals(one, at) for one, at in zip(arrays, origins, strict=True)]
            values = np.column_stack(scalars)
        if field == "t":
            times = column.wholes(values, origin)
            origin.refuse_where(times < 0, "is negative", "count time from 0")
            check_below(times, self.horizon, "horizon", origin)
            return times
        if field == "obs":
            return column.observations(values, origin, self.discrete)
        if field == "next_obs":
            return column.observations(values, origin, discrete=before["obs"].ndim == 1)
        if field == "action":
            chosen = column.actions(values, origin)
            check_below(chosen, self.actions, "actions", origin)
            return chosen
        if field == "reward":
            return column.reals(values, origin)
        if field == "cost":
            costs = column.reals(values, origin)
            origin.refuse_where(costs < 0, "is negative", "costs are amounts, at least 0")
            return costs
        return column.flags(values, origin)


def _open(
    source: object, columns: ColumnMap | None, *, cost_needed: bool
) -> tuple[Table, ColumnMap | None]:
    """The source as a table, and the column map that still applies to it."""
    if isinstance(source, str) and source.startswith("minari:"):
        name = source
        source = load_minari(source.removeprefix("minari:"))
    else:
        name = "Minari dataset"
    if isinstance(source, (str, os.PathLike)):
        return _open_path(source), columns
    if isinstance(source, Mapping):
        return Mapped("dict", {str(key): values for key, values in source.items()}), columns
    if hasattr(source, "iterate_episodes"):
        episodes = source.iterate_episodes()
    elif isinstance(source, (list, tuple)):
        name, episodes = "list of episodes", source
    else:
        return open_frame(source), columns
    return open_episodes(episodes, columns, name, cost_needed=cost_needed), None


def _open_path(source: str | os.PathLike[str]) -> Table:
    path = Path(source)
    with reading(str(path), "a file"):
        if not path.exists():
            raise DataError(f"{path}: no such file or folder (looked in {Path.cwd()})")
        if path.is_dir() or path.suffix.lower() in SUFFIXES:
            return open_parquet(path)
        if path.suffix.lower() == ".csv":
            return open_csv(path)
        if path.suffix.lower() == ".npz":
            return NpzTable(path)
    raise DataError(
        f"{path}: cannot tell the format from {path.suffix or 'a name without ending'!r}; expected "
        ".parquet, .pq, .csv, .npz, or a folder of Parquet files"
    )


def _check_sizes(horizon: int | None, actions: int | None) -> None:
    nothing = np.zeros(0, np.int64)
    check_below(nothing, horizon, "horizon", Origin("t"))
    check_below(nothing, actions, "actions", Origin("action"))


def _without_cost(choices: dict[str, Choice], cost: CostFunction | None) -> Mapping[str, Choice]:
    return {field: c for field, c in choices.items() if cost is None or field != "cost"}


def _origin(part: Part, name: str, field: str) -> Origin:
    meaning = "" if name == field else f" ({field})"
    return Origin(
        f"{part.source}: column {name!r}{meaning}", part.first_row, part.starts, DataError
    )


def _as_numpy(values: Any, origin: Origin) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return from_arrow(values, origin)
    return values


def _computed_cost(cost: CostFunction, fields: Fields) -> NDArray[np.float64]:
    origin = Origin("result of the cost function", error=DataError)
    values = cost(*(fields[name] for name in ("obs", "action", "reward", "next_obs")))
    costs = column.reals(values, origin)
    if len(costs) != len(fields["obs"]):
        origin.fail(f"has {len(costs):,} values for {len(fields['obs']):,} rows")
    origin.refuse_where(costs < 0, "is negative", "costs are amounts, at least 0")
    return costs


def _transitions(fields: Fields, notes: list[str], source: str) -> Transitions:
    ours = {name: fields[name] for name in fields if name not in ("episode", "truncated")}
    try:
        return Transitions(**ours, notes=tuple(dict.fromkeys(notes)))
    except InputError as cause:
        raise DataError(f"{source}: {cause}") from cause

"""Read a log into memory.

Each source is opened as a table (`sources`). Its columns are matched to our fields (`columns`),
checked (`values`), completed where `t` or `next_obs` follow from the order of the rows, searched
for contradictions (`diagnose`), and returned as `Transitions`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from scopeval.arrays import Bools, Ints, takes
from scopeval.errors import DataError, InputError
from scopeval.logs import values as column
from scopeval.logs.clock import Clock, Gap, clock_of, episodes_by_time, times_of
from scopeval.logs.columns import (
    Choice,
    ColumnMap,
    Exogenous,
    choose_columns,
    choose_exogenous,
    from_arrow,
    identities,
    refuse_other_columns,
    swapped_columns,
)
from scopeval.logs.diagnose import Problem, examine
from scopeval.logs.sources import CsvFormat, open_source
from scopeval.logs.tables import Part, Table, reading
from scopeval.logs.transitions import Transitions, check_below
from scopeval.logs.values import Origin

__all__ = [
    "Batch",
    "CostFunction",
    "FieldReader",
    "Fields",
    "Kind",
    "check_sizes",
    "computed_cost",
    "kind_of",
    "logged_batches",
    "open_reader",
    "read_logs",
    "read_whole",
    "reader_of",
    "rebuild",
    "refuse_other_kind",
]

#: Type and width of a field.
Kind = tuple[np.dtype[Any], tuple[int, ...]]
Fields = dict[str, NDArray[Any]]
CostFunction = Callable[[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], ArrayLike]


def kind_of(values: NDArray[Any]) -> Kind:
    """Type and width."""
    return values.dtype, values.shape[1:]


def refuse_other_kind(field: str, expected: Kind, kind: Kind, first: str, source: str) -> None:
    """Refuse a part of a log whose field is of another kind than in the first part."""
    if kind != expected:
        raise DataError(
            f"{source}: {field} is {kind[0]} of width {list(kind[1])}, in {first} {expected[0]} of "
            f"width {list(expected[1])}; all parts of a log must have the same kind"
        )


class Batch(NamedTuple):
    """Consecutive rows of a log, with the columns that only describe episodes."""

    log: Transitions
    episode: Ints | None
    truncated: Bools | None


@dataclass(frozen=True)
class FieldReader:
    """A table, the choice of its columns, and the limits on their values.

    Attributes:
        cost: the function that takes the place of a column of costs; None: there is such a column.
    """

    table: Table
    choices: Mapping[str, Choice]
    problem: Problem
    discrete: bool | None = None
    exogenous: tuple[int, ...] | tuple[str, ...] = ()
    cost: CostFunction | None = None

    @property
    def notes(self) -> list[str]:
        """What to know about the log before its rows are read."""
        notes = list(self.table.notes)
        if "terminated" not in self.choices:
            notes.append("no terminated column: no row counts as terminated")
        return notes + swapped_columns(self.choices)

    @property
    def missing(self) -> list[str]:
        """Fields that only `rebuild` can fill in, from all rows together."""
        return [name for name in ("t", "next_obs") if name not in self.choices]

    def parts(self) -> Iterator[tuple[Part, Fields]]:
        """The checked fields of each part."""
        names = dict.fromkeys(name for choice in self.choices.values() for name in choice.names)
        kinds: dict[str, Kind] = {}
        first = ""
        for part in self.table.parts(list(names)):
            fields = self._checked(part)
            first = first or part.source
            for field in ("obs", "action"):
                kind = kind_of(fields[field])
                refuse_other_kind(field, kinds.setdefault(field, kind), kind, first, part.source)
            yield part, fields

    def batches(self) -> Iterator[Batch]:
        """The rows as they are stored, where no field is missing."""
        for part, fields in self.parts():
            if self.cost is not None:
                if not fields.get("has_next", np.True_).all():
                    raise DataError(
                        f"{part.source}: rows without a successor (has_next), where the function "
                        "cost= is given next_obs; expected a column of costs, or read_logs, which "
                        "leaves such rows out"
                    )
                fields["cost"] = computed_cost(self.cost, fields)
            yield self.batch_of(fields, part.source)

    def batch_of(self, fields: Fields, source: str) -> Batch:
        """Fields as a batch."""
        episode, truncated = fields.pop("episode", None), fields.pop("truncated", None)
        values: dict[str, Any] = dict(fields)
        try:
            return Batch(Transitions(**values, exogenous=self.exogenous), episode, truncated)
        except InputError as cause:
            raise DataError(f"{source}: {cause}") from cause

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
        if field == "time":
            return times_of(raw[0], origin)
        arrays = [_as_numpy(one, at) for one, at in zip(raw, origins, strict=True)]
        values: Any = arrays[0]
        if field == "signals" and not choice.stacked:  # as `write_logs` and episodes have them
            return np.asarray(values, np.float64)
        if choice.stacked:
            scalars = [column.reals(one, at) for one, at in zip(arrays, origins, strict=True)]
            values = np.column_stack(scalars)
        if field == "signals":
            return np.asarray(values)
        if field == "t":
            times = column.wholes(values, origin)
            origin.refuse_where(times < 0, "is negative", "count time from 0")
            check_below(times, self.problem.horizon, "horizon", origin)
            return times
        if field == "obs":
            return column.observations(values, origin, self.discrete)
        if field == "next_obs":
            return column.observations(values, origin, discrete=before["obs"].ndim == 1)
        if field == "action":
            chosen = column.actions(values, origin)
            check_below(chosen, self.problem.actions, "actions", origin)
            return chosen
        if field == "reward":
            return column.reals(values, origin)
        if field == "cost":
            costs = column.reals(values, origin)
            swapped = "reward" in before and bool((before["reward"] >= 0).all())
            hint = "; no reward is negative: are reward and cost swapped?" if swapped else ""
            origin.refuse_where(costs < 0, "is negative", f"costs are amounts, at least 0{hint}")
            return costs
        return column.flags(values, origin)


def _origin(part: Part, name: str, field: str) -> Origin:
    meaning = "" if name == field else f" ({field})"
    return Origin(
        f"{part.source}: column {name!r}{meaning}", part.first_row, part.starts, DataError
    )


def _as_numpy(values: Any, origin: Origin) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return from_arrow(values, origin)
    return values


def rebuild(fields: Fields, borders: list[int], source: str) -> list[str]:
    """Fill in `t` and `next_obs` where they are missing, from the order of the rows.

    Args:
        fields: checked columns with `terminated`; changed in place.
        borders: rows where a new file begins.
        source: name of the log in error messages.

    Returns:
        Notes about what was done.
    """
    missing = [name for name in ("t", "next_obs") if name not in fields]
    if missing:
        needed = {"episode", "truncated"} | ({"t"} if "t" not in missing else set())
        if not needed & set(fields):
            raise DataError(
                f"{source}: no column for {' and '.join(missing)}, and nothing to rebuild it from; "
                "add it, or an episode column, or a truncated column (terminated alone does not "
                "show where a time limit cut an episode), with the rows in order; or name a "
                "column of times, as in time='Timestamp', gap='11min'"
            )
    notes = []
    if missing:
        starts = _episode_starts(fields, source)
        across = sum(1 for border in borders if not starts[border])
        if across:
            notes.append(f"{across:,} episodes continue from one file into the next")
    if "t" in missing:
        first = np.flatnonzero(starts)
        lengths = np.diff(np.append(first, starts.size))
        fields["t"] = _sealed(np.arange(starts.size) - np.repeat(first, lengths))
    if "next_obs" in missing:
        obs, terminated = fields["obs"], fields["terminated"]
        follows = np.append(~starts[1:], False)
        following = np.concatenate([obs[1:], obs[-1:]])
        following[~follows] = obs[~follows]
        fields["next_obs"] = _sealed(following)
        fields["has_next"] = _sealed(follows | terminated)
        last = int(np.count_nonzero(~fields["has_next"]))
        if last == follows.size:
            raise DataError(
                f"{source}: no row is followed by another one of its episode, so that next_obs "
                "cannot be rebuilt; add a column next_obs"
            )
        if last:
            notes.append(
                f"{last:,} of {follows.size:,} rows have no successor: without a next_obs column "
                "nothing shows where the last row of an episode that did not terminate led; its "
                "reward and cost are used"
            )
    return notes


def _episode_starts(fields: Fields, source: str) -> NDArray[np.bool_]:
    """True at the first row of each stretch of consecutive steps of one episode."""
    starts = np.zeros(len(fields["obs"]), np.bool_)
    starts[0] = True
    ended = fields["terminated"] | fields.get("truncated", np.bool_(False))
    starts[1:] |= ended[:-1]
    if "episode" in fields:
        ids = fields["episode"]
        changes = ids[1:] != ids[:-1]
        Origin(f"{source}: episode", error=DataError).refuse_where(
            np.append(ended[:-1] & ~changes, False),
            "goes on after it terminated or was truncated",
            "give each episode its own id",
        )
        starts[1:] |= changes
        runs = ids[np.append(True, changes)]
        again = runs.size - np.unique(runs).size
        if again:
            raise DataError(
                f"{source}: {again:,} episode ids come back after rows of other episodes; sort the "
                "rows by episode and time (ids must be unique over all files)"
            )
    if "t" in fields:
        starts[1:] |= fields["t"][1:] != fields["t"][:-1] + 1
    return starts


def _sealed(array: NDArray[Any]) -> NDArray[Any]:
    """Mark as read-only: `Transitions` shares such an array instead of copying it."""
    array.flags.writeable = False
    return array


def open_reader(
    source: object,
    columns: ColumnMap | None,
    problem: Problem = Problem(),  # noqa: B008  (frozen)
    cost: CostFunction | None = None,
    discrete: bool | None = None,
    csv: CsvFormat = CsvFormat(),  # noqa: B008  (frozen)
    clock: Clock | None = None,
    exogenous: Exogenous | None = None,
) -> FieldReader:
    """The reader of whatever `read_logs` accepts."""
    check_sizes(problem.horizon, problem.actions)
    if clock is not None:
        columns = {**(columns or {}), "time": clock.column}
    table, columns = open_source(source, columns, cost_needed=cost is None, csv=csv)
    return reader_of(table, columns, problem, cost, discrete, exogenous)


def reader_of(
    table: Table,
    columns: ColumnMap | None,
    problem: Problem,
    cost: CostFunction | None,
    discrete: bool | None,
    exogenous: Exogenous | None = None,
) -> FieldReader:
    """The reader of a table, with its columns chosen; `exogenous` None: as the log says."""
    choices = choose_columns(table.names, columns, table.source, cost_needed=cost is None)
    first = table.pieces[0].source
    for piece in table.pieces[1:]:
        refuse_other_columns(choices, columns, piece.names, piece.source, first)
    wanted = {field: c for field, c in choices.items() if cost is None or field != "cost"}
    named, signals = table.exogenous, None
    if exogenous is not None:
        named, signals = choose_exogenous(exogenous, choices, table.names, table.source)
    elif any(isinstance(name, str) for name in named):
        signals = Choice(("signals",))
    if signals is not None:
        wanted["signals"] = signals
    return FieldReader(table, wanted, problem, discrete, named, cost)


def check_sizes(horizon: int | None, actions: int | None) -> None:
    """Refuse what is no number of steps or actions."""
    nothing = np.zeros(0, np.int64)
    check_below(nothing, horizon, "horizon", Origin("t"))
    check_below(nothing, actions, "actions", Origin("action"))


def computed_cost(cost: CostFunction, fields: Fields) -> NDArray[np.float64]:
    """The costs by the user's function, checked."""
    origin = Origin("result of the cost function", error=DataError)
    try:
        values = cost(*(fields[name] for name in ("obs", "action", "reward", "next_obs")))
    except TypeError as error:
        if not takes(cost, 4, unknown=True):
            raise InputError(
                f"cost: the function raised TypeError: {error}; expected "
                "cost(obs, action, reward, next_obs), of all rows at once"
            ) from error
        raise
    costs = column.reals(values, origin)
    if len(costs) != len(fields["obs"]):
        origin.fail(f"has {len(costs):,} values for {len(fields['obs']):,} rows")
    origin.refuse_where(costs < 0, "is negative", "costs are amounts, at least 0")
    return costs


def read_logs(
    source: object,
    *,
    columns: ColumnMap | None = None,
    horizon: int | None = None,
    actions: int | None = None,
    cost: CostFunction | None = None,
    discrete: bool | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    time: str | None = None,
    gap: Gap | None = None,
    every: Gap | None = None,
    exogenous: Exogenous | None = None,
) -> Transitions:
    """Read a log of transitions into memory.

    *Columns.* Each field is found under its own name or a common alias (`column_names`); a
    vector is one column of lists or several numbered columns (``obs_0, obs_1, ...``). A flat
    integer column of observations is state numbers; a flat float column is vectors of width 1, even
    if all its values are whole. `discrete` overrides this.

    *Missing columns.* `terminated`: then no row is terminated. `t`: counted from the start of each
    episode, if there is an `episode` or a `truncated` column and the rows are in order. `next_obs`:
    the `obs` of the next row of the episode (found by `episode`, `truncated`, or `t` going up by
    one). The last row of an episode has its own `obs` there; where it did not terminate, nobody
    knows what followed (`has_next` is False), and its reward and cost are used alone. The `notes`
    say what was done. Episode ids must be unique over the files of a folder.

    *Historians.* A table with a column of times and no episodes is cut at its pauses:
    ``time="Timestamp", gap="11min"``. One that never pauses is cut into pieces of equal time, from
    midnight: ``time="Timestamp", every="24h"``; pieces with holes are left out.

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
        separator: what separates the columns of a CSV file; by default what its first lines show.
        decimal: what separates the fraction of a number in a CSV file, "." or ","; by default what
            its columns show.
        time: name of a column of times. Steps and episodes are counted by it.
        gap: the longest pause within an episode: "11min", "90s", "2h", a timedelta, or seconds (for
            a column of plain numbers: in their unit).
        every: the time of an episode, in place of `gap`, in the same form.
        exogenous: what no action changes, such as weather or demand: names of columns, of the
            observation or others (which an environment reports as ``info[name]``), or numbers of
            columns of the observation. `context` is then made of them where logs are given to
            `compare`, `Stages` and campaigns, or as ``context=logs``. None: as the log says.

    Returns:
        The log, with notes about what was changed and what looks suspicious.

    Raises:
        DataError: the source cannot be read, or contradicts itself; the message names file, column
            and rows.
        InputError: an argument is wrong.
        MissingExtraError: ``minari:`` without minari.
    """
    problem = Problem(horizon=horizon, actions=actions)
    csv, clock = CsvFormat(separator, decimal), clock_of(time, gap, every)
    reader = open_reader(source, columns, problem, cost, discrete, csv, clock, exogenous)
    batch, notes = read_whole(reader, clock)
    log, diagnosis = examine(batch.log, problem, episode=batch.episode, truncated=batch.truncated)
    diagnosis.raise_errors(_name(source))
    return log.with_notes((*notes, *diagnosis.warnings))


def read_whole(reader: FieldReader, clock: Clock | None = None) -> tuple[Batch, list[str]]:
    """The whole log, with missing fields filled in, and notes about it."""
    table, cost, problem = reader.table, reader.cost, reader.problem
    table.check_memory()
    fields, borders = reader.gather()
    notes = reader.notes
    if "terminated" not in fields:
        fields["terminated"] = np.zeros(len(fields["obs"]), np.bool_)
    if clock is not None:
        fields["episode"], clock_notes = episodes_by_time(
            clock, fields.pop("time"), fields.get("episode"), table.source
        )
        notes += clock_notes
        borders = _without_holes(fields, borders)
    notes += rebuild(fields, borders, table.source)
    if cost is not None:
        notes += _without_last_rows(fields)
        fields["cost"] = computed_cost(cost, fields)
    batch = reader.batch_of(fields, table.source)
    batch.log.check(problem.horizon, problem.actions, source=table.source)
    return batch, notes


def _without_holes(fields: Fields, borders: list[int]) -> list[int]:
    """Leave out rows of no episode, in place; the borders among those that are left."""
    kept = fields["episode"] >= 0
    if kept.all():
        return borders
    for name in tuple(fields):
        fields[name] = _sealed(fields[name][kept])
    return [int(kept[:row].sum()) for row in borders if row < len(kept)]


def logged_batches(
    reader: FieldReader, clock: Clock | None = None
) -> tuple[Iterator[Batch], list[str]]:
    """The rows of a log as they are stored, in batches where possible, and notes about them.

    Nothing is judged, and nothing is counted once.
    """
    if reader.table.batch_rows is not None and not reader.missing and clock is None:
        return reader.batches(), reader.notes
    batch, notes = read_whole(reader, clock)
    return iter([batch]), notes


def _without_last_rows(fields: Fields) -> list[str]:
    """Leave out rows without a successor, in place, where a function asks for it; notes."""
    kept = fields.get("has_next")
    if kept is None or kept.all():
        return []
    for name in tuple(fields):
        fields[name] = _sealed(fields[name][kept])
    left_out = int(kept.size - kept.sum())
    return [
        f"{left_out:,} rows without a successor left out: the function cost= is given next_obs, "
        "which they do not have; a column of costs keeps them"
    ]


def _name(source: object) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else "log"

"""Statistics of a log, and whether its rows are in the order of its episodes.

Two rows are *linked* if the second one continues the episode of the first one: it comes next in the
log, its t is larger by one, and, where the log has these columns, it has the same episode id and
the first one is not truncated. A *stretch* is a maximal sequence of linked rows. In a log in the
order of its episodes every stretch is an episode; the stretches of a shuffled log are short.

All statistics are counts, sums, extremes and samples that do not depend on how the log is divided:
pieces of a log can be read anywhere and are merged in their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints
from scopeval.logs.changes import (
    FALSE_ALARM,
    CostColumn,
    SpreadRows,
    UnitChange,
    beyond_chance,
    look_at_costs,
    unit_changes,
)
from scopeval.logs.transitions import Transitions

__all__ = [
    "MOST_DISORDER",
    "MOST_TIMES",
    "LogFacts",
    "LogStatistics",
    "Repeats",
    "RowCount",
    "Times",
    "hash_rows",
    "rows_once",
]

#: Rows that are looked at together: few enough for the processor's cache.
CHUNK = 1 << 16
#: Times up to here are counted one by one.
MOST_TIMES = 1 << 20
#: Relative difference between next_obs and the next obs that is rounding (of float32).
ROUNDING = 1e-5
#: Row numbers kept as examples.
SHOWN = 5
#: Rows are in order only if at most this share neither continues an episode nor starts one.
MOST_DISORDER = 0.2
#: Most distinct contents of rows that are counted.
CAPACITY = 1 << 12
#: Distinct rows that a verdict needs: a log stored once is judged wrongly with probability 2^-24.
LEAST_DISTINCT = 24
#: Most near-copies that are looked for.
MOST_COPIES = 64
#: Bits that near-copies agree in; float32 has 24.
NEAR_BITS = 16

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_Hashes = NDArray[np.uint64]


# --- what is known about a log --------------------------------------------------------------------


@dataclass(frozen=True)
class RowCount:
    """A number of rows, and the numbers of the first of them in the log."""

    number: int = 0
    rows: tuple[int, ...] = ()

    def __add__(self, later: RowCount) -> RowCount:
        """Together with rows that come later in the log."""
        return RowCount(self.number + later.number, (*self.rows, *later.rows)[:SHOWN])

    @classmethod
    def of(cls, rows: Ints) -> RowCount:
        """The count of these rows."""
        return cls(rows.size, tuple(rows[:SHOWN].tolist()))


@dataclass(frozen=True)
class Times:
    """Counts by t, each [t_max + 1].

    Attributes:
        rows: rows with this t.
        terminated: rows with this t that are terminated.
        starts: stretches of linked rows that start with this t.
        ends: stretches of linked rows that end with this t.
        terminated_ends: those of them whose last row is terminated.
        cut_ends: those of them whose last row is neither terminated nor truncated, and not the last
            of the log.
    """

    rows: Ints
    terminated: Ints
    starts: Ints
    ends: Ints
    terminated_ends: Ints
    cut_ends: Ints

    @property
    def first(self) -> int:
        """The t that most stretches start with."""
        return int(np.argmax(self.starts))


@dataclass(frozen=True)
class Repeats:
    """How often the rows of a log occur.

    Attributes:
        copies: every distinct row occurs a multiple of this many times; 1 for a usual log.
        repeated: share of the rows that are equal to an earlier row.
        exact: whether all rows were counted, and not a sample.
        nearly: most rows, rounded, occur a multiple of this many times; 1 for a usual log.
        share: the share of those rows.
    """

    copies: int = 1
    repeated: float = 0.0
    exact: bool = True
    nearly: int = 1
    share: float = 0.0


@dataclass(frozen=True)
class LogFacts:
    """The statistics of a log; row numbers count from 0.

    Attributes:
        rows: number of rows.
        times: counts by t.
        late_rows: rows whose t is too large to be counted by t.
        linked: pairs of rows where the second one continues the first one's episode.
        compared: those of them whose first row is not terminated.
        clashes: compared pairs where next_obs of the first is not obs of the second.
        clash_size: root mean square of that difference over the one of obs between the two rows, in
            the clashing pairs and in the worst dimension; 1 for state numbers.
        continued: terminated rows with a linked row after them.
        jumps: places in the log where t goes up by more than one.
        cuts: rows that end a stretch and are neither terminated nor truncated.
        short: rows with t = 0, neither terminated nor truncated, whose episode does not go on.
        stays: whether next_obs equals obs in every row that is not terminated.
        constant_reward: the reward of every row, if it is always the same.
        constant_cost: likewise.
        same_columns: whether reward and cost are equal in every row.
        least_state: the least state number; 0 for vectors.
        least_action: the least number of an action; 0 for vectors.
        largest_state: the largest state number that a row is in or leads to; -1 for vectors.
        largest_action: the largest action number; -1 for vectors.
        largest_final_state: the largest next_obs of a terminated row; -1 for vectors or none.
        repeats: how often rows occur.
        vectors: whether observations are vectors.
        largest_cost: of all rows.
        changes: columns that change in the course of the log; of a sample, if the rows are in
            order.
        costs: what the costs of that sample look like.
    """

    rows: int
    times: Times
    late_rows: int
    linked: int
    compared: int
    clashes: RowCount
    clash_size: float
    continued: RowCount
    jumps: RowCount
    cuts: RowCount
    short: RowCount
    stays: bool
    constant_reward: float | None
    constant_cost: float | None
    same_columns: bool
    least_state: int
    least_action: int
    largest_state: int
    largest_final_state: int
    largest_action: int
    repeats: Repeats
    vectors: bool
    largest_cost: float
    changes: tuple[UnitChange, ...] = ()
    costs: CostColumn = field(default_factory=CostColumn)

    @property
    def disorder(self) -> float:
        """Share of the rows that neither continue the row before them nor start an episode."""
        return 1.0 - (self.linked + int(self.times.starts[self.times.first])) / self.rows

    @property
    def ordered(self) -> bool:
        """Whether the rows are in the order of their episodes, beyond chance.

        Shuffled rows follow each other as well as these with probability below `CHANCE`. Only half
        of the rows are counted, because neighbors are not independent.
        """
        if self.late_rows or self.linked == 0 or self.disorder > MOST_DISORDER:
            return False
        share = self.times.rows / self.rows
        chance = float(share[:-1] @ share[1:] + share[self.times.first])
        return beyond_chance(1.0 - self.disorder, chance, self.rows / 2)


# --- how often rows occur -------------------------------------------------------------------------


class Contents:
    """How often the contents of rows occur.

    Rows of state numbers repeat by nature, so that equal rows alone prove nothing. But if a whole
    log was stored k times, then *every* distinct row occurs a multiple of k times. In a log that
    was stored once, the counts of m distinct rows are all even with probability 2^-m only.

    Near-copies differ in the last digits of reward and cost, or a few rows were added to some of
    the copies. Where rewards or costs are noisy, so that rows of one place (t, s, a, s') differ,
    the counts of rounded rows are independent of each other, and most of them are multiples of k
    only by chance.

    Only the `CAPACITY` contents with the smallest hashes (of the place, then of the rounded row,
    then of the row) are kept, with their exact counts: a content that is among them in the whole
    log is among them in every piece that has it.
    """

    def __init__(self) -> None:
        self._hashes = np.empty((3, 0), np.uint64)  # place, near, row; sorted
        self._counts = np.empty(0, np.int64)
        self.exact = True  # no content was dropped

    def add(self, log: Transitions) -> None:
        """Count the next rows."""
        place = hash_rows([log.t, log.obs, log.action, log.next_obs])
        reward, cost = log.reward, log.cost
        if not self.exact:  # later contents are dropped anyway
            inside = np.flatnonzero(place <= self._hashes[0, -1])
            place, reward, cost = place[inside], reward[inside], cost[inside]
        near = hash_rows([place, _rounded(reward), _rounded(cost)])
        if not self.exact:
            last_place, last_near, _ = self._hashes[:, -1]
            inside = np.flatnonzero((place < last_place) | (near <= last_near))
            place, near, reward, cost = place[inside], near[inside], reward[inside], cost[inside]
        row = hash_rows([place, reward, cost])
        row, first, counts = np.unique(row, return_index=True, return_counts=True)
        self._take(np.stack([place[first], near[first], row]), counts)

    def merge(self, other: Contents) -> None:
        """Add the contents of other rows."""
        self.exact = self.exact and other.exact
        self._take(other._hashes, other._counts)

    def _take(self, hashes: _Hashes, counts: Ints) -> None:
        hashes = np.concatenate([self._hashes, hashes], axis=1)
        counts = np.concatenate([self._counts, counts])
        if not counts.size:
            return
        order = np.lexsort(hashes[::-1])
        hashes, counts = hashes[:, order], counts[order]
        new = np.flatnonzero(np.append(True, (hashes[:, 1:] != hashes[:, :-1]).any(axis=0)))
        self.exact = self.exact and new.size <= CAPACITY
        self._counts = np.add.reduceat(counts, new)[:CAPACITY]
        self._hashes = hashes[:, new[:CAPACITY]]

    def repeats(self) -> Repeats:
        """What the counts say about the whole log."""
        counts = self._counts
        if not counts.size:
            return Repeats()
        copies = int(np.gcd.reduce(counts)) if counts.size >= LEAST_DISTINCT else 1
        nearly, share = (1, 0.0) if copies > 1 else self._nearly()
        repeated = 1.0 - counts.size / int(counts.sum())
        return Repeats(copies, repeated, self.exact, nearly, share)

    def _nearly(self) -> tuple[int, float]:
        """How many times most rows occur if they are rounded, and the share of those rows."""
        place, near, _ = self._hashes
        first = np.flatnonzero(np.append(True, (near[1:] != near[:-1]) | (place[1:] != place[:-1])))
        counts = np.add.reduceat(self._counts, first)
        if not self.exact:
            counts = counts[:-1]  # contents of the last one may have been dropped
        independent = counts.size - np.unique(place).size
        for k in range(min(int(counts.max(initial=0)), MOST_COPIES), 1, -1):
            share = float(np.count_nonzero(counts % k == 0)) / counts.size
            # counts that are Poisson are even, if they are not 0, with probability below 1/2
            if beyond_chance(share, 0.5, independent, FALSE_ALARM / MOST_COPIES):
                return k, share
        return 1, 0.0


def hash_rows(columns: Sequence[NDArray[Any]]) -> _Hashes:
    """A 64-bit hash of each row; columns have 8 bytes per entry."""
    code = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        for scalars in np.atleast_2d(column.T):
            code ^= np.ascontiguousarray(scalars).view(np.uint64)
            code *= _MIX
            code ^= code >> _SHIFT
    return code


def _rounded(x: Floats) -> Floats:
    """Values to `NEAR_BITS` bits; decimals are not at the borders."""
    part, power = np.frexp(x)
    return np.asarray(np.ldexp(np.floor(np.ldexp(part, NEAR_BITS) + 0.382), power - NEAR_BITS))


def rows_once(columns: Sequence[NDArray[Any]], copies: int) -> Ints:
    """Positions of the rows that remain when `copies` equal rows count as one.

    The order of the log survives if the copies follow each other as whole logs, or if the copies of
    a row are neighbors. Otherwise the first of every `copies` equal rows remain.
    """
    code = hash_rows(columns)
    rows = len(code)
    if rows % copies == 0:
        whole_logs, neighbors = code.reshape(copies, -1), code.reshape(-1, copies)
        if (whole_logs == whole_logs[0]).all():
            return np.arange(rows // copies)
        if (neighbors == neighbors[:, :1]).all():
            return np.arange(0, rows, copies)
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    new = np.append(True, ordered[1:] != ordered[:-1])
    number = np.arange(rows) - np.flatnonzero(new)[np.cumsum(new) - 1]  # among its equals
    return np.sort(order[number % copies == 0])


# --- statistics of rows that follow each other ----------------------------------------------------


class _Rows(NamedTuple):
    """The columns that show which rows follow each other."""

    t: Ints
    obs: NDArray[Any]
    next_obs: NDArray[Any]
    terminated: NDArray[np.bool_]
    has_next: NDArray[np.bool_]
    episode: Ints | None
    truncated: NDArray[np.bool_] | None

    def at(self, part: slice) -> _Rows:
        """Some of the rows."""
        columns: list[Any] = [None if column is None else column[part] for column in self]
        return _Rows(*columns)

    def row(self, number: int) -> _Rows:
        """One row, copied, so that the arrays that it is taken from need not be kept."""
        part = slice(number, number + 1)
        columns: list[Any] = [None if column is None else column[part].copy() for column in self]
        return _Rows(*columns)


class LogStatistics:
    """Statistics of consecutive rows of a log.

    Args:
        first_row: the number of the first row in the log; above 0 for later pieces.
    """

    def __init__(self, first_row: int = 0) -> None:
        self._first_row, self._rows = first_row, 0
        self._head: _Rows | None = None
        self._tail: _Rows | None = None
        self._linked = self._compared = self._late = 0
        nothing = RowCount()
        self._counts = dict.fromkeys(("clashes", "continued", "jumps", "cuts", "short"), nothing)
        self._times = {name: np.zeros(1, np.int64) for name in Times.__dataclass_fields__}
        self._squares: Floats | float = 0.0  # of differences, steps and values of clashing pairs
        self._ranges: dict[str, tuple[float, float]] = {}
        self._stays = self._same_columns = True
        self._contents, self._spread = Contents(), SpreadRows(first_row)

    def add(
        self,
        log: Transitions,
        episode: Ints | None = None,
        truncated: NDArray[np.bool_] | None = None,
    ) -> None:
        """Add the next rows of the log.

        Args:
            log: the rows.
            episode: their episode ids, where the log has them.
            truncated: where a time limit cut an episode, if the log says so.
        """
        columns = (log.t, log.obs, log.next_obs, log.terminated, log.has_next)
        every = _Rows(*columns, episode, truncated)
        for start in range(0, len(log), CHUNK):
            part = slice(start, start + CHUNK)
            self._add(log.select(part), every.at(part))

    def _add(self, log: Transitions, rows: _Rows) -> None:
        first, n = self._first_row + self._rows, len(log)
        if self._tail is not None:
            self._pairs(self._tail, rows.at(slice(0, 1)), first - 1)
        self._pairs(rows.at(slice(0, n - 1)), rows.at(slice(1, n)), first)
        self._count_times("rows", log.t)
        self._count_times("terminated", log.t[log.terminated])
        self._late += int(np.count_nonzero(log.t >= MOST_TIMES))
        self._columns(log)
        self._contents.add(log)
        self._spread.add(log)
        self._head = self._head or rows.row(0)
        self._tail = rows.row(n - 1)
        self._rows += n

    def merge(self, other: LogStatistics) -> None:
        """Take in the statistics of the piece that comes next."""
        if other._head is None:
            return
        assert other._first_row == self._first_row + self._rows
        if self._tail is not None:
            self._pairs(self._tail, other._head, other._first_row - 1)
        self._head, self._tail = self._head or other._head, other._tail
        self._rows += other._rows
        self._linked += other._linked
        self._compared += other._compared
        self._late += other._late
        self._counts = {name: count + other._counts[name] for name, count in self._counts.items()}
        for name, times in other._times.items():
            self._times[name] = _sum(self._times[name], times)
        self._squares = self._squares + other._squares
        for name, ends in other._ranges.items():
            self._widen(name, *ends)
        self._stays = self._stays and other._stays
        self._same_columns = self._same_columns and other._same_columns
        self._contents.merge(other._contents)
        self._spread.merge(other._spread)

    def _pairs(self, before: _Rows, after: _Rows, row: int) -> None:
        """Look at pairs of neighboring rows; the first of them is this row of the log."""
        apart = after.t - before.t != 1
        apart |= ~before.has_next
        if before.episode is not None and after.episode is not None:
            apart |= before.episode != after.episode
        if before.truncated is not None:
            apart |= before.truncated
        ends = np.flatnonzero(apart)
        self._linked += apart.size - ends.size
        self._count_rows("continued", np.flatnonzero(before.terminated & ~apart) + row)
        left, right, ended = before.t[ends], after.t[ends], before.terminated[ends]
        cut = ~ended if before.truncated is None else ~(ended | before.truncated[ends])
        for name, times in (
            ("ends", left),
            ("starts", right),
            ("terminated_ends", left[ended]),
            ("cut_ends", left[cut]),
        ):
            self._count_times(name, times)
        self._count_rows("jumps", ends[right > left + 1] + row)
        self._count_rows("cuts", ends[cut] + row)
        self._count_rows("short", ends[cut & (left == 0) & (right <= 1)] + row)
        compared = np.flatnonzero(~(apart | before.terminated))
        self._compared += compared.size
        clashes = compared[self._differ(before, after, compared)]
        self._count_rows("clashes", clashes + row)

    @np.errstate(over="ignore")  # squares of huge values may be infinite
    def _differ(self, before: _Rows, after: _Rows, pairs: Ints) -> NDArray[Any]:
        """Which pairs clash, as positions or marks; adds up by how much vectors do."""
        expected, seen = before.next_obs[pairs], after.obs[pairs]
        if expected.ndim == 1:
            return np.asarray(expected != seen)
        differing = np.flatnonzero((expected != seen).any(axis=1))
        expected, seen = expected[differing], seen[differing]
        away = np.abs(expected - seen)
        away[away <= ROUNDING * np.maximum(np.abs(expected), np.abs(seen))] = 0.0
        clash = away.any(axis=1)
        step = seen[clash] - before.obs[pairs[differing[clash]]]
        measured = [(x**2).sum(axis=0) for x in (away[clash], step, seen[clash])]
        self._squares = self._squares + np.stack(measured)
        return np.asarray(differing[clash])

    def _columns(self, log: Transitions) -> None:
        """Look at each column by itself, and at columns that may be the same."""
        on = log.has_next & ~log.terminated
        self._range("reward", log.reward)
        self._range("cost", log.cost)
        self._same_columns = self._same_columns and np.array_equal(log.reward, log.cost)
        self._stays = self._stays and np.array_equal(log.obs[on], log.next_obs[on])
        if log.discrete_obs:
            self._range("obs", log.obs)
            self._range("next_obs", log.next_obs[on])
            self._range("final_obs", log.next_obs[log.terminated])
        if log.discrete_actions:
            self._range("action", log.action)

    def _range(self, name: str, values: NDArray[Any]) -> None:
        if values.size:
            self._widen(name, values.min().item(), values.max().item())

    def _widen(self, name: str, low: float, high: float) -> None:
        least, most = self._ranges.get(name, (low, high))
        self._ranges[name] = (min(low, least), max(high, most))

    def _count_rows(self, name: str, rows: Ints) -> None:
        if rows.size:
            self._counts[name] += RowCount.of(rows)

    def _count_times(self, name: str, times: Ints) -> None:
        if times.size:
            self._times[name] = _sum(self._times[name], np.bincount(times[times < MOST_TIMES]))

    def facts(self) -> LogFacts:
        """The statistics of all rows so far."""
        vectors = self._head is not None and self._head.obs.ndim > 1
        short = self._counts["short"]
        if (last := self._tail) is not None:  # nothing follows the last row
            marked = last.terminated if last.truncated is None else last.terminated | last.truncated
            if last.t[0] == 0 and not marked[0]:
                short += RowCount(1, (self._first_row + self._rows - 1,))
        reward, cost = (self._ranges.get(name, (0.0, 1.0)) for name in ("reward", "cost"))
        states = [self._ranges[x] for x in ("obs", "next_obs", "final_obs") if x in self._ranges]
        alive = [self._ranges[x][1] for x in ("obs", "next_obs") if x in self._ranges]
        actions = self._ranges.get("action", (0, -1))
        facts = LogFacts(
            rows=self._rows,
            times=self._all_times(),
            late_rows=self._late,
            linked=self._linked,
            compared=self._compared,
            clashes=self._counts["clashes"],
            clash_size=self._clash_size(),
            continued=self._counts["continued"],
            jumps=self._counts["jumps"],
            cuts=self._counts["cuts"],
            short=short,
            stays=self._stays,
            constant_reward=reward[0] if reward[0] == reward[1] else None,
            constant_cost=cost[0] if cost[0] == cost[1] else None,
            same_columns=self._same_columns,
            least_state=0 if vectors else int(min((low for low, _ in states), default=0)),
            least_action=int(actions[0]),
            largest_state=int(max(alive, default=-1)),
            largest_final_state=int(self._ranges.get("final_obs", (0, -1))[1]),
            largest_action=int(actions[1]),
            repeats=self._contents.repeats(),
            vectors=vectors,
            largest_cost=cost[1],
        )
        spread = self._spread.whole()
        if spread is None or not facts.ordered:
            return facts
        return replace(facts, changes=unit_changes(spread), costs=look_at_costs(spread))

    def _all_times(self) -> Times:
        """Counts by t; the first stretch starts with the log, and the last one ends with it."""
        times = dict(self._times)
        if self._head is not None and self._tail is not None:
            last = self._tail
            for name, more in (
                ("starts", self._head.t),
                ("ends", last.t),
                ("terminated_ends", last.t[last.terminated]),
            ):
                times[name] = _sum(times[name], np.bincount(more[more < MOST_TIMES]))
        size = int(np.max(np.flatnonzero(times["rows"]), initial=0)) + 1
        return Times(**{name: _padded(counts, size) for name, counts in times.items()})

    def _clash_size(self) -> float:
        """The difference of vectors in units of a step, in the dimension where it is largest."""
        if isinstance(self._squares, float) or not self._counts["clashes"].number:
            return 1.0
        away, step, value = self._squares
        # a dimension that never moves is compared with its own size
        scale = np.where(step > 0, step, ROUNDING * value)
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.where(away > 0, away / scale, 0.0)
        return math.sqrt(float(np.nan_to_num(size, nan=1.0).max()))  # nan: both are infinite


def _sum(one: Ints, other: Ints) -> Ints:
    """Counts added up; the shorter ones have zeros at the end."""
    size = max(one.size, other.size)
    return _padded(one, size) + _padded(other, size)


def _padded(counts: Ints, size: int) -> Ints:
    padded = np.zeros(size, np.int64)
    padded[: counts.size] = counts[:size]
    return padded

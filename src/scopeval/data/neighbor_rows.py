"""Neighboring rows of a log, and counts of rows and of times."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints

__all__ = [
    "Breaks",
    "Differences",
    "NeighborRows",
    "RowCount",
    "TimeHistogram",
    "differing_rows",
    "padded",
    "separate_pairs",
    "usual_pair",
]

#: Times up to here are counted one by one.
MOST_TIMES = 1 << 20
#: Relative difference between next_obs and the next obs that is rounding (of float32).
ROUNDING = 1e-5
#: Row numbers kept as examples.
SHOWN = 5


class NeighborRows(NamedTuple):
    """Columns of neighboring rows."""

    t: Ints
    obs: NDArray[Any]
    next_obs: NDArray[Any]
    terminated: NDArray[np.bool_]
    episode: Ints | None
    truncated: NDArray[np.bool_] | None

    def part(self, start: int, stop: int) -> NeighborRows:
        """The rows start .. stop - 1."""
        part = slice(start, stop)
        return NeighborRows(
            self.t[part],
            self.obs[part],
            self.next_obs[part],
            self.terminated[part],
            None if self.episode is None else self.episode[part],
            None if self.truncated is None else self.truncated[part],
        )

    def copy(self) -> NeighborRows:
        """A copy, so that the arrays that they are taken from need not be kept."""
        return NeighborRows(
            self.t.copy(),
            self.obs.copy(),
            self.next_obs.copy(),
            self.terminated.copy(),
            None if self.episode is None else self.episode.copy(),
            None if self.truncated is None else self.truncated.copy(),
        )


class Breaks(NamedTuple):
    """Pairs of rows of which the second one does not continue the first one."""

    marks: NDArray[np.bool_]  # of every pair, whether it is one
    pairs: Ints  # their numbers


@dataclass
class RowCount:
    """A number of rows and the first of them."""

    number: int = 0
    rows: list[int] = field(default_factory=list)

    def add(self, rows: Ints, offset: int, where: NDArray[np.bool_] | None = None) -> None:
        """Count rows, or those `where` a mark is; row 0 has the number `offset` in the log."""
        number = rows.size if where is None else int(np.count_nonzero(where))
        self.number += number
        if number and len(self.rows) < SHOWN:
            rows = rows if where is None else rows[where]
            self.rows += [int(row) + offset for row in rows[: SHOWN - len(self.rows)]]

    def copy(self) -> RowCount:
        """Another one with the same rows."""
        return RowCount(self.number, list(self.rows))

    def merge(self, other: RowCount) -> None:
        """Count rows that come later in the log."""
        self.number += other.number
        self.rows = [*self.rows, *other.rows][:SHOWN]


class TimeHistogram:
    """Counts of small whole numbers; larger ones are counted together."""

    def __init__(self) -> None:
        self.counts = np.zeros(16, np.int64)
        self.beyond = 0

    def add(self, values: Ints) -> None:
        """Count values."""
        largest = int(values.max(initial=0))
        if not largest:  # usual where episodes start
            self.counts[0] += values.size
            return
        if largest >= MOST_TIMES:
            inside = values[values < MOST_TIMES]
            self.beyond += values.size - inside.size
            values = inside
        found = np.bincount(values, minlength=self.counts.size)
        self.counts = padded(self.counts, found.size) + found

    def merge(self, other: TimeHistogram) -> None:
        """Count another's values as well."""
        size = max(self.counts.size, other.counts.size)
        self.counts = padded(self.counts, size) + padded(other.counts, size)
        self.beyond += other.beyond

    def copy(self) -> TimeHistogram:
        """Another one with the same counts."""
        made = TimeHistogram()
        made.counts, made.beyond = self.counts.copy(), self.beyond
        return made


class Differences:
    """By how much vectors differ that should be the same."""

    def __init__(self) -> None:
        self._squares: Floats | None = None  # of differences, steps and values of clashing pairs

    @np.errstate(over="ignore")  # squares of huge values may be infinite
    def measure(self, before: NeighborRows, after: NeighborRows, rows: Ints) -> Ints:
        """The rows where the vectors differ by more than rounding; adds up by how much."""
        predicted, found = before.next_obs[rows], after.obs[rows]
        away = np.abs(predicted - found)
        away[away <= ROUNDING * np.maximum(np.abs(predicted), np.abs(found))] = 0.0
        clash = away.any(axis=1)
        step = found[clash] - before.obs[rows[clash]]
        self._add(np.stack([(x**2).sum(axis=0) for x in (away[clash], step, found[clash])]))
        return np.asarray(rows[clash])

    def merge(self, other: Differences) -> None:
        """Take in those of later rows."""
        if other._squares is not None:
            self._add(other._squares)

    def _add(self, squares: Floats) -> None:
        self._squares = squares if self._squares is None else self._squares + squares

    def size(self) -> float:
        """The difference in units of a step, in the dimension where it is largest."""
        if self._squares is None:
            return 1.0
        away, step, value = self._squares
        # a dimension that never moves is compared with its own size
        scale = np.where(step > 0, step, ROUNDING * value)
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.where(away > 0, away / scale, 0.0)
        return math.sqrt(float(np.nan_to_num(size, nan=1.0).max()))  # nan: both are infinite


def padded(counts: Ints, size: int) -> Ints:
    """Counts with zeros at the end, or cut."""
    padded = np.zeros(size, np.int64)
    padded[: counts.size] = counts[:size]
    return padded


def separate_pairs(
    before: NeighborRows, after: NeighborRows, steps: Breaks | None = None
) -> Breaks:
    """The pairs whose second row does not continue the episode of the first one.

    Args:
        before: the first rows.
        after: the second rows.
        steps: the pairs where t does not go up by one, if they are known.
    """
    if steps is None:
        steps = _steps(before.t, after.t)
    marks = steps.marks
    if before.episode is not None and after.episode is not None:
        marks |= before.episode != after.episode
    elif before.truncated is None:
        return steps
    if before.truncated is not None:
        marks |= before.truncated
    return Breaks(marks, np.flatnonzero(marks))


def usual_pair(before: NeighborRows, after: NeighborRows) -> bool:
    """Whether one row continues the one before it, and their observations agree.

    Single rows are looked at once a batch, in less time than all that can be said about a pair.
    """
    linked = after.t.item(0) - before.t.item(0) == 1 and not before.terminated.item(0)
    if before.episode is not None and after.episode is not None:
        linked = linked and before.episode.item(0) == after.episode.item(0)
    if before.truncated is not None:
        linked = linked and not before.truncated.item(0)
    return bool(linked and before.next_obs.tolist() == after.obs.tolist())


def _steps(before: Ints, after: Ints) -> Breaks:
    """The pairs where t does not go up by one."""
    marks = after <= before
    pairs = np.flatnonzero(marks)
    left, right = before.take(pairs), after.take(pairs)
    # elsewhere t goes up, and always by one if by as much as there are such pairs
    rise = int(after[-1:].sum()) - int(before[:1].sum()) + int(left.sum()) - int(right.sum())
    largest = max(left.max(initial=0), after[-1:].max(initial=0))  # t is largest where it ends
    if largest >= MOST_TIMES or rise != len(marks) - pairs.size:
        marks = after - before != 1
        pairs = np.flatnonzero(marks)
    return Breaks(marks, pairs)


def differing_rows(one: NDArray[Any], other: NDArray[Any]) -> Ints:
    """Numbers of the rows that are not exactly equal."""
    if one.ndim == 1:
        return np.flatnonzero(one != other)
    # flat comparison and division are much faster than a reduction over short rows
    entries = np.flatnonzero((one != other).reshape(-1))
    rows: Ints = entries // one.shape[1]
    return np.asarray(rows[np.append(True, rows[1:] != rows[:-1])]) if rows.size else rows

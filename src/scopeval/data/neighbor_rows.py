"""Neighboring rows of a log, and counts of rows and of times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Ints

__all__ = [
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
#: Row numbers kept as examples.
SHOWN = 5
#: Rows of an intermediate result that stays in the processor's cache.
CACHED = 1 << 14


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
        if not values.size:
            return
        if int(values.max()) >= MOST_TIMES:
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


def padded(counts: Ints, size: int) -> Ints:
    """Counts with zeros at the end, or cut."""
    padded = np.zeros(size, np.int64)
    padded[: counts.size] = counts[:size]
    return padded


def separate_pairs(
    before: NeighborRows, after: NeighborRows, steps: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Whether the second row of each pair does not continue the episode of the first one.

    Args:
        before: the first rows.
        after: the second rows.
        steps: where t does not go up by one, if that is known.
    """
    found = _steps(before.t, after.t) if steps is None else steps
    if before.episode is not None and after.episode is not None:
        found |= before.episode != after.episode
    if before.truncated is not None:
        found |= before.truncated
    return found


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


def _steps(before: Ints, after: Ints) -> NDArray[np.bool_]:
    """Where t does not go up by one."""
    found = np.empty(len(before), np.bool_)
    steps = np.empty(min(len(found), CACHED), np.int64)
    for start in range(0, len(found), CACHED):
        part = slice(start, start + CACHED)
        step = np.subtract(after[part], before[part], out=steps[: len(found) - start])
        np.not_equal(step, 1, out=found[part])
    return found


def differing_rows(one: NDArray[Any], other: NDArray[Any]) -> Ints:
    """Numbers of the rows that are not exactly equal."""
    if one.ndim == 1:
        return np.flatnonzero(one != other)
    # flat comparison and division are much faster than a reduction over short rows
    entries = np.flatnonzero((one != other).reshape(-1))
    rows: Ints = entries // one.shape[1]
    return np.asarray(rows[np.append(True, rows[1:] != rows[:-1])]) if rows.size else rows

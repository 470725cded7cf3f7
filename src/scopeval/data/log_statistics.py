"""Collect the statistics of a log in one pass, from batches of any size.

The same rows give the same statistics, however they are divided into batches. Everything is written
as few operations on blocks of rows, because reading a row of a Parquet file takes less than 100
nanoseconds and the statistics may take a tenth of that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Ints
from scopeval.data.log_facts import LogFacts, Times
from scopeval.data.neighbor_rows import (
    Breaks,
    Differences,
    NeighborRows,
    RowCount,
    TimeHistogram,
    differing_rows,
    padded,
    separate_pairs,
    usual_pair,
)
from scopeval.data.repeated_rows import Contents, RowSample
from scopeval.data.transitions import Transitions

__all__ = ["LogStatistics"]

#: Rows that are looked at together, so that each call has enough to do.
BLOCK = 1 << 18
#: Observations of this many rows at the start of a log are compared with the following ones, ...
EXHAUSTIVE = 1 << 16
#: ... and then those of so many rows of each block: a part of a large log is enough to judge it.
LOOK = 1 << 14
#: Rows in which a counterexample is looked for before all others.
GLANCE = 1 << 8


class LogStatistics:
    """Collects the statistics of a log, batch by batch.

    Pieces of a log can be counted apart and merged in their order; the result is the same, to the
    last bit if the pieces are the same.

    Args:
        first_row: number of the first row that is added, where the rows are a later piece.
        anchor: of the first piece, then.
    """

    def __init__(self, first_row: int = 0, anchor: int | None = None) -> None:
        self._begin = self._rows = first_row
        self._first: NeighborRows | None = None
        self._last: NeighborRows | None = None
        self._linked = 0
        self._compared = 0
        self._clashes, self._continued, self._jumps = RowCount(), RowCount(), RowCount()
        self._cuts, self._short = RowCount(), RowCount()  # ends that nothing marks; those at t = 0
        self._differences = Differences()
        self._starts, self._ends = TimeHistogram(), TimeHistogram()
        self._terminated, self._terminated_ends = TimeHistogram(), TimeHistogram()
        self._truncated_ends = TimeHistogram()
        self._stays = self._same_columns = True
        self._reward: float | None = None
        self._cost: float | None = None
        self._reward_varies = self._cost_varies = False
        self._state_zero = self._action_zero = False
        self._largest_state = self._largest_final = self._largest_action = -1
        self._sample = RowSample(anchor)
        self._vectors = False

    def add(
        self,
        log: Transitions,
        *,
        episode: Ints | None = None,
        truncated: NDArray[np.bool_] | None = None,
    ) -> None:
        """Add the next rows of the log.

        Args:
            log: the rows.
            episode: their episode ids, where the log has them.
            truncated: where a time limit cut an episode, if the log says so.
        """
        if not len(log):
            return
        self._vectors = not log.discrete_obs
        rows = NeighborRows(log.t, log.obs, log.next_obs, log.terminated, episode, truncated)
        contents = Contents(log.t, log.obs, log.action, log.reward, log.cost, log.next_obs)
        self._first_pair(rows.part(0, 1), min(self._to_compare(self._rows), 1))
        for start, stop in self._blocks(len(log)):
            first = max(start - 1, 0)
            before, after = rows.part(first, stop - 1), rows.part(first + 1, stop)
            breaks = self._scan(before, after, rows.t[first:stop], contents.at(slice(start, stop)))
            terminations = bool(np.count_nonzero(rows.terminated[first:stop]))
            self._neighbors(before, after, breaks, self._rows + first, terminations)
            compared = min(self._to_compare(self._rows + start), stop - start)
            if (pairs := start + compared - 1 - first) > 0:  # of rows of this batch
                before, after = before.part(0, pairs), after.part(0, pairs)
                self._compare(before, after, breaks.marks[:pairs], self._rows + first)
            if terminations:
                self._terminations(rows.part(start, stop))
            self._columns(log, slice(start, stop), compared)
        if self._first is None:
            self._first = rows.part(0, 1).copy()
        self._last = rows.part(len(log) - 1, len(log)).copy()
        self._rows += len(log)

    @property
    def anchor(self) -> int | None:
        """What the sample of contents of later pieces must begin with."""
        return self._sample.anchor

    def following(self) -> LogStatistics:
        """Statistics of the piece that comes next."""
        return LogStatistics(self._rows, self.anchor)

    def merge(self, other: LogStatistics) -> None:
        """Take in the statistics of the piece that comes next."""
        if other._first is None:
            return
        assert other._begin == self._rows
        self._vectors = other._vectors
        if self._last is not None:
            compared = min(self._to_compare(self._rows), 1)
            self._pairs(self._last, other._first, self._rows - 1, compared)
        self._first = self._first or other._first
        self._last, self._rows = other._last, other._rows
        self._linked += other._linked
        self._compared += other._compared
        for mine, theirs in zip(self._counts, other._counts, strict=True):
            mine.merge(theirs)
        for one, another in zip(self._histograms, other._histograms, strict=True):
            one.merge(another)
        self._differences.merge(other._differences)
        self._merge_columns(other)
        self._sample.merge(other._sample)

    def _merge_columns(self, other: LogStatistics) -> None:
        """What the columns have, if they have it anywhere or everywhere."""
        if self._reward is None:
            self._reward, self._cost = other._reward, other._cost
        self._reward_varies |= other._reward_varies or other._reward != self._reward
        self._cost_varies |= other._cost_varies or other._cost != self._cost
        self._stays &= other._stays
        self._same_columns &= other._same_columns
        self._state_zero |= other._state_zero
        self._action_zero |= other._action_zero
        self._largest_state = max(self._largest_state, other._largest_state)
        self._largest_final = max(self._largest_final, other._largest_final)
        self._largest_action = max(self._largest_action, other._largest_action)

    @property
    def _counts(self) -> tuple[RowCount, ...]:
        return self._clashes, self._continued, self._jumps, self._cuts, self._short

    @property
    def _histograms(self) -> tuple[TimeHistogram, ...]:
        return (
            *(self._starts, self._ends, self._terminated, self._terminated_ends),
            self._truncated_ends,
        )

    def facts(self) -> LogFacts:
        """The statistics of all rows so far."""
        if self._last is not None and not self._vectors:
            self._next_states(self._last.next_obs, self._last.terminated)
        short = self._short.copy()
        if self._last is not None:  # nothing follows the last row
            last = self._last
            marked = last.terminated if last.truncated is None else last.terminated | last.truncated
            short.add(np.flatnonzero(~marked & (last.t == 0)), self._rows - 1)
        return LogFacts(
            rows=self._rows,
            times=self._times(),
            late_rows=self._starts.beyond + self._ends.beyond,
            linked=self._linked,
            compared=self._compared,
            clashes=self._clashes.number,
            clash_rows=tuple(self._clashes.rows),
            clash_size=self._differences.size(),
            continued=self._continued.number,
            continued_rows=tuple(self._continued.rows),
            jumps=self._jumps.number,
            jump_rows=tuple(self._jumps.rows),
            cut_rows=tuple(self._cuts.rows),
            short=short.number,
            short_rows=tuple(short.rows),
            stays=self._stays,
            constant_reward=None if self._reward_varies else self._reward,
            constant_cost=None if self._cost_varies else self._cost,
            same_columns=self._same_columns,
            state_zero=self._state_zero,
            action_zero=self._action_zero,
            largest_state=self._largest_state,
            largest_final_state=self._largest_final,
            largest_action=self._largest_action,
            repeats=self._sample.repeats(),
            vectors=self._vectors,
        )

    def _times(self) -> Times:
        starts, ends, ended = self._starts.counts, self._ends.copy(), self._terminated_ends.copy()
        size = max(x.counts.size for x in (ends, ended, self._truncated_ends))
        cut = padded(ends.counts, size) - padded(ended.counts, size)
        cut -= padded(self._truncated_ends.counts, size)
        if self._last is not None:  # the stretch of the last row ends with the log
            ends.add(self._last.t)
            ended.add(self._last.t[self._last.terminated])
        size = max(starts.size, ends.counts.size)
        # a stretch of linked rows from a to b has one row at each t from a to b
        rows = np.cumsum(padded(starts, size) - padded(np.append(0, ends.counts), size + 1)[:-1])
        size = int(np.max(np.flatnonzero(rows), initial=0)) + 1
        return Times(
            rows=rows[:size],
            terminated=padded(self._terminated.counts, size),
            starts=padded(starts, size),
            ends=padded(ends.counts, size),
            terminated_ends=padded(ended.counts, size),
            cut_ends=padded(cut, size),
        )

    def _blocks(self, count: int) -> Iterator[tuple[int, int]]:
        """Divide rows of a batch; borders are at multiples of `BLOCK` rows of the whole log."""
        start = 0
        while start < count:
            stop = min(count, start + BLOCK - (self._rows + start) % BLOCK)
            yield start, stop
            start = stop

    def _to_compare(self, row: int) -> int:
        """How many rows from this one on are compared, before others are skipped."""
        if row < EXHAUSTIVE:
            return EXHAUSTIVE - row
        return max(0, LOOK - row % BLOCK)

    def _scan(
        self, before: NeighborRows, after: NeighborRows, t: Ints, contents: Contents
    ) -> Breaks:
        """The pairs of rows that are not linked; adds contents to the sample.

        A compiled pass does both in less time. To load the compiler takes longer than to read ten
        million rows, so it is used only where something else has loaded it.
        """
        wanted = self._sample.wanted(contents)
        if self._vectors or not compiler_loaded():
            self._sample.add(contents, wanted, contents.with_key(wanted))
            return separate_pairs(before, after)
        from scopeval.data._neighbor_kernel import scan

        marks, chosen = np.empty(len(t) - 1, np.bool_), np.empty(len(contents.t), np.int64)
        t, key = (np.ascontiguousarray(x) for x in (t, contents.obs))
        count = scan(t, key, wanted.mask, wanted.value, marks, chosen)
        self._sample.add(contents, wanted, chosen[:count])
        return separate_pairs(before, after, Breaks(marks, np.flatnonzero(marks)))

    def _first_pair(self, first: NeighborRows, compared: int) -> None:
        if self._last is None:
            if not self._begin:  # else `merge` looks at it
                self._starts.add(first.t)
        elif usual_pair(self._last, first):
            self._linked += 1
            self._compared += compared
        else:
            self._pairs(self._last, first, self._rows - 1, compared)

    def _pairs(self, before: NeighborRows, after: NeighborRows, offset: int, compared: int) -> None:
        """Look at a row and the next one.

        Args:
            before: the row.
            after: the row that follows it.
            offset: number of the first one in the log.
            compared: whether their observations are compared.
        """
        breaks = separate_pairs(before, after)
        self._neighbors(before, after, breaks, offset)
        if compared:
            self._compare(before, after, breaks.marks, offset)

    def _neighbors(
        self,
        before: NeighborRows,
        after: NeighborRows,
        breaks: Breaks,
        offset: int,
        terminations: bool = True,
    ) -> None:
        """Count where stretches of linked rows start and end.

        Args:
            before: the first rows of pairs.
            after: the second rows.
            breaks: the pairs that are not linked.
            offset: number of the first row in the log.
            terminations: whether any row may be marked as terminated.
        """
        self._linked += len(breaks.marks) - breaks.pairs.size
        if breaks.pairs.size:
            self._stretch_ends(before, after, breaks.pairs, offset)
        if terminations:
            self._continued.add(np.flatnonzero(before.terminated & ~breaks.marks), offset)

    def _stretch_ends(
        self, before: NeighborRows, after: NeighborRows, ends: Ints, offset: int
    ) -> None:
        """Count the last and the following row of stretches."""
        left, right = before.t.take(ends), after.t.take(ends)
        open_ = ~before.terminated.take(ends)
        self._ends.add(left)
        self._starts.add(right)
        if np.count_nonzero(right):
            self._jumps.add(ends, offset, right > left + 1)
        if np.count_nonzero(open_) < ends.size:
            self._terminated_ends.add(left[~open_])
        if before.truncated is not None:
            truncated = before.truncated[ends]
            self._truncated_ends.add(left[truncated & open_])
            open_ &= ~truncated
        self._cuts.add(ends, offset, open_)
        if np.count_nonzero(left) < ends.size:
            self._short.add(ends, offset, open_ & (left == 0) & (right <= 1))

    def _compare(
        self, before: NeighborRows, after: NeighborRows, separate: NDArray[np.bool_], offset: int
    ) -> None:
        """Compare next_obs with the obs of the row that continues the episode."""
        alone = separate | before.terminated
        self._compared += alone.size - int(np.count_nonzero(alone))
        differing = differing_rows(before.next_obs, after.obs)
        if not self._vectors:
            self._next_states(before.next_obs[differing], before.terminated[differing])
        differing = differing[~alone[differing]]
        if self._vectors and differing.size:
            differing = self._differences.measure(before, after, differing)
        self._clashes.add(differing, offset)

    def _next_states(self, states: Ints, terminated: NDArray[np.bool_]) -> None:
        """Look at next states that are not the obs of the next row, which is looked at anyway."""
        if states.size:
            self._state_zero = self._state_zero or bool((states == 0).any())
            alive = states[~terminated]
            self._largest_state = max(self._largest_state, int(alive.max(initial=-1)))

    def _terminations(self, rows: NeighborRows) -> None:
        """Look at the last rows of episodes that terminated."""
        self._terminated.add(rows.t[rows.terminated])
        if not self._vectors:
            final = int(rows.next_obs[rows.terminated].max(initial=-1))
            self._largest_final = max(self._largest_final, final)

    def _columns(self, log: Transitions, part: slice, compared: int) -> None:
        """Look at the columns of a block; most checks end with the first counterexample."""
        action = log.action[part]
        obs: NDArray[Any] = log.obs[part]
        next_obs: NDArray[Any] = log.next_obs[part]
        reward, cost, terminated = log.reward[part], log.cost[part], log.terminated[part]
        if self._reward is None or self._cost is None:
            self._reward, self._cost = float(reward[0]), float(cost[0])
        for some in (slice(GLANCE), slice(GLANCE, None)):
            reward_, cost_ = reward[some], cost[some]
            self._reward_varies = self._reward_varies or bool((reward_ != self._reward).any())
            self._cost_varies = self._cost_varies or bool((cost_ != self._cost).any())
            self._same_columns = self._same_columns and bool((reward_ == cost_).all())
            if self._stays:
                moves = differing_rows(obs[some], next_obs[some])
                self._stays = bool(terminated[some][moves].all())
        if self._vectors:
            self._state_zero = True
        else:
            self._state_zero = self._state_zero or bool((obs == 0).any())
            if compared:
                self._largest_state = max(self._largest_state, int(obs[:compared].max()))
        if action.ndim == 1 and compared:
            self._largest_action = max(self._largest_action, int(action[:compared].max()))
        self._action_zero = self._action_zero or action.ndim > 1 or bool((action == 0).any())


def compiler_loaded() -> bool:
    """Whether something has loaded numba."""
    return "numba" in sys.modules

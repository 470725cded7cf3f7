"""Statistics of a log, and whether its rows are in the order of its episodes.

Two rows are *linked* if the second one continues the episode of the first one: it comes next in the
log, its t is larger by one, and, where the log has these columns, it has the same episode id and
the first one is not truncated. A *stretch* is a maximal sequence of linked rows. In a log in the
order of its episodes every stretch is an episode; the stretches of a shuffled log are short.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scopeval.arrays import Ints
from scopeval.data.repeated_rows import Repeats

__all__ = ["LogFacts", "Times", "beyond_chance"]

#: Verdicts may be wrong by chance with at most this probability.
CHANCE = 1e-9
#: Rows are in order only if at most this share neither continues an episode nor starts one.
MOST_DISORDER = 0.2


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
class LogFacts:
    """What `LogStatistics` found; row numbers count from 0.

    Attributes:
        rows: number of rows.
        times: counts by t.
        late_rows: rows whose t is too large to be counted by t.
        linked: pairs of rows where the second one continues the first one's episode.
        compared: those of them that were compared: the first row is not terminated, and, in a large
            log, the pair is in a part that is looked at.
        clashes: compared pairs where next_obs of the first is not obs of the second.
        clash_rows: the first of them.
        clash_size: root mean square of that difference over the one of obs between the two rows, in
            the clashing pairs and in the worst dimension; 1 for state numbers.
        continued: terminated rows with a linked row after them.
        continued_rows: the first of them.
        jumps: places in the log where t goes up by more than one.
        jump_rows: the first of them.
        cut_rows: the first rows that end a stretch and are neither terminated nor truncated.
        short: rows with t = 0, neither terminated nor truncated, whose episode does not go on.
        short_rows: the first of them.
        stays: whether next_obs equals obs in every row that is not terminated.
        constant_reward: the reward of every row, if it is always the same.
        constant_cost: likewise.
        same_columns: whether reward and cost are equal in every row.
        state_zero: whether state 0 occurs; True for vectors.
        action_zero: whether action 0 occurs; True for vectors.
        largest_state: the largest state number that a row is in or leads to; -1 for vectors. In a
            large log, of the part that is looked at; likewise `largest_action`.
        largest_action: the largest action number; -1 for vectors.
        largest_final_state: the largest next_obs of a terminated row; -1 for vectors or none.
        repeats: how often rows occur.
        vectors: whether observations are vectors.
    """

    rows: int
    times: Times
    late_rows: int
    linked: int
    compared: int
    clashes: int
    clash_rows: tuple[int, ...]
    clash_size: float
    continued: int
    continued_rows: tuple[int, ...]
    jumps: int
    jump_rows: tuple[int, ...]
    cut_rows: tuple[int, ...]
    short: int
    short_rows: tuple[int, ...]
    stays: bool
    constant_reward: float | None
    constant_cost: float | None
    same_columns: bool
    state_zero: bool
    action_zero: bool
    largest_state: int
    largest_final_state: int
    largest_action: int
    repeats: Repeats
    vectors: bool

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


def beyond_chance(share: float, chance: float, count: float) -> bool:
    """Whether a share of `count` independent events is too large for their probability `chance`.

    The Chernoff bound: a share s or more has a probability of at most exp(-count KL(s || chance)).
    """
    if share <= chance:
        return False
    divergence = share * math.log(share / chance)
    if share < 1.0:
        divergence += (1.0 - share) * math.log((1.0 - share) / (1.0 - chance))
    return count * divergence >= -math.log(CHANCE)

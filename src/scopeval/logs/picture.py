"""A picture of a log for the terminal: ranges, episode lengths, actions by time, support."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints
from scopeval.logs.statistics import MOST_TIMES, LogFacts
from scopeval.logs.transitions import Transitions

__all__ = ["LogCounts", "picture"]

#: Time steps are shown in at most so many groups.
GROUPS = 12
#: Most actions that get a column of their own.
SHOWN_ACTIONS = 8
#: Most (state, action) pairs that are counted.
MOST_PAIRS = 1 << 24
#: Pairs with fewer rows than this are called rare.
RARE = 5
BAR = 40


class _Range:
    """Smallest and largest value, and the mean."""

    def __init__(self) -> None:
        self.low, self.high, self.total, self.count = np.inf, -np.inf, 0.0, 0

    def add(self, values: NDArray[Any]) -> None:
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))
        self.total += float(values.sum())
        self.count += values.size

    @property
    def ends(self) -> str:
        return f"from {self.low + 0.0:.4g} to {self.high + 0.0:.4g}"  # no "-0"

    def __str__(self) -> str:
        return f"mean {self.total / self.count:.4g}, {self.ends}"


class LogCounts:
    """Counts of a log, batch by batch."""

    def __init__(self) -> None:
        self.obs, self.action, self.reward, self.cost = (_Range() for _ in range(4))
        self.terminated = 0
        self.discrete_obs = self.discrete_actions = True
        self.by_time = np.zeros((1, 1), np.int64)  # [t, action], or [t, 1] for vectors
        self.pairs: Ints | None = np.zeros((1, 1), np.int64)  # [state, action]

    def add(self, log: Transitions) -> None:
        """Add the next rows."""
        self.discrete_obs, self.discrete_actions = log.discrete_obs, log.discrete_actions
        for seen, values in (
            (self.obs, log.obs),
            (self.action, log.action),
            (self.reward, log.reward),
            (self.cost, log.cost),
        ):
            seen.add(values)
        self.terminated += int(log.terminated.sum())
        action: NDArray[Any] = log.action if log.discrete_actions else np.zeros_like(log.t)
        early = log.t < MOST_TIMES
        self.by_time = _counted(self.by_time, log.t[early], action[early])
        both = self.discrete_obs and self.discrete_actions
        if not both or (self.obs.high + 1) * (self.action.high + 1) > MOST_PAIRS:
            self.pairs = None
        if self.pairs is not None:
            self.pairs = _counted(self.pairs, np.asarray(log.obs), action)


def picture(facts: LogFacts, counts: LogCounts, target: Floats | None = None) -> list[str]:
    """Lines of at most 80 columns.

    Args:
        facts: the statistics of the log.
        counts: its counts.
        target: probabilities of the target policy at the first step, [S, A], if it is a table.
    """
    lines = _ranges(facts, counts)
    if not facts.late_rows:
        lines += ["", "episode lengths", *_lengths(facts)]
        lines += ["", *_actions_by_time(facts, counts)]
    if counts.pairs is not None:
        lines += ["", "support", *_support(counts.pairs, target)]
    return lines


def _ranges(facts: LogFacts, counts: LogCounts) -> list[str]:
    obs = "state numbers" if counts.discrete_obs else "vectors, values"
    action = "numbers" if counts.discrete_actions else "vectors, values"
    share = counts.terminated / facts.rows
    return [
        f"observations   {obs} {counts.obs.ends}",
        f"actions        {action} {counts.action.ends}",
        f"reward         {counts.reward}",
        f"cost           {counts.cost}",
        f"terminated     {counts.terminated:,} rows ({share:.2%})",
    ]


def _lengths(facts: LogFacts) -> list[str]:
    """How many episodes have which length; from stretches, or from the rows with each t."""
    times = facts.times
    if facts.ordered:
        ends, note = times.ends, ""
    else:  # rows that are not followed by a row one step later
        ends = np.maximum(times.rows - np.append(times.rows[1:], 0), 0)
        note = ", estimated from the number of rows with each t"
    total = int(ends.sum())
    if ends[-1] == total:
        return [f"  {total:,} episodes, all of {ends.size:,} steps{note}"]
    groups = _groups(0, ends.size)
    rows = [int(ends[a:b].sum()) for a, b in groups]
    labels = [_label(a + 1, b) for a, b in groups]
    return [f"  {total:,} episodes{note}", *_bars(labels, rows, total)]


def _bars(labels: Sequence[str], rows: Sequence[int], total: int) -> list[str]:
    width = max(map(len, labels))
    most = max(1, *rows)
    bars = ["#" * round(BAR * row / most) for row in rows]
    return [
        f"  {label:>{width}} {row:>12,} {row / max(total, 1):>7.1%}  {bar}".rstrip()
        for label, row, bar in zip(labels, rows, bars, strict=True)
    ]


def _actions_by_time(facts: LogFacts, counts: LogCounts) -> list[str]:
    """Rows and action frequencies by time."""
    table = counts.by_time
    groups = _groups(0, len(facts.times.rows))
    labels = [_label(a, b - 1) for a, b in groups]
    grouped = [table[a:b].sum(axis=0) for a, b in groups]
    if not counts.discrete_actions:
        lines = _bars(labels, [int(row.sum()) for row in grouped], facts.rows)
        return ["rows by time (t)", *lines]
    shown = min(table.shape[1], SHOWN_ACTIONS)
    head = "".join(f"{action:>6}" for action in range(shown))
    other = "  other" if table.shape[1] > shown else ""
    width = max(len("t"), *map(len, labels))
    lines = [
        "rows by time (t), and how often each action was taken",
        f"  {'t':>{width}} {'rows':>12} {head}{other}",
    ]
    for label, row in zip(labels, grouped, strict=True):
        rows = int(row.sum())
        share = row / max(rows, 1)
        entries = "".join(f"{part:>6.0%}" for part in share[:shown])
        rest = f"{share[shown:].sum():>7.0%}" if other else ""
        lines.append(f"  {label:>{width}} {rows:>12,} {entries}{rest}")
    return lines


def _support(pairs: Ints, target: Floats | None) -> list[str]:
    """Which states and pairs occur, and what the target policy does that was never logged."""
    rows = pairs.sum(axis=1)
    states = int((rows > 0).sum())
    seen = int((pairs > 0).sum())
    rare = int(((pairs > 0) & (pairs < RARE)).sum())
    possible = states * pairs.shape[1]
    lines = [
        f"  {states:,} states occur; in them {seen:,} of {possible:,} pairs of state and action",
        f"  {rare:,} of these pairs have fewer than {RARE} rows",
    ]
    if target is not None:
        size = (min(len(pairs), len(target)), min(pairs.shape[1], target.shape[1]))
        unseen = target[: size[0]].copy()
        unseen[:, : size[1]][pairs[: size[0], : size[1]] > 0] = 0.0
        share = float(rows[: size[0]] @ unseen.sum(axis=1)) / float(rows.sum())
        lines += [
            "  in the logged states the target policy takes actions that were never logged",
            f"  there with probability {share:.2%}",
        ]
    return lines


def _groups(start: int, stop: int) -> list[tuple[int, int]]:
    """At most `GROUPS` ranges of equal width."""
    width = -(-(stop - start) // GROUPS)
    return [(a, min(a + width, stop)) for a in range(start, stop, width)]


def _label(first: int, last: int) -> str:
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def _counted(table: Ints, first: Ints, second: Ints) -> Ints:
    """Add the counts of pairs of numbers to a table, which grows as needed."""
    if not first.size:
        return table
    rows = max(table.shape[0], int(first.max()) + 1)
    columns = max(table.shape[1], int(second.max()) + 1)
    grown = np.zeros((rows, columns), np.int64)
    grown[: table.shape[0], : table.shape[1]] = table
    grown += np.bincount(first * columns + second, minlength=rows * columns).reshape(rows, columns)
    return grown

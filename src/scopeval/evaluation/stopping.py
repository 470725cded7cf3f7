"""Batches of episodes until a plan ends them, with the guard in between."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scopeval.errors import InputError
from scopeval.estimation.running_moments import Interval
from scopeval.evaluation.running_totals import RunningTotals
from scopeval.evaluation.sources import Source
from scopeval.question.stop import Stop
from scopeval.safety.guard import Guard

__all__ = ["INTERRUPTED", "Running", "StoppingPlan", "run_batches"]

INTERRUPTED = "interrupted by the user"


class StoppingPlan:
    """When an evaluation stops, and how many episodes it runs until it checks again.

    Stopping rules are checked after every batch. Only anytime-valid intervals are compared with the
    wanted precision, so that checking often does not affect coverage.

    Args:
        stop: when no more episodes are started.
    """

    #: Episodes between two checks, unless given; in the simulator it grows up to LARGEST.
    CHUNK, LARGEST = 64, 1 << 16
    #: Where only precision or budget is given, and neither is ever reached.
    MOST = 10**9
    #: So many episodes lost one after the other: the environment does not work any more.
    DEAD = 64

    def __init__(self, stop: Stop) -> None:
        if stop.decided:
            raise InputError(
                "stop.decided: got True with one policy; expected compare(env, {name: policy, ...})"
            )
        self.stop = stop
        self._episodes = self.MOST if stop.episodes is None else stop.episodes
        self._precision, self._budget, self._given = stop.precision, stop.cost, stop.every
        self._side_by_side = 1
        self._grows = self._checks = self._careful = False
        self.stopped = ""  # why, once it has
        self.adaptive = stop.precision is not None or stop.cost is not None  # data influence n

    def suit(self, source: Source, guard: Guard | None) -> None:
        """Check as often as the source allows and the guard asks for."""
        self._side_by_side = source.side_by_side
        self._grows = source.quick
        self._checks = guard is not None or self._precision is not None or self._budget is not None
        self._careful = guard is not None and guard.limited

    def next(self, totals: RunningTotals) -> int:
        """How many episodes to run now; 0: no more, and `stopped` says why."""
        left = self._episodes - totals.started
        if left <= 0 and not totals.interrupted:
            self.stopped = f"all {self._episodes:,} episodes were run"
            return 0
        if totals.interrupted:
            self.stopped = INTERRUPTED
        elif self._precision and totals.interval(anytime=True).half_width <= self._precision:
            self.stopped = f"stopped when the interval was +- {self._precision:g} or narrower"
        elif self._budget and totals.total >= self._budget:
            self.stopped = f"stopped when the cost budget of {self._budget:g} was reached"
        elif totals.lost_in_a_row >= self.DEAD:
            lost = totals.lost_in_a_row
            self.stopped = f"stopped after {lost:,} lost episodes one after the other"
        if self.stopped:
            self.adaptive = True
            return 0
        return max(1, min(left, self._chunk(totals.started), self._affordable(totals)))

    def _chunk(self, done: int) -> int:
        if self._given is not None:
            return self._given
        if self._careful:
            return self._side_by_side
        if self._grows:
            return min(max(self.CHUNK, done // 4), self.LARGEST) if self._checks else self.LARGEST
        return -(-self.CHUNK // self._side_by_side) * self._side_by_side

    def _affordable(self, totals: RunningTotals) -> int:
        """So few that the budget is hardly overspent: nine tenths of the rest, by the mean cost."""
        if self._budget is None:
            return self._episodes
        known = max(self._side_by_side, totals.started)  # at most twice as many as were seen
        if totals.mean_cost == 0:
            return known
        return min(known, int(0.9 * (self._budget - totals.total) / totals.mean_cost))


@dataclass(frozen=True)
class Running:
    """The state of an evaluation that is running.

    Attributes:
        done: episodes started and over.
        total: of how many; None: until precision or budget is reached.
        interval: anytime-valid, so that checking it often does not affect coverage.
        cost: spent so far.
        error: standard error of the estimate; NaN: not known.
        stage: number of the stage that runs, from 1; None: there are no stages.
        more: other numbers by name, of a campaign.
    """

    done: int
    total: int | None
    interval: Interval
    cost: float
    error: float = math.nan
    stage: int | None = None
    more: Mapping[str, float] = field(default_factory=dict)

    def values(self) -> dict[str, float]:
        """The numbers by name, for a `Tracker`; what is not finite is left out."""
        found = {
            "estimate": self.interval.estimate,
            "low": self.interval.low,
            "high": self.interval.high,
            "cost": self.cost,
            **self.more,
        }
        return {name: value for name, value in found.items() if math.isfinite(value)}


def run_batches(
    source: Source,
    plan: StoppingPlan,
    totals: RunningTotals,
    guard: Guard | None,
    progress: Callable[[Running], None] | None,
    episodes: int | None,
    *,
    until: int | None = None,
    stage: int | None = None,
    by_target: bool = False,
    hands_over: bool = True,
) -> int | None:
    """Run batches until the plan says stop; returns after how many episodes the guard switched.

    Args:
        source: runs the episodes.
        plan: says when to stop.
        totals: take them in.
        guard: may switch to the target policy.
        progress: called after every batch.
        episodes: how many are wanted in all, for `progress`.
        until: end when so many episodes were started, also if the plan goes on.
        stage: number of the stage, for `progress`.
        by_target: the target policy runs from the beginning.
        hands_over: the target policy goes on after an alarm; else the alarm ends the evaluation.
    """
    switched: int | None = totals.started if by_target else None
    try:
        while count := plan.next(totals):
            if until is not None and totals.started >= until:
                break
            count = count if until is None else min(count, until - totals.started)
            found = source.run(totals.started, count, by_target=switched is not None)
            totals.add(found)
            if guard is not None and switched is None:
                state = guard.add(
                    found.costs,
                    spent=found.spent,
                    lost=sum(x.cost for x in found.lost),
                    covered=source.uncovered is None,
                )
                switched = totals.started if state.tripped else None
                if state.tripped and not hands_over:
                    plan.stopped, plan.adaptive = f"stopped by the guard: {state.reason}", True
            if progress is not None:
                now, square = totals.interval(anytime=True), totals.squared_error
                error = math.sqrt(square) if square > 0 else math.nan
                progress(Running(totals.started, episodes, now, totals.total, error, stage))
    except KeyboardInterrupt:
        plan.stopped, plan.adaptive = INTERRUPTED, True
    return switched

"""Batches of episodes until the stopping plan ends them, with the guard in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scopeval.estimation.running_moments import Interval
from scopeval.evaluation.running_totals import RunningTotals
from scopeval.evaluation.sources import Source
from scopeval.evaluation.stopping import INTERRUPTED, StoppingPlan
from scopeval.safety.guard import Guard

__all__ = ["Running", "run_batches"]


@dataclass(frozen=True)
class Running:
    """The state of an evaluation that is running.

    Attributes:
        done: episodes started and over.
        total: of how many; None: until precision or budget is reached.
        interval: anytime-valid, so that checking it often does not affect coverage.
        cost: spent so far.
    """

    done: int
    total: int | None
    interval: Interval
    cost: float


def run_batches(
    source: Source,
    plan: StoppingPlan,
    totals: RunningTotals,
    guard: Guard | None,
    progress: Callable[[Running], None] | None,
    episodes: int | None,
    *,
    until: int | None = None,
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
                now = totals.interval(anytime=True)
                progress(Running(totals.started, episodes, now, totals.total))
    except KeyboardInterrupt:
        plan.stopped, plan.adaptive = INTERRUPTED, True
    return switched

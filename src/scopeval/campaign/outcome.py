"""From the journal of a campaign to an `Evaluation`."""

from __future__ import annotations

from collections import Counter

import sqlalchemy as sa

from scopeval.campaign.rows import batch_of, read_lost, read_numbers
from scopeval.campaign.state import CampaignState
from scopeval.campaign.terms import COST, Promise
from scopeval.errors import InputError
from scopeval.evaluation.result import Evaluation, GuardReport
from scopeval.evaluation.running_totals import RunInfo, RunningTotals

__all__ = ["evaluation_of"]


def evaluation_of(connection: sa.Connection, state: CampaignState) -> Evaluation:
    """The evaluation by all finished episodes, in the order of their numbers.

    The intervals are anytime-valid: a campaign is looked at while it runs.
    """
    numbers, lost = read_numbers(connection), read_lost(connection)
    if not numbers:
        why = f"; the first was lost: {lost[0].reason}" if lost else ""
        raise InputError(f"result: no episode is finished, expected at least one{why}")
    own = all(one["by_target"] for one in numbers)
    totals = RunningTotals(
        alpha=state.terms.alpha,
        epsilon=state.terms.epsilon,
        method="sequence",
        target_n=max(state.terms.plan.episodes or len(numbers), 50),
        on_policy=own,
        keep=False,
        bound=state.terms.bound(),
        return_bound=state.terms.return_bound,
    )
    batch = batch_of(numbers, lost)
    totals.add(batch)
    counts: Counter[str] = Counter()
    for one in numbers:
        counts["asked"] += one["asked"]
        counts.update({name: n for name, n in one["fallbacks"].items() if name != "failed"})
    run = RunInfo(
        estimator="mc" if own and not batch.controlled else "auto",
        stopped=_stopped(state),
        anytime=True,
        uncovered=None,
        costs=bool(batch.spent.any()),
        guard=None if own else _guard(state),
        behavior=dict(counts) if counts["asked"] else {},
    )
    return totals.result(run)


def _stopped(state: CampaignState) -> str:
    if state.stopped:
        return f"the campaign was stopped: {state.reason}"
    return state.done() or "the campaign is not over"


def _guard(state: CampaignState) -> GuardReport | None:
    """The first promise about the cost."""
    for number, guard in enumerate(state.terms.guards):
        watch = state.watch(number)
        if isinstance(guard, Promise) and guard.signal == COST and watch is not None:
            return GuardReport(state.handed_over_after, watch.state)
    return None

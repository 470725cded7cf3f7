"""From the journal of a campaign to an `Evaluation`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from scopeval.campaign.rows import batch_of, read_lost, read_numbers
from scopeval.campaign.running_value import narrowest_at
from scopeval.campaign.stage_plans import budget_after
from scopeval.campaign.state import CampaignState
from scopeval.campaign.terms import COST, Promise
from scopeval.collection.episodes import LostEpisode
from scopeval.errors import InputError
from scopeval.evaluation.refitting import Refitting
from scopeval.evaluation.result import Evaluation, GuardReport
from scopeval.evaluation.running_totals import RunInfo, RunningTotals
from scopeval.evaluation.stage_report import Learning, precise_after
from scopeval.evaluation.staged_totals import StagedTotals

__all__ = ["evaluation_of"]

_Numbers = Sequence[dict[str, Any]]


def evaluation_of(connection: sa.Connection, state: CampaignState) -> Evaluation:
    """The evaluation by all finished episodes, in the order of their numbers.

    The intervals are anytime-valid: a campaign is looked at while it runs.
    """
    numbers, lost = read_numbers(connection), read_lost(connection)
    if not numbers:
        why = f"; the first was lost: {lost[0].reason}" if lost else ""
        raise InputError(f"result: no episode is finished, expected at least one{why}")
    own = all(one["by_target"] for one in numbers)
    controlled = any(one["controlled"] for one in numbers)
    counts: Counter[str] = Counter()
    for one in numbers:
        counts["asked"] += one["asked"]
        counts.update({name: n for name, n in one["fallbacks"].items() if name != "failed"})
    run = RunInfo(
        estimator="mc" if own and not controlled else "auto",
        stopped=_stopped(state),
        anytime=True,
        uncovered=None,
        costs=any(one["spent"] for one in numbers),
        guard=None if own else _guard(state),
        behavior=dict(counts) if counts["asked"] else {},
    )
    if state.terms.refit is not None:
        return _staged(state, state.terms.refit, numbers, lost, run)
    terms = state.terms
    totals = RunningTotals(
        alpha=terms.alpha,
        epsilon=terms.epsilon,
        method="sequence",
        target_n=narrowest_at(terms),
        on_policy=own,
        keep=False,
        bound=terms.bound(),
        return_bound=terms.return_bound,
    )
    totals.add(batch_of(numbers, lost))
    return totals.result(run)


def _staged(
    state: CampaignState,
    settings: Refitting,
    numbers: _Numbers,
    lost: Sequence[LostEpisode],
    run: RunInfo,
) -> Evaluation:
    """The stages, combined as `evaluate` does, by the weights of the journal."""
    terms = state.terms
    totals = StagedTotals(
        alpha=terms.alpha,
        epsilon=max(terms.epsilon, 0.0) if settings.promise == "stage" else terms.epsilon,
        method="sequence",
        target_n=narrowest_at(terms),
        variance=settings.prior_variance,
        keep=False,
        bound=terms.bound(),
    )
    segment_of = state.allotment.of
    finished = groupby(numbers, key=lambda one: segment_of(one["number"]))
    missing = {
        segment: list(some) for segment, some in groupby(lost, key=lambda x: segment_of(x.index))
    }
    found = {segment: list(some) for segment, some in finished}
    for number, one in enumerate(state.plans[: state.allotment.segments[-1].stage + 1]):
        parts = [segment for segment in state.allotment.segments if segment.stage == number]
        totals.begin(parts[0].weight if parts else 1.0, one.plan.epsilon)
        for segment in parts:
            totals.reweigh(segment.weight)
            totals.add(batch_of(found.get(segment, []), missing.get(segment, [])))
        refuted = state.refuted_in
        why = refuted[1] if refuted is not None and refuted[0] == number else None
        totals.end(one.plan, why, covered=True, costs=run.costs, anytime=True)
    stages = totals.finished_stages()
    budget = budget_after(terms, state.plans, [stage.episodes for stage in stages])
    learning = Learning(
        refits=sum(stage.designed for stage in stages),
        seconds=math.fsum(stage.seconds for stage in stages),
        stopped=state.plans[-1].stopped,
        agreements=tuple(one for plan in state.plans for one in plan.agreements),
        payback=budget.payback if terms.epsilon < 0.0 else None,
        precise_after=precise_after(stages),
    )
    return replace(totals.result(run), stages=stages, learning=learning)


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

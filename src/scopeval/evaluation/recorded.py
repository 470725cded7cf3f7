"""An evaluation from episodes that exist already: your own system's, or those of `collect`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from scopeval.collection.episodes import Episodes
from scopeval.collection.repeated_streams import repeated_streams
from scopeval.errors import InputError
from scopeval.estimation.estimators import QFunction, controlled
from scopeval.evaluation.result import Evaluation
from scopeval.evaluation.running_totals import IntervalMethod, RunInfo, RunningTotals
from scopeval.evaluation.source_choice import unbiased_estimator
from scopeval.evaluation.sources import summarize
from scopeval.evaluation.start_control import start_adjustment
from scopeval.evaluation.stopping import INTERRUPTED
from scopeval.policies.adapters import as_policy
from scopeval.policies.protocols import CapsWeights, ContinuousPolicy, probs_of
from scopeval.safety.cost_bound import cost_bound_of
from scopeval.safety.cost_control import KnowsCosts, cost_control_of
from scopeval.safety.episode_costs import costs_of
from scopeval.safety.promise import promise_with

__all__ = ["estimate"]


def estimate(
    episodes: Episodes,
    target: Any = None,
    *,
    q: Any | QFunction = None,
    alpha: float = 0.05,
    epsilon: float | None = None,
    gamma: float = 1.0,
    estimator: str = "auto",
    interval: IntervalMethod = "t",
    anytime: bool = False,
    reference: Any = None,
    cost_limit: float | None = None,
    cost_bound: float | None = None,
    step_cost_bound: float | None = None,
    return_bound: tuple[float, float] | None = None,
    starts: npt.ArrayLike | None = None,
    behavior: Any = None,
) -> Evaluation:
    """The result of `evaluate` from episodes that exist already.

    Args:
        episodes: what happened, as `EpisodeLog` or `collect` recorded it.
        target: None: the target that the episodes were recorded for. Another one over the same
            finite actions: its probabilities take the place of the recorded ones.
        q: a control variate for `target`, as in `estimators.doubly_robust`, that was not learned
            from these episodes.
        alpha: probability with which an interval may miss.
        epsilon: the promise to certify: at most 1 + epsilon times the target's cost. Default 0, or
            what `behavior` was designed for, relative to a reference policy or a limit.
        gamma: discount.
        estimator: as in `evaluate`.
        interval: as in `evaluate`.
        anytime: the number of episodes was decided by what they showed: the intervals are then
            anytime-valid.
        reference: as in `evaluate`.
        cost_limit: as in `evaluate`.
        cost_bound: the most that one episode can cost (not discounted), if that is known.
        step_cost_bound: the most that one step can cost, likewise.
        return_bound: (low, high) that contain every possible return, discounted as the value is.
        starts: further first observations, as in `evaluate`; needs `behavior`.
        behavior: the behavior policy that ran, if it comes from `design`: the certificate then uses
            its estimate of the target's expected cost as control variate, and the limit of its
            weights. The estimate must not have been learned from these episodes.

    Raises:
        InputError: no finished episode, or an argument is wrong.
    """
    if target is not None:
        episodes = _retargeted(episodes, target, q)
    elif q is not None:
        raise InputError("target: needed with q, to average q over the target's actions")
    own = bool(episodes.by_target.all() or (np.abs(episodes.ratios - 1.0) <= 1e-9).all())
    if own:
        episodes = replace(episodes, by_target=np.ones(len(episodes), np.bool_))
    name = unbiased_estimator(estimator, on_policy=own and episodes.control is None)
    pi = target if target is not None else _target_of(behavior)
    control = None if pi is None else cost_control_of(as_policy(pi), behavior)
    found = summarize(episodes, gamma, name, control)
    promise = promise_with(behavior, reference, cost_limit)
    if promise.whose != "target" and len(episodes):
        known = None if pi is None else as_policy(pi)
        finite = None if isinstance(known, ContinuousPolicy) else known
        found = replace(found, costs=costs_of(episodes, gamma, None, promise, finite))
    if not len(episodes):
        why = f"; the first was lost: {found.lost[0].reason}" if found.lost else ""
        raise InputError(f"episodes: got none that was finished, expected at least one{why}")
    # what the episodes showed must not decide how much of the starts is removed
    adjustment = start_adjustment(starts, behavior, 1 if anytime else len(episodes), return_bound)
    totals = RunningTotals(
        alpha=alpha,
        epsilon=float((promise.epsilon if epsilon is None else epsilon) or 0.0),
        method=interval,
        target_n=max(len(episodes), 50),
        on_policy=own,
        keep=True,
        bound=cost_bound_of(
            cost_bound,
            step_cost_bound,
            horizon=episodes.horizon,
            gamma=gamma,
            largest_weight=(
                behavior.largest_weight if isinstance(behavior, CapsWeights) else math.inf
            ),
        ),
        whose=promise.whose,
        return_bound=return_bound,
        starts=None if adjustment is None else adjustment.control,
    )
    totals.add(found if adjustment is None else adjustment.of(found, 0))
    run = RunInfo(
        estimator=name,
        stopped=INTERRUPTED if episodes.interrupted else "all episodes that were given",
        anytime=anytime or episodes.interrupted,
        uncovered=None,
        costs=bool(episodes.cost.any()),
        guard=None,
        behavior={},
        notes=tuple(x for x in (repeated_streams(episodes), promise.note) if x is not None),
        starts=None if adjustment is None else adjustment.report,
    )
    return totals.result(run)


def _target_of(behavior: Any) -> Any:
    """The target that a behavior policy was designed for; None: unknown."""
    return behavior.target if isinstance(behavior, KnowsCosts) else None


def _retargeted(episodes: Episodes, target: Any, q: Any) -> Episodes:
    """The same episodes as evidence about `target`."""
    policy = as_policy(target)
    if isinstance(policy, ContinuousPolicy) or episodes.action.ndim != 2:
        raise InputError("target: another target needs a finite action set; leave it out")
    probs = np.ones_like(episodes.target_prob)
    for t in range(episodes.horizon):
        rows = np.flatnonzero(episodes.length > t)
        if len(rows):
            table = probs_of(policy, episodes.obs[rows, t], t)
            probs[rows, t] = table[np.arange(len(rows)), episodes.action[rows, t]]
    if q is not None:
        return controlled(replace(episodes, target_prob=probs), q, policy)
    if np.abs(probs - episodes.target_prob).max(initial=0.0) <= 1e-9:
        return episodes
    none = np.zeros(len(episodes), np.bool_)
    return replace(episodes, target_prob=probs, control=None, baseline=None, by_target=none)

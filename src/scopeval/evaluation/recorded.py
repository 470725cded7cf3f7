"""An evaluation from episodes that exist already: your own system's, or those of `collect`.

Random numbers that were used twice, seen from what they chose.

A generator that begins anew with the same seed every day draws the same numbers every day: at the
same time step and observation the same action follows, always. The episodes are then not
independent, and no interval made of them is valid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scopeval.collection.episodes import Episodes
from scopeval.context.history import History, history_of
from scopeval.errors import InputError
from scopeval.estimation.estimators import (
    BIASED,
    Estimator,
    QFunction,
    controlled,
    name_of_estimator,
    weighted_pdis,
)
from scopeval.estimation.fitted_q import fitted_q
from scopeval.evaluation.batches import refuse_terms, summarize, unbiased_estimator
from scopeval.evaluation.context_control import context_control
from scopeval.evaluation.loop import INTERRUPTED
from scopeval.evaluation.result import Evaluation
from scopeval.evaluation.totals import RunInfo, Totals
from scopeval.logs.transitions import Transitions
from scopeval.policies.adapters import as_policy
from scopeval.policies.protocols import (
    Behavior,
    ContinuousPolicy,
    LearnedBehavior,
    Policy,
    largest_weight,
    probs_of,
)
from scopeval.question.baseline import baseline_of, judged_promise, unrecognized
from scopeval.question.inference import Inference, inference_of
from scopeval.question.promise import Promise, promises_and_limits
from scopeval.safety.cost_bound import cost_bound_of
from scopeval.safety.costs import cost_control_of

__all__ = ["estimate", "repeated_streams"]

#: Chance of a false warning, at most.
CHANCE = 1e-9
#: Time steps that are looked at.
STEPS = 64


def repeated_streams(episodes: Episodes) -> str | None:
    """A warning where all episodes choose alike; None: they do not, or there is nothing to see.

    Of n independent draws with probability p of the action seen, all are the same with probability
    p^n + (1 - p)^n at most. The product over all observations that were met more than once at the
    same time step must stay above `CHANCE`.
    """
    chance = groups = 0.0
    for t in range(min(episodes.horizon, STEPS)):
        rows = np.flatnonzero((episodes.length > t) & ~episodes.by_target)
        if len(rows) < 2:
            continue
        _, group = np.unique(episodes.obs[rows, t], axis=0, return_inverse=True)
        group = group.ravel()
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        sizes = np.diff(starts, append=len(order))
        first = rows[order[np.repeat(starts, sizes)]]
        members = rows[order]
        same_p = (
            np.abs(episodes.behavior_prob[members, t] - episodes.behavior_prob[first, t]) < 1e-9
        )
        differs = episodes.action[members, t] != episodes.action[first, t]
        if (differs.any(axis=-1) if differs.ndim == 2 else differs).any():
            return None
        alike = np.logical_and.reduceat(same_p, starts)
        p = episodes.behavior_prob[rows[order[starts]], t]
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.logaddexp(sizes * np.log(p), sizes * np.log1p(-p))
        counted = alike & (sizes > 1)
        chance += float(logs[counted].sum())
        groups += float(counted.sum())
    if chance >= math.log(CHANCE):
        return None
    return (
        f"at all {groups:,.0f} places that were met more than once the same action was chosen, by "
        "chance less likely than one in a billion: the random numbers seem to be repeated, as by a "
        "generator that is seeded anew for every episode. Such episodes are not independent, and "
        "the interval is too narrow; use one generator for all, or EpisodeLog.act"
    )


# --------------------------------------------------------------------------------------------------


def estimate(
    episodes: Episodes,
    policy: Any = None,
    *,
    run: Any = None,
    q: Any | QFunction = None,
    gamma: float = 1.0,
    promise: Promise | Sequence[Promise] | None = None,
    baseline: Any = None,
    inference: Inference | None = None,
    context: History | Transitions | None = None,
    anytime: bool = False,
) -> Evaluation:
    """The result of `evaluate` from episodes that exist already.

    Args:
        episodes: what happened, as `EpisodeLog` or `collect` recorded it.
        policy: None: the target that the episodes were recorded for. Another one over the same
            finite actions: its probabilities take the place of the recorded ones.
        run: the behavior policy that ran, if it comes from `design`: the certificate then uses its
            estimate of the target's expected cost as control variate, and the limit of its weights.
            The estimate must not have been learned from these episodes.
        q: a control variate for `policy`, as in `estimators.doubly_robust`, that was not learned
            from these episodes.
        gamma: discount.
        promise: what is certified, as in `evaluate`.
        baseline: as in `evaluate`.
        inference: as in `evaluate`; its `estimator` may also be "wis" or "fqe".
        context: as in `evaluate`; starts that are state numbers need `run`.
        anytime: the number of episodes was decided by what they showed: the intervals are then
            anytime-valid.

    Raises:
        InputError: no finished episode, or an argument is wrong.
    """
    if not isinstance(episodes, Episodes):
        raise InputError(
            f"episodes: got {type(episodes).__name__}, expected Episodes, as collect(...) or "
            "EpisodeLog gives them"
        )
    by, target = inference_of(inference), policy
    if run is not None and not isinstance(run, Behavior | Policy | ContinuousPolicy):
        raise InputError(
            f"run: got {type(run).__name__}, expected the behavior policy that ran, as design(...) "
            "or frontier(...).at(...) gives it, or nothing"
        )
    if target is not None:
        episodes = _retargeted(episodes, target, q)
    elif q is not None:
        raise InputError("policy: needed with q, to average q over the target's actions")
    on_policy = bool(episodes.by_target.all() or (np.abs(episodes.ratios - 1.0) <= 1e-9).all())
    if on_policy:
        episodes = replace(episodes, by_target=np.ones(len(episodes), np.bool_))
    anytime = anytime or episodes.interrupted
    history = history_of(context)
    refuse_terms(by, history)
    if target is None and isinstance(run, LearnedBehavior):
        target = run.target
    pi = None if target is None else as_policy(target)
    estimator = _estimator(
        by, pi, gamma, on_policy=on_policy and episodes.control is None, anytime=anytime
    )
    promises, _ = promises_and_limits(promise)
    judged = judged_promise(run, promises[0] if promises else None, baseline_of(baseline))
    cap = largest_weight(run)
    cost_control = None if pi is None else cost_control_of(pi, run)
    batch = summarize(episodes, gamma, estimator, cost_control, judged, pi, cap)
    if not len(episodes):
        why = f"; the first was lost: {batch.lost[0].reason}" if batch.lost else ""
        raise InputError(f"episodes: got none that was finished, expected at least one{why}")
    # what the episodes showed must not decide how much of the context is removed
    control = context_control(history, run, 1 if anytime else len(episodes), by.return_bound)
    totals = Totals(
        replace(by, keep=True),
        judged,
        target_n=max(len(episodes), 50),
        on_policy=on_policy,
        bound=cost_bound_of(
            judged.bound, horizon=episodes.horizon, gamma=gamma, largest_weight=cap
        ),
        context=control,
        columns=episodes.columns,
    )
    totals.add(batch if control is None else control.of(batch))
    about = RunInfo(
        estimator=by.estimator if by.estimator in BIASED else name_of_estimator(estimator),
        stopped=INTERRUPTED if episodes.interrupted else "all episodes that were given",
        anytime=anytime,
        uncovered=None,
        costs=bool(episodes.cost.any()),
        guard=None,
        behavior={},
        notes=tuple(
            x for x in (repeated_streams(episodes), unrecognized(run, judged)) if x is not None
        ),
    )
    return totals.result(about)


def _estimator(
    by: Inference,
    target: Policy | ContinuousPolicy | None,
    gamma: float,
    *,
    on_policy: bool,
    anytime: bool,
) -> Estimator:
    """What gives the values."""
    estimator = by.estimator
    if not isinstance(estimator, str) or estimator not in BIASED:
        return unbiased_estimator(estimator, on_policy=on_policy)
    if anytime or by.interval == "sequence":
        raise InputError(
            f"estimator: got {estimator!r}, whose interval is for a number of episodes that was "
            "fixed before; for anytime-valid intervals try 'pdis' or 'dr'"
        )
    if estimator == "wis":
        return lambda episodes: weighted_pdis(episodes, gamma)
    if target is None or isinstance(target, ContinuousPolicy):
        raise InputError(
            "policy: needed with estimator 'fqe', a policy over finite actions: it is asked for "
            "the probabilities of actions that were not taken"
        )
    return lambda episodes: fitted_q(episodes, gamma, target)


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
            action = episodes.action[rows, t]
            if action.max() >= table.shape[1]:
                raise InputError(
                    f"policy: got probabilities of {table.shape[1]} actions, and episodes with "
                    f"action {int(action.max())}; expected a policy over the actions that were run"
                )
            probs[rows, t] = table[np.arange(len(rows)), action]
    if q is not None:
        return controlled(replace(episodes, target_prob=probs), q, policy)
    if np.abs(probs - episodes.target_prob).max(initial=0.0) <= 1e-9:
        return episodes
    none = np.zeros(len(episodes), np.bool_)
    return replace(episodes, target_prob=probs, control=None, baseline=None, by_target=none)

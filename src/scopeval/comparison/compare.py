"""Compare policies: is the new one better than what runs today, and by how much?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from scopeval.arrays import Floats, check_whole
from scopeval.collection.environments import EnvironmentPool, open_environments
from scopeval.collection.plant import Plant, plant_of
from scopeval.collection.simulated import TabularFleet
from scopeval.comparison.context import JointContext, joint_context, reports_of
from scopeval.comparison.cross_fitting import ESTIMATORS
from scopeval.comparison.estimators import ab_variance
from scopeval.comparison.inference import Contrast
from scopeval.comparison.joint_design import affordable
from scopeval.comparison.mixture import MixtureEpisodes, MixtureRollout
from scopeval.comparison.policy_set import PolicySet, shares_of
from scopeval.comparison.recorded import ABTest, assigned, judge_recorded
from scopeval.comparison.result import Best, Comparison, Difference, difference_of
from scopeval.comparison.totals import (
    CostsAhead,
    CostTerms,
    Outcome,
    PairedSettings,
    PairedTotals,
    Ramping,
    run_mixture,
)
from scopeval.context.history import History, history_of
from scopeval.context.report import ContextReport
from scopeval.errors import InputError
from scopeval.estimation.moments import few_events
from scopeval.evaluation.context_control import with_signals
from scopeval.evaluation.result import Spent
from scopeval.evaluation.tracking import Listener, follow_batches
from scopeval.exact import TabularMDP
from scopeval.logs.transitions import Transitions
from scopeval.question.inference import Inference, inference_of
from scopeval.question.promise import Promise, promises_and_limits
from scopeval.question.question import Question
from scopeval.question.stop import Stop, stop_of

__all__ = ["compare"]

#: Episodes of a finite MDP that run side by side.
SIDE_BY_SIDE = 256


def compare(
    env: Any,
    policies: Any,
    run: Any = None,
    *,
    episodes: int | None = None,
    stop: Stop | None = None,
    promise: Promise | None = None,
    logs: Transitions | None = None,
    baseline: str | None = None,
    horizon: int | None = None,
    inference: Inference | None = None,
    context: History | Transitions | None = None,
    seed: int = 0,
    progress: Listener | bool | None = None,
) -> Comparison:
    """Compare policies by the same episodes.

    As in an A/B test a policy is drawn for every episode; with ``promise=``, a design that costs
    less may run beside them. What is new is the estimator: every episode has a value for every
    policy, so that the difference of two similar policies takes a small part of the episodes. For
    unrelated policies it is hardly ever worse than an A/B test: one of the estimators never is, and
    other episodes choose.

    Args:
        env: a Gymnasium environment, the name of a registered one, a function that makes one, or a
            `TabularMDP`; or a `Plant`, which also says where a step's cost is found. Or episodes of
            an A/B test that was run already: an `ABTest`, or `Episodes` by the names of the
            policies that they were given. Then nothing is run.
        policies: two to twenty by name, such as ``{"today": old, "new": new}``, each in any form
            that `as_policy` takes; or a `Question` of several, which has a discount too.
        run: None: equal shares of the episodes; shares by name, such as ``{"today": 0.9, "new":
            0.1}``; or a `Ramp`, by which those of new policies grow.
        episodes: how many to start (at most).
        stop: when to stop: ``Stop(decided=True)`` once it is known which policy is the best,
            ``Stop(precision=...)`` once every difference is known so well. The intervals are then
            anytime-valid.
        promise: about the cost of an episode, against the baseline's. Where the policies alone
            would cost more, by the known MDP or by logs of state numbers, a design runs beside them
            that costs less. None: an episode may cost what it costs in an A/B test, the mean of the
            policies.
        logs: of past operation, by any controllers: control variates are learned from them too.
        baseline: name of the policy that runs today; None: the first.
        horizon: T; may be left out for a `TabularMDP`.
        inference: how intervals follow: alpha, a bound on returns, whether episodes are kept.
        context: a `History` of what no action changes, such as demand, prices or weather, as in
            `evaluate`: the noise that these bring to every policy's value is removed, as far as
            other episodes confirm it. Policies that have little in common gain most. None: of the
            logs, where they say what is exogenous.
        seed: of the episodes; the same seed gives the same result.
        progress: called after every batch with a `Running`; or a `Tracker`; True: show it; None:
            on a terminal; False: never.

    Returns:
        A `Comparison`. Ctrl-C ends it with what was finished by then.

    Raises:
        InputError: an argument is wrong.
        PlantError: the environment cannot be made, or no episode of it can be finished.
    """
    seed = check_whole("seed", seed, 0)
    plant = plant_of(env)
    names, gamma, horizon, baseline = _asked(policies, plant.env, horizon, baseline)
    several, inference = PolicySet(names, baseline), inference_of(inference)
    bounded = inference.return_bound is not None
    history = history_of(context, None if bounded else logs, horizon)
    plant = with_signals(plant, history)
    if inference.estimator != "auto":
        raise InputError(
            f"inference.estimator: got {inference.estimator!r:.40}, expected nothing: held-out "
            "episodes choose the estimator of every difference"
        )
    if isinstance(env, ABTest | Mapping):
        _refuse_plan(run, episodes, stop, horizon)
        test = env if isinstance(env, ABTest) else ABTest.of(env)
        settings = PairedSettings(several, inference, gamma, len(test), seed, logs)
        return _recorded(test, settings, promise, history)
    ramp, shares = _shares(several, run)
    plan = stop_of(episodes, stop)
    promises, _ = promises_and_limits(promise)
    if horizon is None:
        raise InputError("horizon: needed, expected the number of steps at which episodes are cut")
    several.check_world(plant.env, horizon)
    several.check_logs(logs)
    given = promises[0] if promises else None
    chosen = affordable(several, shares, given, plant.env, logs, horizon=horizon, gamma=gamma)
    several, shares = chosen.policies, chosen.shares
    settings = PairedSettings(
        several,
        inference,
        gamma,
        plan.episodes or 1000,
        seed,
        logs=logs,
        controls=chosen.controls,
    )
    costs = settings.costs(given, float(shares[several.baseline]), horizon)  # its share only grows
    with (
        follow_batches(progress) as listener,
        _opened(plant, horizon, needed=bool(promises)) as pool,
    ):
        joint = joint_context(
            history, settings.planned, inference.return_bound, env=plant.env, pool=pool, seed=seed
        )
        settings = replace(settings, context=joint)
        rollout = MixtureRollout(pool, several, horizon=horizon, seed=seed, logs=logs)
        totals = PairedTotals(settings, plan, shares, ramp)
        outcome = run_mixture(
            rollout.run, totals, plan, costs, side_by_side=len(pool), progress=listener
        )
    ran = chosen.words
    if ramp is not None:
        parts = ", then ".join(f"{part:g}" for part in ramp.shares)
        ran += f", by a ramp: new policies had {parts} of these shares, the baseline the rest"
    return comparison_of(outcome, settings, ran, costs)


def _asked(
    policies: Any, env: Any, horizon: int | None, baseline: str | None
) -> tuple[Any, float, int | None, str | None]:
    """Policies by name, discount, horizon, baseline; a `Question` has all of them."""
    gamma: float | None = None
    if isinstance(policies, Question):
        gamma = policies.gamma
        if horizon is not None and policies.horizon not in (None, horizon):
            raise InputError(
                f"horizon: got {horizon}, the question has {policies.horizon}; leave it out"
            )
        horizon = policies.horizon if horizon is None else horizon
        if baseline is None and policies.baseline is not None:
            baseline = policies.names[policies.baseline]
        policies = dict(zip(policies.names, policies.policies, strict=True))
    if isinstance(env, TabularMDP):
        if gamma not in (None, env.gamma):
            raise InputError(f"gamma: got {gamma}, the TabularMDP has {env.gamma}; leave it out")
        gamma = env.gamma
        horizon = env.horizon if horizon is None else horizon
    if horizon is not None:
        horizon = check_whole("horizon", horizon, 1, " of steps")
    return policies, 1.0 if gamma is None else gamma, horizon, baseline


def _refuse_plan(run: Any, episodes: Any, stop: Any, horizon: Any) -> None:
    """Nothing is run where the episodes are recorded."""
    given = {"run": run, "episodes": episodes, "stop": stop, "horizon": horizon}
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise InputError(
            f"{', '.join(names)}: got it with recorded episodes, of which nothing is run; leave it "
            "out. If what they showed has decided how many there are, try "
            "inference=Inference(interval='sequence')"
        )


def _recorded(
    test: ABTest, settings: PairedSettings, promise: Promise | None, context: History | None
) -> Comparison:
    """The result of an A/B test that was run already."""
    policies, inference = settings.policies, settings.inference
    found = assigned(test, policies)
    episodes, shares = found.episodes, found.episodes.shares[0]
    # what the episodes showed must not decide how much of the context is removed
    planned = 1 if inference.interval == "sequence" else len(episodes)
    joint = joint_context(context, planned, inference.return_bound)
    settings = replace(settings, planned=len(episodes), context=joint)
    promises, _ = promises_and_limits(promise)
    share = float(shares[policies.baseline])
    costs = settings.costs(promises[0] if promises else None, share, episodes.horizon)
    ran = f"a recorded A/B test ({policies.in_words(shares)})"
    caveats = () if found.by_labels is None else (found.by_labels,)
    outcome = judge_recorded(found, settings)
    return comparison_of(outcome, settings, ran, costs, (*found.notes, *caveats), caveats)


def _shares(policies: PolicySet, run: Any) -> tuple[Ramping | None, Floats]:
    """What `run` says: a ramp, or shares."""
    if run is None or isinstance(run, Mapping):
        return None, shares_of(policies, run)
    if isinstance(run, Ramping) and not isinstance(run, np.ndarray):
        if not run.shares or run.shares[0] <= 0:
            raise InputError(
                f"run: got a ramp from {run.shares!r:.40}, expected shares above 0: episodes "
                "without a policy have no value for it"
            )
        return run, shares_of(policies, None)
    raise InputError(
        f"run: got {type(run).__name__}, expected None (equal shares), shares by name such as "
        '{"today": 0.9, "new": 0.1}, or Ramp()'
    )


def _opened(plant: Plant, horizon: int, *, needed: bool) -> EnvironmentPool:
    env = plant.env
    if plant.crew is not None:
        raise InputError(
            "workers: got them in a comparison, whose episodes run in this process; leave them out"
        )
    if not isinstance(env, TabularMDP):
        return open_environments(env, plant.side_by_side, plant.cost, plant.signals, needed=needed)
    if env.horizon < horizon:
        raise InputError(f"horizon: got {horizon}, expected at most the MDP's {env.horizon}")
    count = plant.side_by_side or SIDE_BY_SIDE
    return open_environments(TabularFleet(env, count), cost=plant.cost, signals=plant.signals)


def comparison_of(
    outcome: Outcome,
    settings: PairedSettings,
    ran: str,
    costs: CostTerms,
    warnings: tuple[str, ...] = (),
    caveats: tuple[str, ...] = (),
) -> Comparison:
    """The result of what was run, or recorded."""
    episodes, inferrer = outcome.episodes, outcome.inferrer
    policies, inference = settings.policies, settings.inference
    K, base = policies.asked, policies.baseline
    failed = {one.policy for one in episodes.failures}
    values = {policies.names[k]: inferrer.value(k) for k in policies.in_order}
    spread = ab_variance(episodes, settings.gamma, np.ones(len(policies)))[1]
    differences: dict[str, Difference] = {}
    for k in policies.in_order[1:]:
        differences[policies.names[k]] = difference_of(
            inferrer.difference(k, base),
            failed=bool({k, base} & failed),
            ab_variance=K * float(spread[k] + spread[base]),
            shared=_shared(episodes, k, base),
            decided_after=outcome.decided_after.get(k),
        )
    certificate = ratio = None
    spent: dict[str, Contrast] = {}
    if episodes.cost.any():
        paid = inferrer.about(costs.each(episodes, CostsAhead(episodes.horizon)))
        spent = {policies.names[k]: paid.value(k) for k in policies.in_order}
        found = costs.certificate(episodes, anytime=outcome.anytime)
        certificate = found if costs.promise is not None else None
        ratio = found.ratio if costs.compared == "reference" else None
    some, by_context = _doubts(differences), _context_reports(outcome, policies, settings.context)
    for report in list(by_context.values())[:1]:  # warnings are about the history, for all the same
        warnings, caveats = (*warnings, *report.warnings), (*caveats, *report.dependent)
    if (void := inferrer.violated) is not None:
        warnings, caveats = (*warnings, void), (*caveats, void)
    total = float(episodes.cost.sum()) + sum(one.cost for one in episodes.lost)
    picked = outcome.judged.chosen[:, :K]
    chosen = np.bincount(picked.ravel(), minlength=len(ESTIMATORS)) / picked.size
    return Comparison(
        baseline=policies.names[base],
        values=values,
        differences=differences,
        best=_best(outcome, policies, values),
        cost=Spent(float(episodes.cost.sum(axis=1).mean()), total),
        certificate=certificate,
        cost_ratio=ratio,
        costs=spent,
        ran=ran,
        stopped=outcome.stopped,
        episodes=len(episodes),
        lost=len(episodes.lost),
        shares={policies.names[k]: float(outcome.shares[k]) for k in policies.in_order},
        estimators={
            name: float(share) for name, share in zip(ESTIMATORS, chosen, strict=True) if share
        },
        failures={
            policies.names[one.policy]: f"{one.reason} in episode {one.episode}, step {one.step}"
            for one in episodes.failures
        },
        dropped={policies.names[k]: after for k, after in outcome.dropped.items()},
        warnings=(*warnings, *some),
        caveats=(*caveats, *some),
        alpha=inference.alpha,
        looks=tuple(
            (n, {policies.names[k]: (d.estimate, d.low, d.high) for k, d in seen.items()})
            for n, seen in outcome.looks
        ),
        context=by_context,
        recorded=episodes if inference.keep else None,
    )


def _context_reports(
    outcome: Outcome, policies: PolicySet, context: JointContext | None
) -> dict[str, ContextReport]:
    """What exogenous paths have done for each difference."""
    plain = outcome.plain
    if context is None or plain is None:
        return {}
    base, intervals, squares = policies.baseline, {}, {}
    for k in policies.in_order[1:]:
        name = policies.names[k]
        without, found = plain.difference(k, base), outcome.inferrer.difference(k, base)
        intervals[name], squares[name] = without, (without.se**2, found.se**2)
    return reports_of(context, outcome.episodes, intervals, squares)


def _best(outcome: Outcome, policies: PolicySet, values: Mapping[str, Contrast]) -> Best | None:
    """The policy with the largest estimate, of those with a value."""
    known = {
        name: value
        for name, value in values.items()
        if math.isfinite(value.estimate) and policies.names.index(name) not in outcome.dropped
    }
    if not known:
        return None
    name = max(known, key=lambda name: known[name].estimate)
    names = policies.names[: policies.asked]
    k, among = names.index(name), np.array([one in known for one in names])
    better = outcome.inferrer.better(among)
    return Best(
        name,
        bool(better[k].sum() == among.sum() - 1),
        outcome.inferrer.value(k, among=policies.asked),
    )


def _shared(episodes: MixtureEpisodes, k: int, j: int) -> float:
    """Share of the episodes that serve both policies: 0 where none can be one of the other's."""
    shares, weights = episodes.shares[:, [k, j]], episodes.weights[:, -1, [k, j]]
    both = np.flatnonzero(shares.min(axis=1) > 0)
    mass = (shares * weights)[both]
    total = float(mass.sum())
    return float(2.0 * mass.min(axis=1, initial=np.inf).sum() / total) if total > 0 else math.nan


def _doubts(differences: Mapping[str, Difference]) -> tuple[str, ...]:
    """What speaks against trusting the intervals, in words."""
    doubts = []
    for name, d in differences.items():
        text = None if d.flat or not math.isfinite(d.half_width) else few_events(d.events, d.n)
        if text is not None:
            doubts.append(text if len(differences) == 1 else f"{name}: {text}")
    return tuple(doubts)

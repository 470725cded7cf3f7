"""The whole flow: run a policy in place of the target, and say what the target is worth.

source (simulator or environments)        episodes by number, in batches
  -> batch: one value per episode         mean J(pi) given all earlier episodes
  -> tally: running sums                  estimate, interval, certificate, diagnostics
  -> guard: switch to the target?         when the promise is refuted, or a limit is passed
  -> plan: another batch?                 episodes, precision or cost budget, whichever is first
tally -> Evaluation
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from scopeval.arrays import check_whole
from scopeval.collection.environment_pool import CostFunction
from scopeval.collection.episode_log import EpisodeLog
from scopeval.collection.episodes import Episodes
from scopeval.errors import InputError
from scopeval.estimation.estimators import QFunction, controlled
from scopeval.estimation.intervals import Interval
from scopeval.evaluation.batches import summarize
from scopeval.evaluation.result import Evaluation, GuardReport
from scopeval.evaluation.running_totals import IntervalMethod, Tally
from scopeval.evaluation.sources import open_source
from scopeval.evaluation.stopping import INTERRUPTED, Plan
from scopeval.exact import TabularMDP
from scopeval.policies.adapters import as_policy
from scopeval.policies.protocols import Behavior, ContinuousPolicy
from scopeval.safety.guard import Guard

__all__ = ["EpisodeLog", "Evaluation", "Running", "estimate", "evaluate"]

ESTIMATORS = ("auto", "mc", "is", "pdis", "dr")


@dataclass(frozen=True)
class Running:
    """How an evaluation under way stands.

    Attributes:
        done: episodes started and over.
        total: of how many; None: until precision or budget is reached.
        interval: anytime-valid, so that it may be looked at.
        cost: spent so far.
    """

    done: int
    total: int | None
    interval: Interval
    cost: float


def evaluate(
    env: Any,
    target: Any,
    behavior: Any = None,
    *,
    horizon: int | None = None,
    episodes: int | None = None,
    precision: float | None = None,
    cost_budget: float | None = None,
    alpha: float = 0.05,
    epsilon: float | None = None,
    gamma: float | None = None,
    estimator: str = "auto",
    interval: IntervalMethod = "t",
    guard: bool | Guard | None = True,
    cost: str | CostFunction | None = None,
    seed: int = 0,
    batch: int | None = None,
    chunk: int | None = None,
    keep: bool = False,
    progress: Callable[[Running], None] | None = None,
) -> Evaluation:
    """Estimate J(target) by running `behavior` in its place.

    At least one of `episodes`, `precision` and `cost_budget` says when to stop; the first to be
    reached does. With `episodes` alone the interval is the one for a fixed number of episodes;
    otherwise, or when the guard has switched, it is an anytime-valid sequence (see `tally`).

    Args:
        env: a Gymnasium environment, the name of a registered one, a function that makes one, or a
            `TabularMDP`, which the compiled simulator runs.
        target: pi, in any form that `as_policy` takes.
        behavior: mu: what `design` or `exact.design` made for this target, or any policy over the
            same actions. None runs the target itself.
        horizon: T; may be left out for a `TabularMDP` and for a behavior from `design`.
        episodes: how many to start (at most).
        precision: stop when the anytime-valid interval is +- this wide, or narrower.
        cost_budget: start no more episodes once their costs (not discounted) reach this.
        alpha: probability with which an interval may miss, and the guard may alarm for nothing.
        epsilon: the promise to certify and guard: mu costs at most 1 + epsilon times pi. Default:
            what a behavior from `design` promises, else 0.
        gamma: discount. Default: the `TabularMDP`'s or the behavior's own, else 1.
        estimator: "mc", "is", "pdis" or "dr"; "auto": mc for the target itself, dr where the
            behavior brings a control variate, else pdis.
        interval: for a fixed number of episodes: "t" or "normal"; "sequence": anytime-valid always.
        guard: watch the promise and let the target run the remaining episodes once it is refuted;
            a `Guard` of your own may also have limits, which act at once, within an episode.
        cost: where a step's cost is found, as in `collect`; "none": there are no costs.
        seed: of the episodes; the same seed gives the same result.
        batch: environments to run side by side.
        chunk: episodes between two looks. Default 64, in the simulator growing with the number of
            episodes done.
        keep: keep all that happened in `.episodes`.
        progress: called after every batch.

    Returns:
        An `Evaluation`. Ctrl-C ends the evaluation with what was finished by then.

    Raises:
        InputError: an argument is wrong.
        PlantError: the environment cannot be made, or no episode of it can be finished.
    """
    policy = as_policy(target)
    how = behavior if behavior is None or isinstance(behavior, Behavior) else as_policy(behavior)
    recipe = getattr(how, "recipe", None)  # of a behavior from `design`
    promise = float(epsilon if epsilon is not None else getattr(recipe, "epsilon", 0.0))
    name = _estimator(estimator, on_policy=how is None)
    check_whole("seed", seed, 0)
    watch = _guard(guard, promise, alpha) if how is not None and cost != "none" else None
    if cost == "none" and cost_budget is not None:
        raise InputError("cost_budget: given with cost='none', expected costs to count")
    plan = Plan(episodes, precision, cost_budget, chunk)
    tally = Tally(
        alpha=alpha,
        epsilon=promise,
        method=interval,
        target_n=episodes or 1000,
        on_policy=how is None,
        keep=keep,
    )
    asked = _counts(how)
    source = open_source(
        env,
        policy,
        how,
        horizon=horizon,
        gamma=_gamma(gamma, env, recipe),
        estimator=name,
        cost=cost,
        seed=seed,
        batch=batch,
        keep=keep,
        guard=watch,
    )
    plan.suit(source, watch)
    switched: int | None = None
    try:
        while count := plan.next(tally):
            found = source.run(tally.started, count, by_target=switched is not None)
            tally.add(found)
            plan.look(found)
            if watch is not None and switched is None:
                state = watch.update(
                    found.cost,
                    found.weighted_cost,
                    spent=found.spent,
                    lost=sum(x.cost for x in found.lost),
                    covered=source.uncovered is None,
                )
                switched = tally.started if state.tripped else None
            if progress is not None:
                now = tally.interval(anytime=True)
                progress(Running(tally.started, episodes, now, tally.total))
    except KeyboardInterrupt:
        plan.stopped = INTERRUPTED
    finally:
        source.close()
    if not tally.finished:
        raise KeyboardInterrupt  # before there was anything to say
    return tally.result(
        anytime=plan.adaptive or switched is not None,
        estimator=name,
        stopped=plan.stopped,
        uncovered=source.uncovered,
        costs=cost != "none",
        guard=None if watch is None else GuardReport(switched, watch.state),
        behavior={key: n - asked[key] for key, n in _counts(how).items()},
    )


def estimate(
    episodes: Episodes,
    target: Any = None,
    *,
    q: Any | QFunction = None,
    alpha: float = 0.05,
    epsilon: float = 0.0,
    gamma: float = 1.0,
    estimator: str = "auto",
    interval: IntervalMethod = "t",
    anytime: bool = False,
) -> Evaluation:
    """The same result from episodes that exist already: your own plant's, or those of `collect`.

    Args:
        episodes: what happened, as `EpisodeLog` or `collect` wrote it down.
        target: None: the target that the episodes were recorded for. Another one over the same
            finite actions: its probabilities take the place of the recorded ones.
        q: a control variate for `target`, as in `estimators.doubly_robust`, that was not learned
            from these episodes.
        alpha: probability with which an interval may miss.
        epsilon: the promise to certify.
        gamma: discount.
        estimator: as in `evaluate`.
        interval: as in `evaluate`.
        anytime: the number of episodes was decided by what they showed: the intervals are then
            anytime-valid.

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
    name = _estimator(estimator, on_policy=own and episodes.control is None)
    found = summarize(episodes, gamma, name)
    if not len(found):
        why = f"; the first was lost: {found.lost[0].reason}" if found.lost else ""
        raise InputError(f"episodes: got none that was finished, expected at least one{why}")
    tally = Tally(
        alpha=alpha,
        epsilon=epsilon,
        method=interval,
        target_n=max(len(found), 50),
        on_policy=own,
        keep=True,
    )
    tally.add(found)
    return tally.result(
        anytime=anytime or episodes.interrupted,
        estimator=name,
        stopped=INTERRUPTED if episodes.interrupted else "all episodes that were given",
        uncovered=None,
        costs=bool(episodes.cost.any()),
        guard=None,
        behavior={},
    )


def _estimator(name: str, *, on_policy: bool) -> str:
    if name not in ESTIMATORS:
        raise InputError(
            f"estimator: got {name!r}, expected one of {', '.join(ESTIMATORS)}; others are not "
            "unbiased, or their values not independent, so that no interval here would be honest: "
            "see scopeval.estimation.estimators"
        )
    return "mc" if name == "auto" and on_policy else name


def _guard(guard: bool | Guard | None, epsilon: float, alpha: float) -> Guard | None:
    if isinstance(guard, Guard):
        return guard
    return Guard(epsilon=epsilon, alpha=alpha) if guard else None


def _gamma(gamma: float | None, env: Any, recipe: Any) -> float:
    if isinstance(env, TabularMDP):
        if gamma not in (None, env.gamma):
            raise InputError(f"gamma: got {gamma}, the TabularMDP has {env.gamma}; leave it out")
        return env.gamma
    return float(gamma if gamma is not None else getattr(recipe, "gamma", 1.0))


def _counts(behavior: Any) -> dict[str, int]:
    """How often a learned behavior was asked, and why it kept to the target."""
    return asdict(behavior.counts) if hasattr(behavior, "recipe") else {}


def _retargeted(episodes: Episodes, target: Any, q: Any) -> Episodes:
    """The same episodes as evidence about `target`."""
    policy = as_policy(target)
    if isinstance(policy, ContinuousPolicy) or episodes.action.ndim != 2:
        raise InputError("target: another target needs a finite action set; leave it out")
    probs = np.ones_like(episodes.target_prob)
    for t in range(episodes.horizon):
        rows = np.flatnonzero(episodes.length > t)
        if len(rows):
            table = policy.probs(episodes.obs[rows, t], t)
            probs[rows, t] = table[np.arange(len(rows)), episodes.action[rows, t]]
    if q is not None:
        return controlled(replace(episodes, target_prob=probs), q, policy)
    if np.abs(probs - episodes.target_prob).max(initial=0.0) <= 1e-9:
        return episodes
    none = np.zeros(len(episodes), np.bool_)
    return replace(episodes, target_prob=probs, control=None, baseline=None, by_target=none)

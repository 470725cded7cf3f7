"""What evaluation reads of episodes: numbers, one per episode, in batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import Bools, Floats, as_floats
from scopeval.collection.episodes import Episodes, LostEpisode
from scopeval.context.history import History
from scopeval.errors import InputError
from scopeval.estimation.estimators import (
    BIASED,
    ESTIMATORS,
    Estimator,
    doubly_robust,
    pdis,
    pdis_cost,
)
from scopeval.policies.protocols import ContinuousPolicy, Policy
from scopeval.question.inference import Inference
from scopeval.question.promise import Promise
from scopeval.safety.costs import CostControl, EpisodeCosts, costs_of

__all__ = ["Batch", "refuse_dependent", "refuse_terms", "summarize", "unbiased_estimator"]


@dataclass(frozen=True)
class Batch:
    """One number per finished episode, [k] each, and what went wrong.

    Attributes:
        value: unbiased for J(pi).
        returned: the plain return, discounted.
        weight: the importance weight of the whole episode.
        costs: discounted as the returns are, and weighted; what the promise is about.
        spent: what the episode cost, not discounted.
        target_spent: the same weighted: unbiased for the target's.
        by_target: the whole episode was run by the target itself.
        controlled: a control variate was used.
        fallbacks: steps at which the behavior policy failed and fell back to the target policy.
        guarded: steps that a guard gave to the target, or to the baseline.
        handed_over: episodes with such steps.
        steps: of all finished episodes.
        lost: unfinished episodes.
        interrupted: the user stopped it.
        episodes: everything that was recorded, where it is kept.
    """

    value: Floats
    returned: Floats
    weight: Floats
    costs: EpisodeCosts
    spent: Floats
    target_spent: Floats
    by_target: Bools
    controlled: bool = False
    fallbacks: int = 0
    guarded: int = 0
    handed_over: int = 0
    steps: int = 0
    lost: tuple[LostEpisode, ...] = ()
    interrupted: bool = False
    episodes: Episodes | None = None


def summarize(
    episodes: Episodes,
    gamma: float,
    estimator: Estimator,
    cost_control: CostControl | None = None,
    promise: Promise | None = None,
    target: Policy | ContinuousPolicy | None = None,
    cap: float = math.inf,
) -> Batch:
    """The numbers of collected episodes; estimator "auto": dr with a control variate, else pdis.

    Args:
        episodes: finished.
        gamma: discount.
        estimator: gives the values.
        cost_control: finds a control variate for costs; None: none.
        promise: what costs are compared with; None: the target's.
        target: the target policy, to check whether a reference policy is covered.
        cap: the weight that no episode can exceed.
    """
    finite = None if isinstance(target, ContinuousPolicy) else target
    costs = costs_of(episodes, gamma, cost_control, promise, finite)
    controlled = episodes.control is not None
    returned, spent = episodes.returns(gamma), episodes.costs()
    value = target_spent = np.empty(0)
    if len(episodes):
        values: Callable[[Episodes, float], Floats] = pdis
        if estimator == "auto" and controlled:
            values = doubly_robust
        elif isinstance(estimator, str) and estimator != "auto":
            values = ESTIMATORS[estimator]
        value = _given(estimator, episodes) if callable(estimator) else values(episodes, gamma)
        target_spent = pdis_cost(episodes)
    return Batch(
        value=value,
        returned=returned,
        weight=episodes.weights,
        costs=replace(costs, cap=cap),
        spent=spent,
        target_spent=target_spent,
        by_target=episodes.by_target,
        controlled=controlled and estimator in ("auto", "dr"),
        fallbacks=int(episodes.fallbacks.sum()),
        guarded=int(episodes.guarded.sum()),
        handed_over=int((episodes.guarded > 0).sum()),
        steps=int(episodes.length.sum()),
        lost=episodes.lost,
        interrupted=episodes.interrupted,
        episodes=episodes,
    )


def _given(estimator: Callable[[Episodes], ArrayLike], episodes: Episodes) -> Floats:
    """The values of the user's function, checked."""
    values = as_floats("estimator", estimator(episodes), ndim=(1,), axes=("episode",))
    if len(values) != len(episodes):
        raise InputError(
            f"estimator: the function gave {len(values)} values, expected one for each of "
            f"{len(episodes)} episodes"
        )
    return values


def refuse_dependent(estimator: Callable[[Episodes], ArrayLike], episodes: Episodes) -> None:
    """A function whose value of an episode depends on which others it is given with."""
    whole, part = np.asarray(_given(estimator, episodes)), np.arange(len(episodes)) % 2 == 0
    alone = _given(estimator, episodes.select(part))
    if np.abs(alone - whole[part]).max(initial=0.0) > 1e-9 * np.abs(whole).max(initial=1.0):
        raise InputError(
            "estimator: the function gives an episode another value among other episodes, and "
            "evaluate calls it batch by batch; expected values of each episode alone; collect "
            "first: estimate(collect(env, policy, run, episodes=1000), "
            "inference=Inference(estimator=...))"
        )


def unbiased_estimator(estimator: Estimator, *, on_policy: bool) -> Estimator:
    """What gives the values while episodes run; "auto" is "mc" for the target itself."""
    if not isinstance(estimator, str):
        return estimator
    names = ("auto", *ESTIMATORS)
    if estimator in BIASED:
        raise InputError(
            f"estimator: got {estimator!r}, which needs all episodes at once; expected a function "
            f"or one of {', '.join(names)} while episodes run; for others collect first: "
            "estimate(collect(env, policy, run, episodes=1000), policy, "
            f"inference=Inference(estimator={estimator!r}))"
        )
    if estimator not in names:
        raise InputError(
            f"estimator: got {estimator!r}, expected one of {', '.join(names)}, or a function: "
            "Episodes -> one value per episode"
        )
    return "mc" if estimator == "auto" and on_policy else estimator


def refuse_terms(by: Inference, context: History | None) -> None:
    """What needs the values of an estimator that is offered here, with another one."""
    estimator = by.estimator
    if isinstance(estimator, str) and estimator not in BIASED:
        return
    if by.return_bound is not None or context is not None:
        which = repr(estimator) if isinstance(estimator, str) else "a function"
        given = "context" if by.return_bound is None else "return_bound"
        raise InputError(
            f"estimator: got {which} with {given}, expected one of {', '.join(ESTIMATORS)} there; "
            f"leave {given} out"
        )

"""Where evaluation gets its episodes from: numbers per episode, in batches, by either policy.

Two kinds of source give the same `Batch`: environments (`CollectedSource`, which also serves a
`TabularMDP` whose episodes are kept), and the compiled simulator of a `TabularMDP`
(`simulated_source.SimulatedSource`, where nothing but the numbers is kept). Both can be asked at
any time to let the target itself run; the control variate, if there is one, stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from scopeval.arrays import Bools, Floats
from scopeval.collection.collector import NoEpisodeError
from scopeval.collection.episodes import Episodes, LostEpisode
from scopeval.estimation.estimators import ESTIMATORS, doubly_robust, pdis, pdis_cost
from scopeval.policies.protocols import Policy
from scopeval.question.promise import Promise
from scopeval.safety.cost_control import CostControl
from scopeval.safety.episode_costs import EpisodeCosts, costs_of

__all__ = ["Batch", "CollectedSource", "Source", "summarize"]


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


class Source(Protocol):
    """Runs episodes by number, in batches."""

    @property
    def side_by_side(self) -> int:
        """How many episodes run at the same time; a batch should be a multiple of it."""
        ...

    @property
    def quick(self) -> bool:
        """Whether episodes take hardly any time, so that batches should be large."""
        ...

    @property
    def uncovered(self) -> str | None:
        """Which actions of the target the behavior policy leaves out; None: none known."""
        ...

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        ...


class RunEpisodes(Protocol):
    """Runs episodes first .. first+count-1 and keeps them, as `Rollout.run` does."""

    def __call__(self, first: int, count: int, *, by_target: bool) -> Episodes:
        """Run them."""
        ...


@dataclass(frozen=True)
class CollectedSource:
    """Episodes that are collected whole and then summarized."""

    collect: RunEpisodes
    gamma: float
    estimator: str
    side_by_side: int
    quick: bool = False
    uncovered: str | None = None
    cost_control: CostControl | None = None
    promise: Promise = field(default_factory=Promise)
    target: Policy | None = None

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        episodes = self.collect(first, count, by_target=by_target)
        if not first and episodes.lost and not len(episodes) and not episodes.interrupted:
            raise NoEpisodeError(episodes)
        found = summarize(episodes, self.gamma, self.estimator, self.cost_control)
        if self.promise.compared == "target":
            return found
        costs = costs_of(episodes, self.gamma, None, self.promise, self.target)
        return replace(found, costs=costs)


def summarize(
    episodes: Episodes, gamma: float, estimator: str, cost_control: CostControl | None = None
) -> Batch:
    """The numbers of collected episodes; estimator "auto": dr with a control variate, else pdis."""
    controlled = episodes.control is not None
    returned, spent = episodes.returns(gamma), episodes.costs()
    value = target_spent = np.empty(0)
    if len(episodes):
        values: Callable[[Episodes, float], Floats] = pdis
        if estimator == "auto" and controlled:
            values = doubly_robust
        elif estimator != "auto":
            values = ESTIMATORS[estimator]
        value = values(episodes, gamma)
        target_spent = pdis_cost(episodes)
    return Batch(
        value=value,
        returned=returned,
        weight=episodes.weights,
        costs=costs_of(episodes, gamma, cost_control),
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

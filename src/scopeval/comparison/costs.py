"""What a comparison has cost, against the baseline's cost: certificate and guard."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scopeval.arrays import Floats
from scopeval.collection.episodes import discounts
from scopeval.comparison.estimators import weighted_costs
from scopeval.comparison.mixture_episodes import MixtureEpisodes
from scopeval.errors import InputError
from scopeval.question.promise import Compared, Promise
from scopeval.safety.certificate import Certificate, Ledger
from scopeval.safety.cost_bound import CostBound, cost_bound_of
from scopeval.safety.costs import EpisodeCosts, limit_costs
from scopeval.safety.guard import Guard

__all__ = ["CostTerms", "cost_terms_of"]


@dataclass(frozen=True)
class CostTerms:
    """What is promised about the cost of a comparison.

    Attributes:
        promise: None: nothing is promised; the comparison may cost what an A/B test costs.
        baseline: number of the policy that the cost is compared with.
        gamma: discount of the promise, that of the returns.
        bound: what is known about the costs of episodes.
        alpha: error probability of certificate and guard.
    """

    promise: Promise | None
    baseline: int
    gamma: float
    bound: CostBound | None
    alpha: float

    @property
    def compared(self) -> Compared:
        """What the promise compares with."""
        limit = self.promise is not None and self.promise.limit is not None
        return "limit" if limit else "reference"

    def guard(self) -> Guard | None:
        """A guard of the promise; None: there is nothing to guard."""
        if self.promise is None or not self.promise.guarded:
            return None
        return Guard(self.promise, alpha=self.alpha, bound=self.bound, compared=self.compared)

    def of(self, episodes: MixtureEpisodes) -> EpisodeCosts:
        """Costs of finished episodes, and the baseline's by the same episodes."""
        cost = np.asarray(episodes.cost @ discounts(self.gamma, episodes.horizon))
        largest = episodes.cost.max(axis=1, initial=0.0)
        if self.compared == "limit":
            assert self.promise is not None
            assert self.promise.limit is not None
            return limit_costs(cost, self.promise.limit, largest)
        weights: Floats = episodes.weights[:, :, self.baseline]
        return EpisodeCosts(
            cost,
            weighted_costs(episodes, self.gamma)[:, self.baseline],
            weights[:, -1],
            weights[:, 1:] @ discounts(self.gamma, episodes.horizon),
            largest,
        )

    def certificate(self, episodes: MixtureEpisodes, *, anytime: bool) -> Certificate:
        """The verdict about the promise, or about at most the baseline's cost where none is."""
        ledger = Ledger(self.promise, alpha=self.alpha, bound=self.bound, compared=self.compared)
        ledger.add(self.of(episodes))
        return ledger.certificate(anytime=anytime)


def cost_terms_of(
    promise: Promise | None,
    *,
    baseline: int,
    largest_weight: float,
    horizon: int,
    gamma: float,
    alpha: float,
) -> CostTerms:
    """Checked.

    Args:
        promise: as the user gave it.
        baseline: number of the baseline.
        largest_weight: no episode weighs more for the baseline: 1 over its least share.
        horizon: T.
        gamma: discount.
        alpha: error probability.
    """
    if promise is not None and promise.of is not None:
        raise InputError(
            "promise.of: got it in a comparison, whose promise is about the baseline's cost; "
            "expected Promise(at_most=...) or Promise(limit=...), and baseline='name'"
        )
    bound = None
    if promise is not None and promise.bound.stated:
        bound = cost_bound_of(
            promise.bound.episode,
            promise.bound.step,
            horizon=horizon,
            gamma=gamma,
            largest_weight=largest_weight,
        )
    return CostTerms(promise, baseline, gamma, bound, alpha)

"""The cost of the behavior policy against the target's, proved by bets; needs a stated bound."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from scopeval.arrays import Bools, Floats
from scopeval.estimation.capital import Capital, mean_capital
from scopeval.estimation.running_moments import check_alpha
from scopeval.safety.cost_bound import CostBound
from scopeval.safety.episode_costs import EpisodeCosts

__all__ = ["BoundedComparison", "Ends"]

_LEAST = 1e-3  # smallest loss that is used, relative to the largest: keeps factors finite


class Ends(NamedTuple):
    """Both ends of an interval."""

    low: float
    high: float


class BoundedComparison:
    """Bets on and against the promise, and against other ratios and differences of costs.

    With D(theta) = C - theta P (see `cost_bound`), the promise is E[D(1 + epsilon)] <= 0. Bets are
    placed against E[D(theta)] <= m and against E[D(theta)] >= m for theta = 1 + epsilon and a grid
    of m, and for m = 0 and a grid of theta. The ends of an interval are the outermost hypotheses
    that were not rejected: below the lower end every hypothesis on the grid is rejected. So a wrong
    end means that the hypothesis next to the truth was rejected, which is one test: nothing is lost
    to the number of hypotheses, and the grid costs width but no coverage.

    Its state is a function of the set of episodes taken in: neither their order nor the batches
    matter.

    Args:
        bound: what is known about the costs.
        epsilon: the promise.
        alpha: probability of a wrong end; half of it for each, unless only one is asked for.
        lower_only: only lower ends are asked for, with all of alpha: that of a guard.
    """

    def __init__(
        self, bound: CostBound, epsilon: float, alpha: float, *, lower_only: bool = False
    ) -> None:
        check_alpha(alpha)
        self.bound = bound
        self._threshold = math.log((1 if lower_only else 2) / alpha)
        allowed = 1.0 + epsilon
        steps = _both_ways(1e-3 * 1.25 ** np.arange(37.0))
        parts = _both_ways(1.3 ** -np.arange(36.0)[::-1])
        spans = np.where(parts < 0, allowed, 1.0) * bound.episode
        ratios = allowed * np.exp(steps)
        self._ratio = np.concatenate([ratios, np.full(len(parts), allowed)])
        self._difference = np.concatenate([np.zeros(len(ratios)), parts * spans])
        self._ratios = slice(0, len(ratios))
        self._differences = slice(len(ratios), None)
        self._promise = len(ratios) // 2
        self._above: list[tuple[Capital, bool]] | None = None  # one for each estimate of P
        room = np.maximum(bound.episode - self._difference, _LEAST * bound.episode)
        self._below = None if lower_only else Capital(room)
        self.violated: str | None = None

    def update(self, costs: EpisodeCosts) -> None:
        """Take in a batch of finished episodes."""
        if self.violated is None and len(costs):
            self.violated = self.bound.violation(costs)
        if self.violated is not None or not len(costs):
            return
        cost = costs.cost[:, None]
        estimates = self.bound.estimates(costs)
        if self._above is None:
            self._above = [(self._capital(e.highest), e.needs_coverage) for e in estimates]
        for (capital, _), target in zip(self._above, estimates, strict=True):
            capital.update(cost - self._ratio * target.values[:, None] - self._difference)
        if self._below is not None:
            plain = costs.weighted_cost[:, None]
            self._below.update(self._difference - cost + self._ratio * plain)

    def _capital(self, highest: float) -> Capital:
        """D - m is never below -(theta times the highest estimate) - m."""
        most = self._ratio * highest
        return Capital(np.maximum(most + self._difference, _LEAST * most))

    def refuted(self, *, covered: bool) -> bool:
        """Whether the promise is refuted."""
        return bool(self._rejected_from_below(covered)[self._promise])

    @property
    def safe(self) -> bool:
        """Whether the promise is proved."""
        return bool(self._rejected_from_above()[self._promise])

    def difference(self, *, covered: bool) -> Ends:
        """Ends for E[D]."""
        most = self.bound.episode
        low, high = self._ends(self._differences, self._difference, covered)
        allowed = self._ratio[self._promise]
        return Ends(max(low, -float(allowed) * most), min(high, most))

    def ratio(self, *, covered: bool) -> Ends:
        """Ends for J^c(mu) / J^c(pi)."""
        low, high = self._ends(self._ratios, self._ratio, covered)
        return Ends(max(low, 0.0), high)

    def _ends(self, part: slice, grid: Floats, covered: bool) -> Ends:
        places = grid[part]
        rising = np.logical_and.accumulate(self._rejected_from_below(covered)[part])
        falling = np.logical_and.accumulate(self._rejected_from_above()[part][::-1])
        low = float(places[rising.sum() - 1]) if rising[0] else -math.inf
        high = float(places[-int(falling.sum())]) if falling[0] else math.inf
        return Ends(low, high)

    def _rejected_from_below(self, covered: bool) -> Bools:
        """Hypotheses E[D] <= m that are rejected."""
        logs = [
            capital.logarithm
            for capital, needs_coverage in self._above or []
            if covered or not needs_coverage
        ]
        if self.violated is not None or not logs:
            return np.zeros(len(self._ratio), np.bool_)
        return np.asarray(mean_capital(np.stack(logs)) >= self._threshold)

    def _rejected_from_above(self) -> Bools:
        """Hypotheses E[D] >= m that are rejected."""
        if self.violated is not None or self._below is None:
            return np.zeros(len(self._ratio), np.bool_)
        return np.asarray(self._below.logarithm >= self._threshold)


def _both_ways(steps: Floats) -> Floats:
    """Steps to both sides of zero, in rising order; zero is in the middle."""
    return np.concatenate([-steps[::-1], [0.0], steps])

"""The cost of the behavior policy against the target's, proved by bets; needs a stated bound."""

from __future__ import annotations

import math

import numpy as np

from scopeval.arrays import Bools, Floats, check_alpha
from scopeval.estimation.betting import Capital, mean_capital
from scopeval.safety.cost_bound import CostBound, CostPair
from scopeval.safety.episode_costs import EpisodeCosts

__all__ = ["BoundedComparison"]

_LEAST = 1e-3  # smallest loss that is used, relative to the largest: keeps factors finite


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
        allowed: 1 + epsilon, the multiple of the target's cost that is promised.
        alpha: probability of a wrong end; half of it for each, unless only one is asked for.
        lower_only: only lower ends are asked for, with all of alpha: that of a guard.
    """

    def __init__(
        self, bound: CostBound, allowed: float, alpha: float, *, lower_only: bool = False
    ) -> None:
        check_alpha(alpha)
        self.bound = bound
        self._threshold = math.log((1 if lower_only else 2) / alpha)
        steps = _both_ways(1e-3 * 1.25 ** np.arange(37.0))
        parts = _both_ways(1.3 ** -np.arange(36.0)[::-1])
        spans = np.where(parts < 0, allowed, 1.0) * bound.episode
        ratios = allowed * np.exp(steps)
        self._ratio = np.concatenate([ratios, np.full(len(parts), allowed)])
        self._difference = np.concatenate([np.zeros(len(ratios)), parts * spans])
        self._ratios = slice(0, len(ratios))
        self._differences = slice(len(ratios), None)
        self._promise = len(ratios) // 2
        # one for each kind of estimate of P; the first episodes decide which there are
        self._above: dict[str, Capital] | None = None
        self._below: dict[str, Capital] | None = None
        self._uncovered: set[str] = set()  # kinds that need coverage
        self._lower_only = lower_only
        self.violated: str | None = None

    def update(self, costs: EpisodeCosts) -> None:
        """Take in a batch of finished episodes."""
        if self.violated is None and len(costs):
            self.violated = self.bound.violation(costs)
        if self.violated is not None or not len(costs):
            return
        above = self.bound.for_refutation(costs)
        below = () if self._lower_only else self.bound.for_safety(costs)
        if self._above is None or self._below is None:
            self._above = {e.kind: self._capital_above(e) for e in above}
            self._below = {e.kind: self._capital_below(e) for e in below}
            self._uncovered = {e.kind for e in above if e.needs_coverage}
        for pair in above:
            if pair.kind in self._above:
                self._above[pair.kind].update(self._excess(pair))
        for pair in below:
            if pair.kind in self._below:
                self._below[pair.kind].update(-self._excess(pair))

    def _excess(self, pair: CostPair) -> Floats:
        """D(theta) - m, [k, hypotheses]."""
        owed = self._ratio * pair.target[:, None]
        return np.asarray(pair.behavior[:, None] - owed - self._difference, np.float64)

    def _capital_above(self, pair: CostPair) -> Capital:
        """D - m is never below what its ends say."""
        most = self._ratio * pair.target_end - pair.behavior_end
        return Capital(np.maximum(most + self._difference, _LEAST * most))

    def _capital_below(self, pair: CostPair) -> Capital:
        """D - m is never above what its ends say."""
        most = pair.behavior_end - self._ratio * pair.target_end
        return Capital(np.maximum(most - self._difference, _LEAST * pair.behavior_end))

    def refuted(self, *, covered: bool) -> bool:
        """Whether the promise is refuted."""
        return bool(self._rejected_from_below(covered)[self._promise])

    @property
    def safe(self) -> bool:
        """Whether the promise is proved."""
        return bool(self._rejected_from_above()[self._promise])

    def difference(self, *, covered: bool) -> tuple[float, float]:
        """Ends for E[D]."""
        most = self.bound.episode
        low, high = self._ends(self._differences, self._difference, covered)
        allowed = self._ratio[self._promise]
        return (max(low, -float(allowed) * most), min(high, most))

    def ratio(self, *, covered: bool) -> tuple[float, float]:
        """Ends for J^c(mu) / J^c(pi)."""
        low, high = self._ends(self._ratios, self._ratio, covered)
        return (max(low, 0.0), high)

    def _ends(self, part: slice, grid: Floats, covered: bool) -> tuple[float, float]:
        places = grid[part]
        rising = np.logical_and.accumulate(self._rejected_from_below(covered)[part])
        falling = np.logical_and.accumulate(self._rejected_from_above()[part][::-1])
        low = float(places[rising.sum() - 1]) if rising[0] else -math.inf
        high = float(places[-int(falling.sum())]) if falling[0] else math.inf
        return (low, high)

    def _rejected_from_below(self, covered: bool) -> Bools:
        """Hypotheses E[D] <= m that are rejected."""
        logs = [
            capital.logarithm
            for kind, capital in (self._above or {}).items()
            if covered or kind not in self._uncovered
        ]
        if self.violated is not None or not logs:
            return np.zeros(len(self._ratio), np.bool_)
        return np.asarray(mean_capital(np.stack(logs)) >= self._threshold)

    def _rejected_from_above(self) -> Bools:
        """Hypotheses E[D] >= m that are rejected."""
        if self.violated is not None or not self._below:
            return np.zeros(len(self._ratio), np.bool_)
        logs = np.stack([capital.logarithm for capital in self._below.values()])
        return np.asarray(mean_capital(logs) >= self._threshold)


def _both_ways(steps: Floats) -> Floats:
    """Steps to both sides of zero, in rising order; zero is in the middle."""
    return np.concatenate([-steps[::-1], [0.0], steps])

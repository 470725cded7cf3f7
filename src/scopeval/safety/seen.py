"""Whether the episodes seen are enough to trust an interval for many episodes.

Without a bound on costs no interval is valid for every distribution: a cost that has not been seen
yet may be anything. These checks find the cases in which an interval from the central limit theorem
is known to mislead, and say which. They make a verdict more careful, they do not prove it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from scopeval.estimation.running_moments import Moments
from scopeval.estimation.weight_diagnostics import HEAVY_TAIL, RunningWeights
from scopeval.safety.episode_costs import EpisodeCosts

__all__ = ["RESOLUTION", "UNSEEN", "Seen"]

RESOLUTION = 1e-6  # differences below this part of the cost are rounding of the weights

#: Rule of three: an event of probability 3 / n has been missed by n episodes with probability 5 %.
#: A verdict must survive that many more episodes of the worst kind that those seen suggest.
UNSEEN = 3

_FEWEST_EVENTS = 10  # episodes with any cost
_FEWEST_EFFECTIVE = 30  # equally weighted episodes
_FAR = 3.0  # standard errors of the mean weight


@dataclass
class Seen:
    """What the episodes so far have shown, for judging intervals; a function of their set."""

    episodes: int = 0
    events: int = 0  # episodes with a cost, or a weighted one
    largest_cost: float = 0.0
    largest_weighted: float = 0.0
    same: bool = True  # the behavior policy acted as the target does in every episode
    equal: bool = True  # cost and weighted cost are equal in every episode
    weighed: bool = True  # weights are known
    covered: bool = True  # no action is known to be left out
    limit: float = 0.0  # that the promise is about; 0: the cost of a policy
    _weights: RunningWeights = field(default_factory=RunningWeights)
    _mean: Moments = field(default_factory=Moments)  # of the weights

    def update(self, costs: EpisodeCosts) -> None:
        """Take in a batch."""
        if not len(costs):
            return
        g, w = costs.cost, costs.weighted_cost
        self.episodes += len(costs)
        self.events += int(((g != 0) | ((w != 0) & (costs.limit is None))).sum())
        self.largest_cost = max(self.largest_cost, float(g.max()))
        self.largest_weighted = max(self.largest_weighted, float(w.max()))
        gap = np.abs(g - w) <= RESOLUTION * np.maximum(np.abs(g), np.abs(w))
        self.equal &= bool(gap.all())
        self.covered &= costs.covered
        if costs.limit is not None:  # there is nothing that could be the same, nor any weight
            self.same = self.weighed = False
            self.limit = costs.limit
        elif costs.weight is None:
            self.weighed = False
            self.same &= bool((gap & (g != 0)).all())
        else:
            self._weights.update(costs.weight)
            self._mean.merge(costs.weight)
            self.same &= bool(gap.all() and np.abs(costs.weight - 1.0).max() <= RESOLUTION)

    def doubts(self, *, covered: bool) -> tuple[str, ...]:
        """Why no interval from these episodes should be trusted, in words.

        Args:
            covered: the behavior policy takes every action of the target, so that weights must
                average 1.
        """
        if self.same:
            return ()
        found = []
        if self.events < _FEWEST_EVENTS:
            found.append(f"only {self.events} of {self.episodes:,} episodes had any cost")
        if self.weighed:
            found += self._weight_doubts(covered)
        return tuple(found)

    def _weight_doubts(self, covered: bool) -> list[str]:
        weights, mean = self._weights.diagnostics, self._mean
        found = []
        error = mean.std / math.sqrt(mean.n)
        if covered and abs(mean.mean - 1.0) > _FAR * error + RESOLUTION:
            found.append(
                f"the weights average {mean.mean:.3f} +- {error:.3f} where 1 is expected, so the "
                "target's cost is not estimated well"
            )
        if weights.effective_size < _FEWEST_EFFECTIVE:
            found.append(
                f"the weights leave an effective number of {weights.effective_size:.1f} episodes"
            )
        if weights.tail_index is not None and weights.tail_index > HEAVY_TAIL:
            found.append(f"the weights have a heavy tail (Pareto k = {weights.tail_index:.2f})")
        return found

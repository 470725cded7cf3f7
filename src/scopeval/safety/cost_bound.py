"""Costs with a stated bound: certificate and guard for any number of episodes and any tail.

Let B be the most that an episode can cost (discounted as the promise is), W_t = rho_0 ... rho_t the
weight after step t, C = sum_t gamma^t c_t the cost and P = sum_t gamma^t W_t c_t the weighted cost
of an episode, costs at least 0. What is bounded, for D = C - theta P with theta > 0:

- **Above**: D <= C <= B, whatever the weights are. Bets on E[D] < 0 are limited by this end only.
  So "safe" needs the bound on the cost and nothing about the weights. Where mu leaves out actions
  of pi, E[P] is below the target's cost and D is too large: "safe" remains right.
- **Below**, if no weight exceeds K: P <= K B, so D >= -theta K B. The behavior policies of a
  frontier have such a cap.
- **Below**, for any weights: W_t has mean 1, so the weighted cost may be counted from the top. With
  s the most that a step can cost, and S = sum_{t<T} gamma^t,

      P' = s S - sum_t gamma^t W_t (s - c_t)        and        P'' = B - W_T (B - C)

  have the mean of P (sum_t gamma^t W_t has mean S; and E[W_T C] = E[P]), and P' <= s S, P'' <= B
  because what is subtracted is never negative. So D' = C - theta P' >= -theta s S, and the same
  with B for P''. Where mu leaves out actions of pi, weights average less than 1, P' and P'' are too
  large and D' too small: "refuted" remains right, without any assumption about coverage.

**Lost episodes.** An episode that was cut after k steps would have cost at least what it has cost
so far, C_k, and everything that is subtracted in P' or P'' only grows as it goes on. So, however it
would have ended and for whatever reason it was cut,

    C_k - theta (s S - sum_{t<k} gamma^t W_t (s - c_t))  <=  D'  <=  B

and the same with B for P'', where the weight W_T is unknown and may be 0: D'' >= C_k - theta B.
Bets against the promise count such an episode with the lower end, so their capital is never above
what it would be if no episode were lost, and a refutation remains a proof. To leave lost episodes
out would not: who loses the episodes that are cheap for mu could refute a promise that holds.

With a critic of the target's expected cost, both ends also have an estimate with far less noise
(`cost_control`); capital is shared among all of them.

The price of counting from the top is noise: weights of cheap episodes count too. Where a cap is
known both lower ends are used, half of the capital each, which costs a factor of two at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from scopeval.arrays import Bools, Floats, check_alpha
from scopeval.collection.episodes import discounts
from scopeval.errors import InputError
from scopeval.estimation.betting import Capital, mean_capital
from scopeval.estimation.moments import ROUNDING
from scopeval.question.promise import Bound
from scopeval.safety.costs import RESOLUTION, ROOM, EpisodeCosts

__all__ = ["BoundedComparison", "CostBound", "CostPair", "cost_bound_of"]

_LEAST = 1e-3  # smallest loss that is used, relative to the largest: keeps factors finite


class CostPair(NamedTuple):
    """Estimates of both expected costs, one per episode, and their ends.

    Attributes:
        kind: which ones.
        behavior: [k] the behavior policy's.
        target: [k] the target's.
        behavior_end: the end of `behavior` that matters: its highest for a proof of safety, its
            lowest for a refutation.
        target_end: the end of `target` that matters: its lowest for a proof of safety, its highest
            for a refutation.
        needs_coverage: `target` is too small where mu leaves out actions of pi.
    """

    kind: Literal["weighted", "controlled", "from the top"]
    behavior: Floats
    target: Floats
    behavior_end: float
    target_end: float
    needs_coverage: bool = False


@dataclass(frozen=True)
class CostBound:
    """What is known about the cost of episodes before any is run.

    Attributes:
        episode: the most that an episode can cost, discounted as the promise is.
        step: the most that one step can cost; None: unknown.
        duration: sum_{t<T} gamma^t; used with `step`.
        largest_weight: no weight within an episode exceeds it; inf: unknown.
    """

    episode: float
    step: float | None = None
    duration: float = 0.0
    largest_weight: float = math.inf

    def __post_init__(self) -> None:
        if not (math.isfinite(self.episode) and self.episode > 0):
            raise InputError(
                f"cost_bound: got {self.episode!r}, expected the most that an episode can cost, a "
                "finite number above 0"
            )
        if not self.largest_weight >= 1.0:
            raise InputError(
                f"largest_weight: got {self.largest_weight!r}, expected a number >= 1, because "
                "weights average 1"
            )

    def violation(self, costs: EpisodeCosts) -> str | None:
        """What contradicts the bound, in words; None: nothing."""
        worst = float(costs.cost.max(initial=0.0))
        if worst > self.episode * (1 + ROUNDING):
            return f"an episode cost {worst:.6g}, above the stated bound of {self.episode:.6g}"
        least = min(float(costs.cost.min(initial=0.0)), float(costs.weighted_cost.min(initial=0.0)))
        if least < 0:
            return f"an episode cost {least:.6g}, and a bound needs costs of at least 0"
        if self.step is not None and costs.largest_step is not None:
            worst = float(costs.largest_step.max(initial=0.0))
            if worst > self.step * (1 + ROUNDING):
                return f"a step cost {worst:.6g}, above the stated bound of {self.step:.6g}"
        limit = self.largest_weight * (1 + RESOLUTION)
        if costs.weight is not None and float(costs.weight.max(initial=0.0)) > limit:
            return (
                f"an episode has a weight above {self.largest_weight:g}, the behavior policy's "
                "largest"
            )
        return None

    def for_safety(self, costs: EpisodeCosts) -> tuple[CostPair, ...]:
        """What a proof of safety may use: D is bounded above."""
        most = self.episode
        if not costs.finished:  # the rest may cost all that the bound allows
            costs = replace(costs, cost=np.full(len(costs), most))
        if costs.limit is not None:
            return (CostPair("weighted", costs.cost, costs.weighted_cost, most, costs.limit),)
        pairs = [CostPair("weighted", costs.cost, costs.weighted_cost, most, 0.0)]
        if costs.steps is not None:
            room = ROOM * most
            behavior = costs.steps.behavior.not_above(1.0, most, self.step)
            target = costs.steps.target.not_below(room)
            pairs.append(CostPair("controlled", behavior, target, most + room, -room))
        return tuple(pairs)

    def for_refutation(self, costs: EpisodeCosts) -> tuple[CostPair, ...]:
        """What a refutation may use: D is bounded below."""
        if costs.limit is not None:
            return (CostPair("weighted", costs.cost, costs.weighted_cost, 0.0, costs.limit),)
        if not costs.finished:
            return self._for_refutation_when_cut(costs)
        pairs = []
        cost, most, heaviest = costs.cost, self.episode, self.largest_weight
        if math.isfinite(heaviest):
            top = heaviest * most
            pairs.append(CostPair("weighted", cost, costs.weighted_cost, 0.0, top, True))
            if costs.steps is not None:
                room = ROOM * most
                behavior = costs.steps.behavior.not_below(room)
                target = costs.steps.target.not_above(heaviest, most, self.step)
                pairs.append(CostPair("controlled", behavior, target, -room, top + room, True))
        if self.step is not None and costs.exposure is not None:
            top = self.step * self.duration
            counted = top - self.step * costs.exposure + costs.weighted_cost
            pairs.append(CostPair("from the top", cost, counted, 0.0, top))
        elif costs.weight is not None:
            counted = most - costs.weight * np.maximum(most - cost, 0.0)
            pairs.append(CostPair("from the top", cost, counted, 0.0, most))
        return tuple(pairs)

    def _for_refutation_when_cut(self, costs: EpisodeCosts) -> tuple[CostPair, ...]:
        """The least D of episodes that were cut, however they would have gone on."""
        pairs, cost, most = [], costs.cost, self.episode
        if math.isfinite(self.largest_weight):
            top, room = self.largest_weight * most, ROOM * most
            worst = np.full(len(costs), top)
            pairs.append(CostPair("weighted", cost, worst, 0.0, top, True))
            behavior = np.full(len(costs), -room)
            pairs.append(CostPair("controlled", behavior, worst + room, -room, top + room, True))
        if self.step is None or costs.exposure is None:
            pairs.append(CostPair("from the top", cost, np.full(len(costs), most), 0.0, most))
        else:
            top = self.step * self.duration
            counted = top - self.step * costs.exposure + costs.weighted_cost
            pairs.append(CostPair("from the top", cost, counted, 0.0, top))
        return tuple(pairs)


def cost_bound_of(
    stated: Bound,
    *,
    horizon: int | None,
    gamma: float = 1.0,
    largest_weight: float = math.inf,
) -> CostBound | None:
    """The bound from what a user states; None when nothing is stated.

    Args:
        stated: of an episode (not discounted), of a step, or both; of a step needs the horizon.
        horizon: T.
        gamma: discount of the promise. Costs are at least 0, so that a discounted episode costs no
            more than `stated.episode` either.
        largest_weight: no weight within an episode exceeds it; inf: unknown.

    Raises:
        InputError: there is no horizon.
    """
    if stated.step is None:
        if stated.episode is None:
            return None
        return CostBound(float(stated.episode), largest_weight=largest_weight)
    if horizon is None:
        raise InputError("horizon: needed with Bound(step=...), the most steps of an episode")
    duration = float(discounts(gamma, horizon).sum())
    whole = stated.step * duration
    episode = whole if stated.episode is None else min(whole, stated.episode)
    return CostBound(float(episode), float(stated.step), duration, largest_weight)


# -- the bets --------------------------------------------------------------------------------------


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

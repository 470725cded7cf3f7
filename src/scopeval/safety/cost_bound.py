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

from scopeval.arrays import Floats, is_number
from scopeval.collection.episodes import discounts
from scopeval.errors import InputError
from scopeval.safety.cost_control import ROOM
from scopeval.safety.episode_costs import EpisodeCosts

__all__ = ["CostBound", "CostPair", "cost_bound_of"]

_SLACK = 1e-9  # relative: costs this little above their bound are rounding
_WEIGHT_SLACK = 1e-6  # products of many ratios round more


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
        if worst > self.episode * (1 + _SLACK):
            return f"an episode cost {worst:.6g}, above the stated bound of {self.episode:.6g}"
        least = min(float(costs.cost.min(initial=0.0)), float(costs.weighted_cost.min(initial=0.0)))
        if least < 0:
            return f"an episode cost {least:.6g}, and a bound needs costs of at least 0"
        if self.step is not None and costs.largest_step is not None:
            worst = float(costs.largest_step.max(initial=0.0))
            if worst > self.step * (1 + _SLACK):
                return f"a step cost {worst:.6g}, above the stated bound of {self.step:.6g}"
        limit = self.largest_weight * (1 + _WEIGHT_SLACK)
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
    cost_bound: float | None,
    step_cost_bound: float | None,
    *,
    horizon: int | None,
    gamma: float = 1.0,
    largest_weight: float = math.inf,
) -> CostBound | None:
    """The bound from what a user states; None when nothing is stated.

    Args:
        cost_bound: the most that one episode can cost (not discounted).
        step_cost_bound: the most that one step can cost; needs the horizon.
        horizon: T.
        gamma: discount of the promise. Costs are at least 0, so that a discounted episode costs no
            more than `cost_bound` either.
        largest_weight: no weight within an episode exceeds it; inf: unknown.

    Raises:
        InputError: a bound is not a finite number above 0, or there is no horizon.
    """
    for name, value in (("cost_bound", cost_bound), ("step_cost_bound", step_cost_bound)):
        if value is not None and not (is_number(value) and math.isfinite(value) and value > 0):
            raise InputError(f"{name}: got {value!r}, expected a finite number above 0")
    if cost_bound is None and step_cost_bound is None:
        return None
    if step_cost_bound is None:
        assert cost_bound is not None
        return CostBound(float(cost_bound), largest_weight=largest_weight)
    if horizon is None:
        raise InputError("horizon: needed with step_cost_bound, the most steps of an episode")
    duration = float(discounts(gamma, horizon).sum())
    whole = step_cost_bound * duration
    episode = whole if cost_bound is None else min(whole, cost_bound)
    return CostBound(float(episode), float(step_cost_bound), duration, largest_weight)

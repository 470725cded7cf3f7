"""The guard: an anytime-valid test of the cost promise while the behavior policy runs."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scopeval.errors import InputError
from scopeval.estimation.moments import FloatArray, Interval, finite_column
from scopeval.estimation.sequences import AsymptoticSequence
from scopeval.question.promise import Compared, Promise
from scopeval.safety.certificate import CostSums
from scopeval.safety.cost_bound import BoundedComparison, CostBound
from scopeval.safety.costs import EpisodeCosts

__all__ = ["Guard", "GuardState"]


@dataclass(frozen=True, slots=True)
class GuardState:
    """The state of the guard after a batch.

    Attributes:
        tripped: Whether the behavior policy should stop (and the target take over).
        reason: Why, in words; None while nothing has tripped.
        episodes: Episodes seen.
        interval: One-sided anytime-valid interval [low, high) for E[D]: above 0 the promise is
            refuted. high is inf, or the upper bound where bounds are known.
        total_cost: Sum of the costs of all episodes seen.
        refuted: Whether it tripped because the promise is refuted (and not because of a limit).
    """

    tripped: bool
    reason: str | None
    episodes: int
    interval: Interval
    total_cost: float
    refuted: bool = False


class Guard:
    """Watches the safety promise while the behavior policy runs, and trips when it fails.

    Trips when, after some batch,

    - the anytime-valid lower bound for E[D] is above 0: the promise is refuted. When the promise
      holds this happens with probability alpha at most *over all time*, however often one looks;
    - the cost of one episode is above `episode_cost_limit`;
    - the sum of all costs is above `total_cost_limit`.

    Once tripped it stays tripped and keeps the first reason; later batches are still counted.

    With a `bound` on the costs the lower bound is that of `BoundedComparison`: it holds for every
    number of episodes, every tail of the costs and any weights, from the first episode on. Costs
    that contradict the bound trip the guard too, because nothing is known then.

    Without one, the lower bound is that of `AsymptoticSequence`: it assumes independent episodes,
    says nothing about E[D] for the first `burn_in` of them, and like every central limit statement
    is blind to events not yet seen. Where costs are skewed, so that the target's rare large costs
    are still to come, it would be above 0 far too often. So the promise is refuted only if one more
    episode, the worst of those seen, would not change that: the target's largest weighted cost,
    where the behavior policy costs nothing. The next of n + 1 episodes is worse than all before
    with probability 1 / (n + 1). With a control variate it is that one too, or the worst of the
    estimates if that is worse: estimates are small until a large cost comes, and say nothing of
    it. False alarms are then below alpha in worlds with skewed costs or heavy weights (`python -m
    experiments.verdicts`), and alarms come later. The two limits need no assumption.

    Feed every episode that was started, also those that took long: a batch cut off when the fastest
    episodes have ended favors short, cheap ones. The order within a batch does not matter.

    Args:
        promise: about the cost; None: at most the target's.
        alpha: Probability of a false alarm over all time.
        episode_cost_limit: The most that one episode may cost; None for no limit.
        goes_on: An episode above its limit is handed over, and does not trip the guard.
        total_cost_limit: The most that all episodes together may cost; None for no limit.
        bound: What is known about the costs of episodes (`cost_bound_of`); None: nothing.
        compared: What the promise compares with, for the words: the target's cost, that of a
            reference policy, or a limit per episode. None: as the promise says.
        target_n: Number of episodes at which the bound on E[D] is to be tightest.
        burn_in: Episodes before E[D] is judged at all. Not used with `bound`, nor is `target_n`.
    """

    def __init__(
        self,
        promise: Promise | None = None,
        *,
        alpha: float = 0.05,
        episode_cost_limit: float | None = None,
        goes_on: bool = False,
        total_cost_limit: float | None = None,
        bound: CostBound | None = None,
        compared: Compared | None = None,
        target_n: int = 1000,
        burn_in: int = 50,
    ) -> None:
        self._promise = promise or Promise()
        self._compared = compared or self._promise.compared
        for name, limit in (
            ("episode_cost_limit", episode_cost_limit),
            ("total_cost_limit", total_cost_limit),
        ):
            if limit is not None and math.isnan(limit):
                raise InputError(f"{name} must be a number or None, got NaN")
        self._best = CostSums(AsymptoticSequence(alpha, target_n, burn_in=burn_in, side="lower"))
        self._plain = CostSums(AsymptoticSequence(alpha))  # without a control variate
        self._bounded = (
            None
            if bound is None
            else BoundedComparison(bound, self._promise.at_most, alpha, lower_only=True)
        )
        self._episode_cost_limit, self._goes_on = episode_cost_limit, goes_on
        self._total_cost_limit = total_cost_limit
        #: Whether it has a limit that can be exceeded in the middle of an episode.
        self.limited = episode_cost_limit is not None or total_cost_limit is not None
        self._total_cost = 0.0
        self._reason: str | None = None
        self._refuted = False

    @property
    def state(self) -> GuardState:
        """Its state now."""
        interval = self._interval(covered=True)
        tripped = self._reason is not None
        return GuardState(
            tripped, self._reason, interval.n, interval, self._total_cost, self._refuted
        )

    def _interval(self, *, covered: bool) -> Interval:
        """One-sided, for E[D]."""
        interval = self._best.sequence.interval
        if self._bounded is None:
            return interval
        low, _ = self._bounded.difference(covered=covered)
        return Interval(interval.estimate, low, math.inf, interval.alpha, "bets", interval.n)

    def update(
        self,
        cost: npt.ArrayLike,
        weighted_cost: npt.ArrayLike,
        *,
        spent: npt.ArrayLike | None = None,
        lost: float = 0.0,
        covered: bool = True,
    ) -> GuardState:
        """Take in a batch of finished episodes and say whether to go on.

        Args:
            cost: Realized cost of each episode, shape [k]; k may be 0.
            weighted_cost: Importance-weighted cost of the same episodes, shape [k].
            spent: What the limits are about, where that differs from `cost` (which is discounted
                if the promise is), shape [k].
            lost: What unfinished episodes have cost, for the total.
            covered: Whether the behavior policy takes every action that the target may take; if
                not, nothing is said about E[D].

        Raises:
            InputError: Different lengths, or numbers that are not finite; the batch is then not
                counted.
        """
        costs = EpisodeCosts.of(cost, weighted_cost)
        return self.add(costs, spent=spent, lost=lost, covered=covered)

    def add(
        self,
        costs: EpisodeCosts,
        *,
        spent: npt.ArrayLike | None = None,
        lost: float = 0.0,
        covered: bool = True,
    ) -> GuardState:
        """`update` with all that is known about the episodes: a `bound` needs their weights."""
        if (
            self._bounded is not None
            and len(costs)
            and costs.weight is None
            and costs.limit is None
            and math.isinf(self._bounded.bound.largest_weight)
        ):
            raise InputError(
                "weight: unknown, but a guard with a bound needs the weights of the episodes; use "
                "add(costs_of(episodes)), or state the largest weight in the bound"
            )
        paid = costs.cost if spent is None else finite_column(spent, "spent")
        allowed = self._promise.at_most
        self._best.update(*costs.pair, allowed)
        self._plain.update(costs.cost, costs.weighted_cost, allowed)
        if self._bounded is not None:
            self._bounded.update(costs)
        self._total_cost += float(paid.sum()) + lost
        if self._reason is None:
            self._reason = self._why(paid, covered and costs.covered)
        return self.state

    def lose(self, costs: EpisodeCosts, *, spent: float) -> GuardState:
        """Take in an episode that was cut, with what is known of it (`EpisodeCosts.of_cut`).

        What it has spent is in the total. With a `bound` it counts in the bets with the least D
        that it could have had if it had gone on (see `cost_bound`): whatever the reason was, no
        promise is refuted because of it. Without one, nothing is said about its D.
        """
        self._total_cost += spent
        if self._bounded is not None:
            self._bounded.update(costs)
        if self._reason is None:
            self._reason = self._why(np.empty(0), costs.covered)
        return self.state

    def steps_exceeded(self, running: FloatArray) -> npt.NDArray[np.bool_]:
        """`step_limit_exceeded` for episodes that run side by side, costs so far [B].

        Together they must not exceed the total either. The form that `collect` asks for.
        """
        over = [_above(float(x), self._episode_cost_limit) for x in running]
        total = self._total_cost + float(running.sum())
        return np.array(over, np.bool_) | _above(total, self._total_cost_limit)

    def step_limit_exceeded(self, running_episode_cost: float) -> bool:
        """Whether an episode under way has already cost too much: end it now.

        True when its cost so far is above `episode_cost_limit`, or together with all finished
        episodes above `total_cost_limit`; also when it is NaN and there is a limit. Costs that may
        be negative can come back below; this does not wait for it. Changes nothing: feed the ended
        episode to `update`, which then trips.
        """
        total = self._total_cost + running_episode_cost
        return _above(running_episode_cost, self._episode_cost_limit) or _above(
            total, self._total_cost_limit
        )

    def _why(self, g: FloatArray, covered: bool) -> str | None:
        """Why it trips by episodes that have cost `g`, in words; None: it does not."""
        interval = self._interval(covered=covered)
        worst = float(g.max(initial=-math.inf))
        if g.size and not self._goes_on and _above(worst, self._episode_cost_limit):
            return f"an episode cost {worst:.4g}, above the limit of {self._episode_cost_limit:.4g}"
        if _above(self._total_cost, self._total_cost_limit):
            return (
                f"{interval.n:,} episodes cost {self._total_cost:.4g} in total, "
                f"above the limit of {self._total_cost_limit:.4g}"
            )
        if self._bounded is not None:
            if self._bounded.violated is not None:
                return f"{self._bounded.violated}, so that nothing is known about the promise"
            self._refuted = self._bounded.refuted(covered=covered)
        else:
            tolerance = self._plain.rounding
            self._refuted = bool(covered and interval.n and interval.low > tolerance)
            if self._refuted:  # also if one more episode is the worst of those seen?
                after = deepcopy(self._best.sequence).update(self._worst())
                self._refuted = min(interval.low, after.low) > tolerance
        if not self._refuted:
            return None
        times = f"{self._promise.at_most:.4g} times " if self._promise.epsilon else ""
        compared = {
            "target": "the target's",
            "reference": "the reference policy's",
            "limit": "the limit",
        }[self._compared]
        seen = "" if self._bounded is not None else " as far as seen"
        return (
            f"the promise is refuted{seen} after {interval.n:,} episodes: the expected cost is "
            f"above {times}{compared} by at least {interval.low:.4g} "
            f"(estimate {interval.estimate:.4g}, false-alarm probability {interval.alpha:.4g})"
        )

    def _worst(self) -> float:
        """D of the worst episode for an alarm that those seen suggest: least cost, target's most.

        Of plain costs and, where there is a control variate, of the estimates: whichever is worse.
        """
        best, plain, allowed = self._best, self._plain, self._promise.at_most
        least, most = min(float(plain.least[0]), 0.0), max(float(plain.most[1]), 0.0)
        estimated = float(best.least[0]) - allowed * max(float(best.most[1]), 0.0)
        return min(least - allowed * most, estimated)


def _above(x: float, limit: float | None) -> bool:
    return limit is not None and not x <= limit  # NaN is above every limit

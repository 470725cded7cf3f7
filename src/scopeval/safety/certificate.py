"""The certificate: whether the behavior policy kept its promise about the cost.

The promise is J^c(mu) <= (1 + epsilon) J^c(pi): in expectation an episode of the behavior policy
mu costs at most 1 + epsilon times one of the target pi. No episode of pi is needed to check it. An
episode of mu has a realized cost G^c, and its importance-weighted cost PDIS^c is an unbiased
estimate of pi's, so

    D = G^c - (1 + epsilon) PDIS^c     has mean     J^c(mu) - (1 + epsilon) J^c(pi),

and the promise holds exactly when E[D] <= 0. Where the behavior policy brings an estimate q^c of
the target's expected cost, it is a control variate (`costs`): the same mean, less noise.

Coverage: PDIS^c is unbiased where mu takes every action that pi may take. A mu that leaves some out
makes it too small and D too large: "safe" can still be proved, but nothing can be refuted.

Without a bound on costs no interval is valid for every distribution: a cost that has not been seen
yet may be anything. `SampleChecks` finds the cases in which an interval from the central limit
theorem is known to mislead. They make a verdict more careful, they do not prove it.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from scopeval.errors import InputError
from scopeval.estimation.moments import (
    ENOUGH_EVENTS,
    FloatArray,
    Interval,
    Moments,
    Scatter,
    confidence,
    counted,
    moments_interval,
)
from scopeval.estimation.sequences import AsymptoticSequence
from scopeval.estimation.weights import FAR, FEW_EFFECTIVE, HEAVY_TAIL, RunningWeights
from scopeval.question.promise import Compared, Promise
from scopeval.safety.cost_bound import BoundedComparison, CostBound
from scopeval.safety.costs import RESOLUTION, EpisodeCosts

__all__ = [
    "UNSEEN",
    "Certificate",
    "CostSums",
    "Ledger",
    "SampleChecks",
    "Verdict",
    "certify",
]

#: Rule of three: an event of probability 3 / n has been missed by n episodes with probability 5 %.
#: A verdict must survive that many more episodes of the worst kind that those seen suggest.
UNSEEN = 3

Verdict = Literal["safe", "not refuted", "refuted", "not covered", "not enough evidence"]


@dataclass(frozen=True, slots=True)
class Certificate:
    """What finished episodes of the behavior policy say about its safety promise.

    Attributes:
        difference: Interval for E[D] = J^c(mu) - (1 + epsilon) J^c(pi), in units of cost.
        ratio: Interval for J^c(mu) / J^c(pi). Open above (inf) when the target's cost is not
            separated from 0; the estimate is NaN when no episode has any weighted cost.
        verdict: "safe" when the interval of the difference ends at or below 0, "refuted" when it
            begins above 0, "not refuted" in between. "not covered" takes the place of the last two
            where the behavior policy leaves out actions of the target. "not enough evidence": the
            interval alone would say "safe" or "refuted", but `reasons` speak against trusting it.
        cost: Mean cost of the behavior policy's episodes.
        target_cost: Mean importance-weighted cost: the estimate of the target's.
        epsilon: The promise: at most 1 + epsilon times the target's cost.
        alpha: Probability with which an interval may miss; each of the two firm verdicts is wrong
            with probability alpha / 2 at most ("refuted" by a `Guard`, which spends all of its
            alpha on that side: alpha).
        episodes: Number of episodes.
        largest_cost: The most that one of them cost.
        cost_bound: The most that an episode can cost, as stated. The intervals then hold for every
            number of episodes and every distribution of costs up to it. None: nothing was stated,
            and the intervals hold for many episodes and costs like those seen.
        reasons: Why there is not enough evidence, or none, in words. Where a guard has refuted the
            promise the verdict is "refuted" all the same: these then speak against relying on it.
        expected_cost: Estimate of the behavior policy's expected cost with a control variate, which
            the ratio is about; NaN: there is none, and `cost` takes its place.
        compared: What the promise compares with: the target's cost, that of a reference policy, or
            a limit per episode, which `target_cost` then is.
        runs: What the promise is about: the behavior policy, or the trial of a comparison.
    """

    difference: Interval
    ratio: Interval
    verdict: Verdict
    cost: float
    target_cost: float
    epsilon: float
    alpha: float
    episodes: int
    largest_cost: float = math.nan
    cost_bound: float | None = None
    reasons: tuple[str, ...] = ()
    expected_cost: float = math.nan
    compared: Compared = "target"
    runs: str = "behavior policy"

    @property
    def proved(self) -> bool:
        """Whether a firm verdict rests on a stated bound, and not only on the costs seen."""
        return self.cost_bound is not None and self.verdict in ("safe", "refuted")

    @property
    def sentence(self) -> str:
        """The verdict and its numbers in plain words."""
        if self.cost == 0 == self.target_cost:
            rare = 1 - self.alpha ** (1 / self.episodes)
            return (
                f"{self._claim()} None of {counted(self.episodes)} had any cost; {self._sure()} "
                f"fewer than {100 * rare:.2g}% of episodes have one."
            )
        spent = f"it cost {self.cost:.4g} per episode"
        if math.isfinite(self.expected_cost) and not math.isclose(self.expected_cost, self.cost):
            spent += f"; its expected cost is estimated as {self.expected_cost:.4g},"
        against = f" against an estimated {self.target_cost:.4g} for the {self._policy()}"
        if self.compared == "limit":
            against = ""
        over = f"{self._claim()} Over {counted(self.episodes)} {spent}{against}{self._ratio()}."
        return over + self._seen()

    def _policy(self) -> str:
        return "target" if self.compared == "target" else "reference policy"

    def _claim(self) -> str:
        limit = f"the {self._policy()}'s"
        if self.epsilon != 0:
            limit = f"{1 + self.epsilon:.4g} times {limit}"
        if self.compared == "limit":
            limit = f"the limit of {(1 + self.epsilon) * self.target_cost:.4g} per episode"
        seen = "" if self.proved else " as far as seen"
        if self.verdict == "safe":
            return f"Safe{seen}: {self._sure()} the {self.runs}'s expected cost is at most {limit}."
        if self.verdict == "refuted":
            doubts = f" Caution: {'; '.join(self.reasons)}." if self.reasons else ""
            claim = f"Refuted{seen}: {self._sure()} the {self.runs}'s expected cost is above"
            if self.reasons:
                claim = f"Refuted{seen}, by the guard: the {self.runs}'s expected cost is above"
            return f"{claim} {limit}.{doubts}"
        if self.verdict == "not covered":
            return (
                f"Not covered: the {self.runs} leaves out actions that the {self._policy()} "
                f"takes, so the {self._policy()}'s cost is underestimated and the promise can be "
                "proved but not refuted."
            )
        if self.verdict == "not enough evidence":
            return (
                f"Not enough evidence to say whether the {self.runs}'s expected cost is at most "
                f"{limit}: {'; '.join(self.reasons)}."
            )
        return (
            f"Not refuted: {counted(self.episodes)} cannot tell whether the {self.runs}'s "
            f"expected cost is at most {limit}{self._more()}."
        )

    def _seen(self) -> str:
        """What the verdict rests on: the stated bound, or what was seen."""
        if self.verdict not in ("safe", "refuted"):
            return ""
        if self.cost_bound is not None:
            return (
                f" This holds for every distribution of costs up to {self.cost_bound:.4g} per "
                "episode, the stated bound."
            )
        if not math.isfinite(self.largest_cost):
            return ""
        return (
            f" No episode cost more than {self.largest_cost:.4g}; events rarer than 3 in "
            f"{self.episodes:,} episodes are not excluded. Promise(bound=...) makes it a proof."
        )

    def _sure(self) -> str:
        return f"with {confidence(self.alpha)} confidence"

    def _ratio(self) -> str:
        r = self.ratio
        if self.compared == "limit":
            if not math.isfinite(r.high):
                return ""
            low, high = (x * self.target_cost for x in (r.low, r.high))
            return f" (between {low:.4g} and {high:.4g})"
        if math.isfinite(r.high):
            return f", a ratio of {r.estimate:.4g} (between {r.low:.4g} and {r.high:.4g})"
        if math.isfinite(r.low) and r.low > 0:
            return f", a ratio of at least {r.low:.4g}"
        return "; too few episodes to bound the ratio"

    def _more(self) -> str:
        d = self.difference
        if self.cost_bound is not None or d.estimate == 0 or not math.isfinite(d.half_width):
            return ""
        needed = math.ceil(d.n * (d.half_width / d.estimate) ** 2)
        return f" (a difference like the one seen takes about {needed:,})" if needed < 1e7 else ""


def certify(
    cost: npt.ArrayLike,
    weighted_cost: npt.ArrayLike,
    *,
    weight: npt.ArrayLike | None = None,
    epsilon: float = 0.0,
    alpha: float = 0.05,
    covered: bool = True,
    bound: CostBound | None = None,
) -> Certificate:
    r"""Prove or refute the safety promise from finished episodes of the behavior policy.

    The difference gets a t interval on D. The ratio gets Fieller's set (Fieller 1954): all theta
    that a t test of E[G^c - theta PDIS^c] = 0 does not reject. With means a, b of G^c and PDIS^c,
    their sample (co)variances and q = t^2 / n it is

        { theta : (b^2 - q s_bb) theta^2 - 2 (a b - q s_ab) theta + (a^2 - q s_aa) <= 0 },

    so 1 + epsilon is in it exactly when 0 is in the interval of the difference. When the target's
    cost is not separated from 0 (b^2 <= q s_bb) the set is unbounded; of it the lower end is kept
    where no cost is negative and the set is a half-line. When cost and weighted cost are equal in
    every episode, as with mu = pi, the ratio is 1. Where no cost is negative the ratio is not
    either.

    One episode decides nothing. Differences below a millionth of the cost count as rounding. Like
    every t interval this one relies on enough episodes for the central limit theorem, and on costs
    like those seen. A firm verdict is therefore "not enough evidence" where that is doubtful
    (`SampleChecks`): three more episodes of the worst kind would change it, the interval has no
    width, hardly any episode had a cost, or the weights are not in order. With a `bound` none of
    this is needed: the intervals are those of `BoundedComparison`, for any number of episodes and
    any tail. The number of episodes must not have been chosen by looking at their costs, unless
    there is a bound; for that there are `Guard` and `Ledger.certificate` with ``anytime=True``.

    Args:
        cost: Realized cost of each episode of the behavior policy, shape [n].
        weighted_cost: Importance-weighted cost of the same episodes, shape [n].
        weight: Importance weight of the same episodes, shape [n]; None: unknown.
        epsilon: The promise: at most 1 + epsilon times the target's cost. Above -1.
        alpha: Probability with which an interval may miss.
        covered: Whether the behavior policy takes every action that the target may take.
        bound: What is known about the costs of episodes (`cost_bound_of`); None: nothing.

    Raises:
        InputError: No episodes, different lengths, or numbers that are not finite.
    """
    ledger = Ledger(Promise(at_most=1.0 + epsilon), alpha=alpha, bound=bound)
    weights = None if weight is None else np.asarray(weight)
    ledger.add(EpisodeCosts(np.asarray(cost), np.asarray(weighted_cost), weights))
    return ledger.certificate(covered=covered)


# -- sums of episodes ------------------------------------------------------------------------------


@dataclass
class SampleChecks:
    """What the episodes so far have shown, for judging intervals; a function of their set."""

    events: int = 0  # episodes with a cost, or a weighted one
    largest_cost: float = 0.0
    same: bool = True  # the behavior policy acted as the target does in every episode
    equal: bool = True  # cost and weighted cost are equal in every episode
    positive: bool = True  # no cost is negative
    target_costs: bool = False  # some episode has a weighted cost
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
        self.events += int(((g != 0) | ((w != 0) & (costs.limit is None))).sum())
        self.largest_cost = max(self.largest_cost, float(g.max()))
        self.positive &= bool(g.min() >= 0 and w.min() >= 0)
        self.target_costs |= bool(w.any())
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
            self._weights.update(costs.weight, costs.cap)
            self._mean.merge(costs.weight)
            self.same &= bool(gap.all() and np.abs(costs.weight - 1.0).max() <= RESOLUTION)

    def doubts(self, episodes: int, *, covered: bool) -> list[str]:
        """Why no interval from these episodes should be trusted, in words.

        Args:
            episodes: how many they are.
            covered: the behavior policy takes every action of the target, so that weights must
                average 1.
        """
        doubts = []
        if self.events < ENOUGH_EVENTS:
            doubts.append(f"only {self.events} of {episodes:,} episodes had any cost")
        if not self.weighed:
            return doubts
        weights, mean = self._weights.diagnostics, self._mean
        error = mean.std / math.sqrt(mean.n)
        if covered and abs(mean.mean - 1.0) > FAR * error + RESOLUTION:
            doubts.append(
                f"the weights average {mean.mean:.3f} +- {error:.3f} where 1 is expected, so the "
                "target's cost is not estimated well"
            )
        if weights.effective_size < FEW_EFFECTIVE:
            doubts.append(
                f"the weights leave an effective number of {weights.effective_size:.1f} episodes"
            )
        if weights.tail_index is not None and weights.tail_index > HEAVY_TAIL:
            doubts.append(f"the weights have a heavy tail (Pareto k = {weights.tail_index:.2f})")
        return doubts


class CostSums:
    """Sums of D, and of cost and the target's cost in pairs, with the least and most of both.

    Args:
        sequence: of the values of D.
    """

    def __init__(self, sequence: AsymptoticSequence) -> None:
        self.sequence = sequence
        self.pairs = Scatter(2)
        self.least = np.full(2, np.inf)
        self.most = np.full(2, -np.inf)
        self._scale = 0.0  # of all terms of D

    def update(self, cost: FloatArray, target_cost: FloatArray, allowed: float) -> None:
        """Take in a batch."""
        self.sequence.moments.merge(cost - allowed * target_cost)
        self.pairs.merge(np.stack([cost, target_cost], axis=1))
        for k, column in enumerate((cost, target_cost)):  # rows of two numbers are slow to search
            self.least[k] = min(self.least[k], column.min(initial=np.inf))
            self.most[k] = max(self.most[k], column.max(initial=-np.inf))
        self._scale += float(np.abs(cost).sum() + allowed * np.abs(target_cost).sum())

    @property
    def rounding(self) -> float:
        """A mean of D up to this is rounding."""
        return RESOLUTION * self._scale / max(self.sequence.moments.n, 1)


class Ledger:
    """Costs of finished episodes, kept as sums: a certificate at any time, in constant memory.

    What it says is a function of the episodes it holds; batches do not matter, up to rounding.

    Args:
        promise: about the cost; None: at most the target's.
        alpha: Probability with which an interval may miss.
        target_n: Number of episodes at which the anytime-valid certificate is to be sharpest.
        bound: What is known about the costs of episodes; None: nothing.
        compared: what the promise compares with, for the words; None: as it says.
    """

    def __init__(
        self,
        promise: Promise | None = None,
        *,
        alpha: float = 0.05,
        target_n: int = 1000,
        bound: CostBound | None = None,
        compared: Compared | None = None,
    ) -> None:
        self._promise = promise or Promise()
        self._compared = compared or self._promise.compared
        self._alpha = alpha
        self._best = CostSums(AsymptoticSequence(alpha, target_n))
        self._plain = CostSums(AsymptoticSequence(alpha, target_n))  # without a control variate
        self._seen = SampleChecks()
        self._bounded = (
            None if bound is None else BoundedComparison(bound, self._promise.at_most, alpha)
        )
        self._with_control = False
        self.episodes = 0

    def update(self, cost: npt.ArrayLike, weighted_cost: npt.ArrayLike) -> None:
        """Take in a batch of finished episodes, shape [k]; k may be 0."""
        self.add(EpisodeCosts.of(cost, weighted_cost))

    def add(self, costs: EpisodeCosts) -> None:
        """Take in a batch of finished episodes with all that is known about them."""
        allowed = self._promise.at_most
        self._best.update(*costs.pair, allowed)
        self._plain.update(costs.cost, costs.weighted_cost, allowed)
        self._seen.update(costs)
        self._with_control |= costs.own_controlled is not None
        if self._bounded is not None:
            self._bounded.update(costs)
        self.episodes += costs.cost.size

    def certificate(
        self, *, covered: bool = True, anytime: bool = False, refuted: bool = False
    ) -> Certificate:
        """The certificate now.

        Args:
            covered: Whether the behavior policy takes every action that the target may take.
            anytime: The number of episodes was decided by what they showed: without a bound the
                intervals are then those of `AsymptoticSequence`, the ratio with its radius for
                t / sqrt(n).
            refuted: A guard has refuted the promise with these episodes. The certificate says so
                too, and what speaks against it stands beside it as `reasons`.
        """
        if not self.episodes:
            raise InputError(
                "got no episodes; a certificate needs at least one, and two to say much"
            )
        covered = covered and self._seen.covered
        # where mu acted as pi, weighted costs are the costs, and a control variate only adds
        same = self._seen.same
        sums, controlled = (self._plain, False) if same else (self._best, self._with_control)
        bound = self._bounded
        void = None if bound is None else bound.violated
        doubts: list[str] = []
        verdict: Verdict
        if bound is not None and void is None:
            difference, ratio, verdict = self._proved(sums, bound, covered)
            verdict = "refuted" if refuted else verdict
        else:
            difference, ratio, verdict = self._for_many(sums, covered, anytime)
            verdict = "refuted" if refuted else verdict
            if verdict in ("safe", "refuted"):
                doubts = self._doubts(sums, ratio, verdict, covered, anytime)
            doubts = doubts if void is None else [void, *doubts]
            if doubts and verdict in ("safe", "refuted") and not refuted:
                verdict = "not enough evidence"
        return Certificate(
            difference=difference,
            ratio=ratio,
            verdict=verdict,
            cost=float(self._plain.pairs.mean[0]),
            target_cost=float(sums.pairs.mean[1]),
            epsilon=self._promise.epsilon,
            alpha=self._alpha,
            episodes=self.episodes,
            largest_cost=self._seen.largest_cost,
            cost_bound=None if bound is None or void is not None else bound.bound.episode,
            reasons=tuple(doubts),
            compared=self._compared,
            expected_cost=float(sums.pairs.mean[0]) if controlled else math.nan,
        )

    def _proved(
        self, sums: CostSums, bound: BoundedComparison, covered: bool
    ) -> tuple[Interval, Interval, Verdict]:
        """Difference, ratio and verdict by bets that a stated bound limits."""
        n, (a, b) = self.episodes, (float(x) for x in sums.pairs.mean)
        low, high = bound.difference(covered=covered)
        difference = Interval(sums.sequence.moments.mean, low, high, self._alpha, "bets", n)
        low, high = bound.ratio(covered=covered)
        ratio = Interval(a / b if b != 0 else math.nan, low, high, self._alpha, "bets", n)
        if bound.safe or (self._seen.same and self._promise.at_most >= 1):
            return difference, ratio, "safe"
        return difference, ratio, "refuted" if bound.refuted(covered=covered) else "not refuted"

    def _for_many(
        self, sums: CostSums, covered: bool, anytime: bool
    ) -> tuple[Interval, Interval, Verdict]:
        """Difference, ratio and verdict by the central limit theorem."""
        moments, tolerance = sums.sequence.moments, self._plain.rounding
        if max(abs(moments.low), abs(moments.high)) <= tolerance:  # the target's own costs
            difference = moments_interval(moments, alpha=self._alpha)
        else:
            difference = self._interval(sums.sequence, anytime)
        ratio = self._ratio(sums, anytime)
        if difference.high <= tolerance:
            return difference, ratio, "safe"
        if not covered:
            return difference, ratio, "not covered"
        return difference, ratio, "refuted" if difference.low > tolerance else "not refuted"

    def _interval(self, sequence: AsymptoticSequence, anytime: bool) -> Interval:
        if anytime:
            return sequence.interval
        return moments_interval(sequence.moments, alpha=self._alpha)

    def _doubts(
        self, sums: CostSums, ratio: Interval, verdict: Verdict, covered: bool, anytime: bool
    ) -> list[str]:
        """What speaks against a firm verdict."""
        if self._seen.same:
            return []
        doubts = self._seen.doubts(self.episodes, covered=covered)
        narrow = math.isfinite(ratio.high) and ratio.high - ratio.low <= RESOLUTION * ratio.high
        if narrow or sums.sequence.moments.constant:
            return [*doubts, "the costs seen leave no spread to judge by"]
        unseen = self._would_change(sums, verdict, anytime)
        return doubts if unseen is None else [*doubts, unseen]

    def _would_change(self, sums: CostSums, verdict: Verdict, anytime: bool) -> str | None:
        """That a few more episodes of the worst kind would change the verdict; None: they do not.

        Of the costs of the worst episode that those seen suggest the larger one is the most that
        was seen. The other is 0, as for an episode that the target never has. With a control
        variate "refuted" goes by the estimates, the least and the most that were seen. "Safe" also
        goes by the plain costs: until a disaster has happened the estimates are as precise as if
        there were none.
        """
        controlled = self._with_control
        if verdict == "safe":
            behavior, target = float(self._plain.most[0]), self._seen.limit
            if controlled:
                behavior = max(behavior, float(sums.most[0]))
                target = min(target, float(sums.least[1]))
        else:
            behavior = float(sums.least[0]) if controlled else 0.0
            target = float(sums.most[1])
        sequence = deepcopy(sums.sequence)
        sequence.update(np.full(UNSEEN, behavior - self._promise.at_most * target))
        interval, tolerance = self._interval(sequence, anytime), self._plain.rounding
        holds = interval.high <= tolerance if verdict == "safe" else interval.low > tolerance
        if holds:
            return None
        return (
            f"{UNSEEN} more episodes at the worst of the costs seen ({behavior:.4g}, where the "
            f"target's is {target:.4g}) would change the verdict"
        )

    def _ratio(self, sums: CostSums, anytime: bool) -> Interval:
        """Fieller's set for the ratio of both costs; see `certify`."""
        n, seen = self.episodes, self._seen
        a, b = (float(x) for x in sums.pairs.mean)
        estimate = a / b if b != 0 else math.nan
        low, high = 0.0 if seen.positive else -math.inf, math.inf
        if n > 1 and seen.target_costs and seen.equal:
            low = high = estimate  # the same costs: nothing is left to estimate
        elif n > 1 and seen.target_costs:
            if anytime:
                q = sums.sequence.radius**2
            else:
                from scipy.special import stdtrit

                q = float(stdtrit(n - 1, self._alpha / 2)) ** 2 / n
            if not math.isinf(q):
                (s_aa, s_ab), (_, s_bb) = sums.pairs.covariance
                square, cross, constant = b * b - q * s_bb, a * b - q * s_ab, a * a - q * s_aa
                root = math.sqrt(max(cross * cross - square * constant, 0.0))
                if square > 0:
                    low, high = max((cross - root) / square, low), (cross + root) / square
                elif square < 0 and seen.positive and constant > 0:
                    low = (cross - root) / square  # 0 is rejected: a half-line above 0
        return Interval(estimate, low, high, self._alpha, "fieller", n)

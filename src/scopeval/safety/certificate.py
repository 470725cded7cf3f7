"""The certificate: whether the behavior policy kept its promise about the cost.

The promise is J^c(mu) <= (1 + epsilon) J^c(pi): in expectation an episode of the behavior policy
mu costs at most 1 + epsilon times one of the target pi. No episode of pi is needed to check it. An
episode of mu has a realized cost G^c, and its importance-weighted cost PDIS^c is an unbiased
estimate of pi's, so

    D = G^c - (1 + epsilon) PDIS^c     has mean     J^c(mu) - (1 + epsilon) J^c(pi),

and the promise holds exactly when E[D] <= 0. Where the behavior policy brings an estimate q^c of
the target's expected cost, it is a control variate (`cost_control`): the same mean, less noise.

Coverage: PDIS^c is unbiased where mu takes every action that pi may take. A mu that leaves some out
makes it too small and D too large: "safe" can still be proved, but nothing can be refuted.

Whether the episodes seen are enough to trust an interval for many episodes.

Without a bound on costs no interval is valid for every distribution: a cost that has not been seen
yet may be anything. These checks find the cases in which an interval from the central limit theorem
is known to mislead, and say which. They make a verdict more careful, they do not prove it.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from scopeval.errors import InputError
from scopeval.estimation.moments import ENOUGH_EVENTS, Interval, Moments, Scatter, moments_interval
from scopeval.estimation.sequences import AsymptoticSequence
from scopeval.estimation.weights import FEW_EFFECTIVE, HEAVY_TAIL, RunningWeights
from scopeval.question.promise import Compared, Promise
from scopeval.safety.bounded_comparison import BoundedComparison
from scopeval.safety.cost_bound import CostBound
from scopeval.safety.episode_costs import EpisodeCosts
from scopeval.safety.verdict import Certificate, Verdict

__all__ = [
    "RESOLUTION",
    "UNSEEN",
    "Certificate",
    "CostDifference",
    "Ledger",
    "Seen",
    "Verdict",
    "certify",
]

RESOLUTION = 1e-6  # differences below this part of the cost are rounding of the weights

#: Rule of three: an event of probability 3 / n has been missed by n episodes with probability 5 %.
#: A verdict must survive that many more episodes of the worst kind that those seen suggest.
UNSEEN = 3

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
            self._weights.update(costs.weight, costs.cap)
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
        doubts = []
        if self.events < ENOUGH_EVENTS:
            doubts.append(f"only {self.events} of {self.episodes:,} episodes had any cost")
        if self.weighed:
            doubts += self._weight_doubts(covered)
        return tuple(doubts)

    def _weight_doubts(self, covered: bool) -> list[str]:
        weights, mean = self._weights.diagnostics, self._mean
        doubts = []
        error = mean.std / math.sqrt(mean.n)
        if covered and abs(mean.mean - 1.0) > _FAR * error + RESOLUTION:
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


# --------------------------------------------------------------------------------------------------

FloatArray = npt.NDArray[np.float64]


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
    (`seen`): three more episodes of the worst kind would change it, the interval has no
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


class CostDifference:
    """D = G^c - (1 + epsilon) PDIS^c of episodes, and how small a mean of D is rounding.

    Args:
        allowed: 1 + epsilon, the multiple of the target's cost that is promised.
    """

    def __init__(self, allowed: float) -> None:
        self.allowed = allowed
        self._episodes = 0
        self._scale = 0.0

    def of(self, costs: EpisodeCosts) -> FloatArray:
        """D of a batch, [k], from the best estimates of both costs; k may be 0."""
        behavior, target = costs.pair
        return np.asarray(behavior - self.allowed * target)

    def count(self, costs: EpisodeCosts) -> float:
        """Take in a batch; a mean of D up to the returned size is rounding of the weights."""
        g, w = costs.cost, costs.weighted_cost
        self._scale += float(np.abs(g).sum() + self.allowed * np.abs(w).sum())
        self._episodes += g.size
        return RESOLUTION * self._scale / max(self._episodes, 1)


class _Sums:
    """Sums of D, and of cost and the target's cost in pairs, with the least and most of both."""

    def __init__(self, alpha: float, target_n: int) -> None:
        self.sequence = AsymptoticSequence(alpha, target_n)
        self.pairs = Scatter(2)
        self.least = np.full(2, np.inf)
        self.most = np.full(2, -np.inf)

    def update(self, cost: FloatArray, target_cost: FloatArray, allowed: float) -> None:
        """Take in a batch."""
        pairs = np.stack([cost, target_cost], axis=1)
        self.sequence.update(cost - allowed * target_cost)
        self.pairs.merge(pairs)
        self.least = np.minimum(self.least, pairs.min(axis=0, initial=np.inf))
        self.most = np.maximum(self.most, pairs.max(axis=0, initial=-np.inf))


@dataclass(frozen=True)
class _Finding:
    """Intervals and what they say: the verdict they alone would give."""

    difference: Interval
    ratio: Interval
    verdict: Verdict


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
        self._difference = CostDifference(self._promise.at_most)
        self._alpha = alpha
        self._best = _Sums(alpha, target_n)
        self._plain = _Sums(alpha, target_n)  # without a control variate
        self._seen = Seen()
        self._bounded = (
            None if bound is None else BoundedComparison(bound, self._promise.at_most, alpha)
        )
        self._tolerance = 0.0
        self._with_control = False
        self._positive = True
        self._weighted = False

    @property
    def _sums(self) -> _Sums:
        """Where mu acted as pi, weighted costs are the costs, and a control variate only adds."""
        return self._plain if self._seen.same else self._best

    @property
    def _controlled(self) -> bool:
        """Whether a control variate is used."""
        return self._with_control and not self._seen.same

    @property
    def _sequence(self) -> AsymptoticSequence:
        return self._sums.sequence

    @property
    def _pairs(self) -> Scatter:
        return self._sums.pairs

    @property
    def episodes(self) -> int:
        """How many episodes it holds."""
        return self._pairs.n

    def update(self, cost: npt.ArrayLike, weighted_cost: npt.ArrayLike) -> None:
        """Take in a batch of finished episodes, shape [k]; k may be 0."""
        self.add(EpisodeCosts.of(cost, weighted_cost))

    def add(self, costs: EpisodeCosts) -> None:
        """Take in a batch of finished episodes with all that is known about them."""
        g, w = costs.cost, costs.weighted_cost
        allowed = self._difference.allowed
        self._best.update(*costs.pair, allowed)
        self._plain.update(g, w, allowed)
        self._tolerance = self._difference.count(costs)
        self._seen.update(costs)
        self._with_control |= costs.own_controlled is not None
        if self._bounded is not None:
            self._bounded.update(costs)
        self._positive &= bool(g.min(initial=0.0) >= 0 and w.min(initial=0.0) >= 0)
        self._weighted |= bool(w.any())

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
        if self._pairs.n == 0:
            raise InputError(
                "got no episodes; a certificate needs at least one, and two to say much"
            )
        covered = covered and self._seen.covered
        bound = self._bounded
        void = None if bound is None else bound.violated
        doubts: tuple[str, ...] = ()
        if bound is not None and void is None:
            finding = self._proved(bound, covered)
            verdict: Verdict = "refuted" if refuted else finding.verdict
        else:
            finding = self._for_many(covered, anytime)
            verdict = "refuted" if refuted else finding.verdict
            doubts = self._doubts(finding, verdict, covered, anytime)
            doubts = doubts if void is None else (void, *doubts)
            if doubts and verdict in ("safe", "refuted") and not refuted:
                verdict = "not enough evidence"
        return Certificate(
            difference=finding.difference,
            ratio=finding.ratio,
            verdict=verdict,
            cost=float(self._plain.pairs.mean[0]),
            target_cost=float(self._pairs.mean[1]),
            epsilon=self._promise.epsilon,
            alpha=self._alpha,
            episodes=self._pairs.n,
            largest_cost=self._seen.largest_cost,
            cost_bound=None if bound is None or void is not None else bound.bound.episode,
            reasons=doubts,
            compared=self._compared,
            expected_cost=float(self._pairs.mean[0]) if self._controlled else math.nan,
        )

    def _proved(self, bound: BoundedComparison, covered: bool) -> _Finding:
        """By bets that a stated bound limits."""
        n, (a, b) = self._pairs.n, (float(x) for x in self._pairs.mean)

        def interval(estimate: float, ends: tuple[float, float]) -> Interval:
            return Interval(estimate, *ends, self._alpha, "bets", n)

        verdict: Verdict = "not refuted"
        if bound.safe or (self._seen.same and self._difference.allowed >= 1):
            verdict = "safe"
        elif bound.refuted(covered=covered):
            verdict = "refuted"
        return _Finding(
            interval(self._sequence.moments.mean, bound.difference(covered=covered)),
            interval(a / b if b != 0 else math.nan, bound.ratio(covered=covered)),
            verdict,
        )

    def _for_many(self, covered: bool, anytime: bool) -> _Finding:
        """By the central limit theorem."""
        moments, tolerance = self._sequence.moments, self._tolerance
        difference = self._interval(self._sequence, anytime)
        if anytime and max(abs(moments.low), abs(moments.high)) <= tolerance:
            difference = self._interval(self._sequence, False)  # the target's own costs
        verdict: Verdict = "not refuted" if covered else "not covered"
        if difference.high <= tolerance:
            verdict = "safe"
        elif difference.low > tolerance and covered:
            verdict = "refuted"
        return _Finding(difference, self._ratio(anytime), verdict)

    def _interval(self, sequence: AsymptoticSequence, anytime: bool) -> Interval:
        if anytime:
            return sequence.interval
        return moments_interval(sequence.moments, alpha=self._alpha)

    def _doubts(
        self, finding: _Finding, verdict: Verdict, covered: bool, anytime: bool
    ) -> tuple[str, ...]:
        """What speaks against a firm verdict."""
        seen = self._seen
        if seen.same or verdict not in ("safe", "refuted"):
            return ()
        doubts = list(seen.doubts(covered=covered))
        low, high = finding.ratio.low, finding.ratio.high
        narrow = math.isfinite(high) and high - low <= RESOLUTION * high
        if narrow or self._sequence.moments.constant:
            doubts.append("the costs seen leave no spread to judge by")
        elif self._would_change(verdict, anytime):
            doubts.append(self._unseen(verdict))
        return tuple(doubts)

    def _extremes(self, verdict: Verdict) -> tuple[float, float]:
        """Both costs of the worst episode for this verdict that the ones seen suggest.

        The larger of the two is the most that was seen. The other is 0, as for an episode that the
        target never has. With a control variate "refuted" goes by the estimates, the least and the
        most that were seen. "Safe" also goes by the plain costs: until a disaster has happened the
        estimates are as precise as if there were none.
        """
        sums, controlled = self._sums, self._controlled
        if verdict == "safe":
            behavior, target = float(self._plain.most[0]), self._seen.limit
            if controlled:
                behavior, target = (
                    max(behavior, float(sums.most[0])),
                    min(target, float(sums.least[1])),
                )
            return behavior, target
        return float(sums.least[0]) if controlled else 0.0, float(sums.most[1])

    def _unseen(self, verdict: Verdict) -> str:
        behavior, target = self._extremes(verdict)
        return (
            f"{UNSEEN} more episodes at the worst of the costs seen ({behavior:.4g}, where the "
            f"target's is {target:.4g}) would change the verdict"
        )

    def _would_change(self, verdict: Verdict, anytime: bool) -> bool:
        """Whether a few more episodes of the worst kind would change the verdict."""
        behavior, target = self._extremes(verdict)
        sequence = deepcopy(self._sequence)
        sequence.update(np.full(UNSEEN, behavior - self._difference.allowed * target))
        interval = self._interval(sequence, anytime)
        return (
            interval.high > self._tolerance
            if verdict == "safe"
            else interval.low <= self._tolerance
        )

    def _ratio(self, anytime: bool) -> Interval:
        n = self._pairs.n
        a, b = (float(x) for x in self._pairs.mean)
        floor = 0.0 if self._positive else -math.inf
        estimate = a / b if b != 0 else math.nan

        def ends(low: float, high: float) -> Interval:
            return Interval(estimate, low, high, self._alpha, "fieller", n)

        if n == 1 or not self._weighted:
            return ends(floor, math.inf)
        if self._seen.equal:
            return ends(estimate, estimate)  # the same costs: nothing is left to estimate
        if anytime:
            q = self._sequence.radius**2
            if math.isinf(q):
                return ends(floor, math.inf)
        else:
            from scipy.special import stdtrit

            q = float(stdtrit(n - 1, self._alpha / 2)) ** 2 / n
        (s_aa, s_ab), (_, s_bb) = self._pairs.covariance
        square, cross, constant = b * b - q * s_bb, a * b - q * s_ab, a * a - q * s_aa
        root = math.sqrt(max(cross * cross - square * constant, 0.0))
        if square > 0:
            return ends(max((cross - root) / square, floor), (cross + root) / square)
        if square < 0 and self._positive and constant > 0:  # 0 is rejected: a half-line above 0
            return ends((cross - root) / square, math.inf)
        return ends(floor, math.inf)

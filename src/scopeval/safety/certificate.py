"""The certificate: whether the behavior policy kept its promise about the cost.

The promise is J^c(mu) <= (1 + epsilon) J^c(pi): in expectation an episode of the behavior policy
mu costs at most 1 + epsilon times one of the target pi. No episode of pi is needed to check it. An
episode of mu has a realized cost G^c, and its importance-weighted cost PDIS^c is an unbiased
estimate of pi's, so

    D = G^c - (1 + epsilon) PDIS^c     has mean     J^c(mu) - (1 + epsilon) J^c(pi),

and the promise holds exactly when E[D] <= 0.

Coverage: PDIS^c is unbiased where mu takes every action that pi may take. A mu that leaves some out
makes it too small and D too large: "safe" can still be proved, but nothing can be refuted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from scopeval.errors import InputError
from scopeval.estimation.running_moments import (
    AsymptoticSequence,
    Interval,
    Scatter,
    finite_column,
    moments_interval,
)

__all__ = ["Certificate", "CostDifference", "Ledger", "Verdict", "certify"]

FloatArray = npt.NDArray[np.float64]

Verdict = Literal["safe", "not refuted", "refuted", "not covered"]

RESOLUTION = 1e-6  # differences below this part of the cost are rounding of the weights


@dataclass(frozen=True, slots=True)
class Certificate:
    """What finished episodes of the behavior policy say about its safety promise.

    Attributes:
        difference: Interval for E[D] = J^c(mu) - (1 + epsilon) J^c(pi), in units of cost.
        ratio: Interval for J^c(mu) / J^c(pi). Open above (inf) when the target's cost is not
            separated from 0; the estimate is NaN when no episode has any weighted cost.
        verdict: "safe" when the interval of the difference ends at or below 0, "refuted" when it
            begins above 0, "not refuted" in between. "not covered" takes the place of the last two
            where the behavior policy leaves out actions of the target.
        cost: Mean cost of the behavior policy's episodes.
        target_cost: Mean importance-weighted cost: the estimate of the target's.
        epsilon: The promise: at most 1 + epsilon times the target's cost.
        alpha: Probability with which an interval may miss; each of the two firm verdicts is wrong
            with probability alpha / 2 at most ("refuted" by a `Guard`, which spends all of its
            alpha on that side: alpha).
        episodes: Number of episodes.
    """

    difference: Interval
    ratio: Interval
    verdict: Verdict
    cost: float
    target_cost: float
    epsilon: float
    alpha: float
    episodes: int

    @property
    def sentence(self) -> str:
        """The verdict and its numbers in plain words."""
        limit = (
            "the target's" if self.epsilon == 0 else f"{1 + self.epsilon:.4g} times the target's"
        )
        sure = f"with {100 * (1 - self.alpha):.4g}% confidence"
        counted = f"{self.episodes:,} episode{'s' if self.episodes != 1 else ''}"
        if self.verdict == "safe":
            claim = f"Safe: {sure} the behavior policy's expected cost is at most {limit}."
        elif self.verdict == "refuted":
            claim = f"Refuted: {sure} the behavior policy's expected cost is above {limit}."
        elif self.verdict == "not covered":
            claim = (
                "Not covered: the behavior policy leaves out actions that the target takes, so "
                "the target's cost is underestimated and the promise can be proved but not refuted."
            )
        else:
            claim = (
                f"Not refuted: {counted} cannot tell whether the behavior policy's expected cost "
                f"is at most {limit}{self._more()}."
            )
        if self.cost == 0 == self.target_cost:
            rare = 1 - self.alpha ** (1 / self.episodes)
            return (
                f"{claim} None of {counted} had any cost; {sure} fewer than "
                f"{100 * rare:.2g}% of episodes have one."
            )
        return (
            f"{claim} Over {counted} it cost {self.cost:.4g} per episode against an estimated "
            f"{self.target_cost:.4g} for the target{self._ratio()}."
        )

    def _ratio(self) -> str:
        r = self.ratio
        if math.isfinite(r.high):
            return f", a ratio of {r.estimate:.4g} (between {r.low:.4g} and {r.high:.4g})"
        if math.isfinite(r.low) and r.low > 0:
            return f", a ratio of at least {r.low:.4g}"
        return "; too few episodes to bound the ratio"

    def _more(self) -> str:
        d = self.difference
        if d.estimate == 0 or not math.isfinite(d.half_width):
            return ""
        needed = math.ceil(d.n * (d.half_width / d.estimate) ** 2)
        return f" (a difference like the one seen takes about {needed:,})" if needed < 1e7 else ""


def certify(
    cost: npt.ArrayLike,
    weighted_cost: npt.ArrayLike,
    *,
    epsilon: float = 0.0,
    alpha: float = 0.05,
    covered: bool = True,
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
    every t interval this one relies on enough episodes for the central limit theorem: look at
    `diagnose_weights` when weights are far from 1. Weighted costs are skewed: exactly at the limit
    of the promise (SCOPE in the Gridworld, 1,000 episodes, alpha = 0.05) the verdict was "refuted"
    in 0.038 of 4,000 runs where 0.025 is nominal. The number of episodes must not have been chosen
    by looking at their costs; for that there are `Guard` and `Ledger.certificate` with
    ``anytime=True``.

    Args:
        cost: Realized cost of each episode of the behavior policy, shape [n].
        weighted_cost: Importance-weighted cost of the same episodes, shape [n].
        epsilon: The promise: at most 1 + epsilon times the target's cost. Above -1.
        alpha: Probability with which an interval may miss.
        covered: Whether the behavior policy takes every action that the target may take.

    Raises:
        InputError: No episodes, different lengths, or numbers that are not finite.
    """
    ledger = Ledger(epsilon=epsilon, alpha=alpha)
    ledger.update(cost, weighted_cost)
    return ledger.certificate(covered=covered)


class CostDifference:
    """D = G^c - (1 + epsilon) PDIS^c of episodes, and how small a mean of D is rounding.

    Args:
        epsilon: The promise: at most 1 + epsilon times the target's cost. Above -1.
    """

    def __init__(self, epsilon: float) -> None:
        if not (math.isfinite(epsilon) and epsilon > -1):
            raise InputError(
                f"epsilon must be finite and above -1, got {epsilon}; 0 allows no excess"
            )
        self.epsilon = epsilon
        self._episodes = 0
        self._scale = 0.0

    def of(
        self, cost: npt.ArrayLike, weighted_cost: npt.ArrayLike
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """G^c, PDIS^c and D of a batch, [k] each; k may be 0."""
        g, w = finite_column(cost, "cost"), finite_column(weighted_cost, "weighted_cost")
        if g.size != w.size:
            raise InputError(
                f"cost and weighted_cost must describe the same episodes, got {g.size} and {w.size}"
            )
        return g, w, g - (1 + self.epsilon) * w

    def count(self, g: FloatArray, w: FloatArray) -> float:
        """Take in a batch; a mean of D up to the returned size is rounding of the weights."""
        self._scale += float(np.abs(g).sum() + (1 + self.epsilon) * np.abs(w).sum())
        self._episodes += g.size
        return RESOLUTION * self._scale / max(self._episodes, 1)


class Ledger:
    """Costs of finished episodes, kept as sums: a certificate at any time, in constant memory.

    Args:
        epsilon: The promise: at most 1 + epsilon times the target's cost. Above -1.
        alpha: Probability with which an interval may miss.
        target_n: Number of episodes at which the anytime-valid certificate is to be sharpest.
    """

    def __init__(self, *, epsilon: float = 0.0, alpha: float = 0.05, target_n: int = 1000) -> None:
        self._difference = CostDifference(epsilon)
        self._alpha = alpha
        self._sequence = AsymptoticSequence(alpha, target_n)  # of D
        self._pairs = Scatter(2)  # G^c and PDIS^c
        self._tolerance = 0.0
        self._equal = True
        self._positive = True
        self._weighted = False

    @property
    def episodes(self) -> int:
        """How many episodes it holds."""
        return self._pairs.n

    def update(self, cost: npt.ArrayLike, weighted_cost: npt.ArrayLike) -> None:
        """Take in a batch of finished episodes, shape [k]; k may be 0."""
        g, w, difference = self._difference.of(cost, weighted_cost)
        self._sequence.update(difference)
        self._pairs.merge(np.stack([g, w], axis=1))
        self._tolerance = self._difference.count(g, w)
        equal = np.abs(g - w) <= RESOLUTION * np.maximum(np.abs(g), np.abs(w))
        self._equal &= bool(equal.all())
        self._positive &= bool(g.min(initial=0.0) >= 0 and w.min(initial=0.0) >= 0)
        self._weighted |= bool(w.any())

    def certificate(self, *, covered: bool = True, anytime: bool = False) -> Certificate:
        """The certificate now.

        Args:
            covered: Whether the behavior policy takes every action that the target may take.
            anytime: The number of episodes was decided by what they showed: the intervals are then
                those of `AsymptoticSequence`, the ratio with its radius for t / sqrt(n).
        """
        n = self._pairs.n
        if n == 0:
            raise InputError(
                "got no episodes; a certificate needs at least one, and two to say much"
            )
        moments = self._sequence.moments
        difference = (
            self._sequence.interval if anytime else moments_interval(moments, alpha=self._alpha)
        )
        tolerance = self._tolerance
        if anytime and max(abs(moments.low), abs(moments.high)) <= tolerance:
            difference = moments_interval(moments, alpha=self._alpha)  # the target's own costs
        verdict: Verdict = "not refuted" if covered else "not covered"
        if difference.high <= tolerance:
            verdict = "safe"
        elif difference.low > tolerance and covered:
            verdict = "refuted"
        return Certificate(
            difference=difference,
            ratio=self._ratio(anytime),
            verdict=verdict,
            cost=float(self._pairs.mean[0]),
            target_cost=float(self._pairs.mean[1]),
            epsilon=self._difference.epsilon,
            alpha=self._alpha,
            episodes=n,
        )

    def _ratio(self, anytime: bool) -> Interval:
        n = self._pairs.n
        a, b = (float(x) for x in self._pairs.mean)
        floor = 0.0 if self._positive else -math.inf
        estimate = a / b if b != 0 else math.nan

        def found(low: float, high: float) -> Interval:
            return Interval(estimate, low, high, self._alpha, "fieller", n)

        if n == 1 or not self._weighted:
            return found(floor, math.inf)
        if self._equal:
            return found(estimate, estimate)  # the same costs: nothing is left to estimate
        if anytime:
            q = self._sequence.radius**2
            if math.isinf(q):
                return found(floor, math.inf)
        else:
            from scipy.special import stdtrit

            q = float(stdtrit(n - 1, self._alpha / 2)) ** 2 / n
        (s_aa, s_ab), (_, s_bb) = self._pairs.covariance
        square, cross, constant = b * b - q * s_bb, a * b - q * s_ab, a * a - q * s_aa
        root = math.sqrt(max(cross * cross - square * constant, 0.0))
        if square > 0:
            return found(max((cross - root) / square, floor), (cross + root) / square)
        if square < 0 and self._positive and constant > 0:  # 0 is rejected: a half-line above 0
            return found((cross - root) / square, math.inf)
        return found(floor, math.inf)

r"""From values of episodes to intervals, verdicts, and the number of episodes that is missing.

Column k of the values has the mean J_k, and the difference of two columns J_k - J_j: paired, by the
same episodes. Where the shares have changed between episodes, the episodes are weighted by
what an A/B test with these shares would be worth, 1 / (1/p_k + 1/p_j): fixed before the episode.

Error probabilities. The differences to the baseline hold together with 1 - alpha: each has
alpha / (K - 1). A policy is called the best where it is better than every other one, each with that
probability: a wrong one is named only if its comparison with the true best is wrong, one of K - 1.
Likewise a policy is dropped if one of the others is better; the true best is dropped only if one of
its K - 1 comparisons is wrong. The value of the best holds for whichever was chosen: each value has
alpha / K.

The spread of the values does not show that folds have learned from each other (see `analysis`):
what the variance lacks is added where it is positive.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from scopeval.arrays import Bools, Floats, Ints
from scopeval.comparison.context import HistoryError
from scopeval.estimation.betting import BettingSequence, violated
from scopeval.estimation.moments import ROUNDING, Interval
from scopeval.estimation.sequences import StagedMoments

__all__ = ["Contrast", "Inferrer", "Observed"]

#: Cells of a betting sequence between the least and the greatest possible difference.
GRID = 4000


@dataclass(frozen=True, slots=True)
class Contrast(Interval):
    """The interval of a value, or of the difference of two.

    Attributes:
        se: standard error of the estimate; NaN: not known.
        flat: no episode differs from another but for rounding: nothing was seen that could decide.
        events: about how many episodes the spread comes from.
    """

    se: float = math.nan
    flat: bool = False
    events: float = math.inf

    @property
    def decided(self) -> bool:
        """Whether 0 is excluded."""
        return not self.flat and (self.low > 0.0 or self.high < 0.0)


@dataclass(frozen=True)
class Observed:
    """The values of all episodes so far.

    Attributes:
        values: [N, K]; NaN where the episode has no value for the policy.
        shares: [N, K].
        weights: u_k of whole episodes, [N, K].
        returns: [N], discounted.
        groups: [N] which episodes may depend on each other, by number; None: none do.
        history: the error of what was removed with exogenous paths; None: nothing was.
        fold: [N] the fold of each, and
        learned: [N, F, K] by how much the values are changed by what fold f has taught; None: no
            fold has learned from another.
    """

    values: Floats
    shares: Floats
    weights: Floats
    returns: Floats
    groups: Ints | None = None
    history: HistoryError | None = None
    fold: Ints | None = None
    learned: Floats | None = None

    def shared(self, k: int, j: int | None, weight: Floats) -> float:
        """What the variance of a weighted mean of values lacks: the covariance of the folds.

        Args:
            k: of J_k, or of J_k - J_j.
            j: None: of J_k.
            weight: [N] of the episodes; 0 where an episode has no value.
        """
        if self.fold is None or self.learned is None:
            return 0.0
        each = self.learned[:, :, k] if j is None else self.learned[:, :, k] - self.learned[:, :, j]
        F = each.shape[1]
        by = np.zeros((F, F))
        np.add.at(by, self.fold, np.where(weight > 0, weight, 0.0)[:, None] * each)
        return float((by * by.T).sum() / weight.sum() ** 2)


class Inferrer:
    """Intervals from observed values.

    Args:
        observed: the values.
        alpha: error probability of everything that is said about differences.
        anytime: what the episodes showed may decide how many there are.
        target_n: number of episodes at which an anytime-valid interval is narrowest.
        return_bound: (low, high) that contain every possible return; None: not known.
        asked: number of policies that are compared, the first columns; None: all.

    Attributes:
        violated: that a return lies outside of its bound, in words; None: none does.
    """

    def __init__(
        self,
        observed: Observed,
        alpha: float,
        *,
        anytime: bool,
        target_n: int,
        return_bound: tuple[float, float] | None = None,
        asked: int | None = None,
    ) -> None:
        self._asked = int(observed.values.shape[1]) if asked is None else asked
        self._o, self._alpha, self._anytime = observed, alpha, anytime
        self._target_n, self._bound = target_n, return_bound
        self.violated: str | None = None
        if return_bound is not None:
            self.violated = violated(observed.returns, return_bound)
            self._bound = None if self.violated else return_bound
        self._scale = float(np.abs(observed.returns).max(initial=0.0))

    @property
    def policies(self) -> int:
        """How many are compared."""
        return self._asked

    def difference(self, k: int, j: int) -> Contrast:
        """J_k - J_j; all differences that are asked about hold together."""
        alpha = self._alpha / max(self.policies - 1, 1)
        if self._bound is not None:
            return self._bounded(alpha, k, j)
        p = self._o.shares
        column = self._o.values[:, k] - self._o.values[:, j]
        with np.errstate(divide="ignore"):
            worth = 1.0 / (1.0 / p[:, k] + 1.0 / p[:, j])
        return self._of_column(column, worth, alpha, k, j)

    def value(self, k: int, among: int = 1) -> Contrast:
        """J_k; with `among` the interval holds for whichever of so many was chosen."""
        alpha = self._alpha / among
        if self._bound is not None:
            return self._bounded(alpha, k, None)
        return self._of_column(self._o.values[:, k], self._o.shares[:, k], alpha, k, None)

    def about(self, values: Floats) -> Inferrer:
        """Intervals of other values of the same episodes, [N, K], such as what they have cost."""
        other = copy(self)
        other._o = replace(self._o, values=values, history=None, fold=None, learned=None)
        other._bound = None
        return other

    def _of_column(
        self, column: Floats, worth: Floats, alpha: float, k: int, j: int | None
    ) -> Contrast:
        """The interval, which counts what folds share and the error of the history."""
        history = self._o.history
        counted = history is not None and history.of(k, j) > 0.0
        some = alpha / 2 if counted and self._anytime else alpha
        found = self._interval(column, worth, some, zero=j is not None)
        shared = self._o.shared(k, j, np.where(np.isfinite(column), worth, 0.0)) if found.n else 0.0
        if shared > 0.0 and found.se > 0.0 and not found.flat:
            found = _scaled(found, math.sqrt(1.0 + shared / found.se**2))
        if history is None or not counted:
            return found
        low, high = history.widened(found, alpha, k, j, anytime=self._anytime)
        error = math.hypot(found.se, history.of(k, j))
        return replace(found, low=low, high=high, alpha=alpha, se=error)

    def _interval(self, column: Floats, worth: Floats, alpha: float, *, zero: bool) -> Contrast:
        known = np.isfinite(column)
        x, worth = column[known], worth[known]
        if not len(x):
            return Contrast(math.nan, -math.inf, math.inf, alpha, "none", 0)
        if zero:  # two copies of a policy differ by rounding only
            x = np.where(np.abs(x) <= ROUNDING * self._scale, 0.0, x)
        if self._o.groups is not None:
            return _clustered(x, self._o.groups[known], alpha)
        moments = StagedMoments(alpha, max(self._target_n, 50))
        for number, weight in enumerate(np.unique(worth)):
            moments.enter(number, float(weight / worth.max()))
            moments.update(x[worth == weight])
        found = moments.sequence() if self._anytime else moments.interval()
        flat = len(x) > 1 and bool(np.ptp(x) <= ROUNDING * self._scale)
        error = math.sqrt(max(moments.squared_error, 0.0))
        method = found.method if self._anytime else "t"  # with the correction for skewness
        return Contrast(
            found.estimate,
            found.low,
            found.high,
            alpha,
            method,
            found.n,
            error,
            flat,
            moments.events,
        )

    def _bounded(self, alpha: float, k: int, j: int | None) -> Contrast:
        """By bets on u (G - c), c the middle of the bounds: exact for any number and any returns.

        With r half of their range, u_k (G - c) lies within r / p_k, and (u_k - u_j) (G - c) within
        r / min(p_k, p_j), because no weight exceeds 1 / p and none is below 0.
        """
        assert self._bound is not None
        low, high = self._bound
        center, half = (low + high) / 2, (high - low) / 2
        shares = self._o.shares[:, [k] if j is None else [k, j]]
        known = (shares > 0).all(axis=1) & np.isfinite(self._o.values[:, k])
        if j is not None:
            known &= np.isfinite(self._o.values[:, j])
        if not known.any():
            return Contrast(math.nan, -math.inf, math.inf, alpha, "none", 0)
        weight = self._o.weights[known, k]
        if j is not None:
            weight = weight - self._o.weights[known, j]
        x = weight * (np.clip(self._o.returns[known], low, high) - center)
        most = half / float(shares[known].min())
        sequence = BettingSequence(alpha, (-most, most), grid=GRID)
        found = sequence.update(x)
        add = center if j is None else 0.0
        error = float(x.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else math.nan
        estimate = float(self._o.values[known, k].mean())
        if j is not None:
            estimate -= float(self._o.values[known, j].mean())
        return Contrast(
            min(max(estimate, found.low + add), found.high + add),
            found.low + add,
            found.high + add,
            alpha,
            "bets",
            len(x),
            error,
            len(x) > 1 and bool(np.ptp(x) == 0.0),
        )

    # -- several policies ------------------------------------------------------------------------

    def better(self, among: Bools) -> Bools:
        """[K, K]: whether k is surely better than j, for policies in `among`."""
        K = self.policies
        sure = np.zeros((K, K), np.bool_)
        for k in range(K):
            for j in range(k + 1, K):
                if among[k] and among[j]:
                    d = self.difference(k, j)
                    sure[k, j] = d.decided and d.low > 0
                    sure[j, k] = d.decided and d.high < 0
        return sure


def _scaled(found: Contrast, by: float) -> Contrast:
    """An interval whose error is larger by a factor."""
    return replace(
        found,
        low=found.estimate - by * (found.estimate - found.low),
        high=found.estimate + by * (found.high - found.estimate),
        se=by * found.se,
    )


def _clustered(x: Floats, groups: Ints, alpha: float) -> Contrast:
    """For episodes that may depend on each other within a group: the t interval of group sums.

    The variance of the mean is sum_g (sum_{i in g} (x_i - mean))^2 / N^2 G / (G - 1), with G - 1
    degrees of freedom (Liang and Zeger 1986, with the usual correction for few groups).
    """
    from scopeval.estimation.moments import quantile

    mean = float(x.mean())
    names, group = np.unique(groups, return_inverse=True)
    sums, G = np.bincount(group, x - mean), len(names)
    if G < 2:
        return Contrast(mean, -math.inf, math.inf, alpha, "clustered t", len(x))
    error = math.sqrt(float((sums**2).sum()) * G / (G - 1)) / len(x)
    half = quantile(alpha, G) * error
    flat = bool(np.ptp(x) == 0.0)
    return Contrast(mean, mean - half, mean + half, alpha, "clustered t", len(x), error, flat)

"""Intervals for a value whose returns have known bounds: for every number of episodes and any law.

Let returns R lie in [lo, hi] and W be the weight of an episode, with mean 1 (1 where the target
itself ran). Then

    W (R - lo)                 has mean J - lo, and is never below 0
    W (hi - R)                 has mean hi - J, and is never below 0

whatever the weights are. Bets on a mean above m need values that are bounded below only
(`capital`), so the first gives the lower end of J and the second the upper end. The whole weight of
an episode enters, and no control variate: for long episodes the interval is wide, but it is valid.
Where the behavior policy leaves out actions of the target both means are too small, so that both
ends move outwards.
"""

from __future__ import annotations

import math

import numpy as np

from scopeval.arrays import Floats, check_alpha
from scopeval.errors import InputError
from scopeval.estimation.betting import FRACTIONS, check_bounds, mean_capital
from scopeval.estimation.running_moments import ENOUGH_EVENTS, FloatArray

__all__ = ["BoundedReturns", "FewOutcomes"]

_SLACK = 1e-9  # relative: returns this little outside their bounds are rounding
_BLOCK = 1 << 16  # values x fractions in one block
_STEPS = 60  # halvings, of which each gains a factor of two


class BoundedReturns:
    """The interval of a value from the returns and weights of episodes, kept as they come.

    Its state is a function of the set of episodes.

    Args:
        bounds: (lo, hi) that contain every possible return, discounted as the value is.
        alpha: probability of missing the value, at any time.
    """

    def __init__(self, bounds: tuple[float, float], alpha: float) -> None:
        check_alpha(alpha)
        try:
            self._lo, self._hi = check_bounds(bounds)
        except (InputError, TypeError, ValueError) as error:
            raise InputError(
                f"return_bound: got {bounds!r}, expected (low, high), two finite numbers that "
                "contain every possible return"
            ) from error
        self._threshold = math.log(2 / alpha)
        self._weights: list[Floats] = []
        self._returns: list[Floats] = []
        self._known: tuple[float, float] | None = None
        self.violated: str | None = None

    def update(self, weight: Floats, returned: Floats) -> None:
        """Take in a batch of episodes, [k] each."""
        if not len(returned):
            return
        slack = _SLACK * (self._hi - self._lo)
        outside = (returned < self._lo - slack) | (returned > self._hi + slack)
        if outside.any() and self.violated is None:
            self.violated = (
                f"a return of {returned[outside][0]:.6g} lies outside return_bound=({self._lo:g}, "
                f"{self._hi:g}), which is therefore not used"
            )
        self._weights.append(np.asarray(weight, np.float64))
        self._returns.append(np.clip(returned, self._lo, self._hi))
        self._known = None

    @property
    def ends(self) -> tuple[float, float]:
        """Lower and upper end of the value; the bounds before the first episode."""
        if not self._returns:
            return self._lo, self._hi
        if self._known is None:
            w, r = np.concatenate(self._weights), np.concatenate(self._returns)
            span = self._hi - self._lo
            low = self._lo + lower_end(w * (r - self._lo), span, self._threshold)
            high = self._hi - lower_end(w * (self._hi - r), span, self._threshold)
            self._known = (low, high)
        low, high = self._known
        if low > high:  # they contradict each other: rarer than alpha
            low = high = (low + high) / 2
        return low, high


def lower_end(values: FloatArray, most: float, threshold: float) -> float:
    """A lower bound in [0, most] for the mean of values that are at least 0.

    The largest m for which the capital of bets on "the mean is above m" reaches exp(threshold). It
    falls as m grows, so halving finds it, from the side on which m is rejected.

    Args:
        values: [n], at least 0.
        most: no mean is above this.
        threshold: logarithm of the capital that rejects.
    """
    low, high = 0.0, most
    if not values.any():
        return low
    for _ in range(_STEPS):
        middle = (low + high) / 2 if low > 0 else high / 16
        if middle < 1e-12 * most:
            break
        if _log_capital(values, middle) >= threshold:
            low = middle
        else:
            high = middle
        if high - low <= 1e-6 * high:
            break
    return low


def _log_capital(values: FloatArray, m: float) -> float:
    """Of bets on a mean above m."""
    away = values / m - 1.0
    rows = max(1, _BLOCK // len(FRACTIONS))
    logs = np.zeros(len(FRACTIONS))
    for start in range(0, len(away), rows):
        logs += np.log1p(away[start : start + rows, None] * FRACTIONS).sum(axis=0)
    return float(mean_capital(logs[:, None])[0])


class FewOutcomes:
    """Notices that nearly all returns are equal: an interval for many episodes then misleads.

    Counts the episodes whose return differs from the most frequent one. That number never falls, so
    counting ends once there are enough.
    """

    ENOUGH = ENOUGH_EVENTS

    def __init__(self) -> None:
        self._counts: dict[float, int] | None = {}
        self._n = 0

    def update(self, returned: FloatArray) -> None:
        """Take in a batch of returns."""
        if self._counts is None:
            return
        self._n += len(returned)
        values, counts = np.unique(returned, return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self._counts[value] = self._counts.get(value, 0) + count
        if self.others >= self.ENOUGH:
            self._counts = None

    @property
    def others(self) -> int:
        """Episodes whose return is not the most frequent one; at least `ENOUGH` is enough."""
        if self._counts is None:
            return self.ENOUGH
        return self._n - max(self._counts.values(), default=0)

    @property
    def warning(self) -> str | None:
        """In words; None when there is nothing to warn about."""
        if self._counts is None or self._n < 2 or 2 * self.others >= self._n:
            return None  # enough of them, or so few episodes that each differs
        usual = max(self._counts, key=lambda value: self._counts[value])  # type: ignore[index]
        many = f"{self._n:,}"
        if self.others == 0:
            return (
                f"all {many} episodes had the same return, {usual:.6g}: other returns in fewer "
                f"than about 3 of {many} episodes are not excluded; return_bound=(low, high) gives "
                "an interval that holds all the same"
            )
        return (
            f"only {self.others} of {many} episodes had a return other than {usual:.6g}: so few "
            "outcomes make the interval unreliable; return_bound=(low, high) gives one that holds "
            "for any number of episodes"
        )

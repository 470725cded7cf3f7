"""Bets against hypotheses about means: valid for every number of values and every distribution.

For values x >= -L with E[x] <= 0 given the earlier values, and any fraction 0 <= f <= 1,

    prod_i (1 + f x_i / L)

is never negative and does not grow in expectation: the capital of a gambler who bets the share f
of it on "x is positive". So is the mean of several such gamblers. By Ville's inequality it ever
reaches 1 / alpha with probability alpha at most, so a capital of 1 / alpha refutes E[x] <= 0. Only
the *lower* end of x must be known; above, x may have any tail.

The mean over a geometric grid of fractions f replaces a choice of f from the data: it loses a
factor of at most the number of fractions against the best of them. The product does not depend on
the order of the values, so the capital is a function of the set of values seen.

`BettingSequence` is for values with both ends known, `BoundedReturns` for weighted returns.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from scopeval.arrays import Floats, check_alpha
from scopeval.errors import InputError
from scopeval.estimation.moments import (
    ENOUGH_EVENTS,
    ROUNDING,
    FloatArray,
    Interval,
    check_bounds,
    check_inside,
    finite_column,
)
from scopeval.estimation.sequences import Side, check_side

__all__ = [
    "FRACTIONS",
    "BettingSequence",
    "BoundedReturns",
    "Capital",
    "FewOutcomes",
    "mean_capital",
    "violated",
]


#: Shares of the capital that the gamblers bet. The smallest ones serve a million values.
FRACTIONS: Floats = 0.98 * 2.0 ** -np.arange(15.0)


_TOGETHER = 16  # values multiplied before a logarithm: at worst 0.02^16, far from underflow


_ROWS = 128  # values in one block of values x hypotheses x fractions


_BLOCK = 1 << 16  # values x fractions in one block


_HALVINGS = 60  # of which each gains a factor of two


class BettingSequence:
    r"""Confidence sequence for bounded values, right for every n and every law on the bounds.

    The hedged capital process (Waudby-Smith and Ramdas, JRSS-B 2024, Theorem 3). For each candidate
    mean m one gambler bets that the mean is above m and one that it is below, with values scaled to
    [0, 1] and bets known before the value:

        K+_n(m) = prod_i (1 + min(bet_i, c / m) (x_i - m))
        K-_n(m) = prod_i (1 - min(bet_i, c / (1 - m)) (x_i - m)),                      c = 1/2
        bet_i   = sqrt( 2 log(2 / alpha) / (v_{i-1} i log(1 + i)) )

    with v the running variance, started at 1/4. At the true mean both are fair games, so neither
    ever reaches 2 / alpha except with probability alpha / 2 (Ville). Candidates that were ever
    rejected stay rejected (running intersection, valid at once by the same inequality).

    K+ only falls in m and K- only rises, so what is left is an interval and every candidate beyond
    a rejected grid point is rejected too: the ends are the nearest *rejected* grid points, and the
    grid costs width (one cell at most on each side) but never coverage. The interval does not get
    narrower than one cell, also when no common mean fits the values.

    Only a constant conditional mean is assumed: E[x_i | earlier values] = mean. The order of the
    values must not depend on the values (not "shortest episode first").

    Args:
        alpha: Probability of ever missing the mean.
        bounds: (lo, hi) that contain every possible value.
        side: "both"; "lower" or "upper" spends all of alpha on one end, the other stays at the
            bound.
        grid: Number of cells; the resolution is (hi - lo) / grid. Rejected candidates cost no more
            time; with one side those on the open side are kept forever, so take fewer there.
    """

    _TRUNCATION = 0.5
    _BLOCK = 1 << 18  # elements of one block of values x candidates

    def __init__(
        self,
        alpha: float = 0.05,
        bounds: tuple[float, float] = (0.0, 1.0),
        *,
        side: Side = "both",
        grid: int = 10_000,
    ) -> None:
        check_alpha(alpha)
        check_side(side)
        if grid < 2:
            raise InputError(f"grid must be at least 2 cells, got {grid}")
        self._alpha = alpha
        self._side: Side = side
        self._lo, self._hi = check_bounds(bounds)
        self._log_threshold = math.log((2 if side == "both" else 1) / alpha)
        self._grid: FloatArray = np.linspace(0.0, 1.0, grid + 1)
        self._log_up: FloatArray = np.zeros(grid + 1)
        self._log_down: FloatArray = np.zeros(grid + 1)
        self._first, self._last = 0, grid  # the interval ends at these grid points
        self._n = 0
        self._sum = 0.0
        self._square = 0.0

    @property
    def alpha(self) -> float:
        """Probability of ever missing the mean."""
        return self._alpha

    @property
    def interval(self) -> Interval:
        """The interval after the values so far: all bounds before the first one."""
        width = self._hi - self._lo
        low = self._lo + width * float(self._grid[self._first])
        high = self._hi - width * float(1.0 - self._grid[self._last])
        estimate = self._lo + width * self._sum / self._n if self._n else math.nan
        return Interval(estimate, low, high, self._alpha, "betting sequence", self._n)

    def update(self, values: npt.ArrayLike) -> Interval:
        """Take in a batch (maybe empty, maybe one number) and give the interval after it."""
        x = finite_column(values, "values")
        check_inside(x, self._lo, self._hi)
        unit = np.clip((x - self._lo) / (self._hi - self._lo), 0.0, 1.0)
        start = 0
        while start < unit.size:
            size = max(1, self._BLOCK // max(self._last - self._first, 8))
            self._absorb(unit[start : start + size])
            start += size
        return self.interval

    def _absorb(self, x: FloatArray) -> None:
        t = self._n + np.arange(1.0, x.size + 1)
        sums = _running(self._sum, x)
        squares = _running(self._square, (x - (0.5 + sums[1:]) / (t + 1)) ** 2)
        # v_{i-1} = (1/4 + sum of squares before i) / i: the i of the bet's denominator cancels
        bet = np.sqrt(2 * self._log_threshold / ((0.25 + squares[:-1]) * np.log1p(t)))
        inner = slice(self._first + 1, self._last)  # neither rejected nor an end of the bounds
        m = self._grid[inner]
        first, last = self._first, self._last
        up, down = self._log_up[inner], self._log_down[inner]
        if m.size:
            away = x[:, None] - m
            if self._side != "upper":
                stake = np.minimum(bet[:, None], self._TRUNCATION / m)
                wealth = _running(up, np.log1p(stake * away))
                rejected = np.flatnonzero(wealth.max(axis=0) >= self._log_threshold)
                first = first + 1 + int(rejected[-1]) if rejected.size else first
                up = wealth[-1]
            if self._side != "lower":
                stake = np.minimum(bet[:, None], self._TRUNCATION / (1 - m))
                wealth = _running(down, np.log1p(-stake * away))
                rejected = np.flatnonzero(wealth.max(axis=0) >= self._log_threshold)
                last = self._first + 1 + int(rejected[0]) if rejected.size else last
                down = wealth[-1]
        if first >= last and x.size > 1:  # the ends met inside the block: find out when
            half = x.size // 2
            self._absorb(x[:half])
            self._absorb(x[half:])
            return
        self._log_up[inner], self._log_down[inner] = up, down
        self._first, self._last = first, last
        self._n += x.size
        self._sum, self._square = float(sums[-1]), float(squares[-1])


def violated(returned: Floats, bounds: tuple[float, float]) -> str | None:
    """That a return lies outside of bounds that were stated, in words; None: none does."""
    low, high = bounds
    slack = ROUNDING * (high - low)
    outside = (returned < low - slack) | (returned > high + slack)
    if not outside.any():
        return None
    return (
        f"a return of {returned[outside][0]:.6g} lies outside return_bound=({low:g}, {high:g}), "
        "which is therefore not used"
    )


class BoundedReturns:
    """The interval of a value whose returns have known bounds, from weighted returns.

    Let returns R lie in [lo, hi] and W be the weight of an episode, with mean 1 (1 where the target
    itself ran). Then

        W (R - lo)                 has mean J - lo, and is never below 0
        W (hi - R)                 has mean hi - J, and is never below 0

    whatever the weights are. Bets on a mean above m need values that are bounded below only, so the
    first gives the lower end of J and the second the upper end. The whole weight of an episode
    enters, and no control variate: for long episodes the interval is wide, but it is valid. Where
    the behavior policy leaves out actions of the target both means are too small, so that both ends
    move outwards.

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
        if self.violated is None:
            self.violated = violated(returned, (self._lo, self._hi))
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


class Capital:
    """The capital of bets against C hypotheses E[x_c] <= 0, with x_c >= -loss_c.

    Args:
        loss: [C] the largest possible loss, above 0.
    """

    def __init__(self, loss: Floats) -> None:
        self._scale = 1.0 / np.asarray(loss, np.float64)
        self._log: Floats = np.zeros((len(self._scale), len(FRACTIONS)))

    def update(self, x: Floats) -> None:
        """Take in k values for every hypothesis, [k, C]; the caller checks x >= -loss."""
        for start in range(0, len(x), _ROWS):
            part = np.maximum(x[start : start + _ROWS] * self._scale, -1.0)  # rounding
            growth = 1.0 + part[:, :, None] * FRACTIONS
            edges = np.arange(0, len(part), _TOGETHER)
            self._log += np.log(np.multiply.reduceat(growth, edges, axis=0)).sum(axis=0)

    @property
    def logarithm(self) -> Floats:
        """[C] logarithm of the capital, from a start of 1."""
        return mean_capital(self._log.T)


def mean_capital(logs: Floats) -> Floats:
    """Logarithm of the mean over the first axis of capitals given by logarithms."""
    highest = logs.max(axis=0)
    return np.asarray(highest + np.log(np.exp(logs - highest).mean(axis=0)))


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
        if self._n - max(self._counts.values(), default=0) >= self.ENOUGH:
            self._counts = None

    @property
    def warning(self) -> str | None:
        """In words; None when there is nothing to warn about."""
        if self._counts is None or self._n < 2:
            return None
        usual, most = max(self._counts.items(), key=lambda item: item[1])
        others, many = self._n - most, f"{self._n:,}"
        if 2 * others >= self._n:
            return None  # so few episodes that each differs
        if others == 0:
            return (
                f"all {many} episodes had the same return, {usual:.6g}: other returns in fewer "
                f"than about 3 of {many} episodes are not excluded; return_bound=(low, high) gives "
                "an interval that holds all the same"
            )
        return (
            f"only {others} of {many} episodes had a return other than {usual:.6g}: so few "
            "outcomes make the interval unreliable; return_bound=(low, high) gives one that holds "
            "for any number of episodes"
        )


def _running(start: float | FloatArray, steps: FloatArray) -> FloatArray:
    """Running sums along the first axis, with the start in front: one by one and at once agree."""
    head = np.broadcast_to(np.asarray(start, dtype=np.float64), steps[:1].shape)
    return np.cumsum(np.concatenate([head, steps]), axis=0)


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
    for _ in range(_HALVINGS):
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

"""Anytime-valid confidence sequences: checking after every batch does not affect coverage."""

from __future__ import annotations

import math
from typing import Literal, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from scopeval.errors import InputError
from scopeval.estimation.intervals import (
    FloatArray,
    Interval,
    _check_alpha,
    _check_bounds,
    _inside,
    finite_column,
)
from scopeval.estimation.streaming_moments import Moments as _Moments

__all__ = ["AsymptoticSequence", "BettingSequence", "ConfidenceSequence"]

Side = Literal["both", "lower", "upper"]


@runtime_checkable
class ConfidenceSequence(Protocol):
    """An interval that may be watched: it covers the mean at all times with 1 - alpha.

    The values may come one by one or in batches of any size; the interval after them is the same.
    """

    @property
    def alpha(self) -> float:
        """Probability of ever missing the mean."""
        ...

    @property
    def interval(self) -> Interval:
        """The interval after the values so far."""
        ...

    def update(self, values: npt.ArrayLike) -> Interval:
        """Take in a batch (maybe empty, maybe one number) and give the interval after it."""
        ...


class AsymptoticSequence:
    r"""Confidence sequence for values without known bounds, right for large n.

    Half-width after n values with sample deviation s (Waudby-Smith, Arbour, Sinha, Kennedy and
    Ramdas, Annals of Statistics 2024, Theorem 2.2; the one-sided form is its Appendix B):

        s r_n,   r_n = sqrt( 2 (n rho^2 + 1) / (n^2 rho^2) * L_n )
        L_n = log( sqrt(n rho^2 + 1) / alpha )                    both sides
        L_n = log( 1 + sqrt(n rho^2 + 1) / (2 alpha) )            one side

    rho makes the interval narrowest at `target_n`: n rho^2 + 1 = -W_{-1}(-alpha^2 / e) there (with
    2 alpha for one side). It is right at all other times too, only less narrow.

    Assumes independent values of one law with more than two finite moments, and enough of them for
    the central limit theorem. Differs from the paper in three ways, each of which only widens the
    interval and vanishes as n grows; they are what makes the miss rate hold in simulation for
    skewed values (tests/test_confidence.py):

    - nothing is said before `burn_in` values, nor while the first 10 `burn_in` values are all
      equal, which mostly means that a rare event has not happened yet;
    - the end on the side of the long tail is moved out by the first term of the Edgeworth expansion
      of a studentized mean (Hall 1992, section 2.6): with z = r_n sqrt(n) and sample skewness k by
      s * skew_factor * |k| (2 z^2 + 1) / (6 n). The factor is 2 because the skewness of a sample
      is mostly too small where tails are long;
    - s has n - 1 in its denominator.

    Neither helps against an event that has not been seen: with values that are rarely very far off
    (1 in 1,000, say) the first thousands of values cannot be trusted. With known bounds use
    `BettingSequence`. There is no running intersection: it would keep the earliest intervals,
    which are the least to be trusted, for ever.

    Args:
        alpha: Probability of ever missing the mean.
        target_n: Where the interval is to be narrowest.
        burn_in: Values before the first finite interval, at least 2.
        side: "both"; "lower" for [low, inf) or "upper" for (-inf, high], each with all of alpha.
        skew_factor: Weight of the correction for skewness; 0 gives the formula of the paper.
    """

    def __init__(
        self,
        alpha: float = 0.05,
        target_n: int = 1000,
        *,
        burn_in: int = 50,
        side: Side = "both",
        skew_factor: float = 2.0,
    ) -> None:
        _check_alpha(alpha)
        _check_side(side)
        if target_n < 1:
            raise InputError(f"target_n must be at least 1, got {target_n}")
        if burn_in < 2:
            raise InputError(f"burn_in must be at least 2, got {burn_in}")
        if not (math.isfinite(skew_factor) and skew_factor >= 0):
            raise InputError(f"skew_factor must be finite and at least 0, got {skew_factor}")
        self._alpha = alpha
        self._side: Side = side
        self._burn_in = burn_in
        self._skew_factor = skew_factor
        self._rho2 = _narrowest(alpha if side == "both" else min(2 * alpha, 0.999)) / target_n
        self._moments = _Moments()

    @property
    def alpha(self) -> float:
        """Probability of ever missing the mean."""
        return self._alpha

    @property
    def interval(self) -> Interval:
        """The interval after the values so far."""
        m = self._moments
        estimate = m.mean if m.n else math.nan
        if m.constant:  # exactly, not to rounding
            estimate = m.low
        low, high = -math.inf, math.inf
        if m.n >= self._burn_in * (10 if m.constant else 1):
            radius = self._radius(m.n)
            shift = self._skew_factor * m.skewness * (2 * radius**2 * m.n + 1) / (6 * m.n)
            if self._side != "upper":
                low = estimate - m.std * (radius + max(-shift, 0.0))
            if self._side != "lower":
                high = estimate + m.std * (radius + max(shift, 0.0))
        return Interval(estimate, low, high, self._alpha, "asymptotic sequence", m.n)

    @property
    def moments(self) -> _Moments:
        """Moments of the values so far."""
        return self._moments

    @property
    def radius(self) -> float:
        """Half-width now for values of deviation 1 without skewness; inf before the burn-in."""
        return self._radius(self._moments.n) if self._moments.n >= self._burn_in else math.inf

    def update(self, values: npt.ArrayLike) -> Interval:
        """Take in a batch (maybe empty, maybe one number) and give the interval after it."""
        self._moments.merge(finite_column(values, "values"))
        return self.interval

    def _radius(self, n: int) -> float:
        spread = n * self._rho2 + 1
        if self._side == "both":
            log_term = math.log(math.sqrt(spread) / self._alpha)
        else:
            log_term = math.log1p(math.sqrt(spread) / (2 * self._alpha))
        return math.sqrt(2 * spread / (n * n * self._rho2) * log_term)


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
            time; with one side those on the open side are kept for ever, so take fewer there.
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
        _check_alpha(alpha)
        _check_side(side)
        if grid < 2:
            raise InputError(f"grid must be at least 2 cells, got {grid}")
        self._alpha = alpha
        self._side: Side = side
        self._lo, self._hi = _check_bounds(bounds)
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
        _inside(x, self._lo, self._hi)
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


def _running(start: float | FloatArray, steps: FloatArray) -> FloatArray:
    """Running sums along the first axis, with the start in front: one by one and at once agree."""
    head = np.broadcast_to(np.asarray(start, dtype=np.float64), steps[:1].shape)
    return np.cumsum(np.concatenate([head, steps]), axis=0)


def _narrowest(alpha: float) -> float:
    """The x = n rho^2 that minimizes (1 + 1/x) log((x + 1) / alpha^2)."""
    from scipy.special import lambertw

    return float(-lambertw(-(alpha**2) / math.e, -1).real - 1)


def _check_side(side: str) -> None:
    if side not in get_args(Side):
        raise InputError(f"unknown side {side!r}; choose one of {get_args(Side)}")

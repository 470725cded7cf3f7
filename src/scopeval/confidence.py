"""Values in, intervals out: fixed-n intervals, anytime-valid sequences, weight diagnostics.

Knows no reinforcement learning: a value is one number per episode, the values are independent and
have one common mean. An `interval` is right for a number of values fixed in advance. A
`ConfidenceSequence` may be looked at after every value and stopped at any time, also because of
what it shows: it covers the mean *at all times at once* with probability 1 - alpha.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from scopeval.errors import InputError
from scopeval.moments import Moments as _Moments

__all__ = [
    "AsymptoticSequence",
    "BettingSequence",
    "ConfidenceSequence",
    "Interval",
    "RunningWeights",
    "WeightDiagnostics",
    "diagnose_weights",
    "interval",
    "moments_interval",
    "required_n",
]

FloatArray = npt.NDArray[np.float64]
Method = Literal["t", "normal", "bootstrap", "bernstein"]
Side = Literal["both", "lower", "upper"]

_BOOTSTRAP_LIMIT = 20_000  # BCa's jackknife takes n^2 work: some seconds here
_ROUNDING = 1e-9  # values this far outside their bounds, relative to the range, are rounding
_HEAVY_TAIL = 0.7  # Pareto k above which importance-weighted means are unreliable


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval for a mean, or one moment of a confidence sequence.

    Attributes:
        estimate: Mean of the values (NaN before the first one).
        low: Lower end; -inf where nothing bounds the mean from below.
        high: Upper end; inf where nothing bounds the mean from above.
        alpha: Probability with which the interval may miss the mean.
        method: How it was computed.
        n: Number of values.
    """

    estimate: float
    low: float
    high: float
    alpha: float
    method: str
    n: int

    @property
    def half_width(self) -> float:
        """Half the distance between the ends; inf when an end is open."""
        return (self.high - self.low) / 2

    def contains(self, x: float) -> bool:
        """Whether x lies in the closed interval."""
        return self.low <= x <= self.high

    def __str__(self) -> str:
        return (
            f"{self.estimate:.4g} [{self.low:.4g}, {self.high:.4g}] "
            f"({100 * (1 - self.alpha):.4g}% {self.method}, n = {self.n})"
        )


def interval(
    values: npt.ArrayLike,
    *,
    alpha: float = 0.05,
    method: Method = "t",
    bounds: tuple[float, float] | None = None,
    rng: np.random.Generator | int = 0,
) -> Interval:
    r"""Two-sided confidence interval for the mean of independent values, n fixed in advance.

    - ``"t"``: mean +- t_{n-1}(1 - alpha/2) s / sqrt(n). Exact for normal values, otherwise right
      for large n.
    - ``"normal"``: the same with the normal quantile; a little too narrow for small n.
    - ``"bootstrap"``: bias-corrected and accelerated (Efron 1987), 9,999 resamples; follows
      skewness to second order. At most 20,000 values, beyond which ``"t"`` says the same.
    - ``"bernstein"``: the empirical Bernstein bound (Maurer and Pontil 2009, Theorem 4) on both
      sides, for values in [lo, hi]. With L = log(4 / alpha),

          mean +- ( s sqrt(2 L / n) + 7 (hi - lo) L / (3 (n - 1)) )

      cut to the bounds. Holds for every n and every law on [lo, hi]; wide when n is small.

    One value has no spread: the interval is the whole line (with ``"bernstein"``: the bounds).
    Equal values have none either: the interval is that one point (except with ``"bernstein"``),
    which is right when the values cannot vary and blind to an event rarer than about 3 / n.

    Args:
        values: One number per episode, shape [n], n >= 1.
        alpha: Probability of missing the mean.
        method: One of the four above.
        bounds: (lo, hi) that contain every possible value; required by ``"bernstein"``, used by
            no other method.
        rng: Generator or seed for the bootstrap; the same seed gives the same interval.

    Raises:
        InputError: No values, NaN or infinite values, values outside the bounds, bad alpha, an
            unknown method, missing bounds, or too many values for the bootstrap.
    """
    x = finite_column(values, "values")
    _check_alpha(alpha)
    if method not in get_args(Method):
        raise InputError(f"unknown method {method!r}; choose one of {get_args(Method)}")
    n = x.size
    if n == 0:
        raise InputError("got no values; an interval needs at least one, and two to be finite")
    constant = bool(x.min() == x.max())
    mean = float(x[0]) if constant else float(x.mean())
    if method == "bernstein":
        if bounds is None:
            raise InputError(
                "method 'bernstein' needs bounds=(lo, hi) that contain every possible value; "
                "without them use method='t' or 'bootstrap'"
            )
        lo, hi = _check_bounds(bounds)
        _inside(x, lo, hi)
        if n == 1:
            return Interval(mean, lo, hi, alpha, method, n)
        log_term = math.log(4 / alpha)
        std = 0.0 if constant else float(x.std(ddof=1))
        half = std * math.sqrt(2 * log_term / n) + 7 * (hi - lo) * log_term / (3 * (n - 1))
        return Interval(mean, max(mean - half, lo), min(mean + half, hi), alpha, method, n)
    if method == "bootstrap" and n > 1 and not constant:
        return Interval(mean, *_bca(x, alpha, rng), alpha, method, n)
    found = _Moments()
    found.merge(x)
    return moments_interval(found, alpha=alpha, method=method)


def moments_interval(moments: _Moments, *, alpha: float = 0.05, method: Method = "t") -> Interval:
    """The interval of `interval` from the moments of the values alone ("t" or "normal")."""
    m = moments
    if m.n < 2:
        return Interval(m.mean if m.n else math.nan, -math.inf, math.inf, alpha, method, m.n)
    if m.constant:
        return Interval(m.low, m.low, m.low, alpha, method, m.n)
    half = _quantile(alpha, None if method == "normal" else m.n) * m.std / math.sqrt(m.n)
    return Interval(m.mean, m.mean - half, m.mean + half, alpha, method, m.n)


def required_n(std: float, half_width: float, alpha: float = 0.05) -> int:
    """Number of values with which a normal interval reaches a half-width.

    n = ceil( (z_{1 - alpha/2} std / half_width)^2 ), and at least 2, below which no interval is
    finite.

    Args:
        std: Standard deviation of one value.
        half_width: Wanted half-width, above 0.
        alpha: Probability of missing the mean.
    """
    _check_alpha(alpha)
    if not (math.isfinite(std) and std >= 0):
        raise InputError(f"std must be finite and at least 0, got {std}")
    if not (math.isfinite(half_width) and half_width > 0):
        raise InputError(f"half_width must be finite and above 0, got {half_width}")
    return max(2, math.ceil((_quantile(alpha) * std / half_width) ** 2))


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
      of a studentised mean (Hall 1992, section 2.6): with z = r_n sqrt(n) and sample skewness k by
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


@dataclass(frozen=True, slots=True)
class WeightDiagnostics:
    """How far importance weights can be trusted.

    Attributes:
        n: Number of weights.
        effective_size: Kish's (sum w)^2 / sum w^2: as many equal weights say as much.
        largest_share: Share of the largest weight in the sum of all.
        tail_index: Pareto k of the largest weights: moments of order 1/k and above are infinite.
            Below 0.5 the variance is finite; above 0.7 the mean is unreliable. None when there
            are fewer than 25 weights, or no spread among the largest.
        warnings: What to worry about, in words; empty when nothing is.
    """

    n: int
    effective_size: float
    largest_share: float
    tail_index: float | None
    warnings: tuple[str, ...]


def diagnose_weights(weights: npt.ArrayLike) -> WeightDiagnostics:
    """Effective sample size, largest share and tail index of a vector of episode weights.

    The tail index is the k-hat of Pareto-smoothed importance sampling (Vehtari, Simpson, Gelman,
    Yao and Gabry, JMLR 2024): a generalised Pareto law fitted to the min(n/5, 3 sqrt(n)) largest
    weights.

    Args:
        weights: One non-negative weight per episode, shape [n], n >= 1; the scale is free.

    Raises:
        InputError: No weights, negative, NaN or infinite ones.
    """
    running = RunningWeights()
    running.update(weights)
    return running.diagnostics


class RunningWeights:
    """`diagnose_weights` for weights that come batch by batch; keeps only the largest ones."""

    _KEPT = 1 << 14  # enough for the tail of 30 million weights

    def __init__(self) -> None:
        self._n = 0
        self._largest = 0.0
        self._sum = 0.0  # of w / largest, so that squares cannot overflow
        self._squares = 0.0
        self._top: FloatArray = np.empty(0)

    def update(self, weights: npt.ArrayLike) -> None:
        """Take in a batch."""
        w = finite_column(weights, "weights")
        if w.size == 0:
            return
        if w.min() < 0:
            i = int(w.argmin())
            raise InputError(f"weights must be at least 0, got {w[i]} at index {i}")
        self._n += w.size
        largest = max(self._largest, float(w.max()))
        if largest == 0:
            return
        scale = self._largest / largest
        share = w / largest
        self._sum = self._sum * scale + float(share.sum())
        self._squares = self._squares * scale * scale + float(np.dot(share, share))
        self._largest = largest
        top = np.concatenate([self._top, w])
        self._top = np.partition(top, -self._KEPT)[-self._KEPT :] if len(top) > self._KEPT else top

    @property
    def largest(self) -> float:
        """The largest weight so far."""
        return self._largest

    @property
    def diagnostics(self) -> WeightDiagnostics:
        """What the weights so far say."""
        n = self._n
        if n == 0:
            raise InputError("got no weights; expected one per episode")
        if self._largest == 0:
            said = "all weights are zero: no episode says anything about the target"
            return WeightDiagnostics(n, 0.0, 0.0, None, (said,))
        size, top = min(self._sum * (self._sum / self._squares), float(n)), 1.0 / self._sum
        k = _tail_index(self._top / self._largest, n)
        said_all = []
        if size < 0.1 * n:
            said_all.append(
                f"{n} weighted episodes say as much as {size:.1f} equal ones; "
                "a behaviour policy closer to the target would help"
            )
        if top > max(0.1, 10 / n):
            said_all.append(f"one episode of {n} carries {100 * top:.0f}% of all weight")
        if k is not None and k > _HEAVY_TAIL:
            said_all.append(
                f"the weights have a heavy tail (Pareto k = {k:.2f}, above {_HEAVY_TAIL}): "
                "larger ones are still to come, and the interval is too narrow until they do"
            )
        return WeightDiagnostics(n, size, top, k, tuple(said_all))


def finite_column(values: npt.ArrayLike, name: str) -> FloatArray:
    """The values as a vector of finite numbers (one number becomes a vector of length 1).

    Raises:
        InputError: Not numbers, more than one dimension, NaN or infinite; names the first bad one.
    """
    try:
        x = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers in one dimension: {error}") from error
    if x.ndim != 1:
        raise InputError(f"{name} must have one dimension, got shape {x.shape}")
    bad = np.flatnonzero(~np.isfinite(x))
    if bad.size:
        raise InputError(
            f"{name} must be finite: {bad.size} of {x.size} are not, "
            f"the first is {x[bad[0]]} at index {bad[0]}"
        )
    return x


def _tail_index(w: FloatArray, n: int) -> float | None:
    """Shape of a generalised Pareto law of the largest of n weights (Zhang and Stephens 2009).

    `w` holds at least the largest ones.

    With k(b) = mean log(1 - b x) the profile likelihood is l(b) = m (log(-b / k(b)) - k(b) - 1);
    b is its mean under that likelihood and a weak prior, and k = k(b) is drawn a little to 1/2.
    """
    if n < 25:
        return None
    m = min(n // 5, math.ceil(3 * math.sqrt(n)), w.size - 1)
    tail = np.sort(w)[-m - 1 :]
    x = tail[1:] - tail[0]
    x = x[x > 1e-12 * tail[-1]]
    if x.size < 5:
        return None
    m = x.size
    points = 30 + int(math.sqrt(m))
    quartile = x[max(int(m / 4 + 0.5) - 1, 0)]
    b = 1 / x[-1] + (1 - np.sqrt(points / (np.arange(points) + 0.5))) / (3 * quartile)
    b = b[b != 0]
    k = np.log1p(-b[:, None] * x).mean(axis=1)
    log_likelihood = m * (np.log(-b / k) - k - 1)
    posterior = np.exp(log_likelihood - log_likelihood.max())
    best = float(np.dot(b, posterior) / posterior.sum())
    return float((m * np.log1p(-best * x).mean() + 10 * 0.5) / (m + 10))


def _running(start: float | FloatArray, steps: FloatArray) -> FloatArray:
    """Running sums along the first axis, with the start in front: one by one and at once agree."""
    head = np.broadcast_to(np.asarray(start, dtype=np.float64), steps[:1].shape)
    return np.cumsum(np.concatenate([head, steps]), axis=0)


def _narrowest(alpha: float) -> float:
    """The x = n rho^2 that minimises (1 + 1/x) log((x + 1) / alpha^2)."""
    from scipy.special import lambertw

    return float(-lambertw(-(alpha**2) / math.e, -1).real - 1)


def _quantile(alpha: float, n: int | None = None) -> float:
    """1 - alpha/2 quantile of the normal law, or of Student's with n - 1 degrees of freedom."""
    from scipy import special

    if n is None:
        return float(-special.ndtri(alpha / 2))
    return float(-special.stdtrit(n - 1, alpha / 2))


def _bca(x: FloatArray, alpha: float, rng: np.random.Generator | int) -> tuple[float, float]:
    if x.size > _BOOTSTRAP_LIMIT:
        raise InputError(
            f"the bootstrap takes at most {_BOOTSTRAP_LIMIT} values, got {x.size}; "
            "use method='t', which says the same for so many"
        )
    from scipy.stats import bootstrap

    batch = max(1, 1_000_000 // x.size)
    for kind in ("BCa", "percentile"):  # BCa is undefined when the resamples lie on one side
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = bootstrap(
                (x,),
                np.mean,
                confidence_level=1 - alpha,
                batch=batch,
                method=kind,
                random_state=np.random.default_rng(rng),
            ).confidence_interval
        low, high = float(found.low), float(found.high)
        if math.isfinite(low) and math.isfinite(high):
            break
    return low, high


def _inside(x: FloatArray, lo: float, hi: float) -> None:
    slack = _ROUNDING * (hi - lo)
    bad = np.flatnonzero((x < lo - slack) | (x > hi + slack))
    if bad.size:
        raise InputError(
            f"{bad.size} of {x.size} values lie outside bounds=({lo}, {hi}), the first is "
            f"{x[bad[0]]} at index {bad[0]}; bounds must contain every possible value"
        )


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie strictly between 0 and 1, got {alpha}; try 0.05")


def _check_side(side: str) -> None:
    if side not in get_args(Side):
        raise InputError(f"unknown side {side!r}; choose one of {get_args(Side)}")


def _check_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    lo, hi = (float(end) for end in bounds)
    if not (math.isfinite(lo) and math.isfinite(hi) and lo < hi):
        raise InputError(f"bounds must be two finite numbers, lo < hi, got ({lo}, {hi})")
    return lo, hi

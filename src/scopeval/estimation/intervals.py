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
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from scopeval.errors import InputError
from scopeval.estimation.streaming_moments import Moments as _Moments

__all__ = ["Interval", "interval", "moments_interval", "required_n"]

FloatArray = npt.NDArray[np.float64]

Method = Literal["t", "normal", "bootstrap", "bernstein"]

_BOOTSTRAP_LIMIT = 20_000  # BCa's jackknife takes n^2 work: some seconds here

_ROUNDING = 1e-9  # values this far outside their bounds, relative to the range, are rounding


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


def _check_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    lo, hi = (float(end) for end in bounds)
    if not (math.isfinite(lo) and math.isfinite(hi) and lo < hi):
        raise InputError(f"bounds must be two finite numbers, lo < hi, got ({lo}, {hi})")
    return lo, hi

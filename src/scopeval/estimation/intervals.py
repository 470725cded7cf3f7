"""Confidence intervals for the mean of values whose number was fixed in advance.

Knows no reinforcement learning: a value is one number per episode, the values are independent and
have one common mean. Where the number of values depends on what they show, use a confidence
sequence: `running_moments.AsymptoticSequence`, or `betting.BettingSequence` for bounded values.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from scopeval.arrays import check_alpha
from scopeval.errors import InputError
from scopeval.estimation.betting import check_bounds, check_inside
from scopeval.estimation.running_moments import (
    FloatArray,
    Interval,
    Moments,
    finite_column,
    moments_interval,
    quantile,
)

__all__ = ["Interval", "interval", "required_n"]

Method = Literal["t", "normal", "bootstrap", "bernstein"]

_BOOTSTRAP_LIMIT = 20_000  # BCa's jackknife takes n^2 work: some seconds here


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
    check_alpha(alpha)
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
        lo, hi = check_bounds(bounds)
        check_inside(x, lo, hi)
        if n == 1:
            return Interval(mean, lo, hi, alpha, method, n)
        log_term = math.log(4 / alpha)
        std = 0.0 if constant else float(x.std(ddof=1))
        half = std * math.sqrt(2 * log_term / n) + 7 * (hi - lo) * log_term / (3 * (n - 1))
        return Interval(mean, max(mean - half, lo), min(mean + half, hi), alpha, method, n)
    if method == "bootstrap" and n > 1 and not constant:
        return Interval(mean, *_bca(x, alpha, rng), alpha, method, n)
    moments = Moments()
    moments.merge(x)
    return moments_interval(moments, alpha=alpha, method=method)


def required_n(std: float, half_width: float, alpha: float = 0.05) -> int:
    """Number of values with which a normal interval reaches a half-width.

    n = ceil( (z_{1 - alpha/2} std / half_width)^2 ), and at least 2, below which no interval is
    finite.

    Args:
        std: Standard deviation of one value.
        half_width: Wanted half-width, above 0.
        alpha: Probability of missing the mean.
    """
    check_alpha(alpha)
    if not (math.isfinite(std) and std >= 0):
        raise InputError(f"std must be finite and at least 0, got {std}")
    if not (math.isfinite(half_width) and half_width > 0):
        raise InputError(f"half_width must be finite and above 0, got {half_width}")
    return max(2, math.ceil((quantile(alpha) * std / half_width) ** 2))


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
            resampled = bootstrap(
                (x,),
                np.mean,
                confidence_level=1 - alpha,
                batch=batch,
                method=kind,
                random_state=np.random.default_rng(rng),
            ).confidence_interval
        low, high = float(resampled.low), float(resampled.high)
        if math.isfinite(low) and math.isfinite(high):
            break
    return low, high

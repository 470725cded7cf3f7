r"""Remove the part of the variance that comes from where episodes start.

Where starts differ, an estimate varies by v(S_0), the value of the start, whatever is done later. A
guess v of that value is a control variate, because its mean can be learned from starts alone: a
reset of a simulator costs almost nothing, an episode does. With n episodes (values G_i, starts S_i)
and m further starts S'_j,

    estimate = mean(G_i - k v(S_i)) + k mean(v(S'_j)),      k = m / (n + m)
    variance = Var(G - k v(S)) / n  +  k^2 Var(v(S)) / m

What it assumes: the further starts come from the same law as the episodes' own and are independent
of them, and v was fixed before (learned from logs, say). Then the estimate is unbiased for any v.
If v is the true value, k is the best factor, and of the variance of the starts n / (n + m) is left.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from scopeval.errors import InputError
from scopeval.estimation.running_moments import (
    Interval,
    check_alpha,
    finite_column,
    quantile,
)

__all__ = ["adjust_starts", "start_share"]


def adjust_starts(
    values: npt.ArrayLike, own: npt.ArrayLike, others: npt.ArrayLike, *, alpha: float = 0.05
) -> Interval:
    """Estimate and confidence interval of the value, with the part of the starts removed.

    Args:
        values: [n] one unbiased estimate per episode (`estimation.estimators`).
        own: [n] v at the starts of these episodes (`BehaviorPolicy.start_values`).
        others: [m] v at further, independent starts, such as resets of a simulator.
        alpha: probability with which the interval may miss the value.

    Returns:
        The interval; it is normal, so right for large n and m.
    """
    check_alpha(alpha)
    value, here, there = (
        finite_column(column, name)
        for column, name in ((values, "values"), (own, "own"), (others, "others"))
    )
    if len(value) != len(here):
        raise InputError(
            f"own: got {len(here)} values of starts for {len(value)} episodes, expected one each"
        )
    n, m = len(value), len(there)
    if n < 2 or m < 2:
        raise InputError(
            f"adjust_starts: got {n} episode(s) and {m} further start(s), expected at least 2 each"
        )
    k = m / (n + m)
    left = value - k * here
    estimate = float(left.mean() + k * there.mean())
    error = math.sqrt(float(left.var(ddof=1)) / n + k * k * float(there.var(ddof=1)) / m)
    half = quantile(alpha) * error
    return Interval(estimate, estimate - half, estimate + half, alpha, "normal, starts removed", n)


def start_share(values: npt.ArrayLike, own: npt.ArrayLike) -> float:
    """Share of the variance of the values that their starts explain: a squared correlation."""
    value, here = finite_column(values, "values"), finite_column(own, "own")
    if len(value) < 2 or value.std() == 0.0 or here.std() == 0.0:
        return 0.0
    return float(np.corrcoef(value, here)[0, 1] ** 2)

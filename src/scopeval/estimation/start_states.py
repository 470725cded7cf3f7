r"""Remove the part of the variance that comes from where episodes start.

Where starts differ, an estimate varies by v(S_0), the value of the start, whatever is done later. A
guess v of that value is a control variate, because its mean can be learned from starts alone: a
reset of a simulator costs almost nothing, an episode does. With n episodes (values G_i, starts S_i)
and m further starts S'_j,

    estimate = mean(G_i - k v(S_i)) + k mean(v(S'_j)),      k = m / (n + m)
    variance = Var(G - k v(S)) / n  +  k^2 Var(v(S)) / m

What it assumes: the further starts come from the same law as the episodes' own and are independent
of them, and v was fixed before (learned from logs that contain neither). Then the estimate is
unbiased for any v and any k that is fixed as well. If v is the true value, this k is the best, and
of the variance of the starts n / (n + m) is left. Where the law of the starts is known, m is
infinite: k = 1, and the second term is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from scopeval.errors import InputError
from scopeval.estimation.running_moments import FloatArray, Interval, finite_column, quantile

__all__ = ["StartControl"]


@dataclass(frozen=True)
class StartControl:
    """The value of the start as a control variate, fixed before the episodes that it adjusts.

    Attributes:
        mean: of v, over further starts.
        error: standard error of that mean; 0 where the law of the starts is known.
        further: number m of further starts; inf: their law is known.
        factor: k, the share of v that is removed.
    """

    mean: float
    error: float
    further: float
    factor: float

    @classmethod
    def of(cls, others: npt.ArrayLike, episodes: int) -> StartControl:
        """From v at further starts.

        Args:
            others: [m] v at further, independent starts.
            episodes: how many episodes are planned; the factor suits this number.

        Raises:
            InputError: fewer than two starts, or numbers that are not finite.
        """
        there = finite_column(others, "others")
        m = len(there)
        if m < 2:
            raise InputError(f"starts: got {m} further start(s), expected at least 2")
        spread = math.sqrt(float(there.var(ddof=1)) / m)
        return cls(float(there.mean()), spread, m, m / (m + max(episodes, 1)))

    @classmethod
    def known(cls, values: npt.ArrayLike, chance: npt.ArrayLike) -> StartControl:
        """From v [S] at every state, and the known probability [S] with which episodes start."""
        v = finite_column(values, "values")
        return cls(float(np.asarray(chance, np.float64) @ v), 0.0, math.inf, 1.0)

    def adjusted(self, values: FloatArray, own: FloatArray) -> FloatArray:
        """Values of episodes [n] less what v at their starts [n] says, plus its mean."""
        return np.asarray(values - self.factor * (own - self.mean))

    @property
    def own_error(self) -> float:
        """What the further starts add to the standard error of the estimate."""
        return self.factor * self.error

    def sequence_alpha(self, alpha: float) -> float:
        """What a confidence sequence of adjusted values may miss: the mean of v has the rest."""
        return alpha / 2 if self.error > 0 else alpha

    def widened(self, found: Interval, alpha: float, *, anytime: bool) -> Interval:
        """The interval with the error of the mean of v counted.

        Args:
            found: for the adjusted values, as if the mean of v were known: of level alpha, and of
                level `sequence_alpha` if anytime.
            alpha: probability with which the widened interval may miss the value.
            anytime: found is a confidence sequence. Its misses and those of the mean of v then add
                up, because the latter is the same at all times; else the variances add up.
        """
        if self.error == 0 or not math.isfinite(found.half_width):
            return replace(found, alpha=alpha)
        share = self.sequence_alpha(alpha) if anytime else alpha
        ours = quantile(share, self.further) * self.own_error
        if anytime:
            return replace(found, low=found.low - ours, high=found.high + ours, alpha=alpha)
        half = math.hypot(found.half_width, ours)
        return replace(found, low=found.estimate - half, high=found.estimate + half, alpha=alpha)

"""The mean of values that come in stages, each with a weight that is known before the stage.

The law of the values may change from stage to stage, also because of what earlier values showed,
as long as all have the same mean given the past. With stage weights w_k (per value) that depend on
earlier stages only, the weighted sum of value - mean is a martingale, and

    estimate  = sum_k w_k n_k mean_k / sum_k w_k n_k
    V         = sum_k w_k^2 n_k s_k^2                      estimates the martingale's variance

For a fixed plan (all n_k fixed, sum_k w_k n_k fixed) the estimate is unbiased and, by the central
limit theorem for martingales, (estimate - mean) sum_k w_k n_k / sqrt(V) is about normal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy.typing as npt

from scopeval.arrays import check_alpha
from scopeval.errors import InputError
from scopeval.estimation.running_moments import (
    BURN_IN,
    FEWEST_EVENTS,
    Interval,
    Moments,
    anytime_radius,
    count_events,
    finite_column,
    narrowest_time,
    quantile,
)

__all__ = ["StagedMoments", "WeightedStage"]


@dataclass
class WeightedStage:
    """One stage: values of one law. Mostly all have one weight.

    Attributes:
        moments: of all its values.
        parts: the same by weight, in the order in which the weights came.
    """

    moments: Moments = field(default_factory=Moments)
    parts: dict[float, Moments] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Sum of w n over its parts."""
        return math.fsum(weight * m.n for weight, m in self.parts.items())

    def mixed(self, power: int) -> float:
        """Mean of w^power over its values."""
        n = self.moments.n
        return math.fsum(weight**power * (m.n / n) for weight, m in self.parts.items())

    @property
    def square(self) -> float:
        """s^2 sum w^2 n: what the stage adds to the variance of the weighted sum."""
        spread = self.moments.std**2
        return math.fsum(weight**2 * m.n * spread for weight, m in self.parts.items())


class StagedMoments:
    """Weighted mean of values in stages, with intervals that are valid although stages adapt.

    With one stage it says what `AsymptoticSequence` says, and, without skewness, what
    `moments_interval` says.

    Args:
        alpha: Probability of missing the mean.
        target_n: Number of values at which the anytime-valid interval is to be narrowest.
        burn_in: Values before the first finite anytime-valid interval.
        skew_factor: Weight of the correction for skewness, as in `AsymptoticSequence`.
    """

    def __init__(
        self,
        alpha: float = 0.05,
        target_n: int = 1000,
        *,
        burn_in: int = BURN_IN,
        skew_factor: float = 2.0,
    ) -> None:
        check_alpha(alpha)
        self._alpha, self._burn_in, self._skew_factor = alpha, burn_in, skew_factor
        self._rho2 = narrowest_time(alpha) / target_n
        self.stages: list[WeightedStage] = []
        self._stage, self._weight = WeightedStage(), 1.0

    def begin(self, weight: float) -> None:
        """Begin a stage whose values have this weight."""
        self.enter(len(self.stages), weight)

    def enter(self, number: int, weight: float) -> None:
        """The values that follow are of this stage, from 0, and have this weight.

        A stage may be entered again, also with another weight; stages between the last one and this
        one stay empty.
        """
        if not (math.isfinite(weight) and weight > 0.0):
            raise InputError(f"weight: got {weight!r}, expected a finite number above 0")
        while len(self.stages) <= number:
            self.stages.append(WeightedStage())
        self._stage, self._weight = self.stages[number], float(weight)
        self._stage.parts.setdefault(self._weight, Moments())

    def update(self, values: npt.ArrayLike) -> None:
        """Take in a batch of the stage that was begun or entered last."""
        column = finite_column(values, "values")
        self._stage.moments.merge(column)
        self._stage.parts[self._weight].merge(column)

    @property
    def n(self) -> int:
        """Number of values."""
        return sum(stage.moments.n for stage in self.stages)

    @property
    def whole(self) -> Moments:
        """Of all values, each counted once."""
        every = Moments()
        for stage in self.stages:
            every.join(stage.moments)
        return every

    @property
    def total_weight(self) -> float:
        """sum_k w_k n_k."""
        return math.fsum(weight * m.n for weight, m in self._parts())

    @property
    def estimate(self) -> float:
        """The weighted mean; NaN before the first value."""
        total = self.total_weight
        if total == 0.0:
            return math.nan
        return math.fsum(weight * m.n * m.mean for weight, m in self._parts()) / total

    def _parts(self) -> Iterator[tuple[float, Moments]]:
        """Weight and moments of all parts of all stages."""
        for stage in self.stages:
            yield from stage.parts.items()

    @property
    def squared_error(self) -> float:
        """V / (sum_k w_k n_k)^2, the squared standard error; NaN before the first value."""
        total = self.total_weight
        return math.nan if total == 0.0 else self._square / total**2

    @property
    def _square(self) -> float:
        return math.fsum(stage.square for stage in self.stages)

    def interval(self) -> Interval:
        """For a plan fixed in advance: estimate +- t_df sqrt(V) / sum_k w_k n_k.

        The degrees of freedom are those of Welch and Satterthwaite: V^2 / sum_k V_k^2 / (n_k - 1).
        The end on the side of the long tail is moved out by the first term of the Edgeworth
        expansion (half of what `AsymptoticSequence` does): stages are short, and values that depend
        on rare events are skewed.
        A stage with fewer than two values has no spread of its own: the interval is then the whole
        line.
        """
        name = "studentized martingale"
        filled = [stage for stage in self.stages if stage.moments.n]
        if not filled or min(stage.moments.n for stage in filled) < 2:
            return Interval(self.estimate, -math.inf, math.inf, self._alpha, name, self.n)
        whole = self._square
        if whole == 0.0:
            return Interval(self.estimate, self.estimate, self.estimate, self._alpha, name, self.n)
        parts = math.fsum(stage.square**2 / (stage.moments.n - 1) for stage in filled)
        freedom = whole**2 / parts
        z, error = quantile(self._alpha, freedom + 1.0), math.sqrt(self.squared_error)
        shift = 0.5 * self._shift(z)
        low = self.estimate - error * (z + max(-shift, 0.0))
        high = self.estimate + error * (z + max(shift, 0.0))
        return Interval(self.estimate, low, high, self._alpha, name, self.n)

    def _shift(self, z: float) -> float:
        """How far the end on the side of the long tail is moved out, in standard errors."""
        squares, cubes = self._sums()
        return self._skew_factor * cubes / float(squares**1.5) * (2 * z * z + 1) / 6

    def _sums(self) -> tuple[float, float]:
        """Sums of squares and of cubes of weighted values less their stage's mean."""
        filled = [stage for stage in self.stages if stage.moments.n]
        return (
            math.fsum(stage.mixed(2) * stage.moments.square for stage in filled),
            math.fsum(stage.mixed(3) * stage.moments.cube for stage in filled),
        )

    @property
    def events(self) -> float:
        """About how many values the spread comes from; see `count_events`."""
        if all(stage.moments.flat for stage in self.stages if stage.moments.n):
            return 0.0
        return count_events(*self._sums())

    def sequence(self) -> Interval:
        """Valid at all times at once, however the number of values was decided.

        The boundary of `AsymptoticSequence` at the martingale's own time V, in units of the
        variance of one value of the first stage.
        """
        name = "asymptotic sequence"
        n, first = self.n, next((s for s in self.stages if s.moments.n), None)
        flat = all(stage.moments.flat for stage in self.stages if stage.moments.n)
        if first is None or n < self._burn_in or flat:
            return Interval(self.estimate, -math.inf, math.inf, self._alpha, name, n)
        # variance of one weighted value of the first stage
        unit = first.moments.std**2 * next(iter(first.parts)) ** 2 or self._square / n
        time = self._square / unit
        z = anytime_radius(time, self._rho2, self._alpha) * math.sqrt(time)
        error = math.sqrt(self.squared_error)
        shift, enough = self._shift(z), count_events(*self._sums()) >= FEWEST_EVENTS
        low, high = -math.inf, math.inf
        if enough or shift > 0.0:
            low = self.estimate - error * (z + max(-shift, 0.0))
        if enough or shift < 0.0:
            high = self.estimate + error * (z + max(shift, 0.0))
        return Interval(self.estimate, low, high, self._alpha, name, n)

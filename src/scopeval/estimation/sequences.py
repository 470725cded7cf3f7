"""Confidence sequences for many values without known bounds, of one law or in weighted stages.

A confidence sequence may be checked after every value and stopped at any time, also because of what
it shows: it covers the mean *at all times at once* with probability 1 - alpha.

`StagedMoments` takes values that come in stages, each with a weight that is known before the stage.
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
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args, runtime_checkable

import numpy.typing as npt

from scopeval.arrays import check_alpha
from scopeval.errors import InputError
from scopeval.estimation.moments import (
    BURN_IN,
    FEWEST_EVENTS,
    Interval,
    Moments,
    count_events,
    finite_column,
    quantile,
)

__all__ = [
    "AsymptoticSequence",
    "ConfidenceSequence",
    "Side",
    "StagedMoments",
    "WeightedStage",
    "anytime_radius",
    "check_side",
    "narrowest_time",
]

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
    skewed values (tests/estimation/test_intervals.py):

    - nothing is said before `burn_in` values, nor while the first 10 `burn_in` values are all
      equal, which mostly means that a rare event has not happened yet; with `fewest_events`, also
      not while any number of values are equal to rounding, nor about the side of the long tail
      before the spread comes from so many values (`count_events`);
    - the end on the side of the long tail is moved out by the first term of the Edgeworth expansion
      of a studentized mean (Hall 1992, section 2.6): with z = r_n sqrt(n) and sample skewness k by
      s * skew_factor * |k| (2 z^2 + 1) / (6 n). The factor is 2 because the skewness of a sample
      is mostly too small where tails are long;
    - s has n - 1 in its denominator.

    Neither helps against an event that has not been seen: with values that are rarely very far off
    (1 in 1,000, say) the first thousands of values cannot be trusted. With known bounds use
    `BettingSequence`. There is no running intersection: it would keep the earliest intervals,
    which are the least to be trusted, forever.

    Args:
        alpha: Probability of ever missing the mean.
        target_n: Where the interval is to be narrowest.
        burn_in: Values before the first finite interval, at least 2.
        side: "both"; "lower" for [low, inf) or "upper" for (-inf, high], each with all of alpha.
        skew_factor: Weight of the correction for skewness; 0 gives the formula of the paper.
        fewest_events: Values that the spread must come from before anything is said about the side
            of the long tail; `FEWEST_EVENTS` for values that rare events may decide. 0 where it is
            better to be early than to be sure, as in a guard.
    """

    def __init__(
        self,
        alpha: float = 0.05,
        target_n: int = 1000,
        *,
        burn_in: int = BURN_IN,
        side: Side = "both",
        skew_factor: float = 2.0,
        fewest_events: float = 0.0,
    ) -> None:
        check_alpha(alpha)
        check_side(side)
        self._fewest_events = fewest_events
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
        self._rho2 = narrowest_time(alpha if side == "both" else min(2 * alpha, 0.999)) / target_n
        self.moments = Moments()  # of the values so far

    @property
    def alpha(self) -> float:
        """Probability of ever missing the mean."""
        return self._alpha

    @property
    def interval(self) -> Interval:
        """The interval after the values so far."""
        m = self.moments
        estimate = m.mean if m.n else math.nan
        if m.constant:  # exactly, not to rounding
            estimate = m.low
        low, high = -math.inf, math.inf
        begun = m.n >= self._burn_in * (10 if m.constant else 1)
        if self._fewest_events > 0.0:
            begun = m.n >= self._burn_in and not m.flat
        if begun:
            radius = self.radius
            shift = self._skew_factor * m.skewness * (2 * radius**2 * m.n + 1) / (6 * m.n)
            enough = m.events >= self._fewest_events
            if self._side != "upper" and (enough or shift > 0.0):
                low = estimate - m.std * (radius + max(-shift, 0.0))
            if self._side != "lower" and (enough or shift < 0.0):
                high = estimate + m.std * (radius + max(shift, 0.0))
        return Interval(estimate, low, high, self._alpha, "asymptotic sequence", m.n)

    @property
    def radius(self) -> float:
        """Half-width now for values of deviation 1 without skewness; inf before the burn-in."""
        n, both = self.moments.n, self._side == "both"
        if n < self._burn_in:
            return math.inf
        return anytime_radius(n, self._rho2, self._alpha, both=both)

    def update(self, values: npt.ArrayLike) -> Interval:
        """Take in a batch (maybe empty, maybe one number) and give the interval after it."""
        self.moments.merge(finite_column(values, "values"))
        return self.interval


def anytime_radius(n: float, rho2: float, alpha: float, *, both: bool = True) -> float:
    """r_n of `AsymptoticSequence`; n may be any time of a martingale, in units of its variance."""
    spread = n * rho2 + 1
    if both:
        log_term = math.log(math.sqrt(spread) / alpha)
    else:
        log_term = math.log1p(math.sqrt(spread) / (2 * alpha))
    return math.sqrt(2 * spread / (n * n * rho2) * log_term)


def check_side(side: str) -> None:
    """Which end of an interval is wanted."""
    if side not in get_args(Side):
        raise InputError(f"unknown side {side!r}; choose one of {get_args(Side)}")


def narrowest_time(alpha: float) -> float:
    """The x = n rho^2 that minimizes (1 + 1/x) log((x + 1) / alpha^2)."""
    from scipy.special import lambertw

    return float(-lambertw(-(alpha**2) / math.e, -1).real - 1)


@dataclass
class WeightedStage:
    """One stage: values of one law. Mostly all have one weight.

    Attributes:
        moments: of all its values.
        parts: the same by weight, in the order in which the weights came.
    """

    moments: Moments = field(default_factory=Moments)
    parts: dict[float, Moments] = field(default_factory=dict)

    def powers(self, power: int) -> float:
        """Sum of w^power over its values."""
        return math.fsum(weight**power * m.n for weight, m in self.parts.items())

    @property
    def square(self) -> float:
        """s^2 sum w^2 n: what the stage adds to the variance of the weighted sum."""
        return self.moments.std**2 * self.powers(2)


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
        return math.fsum(stage.powers(1) for stage in self.stages)

    @property
    def estimate(self) -> float:
        """The weighted mean; NaN before the first value."""
        total = self.total_weight
        if total == 0.0:
            return math.nan
        parts = [part for stage in self.stages for part in stage.parts.items()]
        return math.fsum(weight * m.n * m.mean for weight, m in parts) / total

    @property
    def squared_error(self) -> float:
        """V / (sum_k w_k n_k)^2, the squared standard error; NaN before the first value."""
        total = self.total_weight
        square = math.fsum(stage.square for stage in self.stages)
        return math.nan if total == 0.0 else square / total**2

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
        error = math.sqrt(self.squared_error)
        if error == 0.0:
            return Interval(self.estimate, self.estimate, self.estimate, self._alpha, name, self.n)
        parts = math.fsum(stage.square**2 / (stage.moments.n - 1) for stage in filled)
        freedom = (error * self.total_weight) ** 4 / parts
        z = quantile(self._alpha, freedom + 1.0)
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
            math.fsum(s.powers(2) / s.moments.n * s.moments.square for s in filled),
            math.fsum(s.powers(3) / s.moments.n * s.moments.cube for s in filled),
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
        error = math.sqrt(self.squared_error)
        square = (error * self.total_weight) ** 2
        # variance of one weighted value of the first stage
        unit = first.moments.std**2 * next(iter(first.parts)) ** 2 or square / n
        time = square / unit
        z = anytime_radius(time, self._rho2, self._alpha) * math.sqrt(time)
        shift, enough = self._shift(z), count_events(*self._sums()) >= FEWEST_EVENTS
        low, high = -math.inf, math.inf
        if enough or shift > 0.0:
            low = self.estimate - error * (z + max(-shift, 0.0))
        if enough or shift < 0.0:
            high = self.estimate + error * (z + max(shift, 0.0))
        return Interval(self.estimate, low, high, self._alpha, name, n)

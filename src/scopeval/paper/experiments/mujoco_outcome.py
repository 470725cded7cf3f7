"""Measured numbers of one target on a robot, and the arithmetic that makes them.

Nothing is exact here: values, costs and their variances are measured over episodes, and every
number has a standard error. The true value that error curves refer to is the mean of all unbiased
methods, weighted by their precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.collection.episodes import Episodes
from scopeval.estimation.estimators import pdis_cost
from scopeval.paper.experiments.gridworld_target import episode_grid
from scopeval.paper.methods import REFERENCE
from scopeval.safety.certificate import certify

__all__ = [
    "Designed",
    "OnPolicy",
    "RobotOutcome",
    "TargetResult",
    "pooled_value",
    "variance_error",
]

#: A target whose returns spread less than this part of their mean has no variance to reduce.
LEAST_SPREAD = 1e-3


@dataclass(frozen=True)
class Designed:
    """What a design predicted, and what happened while it ran.

    Attributes:
        used: the method that was designed in the end: if the logs are too thin, scope-dr may
            become scope, and any method may fall back to the target policy (on-policy).
        predicted_variance: relative to the target's, from the design's critics.
        predicted_cost: likewise.
        checked_variance: the same from the cross-check, on the other half of the logs.
        checked_cost: likewise.
        floor: least share of the target's own probabilities in the mixture.
        margin: share of the budget that is left unspent.
        kept: share of imagined states where the target's probabilities are unchanged.
        binding: share of them where the budget binds.
        warnings: of the design.
        asked: number of decisions.
        unseen: decisions that fell back because the observation is unlike the logs.
        infeasible: decisions that fell back because no answer is within the budget.
        not_finite: decisions that fell back because an estimate is not a finite number.
        certificate: verdict of `safety.certify` on the expected cost.
        certified_cost: the certificate's ratio of costs; None if it has none.
        certified_low: lower end of its interval.
        certified_high: upper end of its interval.
        share: part of the critics' differences between actions that the control variate uses.
    """

    used: str
    predicted_variance: float | None
    predicted_cost: float | None
    checked_variance: float | None
    checked_cost: float | None
    floor: float
    margin: float
    kept: float
    binding: float
    warnings: tuple[str, ...]
    asked: int
    unseen: int
    infeasible: int
    not_finite: int
    certificate: str
    certified_cost: float | None
    certified_low: float | None
    certified_high: float | None
    share: float = 1.0

    @classmethod
    def of(cls, behavior: BehaviorPolicy, ran: Episodes, epsilon: float) -> Designed:
        """From the behavior policy and its episodes."""
        recipe, report, counts = behavior.recipe, behavior.report, behavior.counts
        predicted = report.prediction
        certificate = certify(ran.costs(), pdis_cost(ran), epsilon=epsilon)
        ratio = certificate.ratio
        return cls(
            used=recipe.method,
            predicted_variance=_finite(predicted.variance),
            predicted_cost=_finite(predicted.cost),
            checked_variance=_finite(predicted.checked_variance),
            checked_cost=_finite(predicted.checked_cost),
            floor=recipe.floor if recipe.method != REFERENCE else 1.0,
            share=recipe.share,
            margin=recipe.margin,
            kept=report.kept,
            binding=report.binding,
            warnings=report.warnings,
            asked=counts.asked,
            unseen=counts.unseen,
            infeasible=counts.infeasible,
            not_finite=counts.not_finite,
            certificate=certificate.verdict,
            certified_cost=_finite(ratio.estimate),
            certified_low=_finite(ratio.low),
            certified_high=_finite(ratio.high),
        )


@dataclass(frozen=True)
class RobotOutcome:
    """One method on one target.

    Attributes:
        mean: estimate of J(pi) from all episodes.
        variance: of one episode's estimate; of ROS, whose episodes depend on each other: of a run's
            estimate times its number of episodes.
        variance_error: standard error of the variance, from the fourth moment.
        cost: mean cost of an episode.
        cost_error: its standard error.
        relative_variance: to on-policy's.
        relative_variance_error: its standard error, including on-policy's part.
        relative_cost: to on-policy's.
        relative_cost_error: its standard error.
        square: of ROS, which may be biased: mean squared error over runs, relative as the variance.
        lost: episodes that broke.
        errors: mean |estimate - truth| over runs after each number of episodes of the grid, in
            units of the mean error of one on-policy episode.
        costs: mean cost spent until then, in costs of one on-policy episode.
        designed: None for on-policy and ROS.
    """

    mean: float
    variance: float
    variance_error: float
    cost: float
    cost_error: float
    relative_variance: float
    relative_variance_error: float
    relative_cost: float
    relative_cost_error: float
    square: float | None
    lost: int
    errors: tuple[float, ...]
    costs: tuple[float, ...]
    designed: Designed | None = None

    @property
    def inaccuracy(self) -> float:
        """The variance; ROS may be biased, so the squared error takes its place there."""
        return self.relative_variance if self.square is None else self.square


@dataclass(frozen=True)
class TargetResult:
    """One target.

    Attributes:
        name: of the policy.
        value: J(pi), pooled over all unbiased methods.
        value_error: its standard error.
        mean: mean return of on-policy's episodes.
        spread: their standard deviation.
        cost: their mean cost.
        design_seconds: for all designs together.
        outcomes: by method; only on-policy where its returns have no spread.
    """

    name: str
    value: float
    value_error: float
    mean: float
    spread: float
    cost: float
    design_seconds: float
    outcomes: dict[str, RobotOutcome]

    @property
    def excluded(self) -> bool:
        """Whether there is no variance to reduce."""
        return not self.spread > LEAST_SPREAD * abs(self.mean)

    @classmethod
    def of(cls, content: dict[str, Any]) -> TargetResult:
        """From JSON."""
        outcomes = {}
        for name, one in content["outcomes"].items():
            designed = one["designed"]
            if designed is not None:
                designed = Designed(**{**designed, "warnings": tuple(designed["warnings"])})
            curves = {key: tuple(one[key]) for key in ("errors", "costs")}
            outcomes[name] = RobotOutcome(**{**one, **curves, "designed": designed})
        return cls(**{**content, "outcomes": outcomes})


@dataclass(frozen=True)
class OnPolicy:
    """On-policy's returns and costs, which all methods are compared with.

    Attributes:
        values: returns of its episodes.
        costs: their costs.
        truth: J(pi).
        unit: mean error of one of its episodes.
    """

    values: Floats
    costs: Floats
    truth: float
    unit: float

    def outcome(
        self, values: Floats, costs: Floats, grid: Ints, lost: int, designed: Designed | None
    ) -> RobotOutcome:
        """Numbers of one method from the estimates and costs of its independent episodes.

        The error after n episodes is the mean over all groups of n consecutive episodes.
        """
        errors = []
        for n in grid:
            groups = values[: len(values) // n * n].reshape(-1, n).mean(axis=1)
            errors.append(float(np.abs(groups - self.truth).mean()) / self.unit)
        spent = grid * (costs.mean() / self._mean_cost)
        return RobotOutcome(
            **self._moments(values, costs, 1),
            square=None,
            lost=lost,
            errors=tuple(errors),
            costs=tuple(spent.tolist()),
            designed=designed,
        )

    def ros_outcome(self, returns: Floats, costs: Floats) -> RobotOutcome:
        """Numbers of ROS from returns and costs [runs, episodes]: only runs are independent."""
        episodes = returns.shape[1]
        grid = episode_grid(episodes)
        means = np.cumsum(returns, axis=1)[:, grid - 1] / grid
        errors = np.abs(means - self.truth).mean(axis=0) / self.unit
        spent = np.cumsum(costs, axis=1)[:, grid - 1].mean(axis=0) / self._mean_cost
        last = means[:, -1]
        square = float(((last - self.truth) ** 2).mean() * episodes / self.values.var(ddof=1))
        return RobotOutcome(
            **self._moments(last, costs.mean(axis=1), episodes),
            square=square,
            lost=0,
            errors=tuple(errors.tolist()),
            costs=tuple(spent.tolist()),
        )

    def _moments(self, values: Floats, costs: Floats, episodes: int) -> dict[str, Any]:
        """Moments of independent estimates from `episodes` episodes each, and of their costs."""
        variance = episodes * float(values.var(ddof=1))
        variance_se = episodes * variance_error(values)
        cost, cost_se = float(costs.mean()), _standard_error(costs)
        same = values is self.values
        own, own_se = float(self.values.var(ddof=1)), variance_error(self.values)
        own_cost_se = _standard_error(self.costs)
        return {
            "mean": float(values.mean()),
            "variance": variance,
            "variance_error": variance_se,
            "cost": cost,
            "cost_error": cost_se,
            **_relative("variance", variance, variance_se, own, own_se, same),
            **_relative("cost", cost, cost_se, self._mean_cost, own_cost_se, same),
        }

    @property
    def _mean_cost(self) -> float:
        return float(self.costs.mean()) or 1.0


def variance_error(values: Floats) -> float:
    """Standard error of the sample variance, by the fourth moment."""
    n = len(values)
    away = values - values.mean()
    variance = away @ away / (n - 1)
    fourth = float((away**4).mean())
    return math.sqrt(max(fourth - (n - 3) / (n - 1) * variance**2, 0.0) / n)


def pooled_value(own: Floats, others: list[Floats]) -> tuple[float, float]:
    """Mean of unbiased estimates weighted by their precision, and its standard error.

    No variance counts as less than a hundredth of on-policy's: a method that has not yet seen a
    rare event looks more precise than it is.
    """
    least = 0.01 * float(own.var(ddof=1))
    if least == 0.0:
        return float(own.mean()), 0.0
    means = np.array([x.mean() for x in (own, *others)])
    weight = np.array([len(x) / max(float(x.var(ddof=1)), least) for x in (own, *others)])
    return float(weight @ means / weight.sum()), float(1.0 / math.sqrt(weight.sum()))


def _standard_error(values: Floats) -> float:
    """Standard error of the mean."""
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def _relative(
    name: str, value: float, error: float, own: float, own_error: float, same: bool
) -> dict[str, float]:
    """Ratio to on-policy's, with standard error; 1 where both are zero, or the same."""
    if same or own == 0.0:
        return {f"relative_{name}": 1.0, f"relative_{name}_error": 0.0}
    ratio = value / own
    spread = math.hypot(error / own, ratio * own_error / own)
    return {f"relative_{name}": ratio, f"relative_{name}_error": spread}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None

"""Designs in environments that scopeval was not tuned on: limits, and how designs are counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from scopeval.paper.methods import REFERENCE

__all__ = ["HALVES", "MOST_COST", "MOST_VARIANCE", "PREDICTION", "ForeignDesign", "Group"]

HALVES = ("chosen on", "reported on")
#: Relative cost above which a design breaks its promise.
MOST_COST = 1.005
#: Relative variance above which it does.
MOST_VARIANCE = 1.05
#: Predicted / true variance of a good prediction.
PREDICTION = (0.7, 1.4)


@dataclass(frozen=True)
class ForeignDesign:
    """One design, and how it was judged.

    Attributes:
        environment: its name.
        target: number of the target policy.
        logs: kind of the logs.
        episodes: their number.
        method: that was asked for.
        used: method that was decided on.
        warnings: number of them.
        support: share of the target's steps that the logs show, as the design reports it.
        predicted_variance: what the design predicted,
        predicted_cost: likewise.
        checked_variance: what its cross-check said,
        checked_cost: likewise.
        variance: the truth: relative to running the target policy; exact, or measured.
        cost: likewise.
        variance_error: standard error of the variance; 0 where it is exact, and so is
        cost_error: that of the cost.
    """

    environment: str
    target: int
    logs: str
    episodes: int
    method: str
    used: str
    warnings: int
    support: float
    predicted_variance: float
    predicted_cost: float
    checked_variance: float
    checked_cost: float
    variance: float
    cost: float
    variance_error: float = 0.0
    cost_error: float = 0.0

    @property
    def half(self) -> str:
        """Which half of the targets it belongs to."""
        return HALVES[self.target % 2]

    @property
    def falls_back(self) -> bool:
        """Whether the design is to run the target policy itself."""
        return self.used == REFERENCE

    @property
    def calibration(self) -> float:
        """Predicted / true variance."""
        return self.predicted_variance / self.variance

    @property
    def too_expensive(self) -> bool:
        """Whether the cost is above what was promised, by two standard errors."""
        return self.cost - 2.0 * self.cost_error > MOST_COST

    @property
    def too_variable(self) -> bool:
        """Whether the variance is above the target policy's own, by two standard errors."""
        return self.variance - 2.0 * self.variance_error > MOST_VARIANCE

    @property
    def well_predicted(self) -> bool:
        """Whether the prediction is near the truth."""
        return PREDICTION[0] <= self.calibration <= PREDICTION[1]

    def as_dict(self) -> dict[str, Any]:
        """For JSON and Parquet."""
        return {
            **asdict(self),
            "half": self.half,
            "falls_back": self.falls_back,
            "calibration": self.calibration,
        }


@dataclass(frozen=True)
class Group:
    """Some of the designs, counted.

    Attributes:
        environment: its name, or "all".
        half: of the targets.
        rows: the designs.
    """

    environment: str
    half: str
    rows: tuple[ForeignDesign, ...] = field(repr=False)

    @property
    def departures(self) -> tuple[ForeignDesign, ...]:
        """The designs that do not fall back to the target policy."""
        return tuple(row for row in self.rows if not row.falls_back)

    def as_dict(self) -> dict[str, Any]:
        """The counts, for JSON; numbers of the designs that do not fall back where it matters."""
        away = self.departures
        many = len(away)
        variable = max(self.rows, key=lambda row: row.variance)
        expensive = max(self.rows, key=lambda row: row.cost)
        return {
            "environment": self.environment,
            "half": self.half,
            "designs": len(self.rows),
            "fall_back": len(self.rows) - many,
            "mean_variance": sum(row.variance for row in self.rows) / len(self.rows),
            "worst_variance": variable.variance,
            "worst_variance_error": variable.variance_error,
            "worst_cost": expensive.cost,
            "worst_cost_error": expensive.cost_error,
            "too_variable": _count(row.too_variable for row in self.rows),
            "too_expensive": _count(row.too_expensive for row in self.rows),
            "well_predicted": _count(row.well_predicted for row in self.rows) / len(self.rows),
            "well_predicted_departures": _count(row.well_predicted for row in away) / many
            if many
            else None,
        }


def _count(flags: Iterable[bool]) -> int:
    return sum(flags)

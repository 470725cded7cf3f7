"""What a design reports about itself."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Prediction"]


@dataclass(frozen=True)
class Prediction:
    """What the design expects of itself, relative to running the target.

    Attributes:
        variance: relative variance, from the critics and their own errors.
        cost: relative cost, likewise.
        checked_variance: the same for a design on half of the logs, judged by critics of the other
            half; the gap to `variance` is what the critics cannot agree on.
        checked_cost: likewise.
    """

    variance: float
    cost: float
    checked_variance: float
    checked_cost: float


@dataclass(frozen=True)
class Shape:
    """What the target looked like: number of actions (0: not known), width of vectors, states."""

    actions: int = 0
    width: int | None = None
    states: int | None = None


@dataclass(frozen=True)
class Report:
    """What was learned about the logs and the design; printed by `summary`."""

    rows: int
    regression: str
    support: float
    binding: float
    kept: float
    prediction: Prediction
    holdout: dict[str, float]
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default=())
    shape: Shape = field(default_factory=lambda: Shape())

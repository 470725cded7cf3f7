"""What a behavior policy tells a controller to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Action"]


@dataclass(frozen=True)
class Action:
    """One action to take, with the probabilities and the random number it was drawn with."""

    action: Any
    probability: float
    target_probability: float
    control: float = 0.0
    baseline: float = 0.0
    uniform: float | None = None

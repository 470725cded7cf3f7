"""The settings of `design`, checked."""

from __future__ import annotations

from dataclasses import dataclass

from scopeval._progress import Progress
from scopeval.arrays import check_whole, is_number
from scopeval.behavior.step import Recipe
from scopeval.errors import InputError
from scopeval.models.model.regression import Networks
from scopeval.models.protocols import Regression

__all__ = ["BUDGETS", "FLOOR", "Progress", "Settings", "check_budget", "check_epsilon"]

#: What the promise is about: the rest of the episode from every state on, or whole episodes.
BUDGETS = ("state", "episode")

#: Share of the target policy that is always mixed in: no importance ratio exceeds 1 / FLOOR.
FLOOR = 0.02

#: Relative variance that a design must save, predicted and checked.
LEAST_GAIN = 0.03


@dataclass(frozen=True)
class Settings:
    """What `design` is asked for, apart from logs, target and method; described there."""

    horizon: int
    epsilon: float = 0.0
    gamma: float = 1.0
    learn: Regression | Networks | None = None
    floor: float = FLOOR
    constraint: str = "behavior"
    limit: float | None = None
    budget: str = "state"
    least_gain: float = LEAST_GAIN
    margin: float = 0.0
    """Part of the cost budget that is left unspent; what the cross-check asks for is added."""
    seed: int = 0
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and not (is_number(self.limit) and self.limit >= 0):
            raise InputError(
                f"limit: got {self.limit!r}, expected a number >= 0: what the rest of an episode "
                "may cost"
            )
        check_epsilon(self.epsilon)
        check_whole("horizon", self.horizon, 1, " of steps")
        _check_share("gamma", self.gamma, above_zero=True)
        _check_share("floor", self.floor, above_zero=False)
        _check_share("least_gain", self.least_gain, above_zero=False)
        _check_share("margin", self.margin, above_zero=False)
        check_budget(self.budget, self.limit, self.constraint)
        check_whole("seed", self.seed, 0)
        if self.constraint not in ("behavior", "target"):
            raise InputError(
                f"constraint: got {self.constraint!r}, expected 'behavior' or 'target'"
            )

    def recipe(self, method: str) -> Recipe:
        """How a method begins, before anything was learned."""
        return Recipe(
            method=method,
            epsilon=float(self.epsilon),
            horizon=int(self.horizon),
            gamma=float(self.gamma),
            floor=float(self.floor),
            margin=float(self.margin),
            constraint=self.constraint,
            limit=None if self.limit is None else float(self.limit),
            budget=self.budget,
        )


def _check_share(name: str, value: float, *, above_zero: bool) -> None:
    if not (is_number(value) and 0.0 <= value <= 1.0) or (above_zero and value == 0):
        bracket = "(" if above_zero else "["
        raise InputError(f"{name}: got {value!r}, expected a number in {bracket}0, 1]")


def check_budget(budget: str, limit: object = None, constraint: str = "behavior") -> str:
    """What the promise is about; some settings are for every state's own budget only."""
    if not isinstance(budget, str) or budget not in BUDGETS:
        raise InputError(f"budget: got {budget!r}, expected {' or '.join(map(repr, BUDGETS))}")
    if budget == "episode" and limit is not None:
        raise InputError(
            f"limit: got {limit!r} with budget='episode', but a limit is for every state; "
            "try budget='state', or leave limit out"
        )
    if budget == "episode" and constraint != "behavior":
        raise InputError(
            f"constraint: got {constraint!r} with budget='episode', expected 'behavior': what an "
            "episode costs is what the behavior policy spends"
        )
    return budget


def check_epsilon(epsilon: float) -> float:
    """How much more than the target policy the behavior policy may cost."""
    if not (is_number(epsilon) and epsilon >= 0):
        raise InputError(
            f"epsilon: got {epsilon!r}, expected a finite number >= 0 (0: no more expensive than "
            "the target policy; 0.1: at most 10 % more)"
        )
    return float(epsilon)

"""The settings of `design`, checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from scopeval._progress import Progress
from scopeval.arrays import Floats, as_floats, check_whole, is_number
from scopeval.behavior.step import Recipe
from scopeval.behavior.thresholds import FLOOR, LEAST_GAIN
from scopeval.errors import DataError, InputError
from scopeval.models.networks import Networks
from scopeval.models.protocols import Regression
from scopeval.models.rows import Log
from scopeval.models.simulator import Simulator
from scopeval.models.table import Table
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import ContinuousPolicy, Policy

__all__ = [
    "BUDGETS",
    "Learn",
    "Progress",
    "Settings",
    "check_budget",
    "check_epsilon",
    "choose_regression",
    "learn_of",
    "varies",
]

#: What the promise is about: the rest of the episode from every state on, or whole episodes.
BUDGETS = ("state", "episode")


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
        horizon = check_whole("horizon", self.horizon, 1, " of steps")
        object.__setattr__(self, "horizon", horizon)
        _check_share("gamma", self.gamma, above_zero=True)
        _check_share("floor", self.floor, above_zero=False)
        _check_share("least_gain", self.least_gain, above_zero=False)
        _check_share("margin", self.margin, above_zero=False)
        check_budget(self.budget, self.limit, self.constraint)
        object.__setattr__(self, "seed", check_whole("seed", self.seed, 0))
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


# -- what learns from the logs: as asked, or as suits them -----------------------------------------

#: What ``learn=`` takes: a value, or a regression of your own.
Learn = Table | Networks | Simulator | Regression

#: Largest table (states times actions) that is tried.
MOST_PAIRS = 50_000_000


def learn_of(learn: Learn | None) -> Regression | Networks | None:
    """What was given as ``learn=``; None: it is chosen when the logs are known.

    Raises:
        InputError: it is nothing that learns.
    """
    if isinstance(learn, Simulator):
        return Networks(dynamics=learn)
    if learn is None or isinstance(learn, Regression | Networks):
        return learn
    raise InputError(
        f"learn: got {learn!r:.60}, expected Table(...) for state numbers, Networks(...) for "
        "vectors, Simulator(step), or a Regression of your own; try to leave it out"
    )


def varies(learn: object) -> bool:
    """Whether rewards or dynamics depend on t beyond the observation, as it was stated."""
    return bool(getattr(learn, "time_varying", False))


def choose_regression(
    learn: Regression | Networks | None, log: Log, target: Policy | ContinuousPolicy
) -> Regression | Networks:
    """The regression that was asked for, if it suits the log and the target."""
    discrete = log.rows.obs.ndim == 1
    states = int(max(log.rows.obs.max(), log.rows.next_obs.max())) + 1 if discrete else None
    if states is not None and isinstance(target, TabularPolicy):
        if states > target.states:
            raise DataError(
                f"logs: holds state {states - 1}, the target's table covers 0.."
                f"{target.states - 1}; expected a log of the target's problem"
            )
        states = target.states
    if states is not None and states * log.actions > MOST_PAIRS:
        raise DataError(
            f"logs: holds state {states - 1}, a table would need {states * log.actions:,} "
            f"entries per time step, expected at most {MOST_PAIRS:,}; try numbering the states "
            "from 0 without gaps, or vectors"
        )
    if learn is None:
        learn = Table() if discrete else Networks()
    if isinstance(target, ContinuousPolicy) and not isinstance(learn, Networks):
        raise InputError(
            f"learn: got {learn.name!r} for continuous actions, expected Networks(), or leave it "
            "out"
        )
    if discrete and isinstance(learn, Networks):
        raise InputError(
            "learn: Networks need observations that are vectors, the log holds state numbers; try "
            "Table()"
        )
    if isinstance(learn, Table):
        if not discrete:
            raise InputError(
                "learn: Table needs state numbers, the log holds vectors; try Networks()"
            )
        if learn.states is None:
            features = _features(learn.features, states)
            return replace(learn, states=states, features=features)
    return learn


def _features(features: NDArray[Any] | None, states: int | None) -> Floats | None:
    if features is None:
        return None
    points = as_floats("features", features, ndim=(2,), axes=("s", "feature"))
    if len(points) != states or points.shape[1] == 0:
        raise InputError(
            f"features: got shape {points.shape}, expected [{states}, d], one row of coordinates "
            "per state"
        )
    return points

"""What collection expects of environments, and what it gets from them.

Fleets: many environments that are stepped by one call.

A fleet that raises loses all episodes of the call; a row that is not finite, or whose cost is
negative, loses its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints

__all__ = [
    "EnvironmentFailure",
    "Fleet",
    "FleetStep",
    "Outcome",
    "Outcomes",
    "Steppable",
    "in_words",
    "no_outcomes",
    "reset_fleet",
    "step_fleet",
]


@runtime_checkable
class Steppable(Protocol):
    """What is used of a Gymnasium environment."""

    def reset(self, *, seed: int) -> Any:
        """Begin an episode."""

    def step(self, action: Any, /) -> Any:
        """Take one action."""


class FleetStep(Protocol):
    """The result of one step of B environments of a fleet."""

    @property
    def obs(self) -> NDArray[Any]:
        """Next observations, [B] or [B, d]."""

    @property
    def reward(self) -> Floats:
        """[B]."""

    @property
    def cost(self) -> Floats:
        """[B]."""

    @property
    def terminated(self) -> Bools:
        """[B]."""


@runtime_checkable
class Fleet(Protocol):
    """Many environments of one kind that one call steps together.

    The episode that a seed begins must not depend on what else runs in the fleet.
    """

    def __len__(self) -> int: ...

    def reset(self, seeds: Sequence[int], which: Ints) -> NDArray[Any]:
        """Begin an episode in each of `which`; returns the first observations."""

    def step(self, actions: NDArray[Any], which: Ints) -> FleetStep:
        """Take an action in each of `which`."""


class EnvironmentFailure(Exception):  # noqa: N818  (never leaves collection: not the caller's error)
    """The environment failed; the running episode is lost."""


@dataclass(frozen=True)
class Outcome:
    """The result of one step of one environment."""

    obs: NDArray[Any]
    reward: float
    cost: float
    terminated: bool
    truncated: bool
    exogenous: Floats | None = None


@dataclass
class Outcomes:
    """The result of one step of B environments, a row for each.

    `failures` holds the rows that failed. Rows after an interrupt by the user are neither done nor
    failed, and `interrupted` is set. `exogenous` holds the signals of rows that reported them.
    """

    obs: NDArray[Any]
    reward: Floats
    cost: Floats
    terminated: Bools
    truncated: Bools
    done: Bools
    failures: dict[int, EnvironmentFailure] = field(default_factory=dict)
    exogenous: dict[int, Floats] = field(default_factory=dict)
    interrupted: bool = False


# -- fleets ----------------------------------------------------------------------------------------


def reset_fleet(
    fleet: Fleet, seeds: Sequence[int]
) -> tuple[NDArray[Any], dict[int, EnvironmentFailure]]:
    """Begin an episode in the first environments: observations, and the rows that failed."""
    try:
        obs = np.asarray(fleet.reset(seeds, np.arange(len(seeds))))
    except Exception as error:
        reason = f"reset raised {in_words(error)}"
        failed = {i: EnvironmentFailure(reason) for i in range(len(seeds))}
        return np.empty(len(seeds)), failed
    return obs, _not_finite(obs, "observation")


def step_fleet(fleet: Fleet, actions: NDArray[Any], which: Ints, *, free: bool) -> Outcomes:
    """Take an action in each environment of `which`; `free`: costs count as 0."""
    result = no_outcomes(len(which))
    try:
        moved = fleet.step(actions, which)
    except Exception as error:
        reason = f"step raised {in_words(error)}"
        result.failures = {row: EnvironmentFailure(reason) for row in range(len(which))}
        return result
    for row in np.flatnonzero(moved.cost < 0):
        reason = f"the cost is negative: {moved.cost[row]:.6g}"
        result.failures[int(row)] = EnvironmentFailure(reason)
    for name, values in (
        ("cost", moved.cost),
        ("reward", moved.reward),
        ("observation", moved.obs),
    ):
        result.failures |= _not_finite(values, name)
    result.obs, result.reward, result.terminated = moved.obs, moved.reward, moved.terminated
    result.done[:] = True
    result.done[list(result.failures)] = False
    if not free:
        result.cost = moved.cost
    return result


def no_outcomes(count: int) -> Outcomes:
    """No row has been stepped yet."""
    no, zero = np.zeros(count, np.bool_), np.zeros(count)
    return Outcomes(zero, zero.copy(), zero.copy(), no, no.copy(), no.copy())


def _not_finite(values: NDArray[Any], what: str) -> dict[int, EnvironmentFailure]:
    bad = ~np.isfinite(values)
    if not bad.any():
        return {}
    rows = np.flatnonzero(bad.reshape(len(values), -1).any(axis=1))
    return {int(row): EnvironmentFailure(f"the {what} holds NaN or infinity") for row in rows}


def in_words(error: Exception) -> str:
    """Kind and message of an error."""
    return f"{type(error).__name__}: {error}"

"""Fleets: many environments that are stepped by one call.

A fleet that raises loses all episodes of the call; a row that is not finite, or whose cost is
negative, loses its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Ints
from scopeval.collection.protocols import EnvironmentFailure, Fleet, Outcomes

__all__ = ["FleetMember", "in_words", "no_outcomes", "reset_fleet", "step_fleet"]


class FleetMember:
    """One environment of a fleet, with the interface of a Gymnasium environment."""

    def __init__(self, fleet: Fleet, row: int) -> None:
        self._fleet, self._which = fleet, np.array([row])

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        return self._fleet.reset([seed], self._which)[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one action; the cost is in ``info["cost"]``."""
        moved = self._fleet.step(np.asarray(action)[None], self._which)
        reward, cost = float(moved.reward[0]), float(moved.cost[0])
        return moved.obs[0], reward, bool(moved.terminated[0]), False, {"cost": cost}


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

"""Environments side by side: many plants, opened together, moved together.

Any Gymnasium environment can be run several times side by side, one `step` after the other. A
`Fleet` moves many by one call, which is quicker; its plants can be used one by one as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.collection.environment import Broken, Common, CostFunction, Outcome, Plant, said
from scopeval.errors import InputError, PlantError

__all__ = [
    "Broken",
    "CostFunction",
    "Fleet",
    "Moved",
    "Outcome",
    "Outcomes",
    "Plant",
    "Plants",
    "plants",
]


@dataclass
class Outcomes:
    """What one step of B plants gave, a row for each; rows that broke are in `failures`.

    Rows after an interrupt by the user are in neither, and `interrupted` is set.
    """

    obs: NDArray[Any]
    reward: Floats
    cost: Floats
    terminated: Bools
    truncated: Bools
    done: Bools
    failures: dict[int, Broken] = field(default_factory=dict)
    interrupted: bool = False


class Moved(Protocol):
    """What one step of B robots of a fleet gave."""

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
    """Many environments of one kind behind one call.

    The episode that a seed begins must not depend on what else runs in the fleet.
    """

    def __len__(self) -> int: ...

    def reset(self, seeds: Sequence[int], which: Ints) -> NDArray[Any]:
        """Begin an episode in each of `which`; first observations."""

    def step(self, actions: NDArray[Any], which: Ints) -> Moved:
        """Take an action in each of `which`."""


class Plants(tuple[Plant, ...]):
    """Environments to run side by side; leaving the `with` block closes those made here."""

    fleet: Fleet | None
    free: bool

    def __new__(
        cls, each: Iterable[Plant], fleet: Fleet | None = None, *, free: bool = False
    ) -> Plants:
        """Of a fleet, all can be moved by one call; `free`: its costs count as 0."""
        self = super().__new__(cls, each)
        self.fleet, self.free = fleet, free
        return self

    def __enter__(self) -> Plants:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def reset(self, seeds: Sequence[int]) -> tuple[NDArray[Any], dict[int, Broken]]:
        """Begin an episode in each of the first plants: observations, and the rows that broke."""
        if self.fleet is not None:
            try:
                obs = np.asarray(self.fleet.reset(seeds, np.arange(len(seeds))))
            except Exception as error:
                reason = f"reset raised {said(error)}"
                return np.empty(len(seeds)), {i: Broken(reason) for i in range(len(seeds))}
            return obs, _not_finite(obs, "obs")
        failures: dict[int, Broken] = {}
        first: dict[int, NDArray[Any]] = {}
        for i, seed in enumerate(seeds):
            try:
                first[i] = self[i].reset(seed)
            except Broken as failure:
                failures[i] = failure
        return _rows(first, len(seeds)), failures

    def step(self, actions: NDArray[Any], which: Ints) -> Outcomes:
        """Take an action in each plant of `which`; rows of the answer are in that order."""
        if self.fleet is not None:
            return self._together(self.fleet, actions, which)
        result = _nothing(len(which))
        following: dict[int, NDArray[Any]] = {}
        try:
            for row, plant in enumerate(which):
                try:
                    outcome = self[plant].step(np.asarray(actions[row]))
                except Broken as failure:
                    result.failures[row] = failure
                    continue
                following[row] = outcome.obs
                result.reward[row], result.cost[row] = outcome.reward, outcome.cost
                result.terminated[row] = outcome.terminated
                result.truncated[row] = outcome.truncated
                result.done[row] = True
        except KeyboardInterrupt:
            result.interrupted = True
        result.obs = _rows(following, len(which))
        return result

    def _together(self, fleet: Fleet, actions: NDArray[Any], which: Ints) -> Outcomes:
        result = _nothing(len(which))
        try:
            moved = fleet.step(actions, which)
        except Exception as error:
            reason = f"step raised {said(error)}"
            result.failures = {row: Broken(reason) for row in range(len(which))}
            return result
        for row in np.flatnonzero(moved.cost < 0):
            result.failures[int(row)] = Broken(f"the cost is negative: {moved.cost[row]:.6g}")
        for name in ("cost", "reward", "obs"):
            result.failures |= _not_finite(getattr(moved, name), name)
        result.obs, result.reward, result.terminated = moved.obs, moved.reward, moved.terminated
        result.done[:] = True
        result.done[list(result.failures)] = False
        if not self.free:
            result.cost = moved.cost
        return result

    def close(self) -> None:
        """Close all; one that is used again is made anew."""
        for plant in self:
            plant.close()


class _Single:
    """One environment of a fleet, in Gymnasium's words."""

    def __init__(self, fleet: Fleet, row: int) -> None:
        self._fleet, self._which = fleet, np.array([row])

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        return self._fleet.reset([seed], self._which)[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        moved = self._fleet.step(np.asarray(action)[None], self._which)
        reward, cost = float(moved.reward[0]), float(moved.cost[0])
        return moved.obs[0], reward, bool(moved.terminated[0]), False, {"cost": cost}


def plants(env: Any, batch: int | None = None, cost: str | CostFunction | None = None) -> Plants:
    """Open environments to run side by side, for one or many calls of `collect`.

    Args:
        env: a Gymnasium environment, the name of a registered one, a function that makes one, or a
            `Fleet`.
        batch: how many; 1 for an environment that exists already, else 8 unless said.
        cost: where a step's cost is found.
    """
    common = Common(cost)
    if batch is not None and (isinstance(batch, bool) or int(batch) != batch or batch < 1):
        raise InputError(f"batch: got {batch!r}, expected a whole number of environments >= 1")
    if isinstance(env, str):
        return _made(_registered(env), batch, common)
    if hasattr(env, "num_envs") and hasattr(env, "step"):
        raise InputError(
            "env: got a vector environment; its episodes share random numbers, so that one of "
            "them could not be repeated alone. Expected one environment, or a function that makes "
            "one with batch= how many to run side by side"
        )
    if isinstance(env, Fleet) and not isinstance(env, type):
        return _of_fleet(env, batch, cost, common)
    if hasattr(env, "step") and hasattr(env, "reset") and not isinstance(env, type):
        if batch not in (None, 1):
            raise InputError(
                f"batch: got {batch} with one environment, which runs one episode at a time; try "
                "env=function that makes an environment"
            )
        return Plants([Plant(None, env, common)])
    if callable(env):
        return _made(env, batch, common)
    raise InputError(
        f"env: got {type(env).__name__}, expected a Gymnasium environment, the name of a "
        "registered one, a function that makes one, or a TabularMDP"
    )


def _made(make: Callable[[], Any], batch: int | None, common: Common) -> Plants:
    try:
        first = make()
    except Exception as error:
        raise PlantError(f"the environment could not be made: {said(error)}") from error
    if not (hasattr(first, "step") and hasattr(first, "reset")):
        raise InputError(
            f"env: the function made a {type(first).__name__}, expected a Gymnasium environment"
        )
    rest = [Plant(make, None, common) for _ in range((batch or 8) - 1)]
    return Plants([Plant(make, first, common), *rest])


def _of_fleet(
    fleet: Fleet, batch: int | None, cost: str | CostFunction | None, common: Common
) -> Plants:
    if batch is not None and not 1 <= batch <= len(fleet):
        raise InputError(f"batch: got {batch}, expected at most the fleet's {len(fleet)}")
    if cost not in (None, "none", "cost"):
        raise InputError(f"cost: got {cost!r} for a fleet, which has costs of its own")
    each = [Plant(None, _Single(fleet, row), common) for row in range(batch or len(fleet))]
    return Plants(each, fleet, free=cost == "none")


def _registered(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import gymnasium

        return gymnasium.make(name, disable_env_checker=True)

    return make


def _nothing(count: int) -> Outcomes:
    """No row has been moved yet."""
    no, zero = np.zeros(count, np.bool_), np.zeros(count)
    return Outcomes(zero, zero.copy(), zero.copy(), no, no.copy(), no.copy())


def _rows(found: dict[int, NDArray[Any]], count: int) -> NDArray[Any]:
    """Rows as one array; those not found hold anything."""
    if not found:
        return np.empty(count)
    some = next(iter(found.values()))
    return np.stack([found.get(row, some) for row in range(count)])


def _not_finite(values: NDArray[Any], what: str) -> dict[int, Broken]:
    bad = ~np.isfinite(values)
    if not bad.any():
        return {}
    rows = np.flatnonzero(bad.reshape(len(values), -1).any(axis=1))
    words = "observation" if what == "obs" else what
    return {int(row): Broken(f"the {words} holds NaN or infinity") for row in rows}

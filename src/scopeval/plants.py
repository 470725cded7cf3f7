"""Environments as collection sees them: a reset and a step that either work or say why not.

A *plant* is one running Gymnasium environment. Whatever the environment does wrong (an exception, a
NaN, a reward that is no number) becomes `Broken`, which costs one episode and nothing else. What
the *user* has to put right before any episode can be run is an `InputError` or a `PlantError`.

`Plants` are several of them side by side. A `Fleet` steps many by one call, which is quicker; its
plants can be used one by one as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
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

#: cost(obs, action, reward, next_obs, info)
CostFunction = Callable[[Any, Any, float, Any, Mapping[str, Any]], float]

_NO_COST = (
    "the environment reports no cost ({where}); expected info['cost'] or a step of six values "
    "(obs, reward, cost, terminated, truncated, info), try cost='name' for info['name'], "
    "cost=function(obs, action, reward, next_obs, info), or cost='none' to evaluate without costs"
)


class Broken(Exception):  # noqa: N818  (no error of the caller's: it never leaves collection)
    """The plant failed; the running episode is lost."""


@dataclass(frozen=True)
class Outcome:
    """What one step gave."""

    obs: NDArray[Any]
    reward: float
    cost: float
    terminated: bool
    truncated: bool


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


class _Common:
    """What all plants of a collection share: how cost is found, how observations look."""

    def __init__(self, cost: str | CostFunction | None) -> None:
        if not (cost is None or isinstance(cost, str) or callable(cost)):
            raise InputError(f"cost: got {cost!r}, expected a name in info, a function or 'none'")
        self._rule = cost
        self._cost_seen = False
        self._kind: tuple[bool, tuple[int, ...]] | None = None

    def observe(self, raw: Any) -> NDArray[Any]:
        """State number (int64, no dimension) or vector float64 [d]."""
        if isinstance(raw, Mapping | tuple):
            raise InputError(
                f"observations are {type(raw).__name__}s; expected numbers or vectors, try "
                "gymnasium.wrappers.FlattenObservation(env)"
            )
        obs = np.asarray(raw)
        discrete = obs.ndim == 0 and (np.issubdtype(obs.dtype, np.integer) or obs.dtype == np.bool_)
        try:
            obs = obs.astype(np.int64) if discrete else np.atleast_1d(obs.astype(np.float64))
        except (TypeError, ValueError) as error:
            raise Broken(f"the observation is no array of numbers ({error})") from error
        if obs.ndim > 1:
            raise InputError(
                f"observations have shape {obs.shape}; expected numbers or vectors, try "
                "gymnasium.wrappers.FlattenObservation(env)"
            )
        if not np.isfinite(obs).all():
            raise Broken("the observation holds NaN or infinity")
        kind = (discrete, obs.shape)
        if self._kind is None:
            self._kind = kind
        if kind != self._kind:
            raise Broken(f"an observation of shape {obs.shape} after ones of shape {self._kind[1]}")
        return obs

    def cost(
        self, obs: Any, action: Any, reward: float, following: Any, info: Any, sixth: list[Any]
    ) -> float:
        """The step's cost, wherever the user said it is."""
        found: Any
        if self._rule == "none":
            return 0.0
        if callable(self._rule):
            try:
                found = self._rule(obs, action, reward, following, info)
            except Exception as error:
                raise Broken(f"the cost function raised {_said(error)}") from error
        elif self._rule is None and sixth:
            found = sixth[0]
        else:
            name = self._rule or "cost"
            if not isinstance(info, Mapping) or name not in info:
                if not self._cost_seen:
                    raise InputError(_NO_COST.format(where=f"no info[{name!r}]"))
                raise Broken(f"info[{name!r}] is missing")
            found = info[name]
        self._cost_seen = True
        cost = _number("cost", found)
        if cost < 0:
            raise Broken(f"the cost is negative: {cost:.6g}")
        return cost


class Plant:
    """One environment, made when first needed and made anew after it broke."""

    def __init__(self, make: Callable[[], Any] | None, env: Any, common: _Common) -> None:
        self._make = make
        self._env = env
        self._common = common
        self._raw: Any = None

    def reset(self, seed: int) -> NDArray[Any]:
        """Begin an episode; the seed decides all of its randomness."""
        try:
            if self._env is None and self._make is not None:
                self._env = self._make()
            answer = self._env.reset(seed=seed)
            raw = answer[0] if isinstance(answer, tuple) and len(answer) == 2 else answer
        except Exception as error:
            self._discard()
            raise Broken(f"reset raised {_said(error)}") from error
        return self._seen(raw)

    def step(self, action: NDArray[Any]) -> Outcome:
        """Take one action."""
        try:
            move = self._move(action)
            answer = self._env.step(move)
            if len(answer) not in (5, 6):
                raise ValueError(f"step returned {len(answer)} values, expected 5 or 6")
            raw, reward, *sixth, terminated, truncated, info = answer
            terminated, truncated = bool(terminated), bool(truncated)
        except Exception as error:
            self._discard()
            raise Broken(f"step raised {_said(error)}") from error
        before = self._raw
        obs = self._seen(raw)
        try:
            number = _number("reward", reward)
            cost = self._common.cost(before, move, number, raw, info, sixth)
        except Broken:
            self._discard()
            raise
        return Outcome(obs, number, cost, terminated, truncated)

    def close(self) -> None:
        """Give back what this room made; the user's own environment stays open."""
        self._discard()

    def _seen(self, raw: Any) -> NDArray[Any]:
        self._raw = raw
        try:
            return self._common.observe(raw)
        except Broken:
            self._discard()
            raise

    def _move(self, action: NDArray[Any]) -> Any:
        if action.ndim == 0 and np.issubdtype(action.dtype, np.integer):
            return int(action)
        space = getattr(self._env, "action_space", None)
        shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
        return np.asarray(action, dtype=dtype).reshape(action.shape if shape is None else shape)

    def _discard(self) -> None:
        """Drop an environment that can be made anew; the user's own can only be reset."""
        if self._make is not None and self._env is not None:
            with contextlib.suppress(Exception):
                self._env.close()
            self._env = None


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
                reason = f"reset raised {_said(error)}"
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
            reason = f"step raised {_said(error)}"
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
    common = _Common(cost)
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


def _made(make: Callable[[], Any], batch: int | None, common: _Common) -> Plants:
    try:
        first = make()
    except Exception as error:
        raise PlantError(f"the environment could not be made: {_said(error)}") from error
    if not (hasattr(first, "step") and hasattr(first, "reset")):
        raise InputError(
            f"env: the function made a {type(first).__name__}, expected a Gymnasium environment"
        )
    rest = [Plant(make, None, common) for _ in range((batch or 8) - 1)]
    return Plants([Plant(make, first, common), *rest])


def _of_fleet(
    fleet: Fleet, batch: int | None, cost: str | CostFunction | None, common: _Common
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


def _number(name: str, value: Any) -> float:
    try:
        number = float(np.asarray(value).item())
    except (TypeError, ValueError) as error:
        raise Broken(f"the {name} is no number: {value!r}") from error
    if not np.isfinite(number):
        raise Broken(f"the {name} is {number}")
    return number


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


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"

"""One environment as collection sees it: a reset and a step that either work or say why not.

A *plant* is one running Gymnasium environment. Whatever the environment does wrong (an exception, a
NaN, a reward that is no number) becomes `Broken`, which costs one episode and nothing else. What
the *user* has to put right before any episode can be run is an `InputError`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.errors import InputError

__all__ = ["Broken", "Common", "CostFunction", "Outcome", "Plant", "said"]

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


class Common:
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
                raise Broken(f"the cost function raised {said(error)}") from error
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

    def __init__(self, make: Callable[[], Any] | None, env: Any, common: Common) -> None:
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
            raise Broken(f"reset raised {said(error)}") from error
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
            raise Broken(f"step raised {said(error)}") from error
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


def _number(name: str, value: Any) -> float:
    try:
        number = float(np.asarray(value).item())
    except (TypeError, ValueError) as error:
        raise Broken(f"the {name} is no number: {value!r}") from error
    if not np.isfinite(number):
        raise Broken(f"the {name} is {number}")
    return number


def said(error: Exception) -> str:
    """An exception in words."""
    return f"{type(error).__name__}: {error}"

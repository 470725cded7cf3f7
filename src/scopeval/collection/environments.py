"""Gymnasium environments that run side by side: every call either works or says why not.

Whatever an environment does wrong (an exception, a NaN, a reward that is not a number) becomes an
`EnvironmentFailure`, which costs one episode and nothing else. What the *user* has to correct
before any episode can be run is an `InputError`.

Environments of any kind can run side by side, one `step` after the other. A `Fleet` steps many by
one call, which is faster. One that raises loses all episodes of the call; a row that is not finite,
or whose cost is negative, loses its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints, takes
from scopeval.errors import InputError, PlantError
from scopeval.logs.state_numbers import StateNumbers

__all__ = [
    "SIDE_BY_SIDE",
    "Environment",
    "EnvironmentFailure",
    "EnvironmentPool",
    "Fleet",
    "FleetStep",
    "Outcome",
    "Outcomes",
    "StepCost",
    "check_batch",
    "name_of",
    "open_environments",
]

#: Environments that are made of a name or a function, unless a number is given.
SIDE_BY_SIDE = 8

#: What a step's cost is computed by, of plain numbers and what Gymnasium gives.
_SIGNATURE = "cost(obs, action, reward, next_obs, info)"
StepCost = Callable[[Any, Any, float, Any, Mapping[str, Any]], float]

_NO_COST = (
    "the environment reports no cost ({where}); expected info['cost'] or a step of six values "
    "(obs, reward, cost, terminated, truncated, info), try Plant(env, cost='name') for "
    "info['name'], cost=function(obs, action, reward, next_obs, info), or cost='none' to evaluate "
    "without costs (--cost on the command line)"
)

_FLATTEN = "expected numbers or vectors, try gymnasium.wrappers.FlattenObservation(env)"


# -- what is expected of environments, and got from them ------------------------------------------


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


# -- one environment, and several side by side ----------------------------------------------------


class StepReader:
    """Reads costs, observations and signals; shared by all environments of a pool.

    Args:
        cost: where a step's cost is found.
        signals: names of exogenous signals in ``info``.
        needed: False: an environment that reports no cost has none.
    """

    def __init__(
        self, cost: str | StepCost | None, signals: Sequence[str] = (), *, needed: bool = True
    ) -> None:
        if not (cost is None or isinstance(cost, str) or callable(cost)):
            raise InputError(f"cost: got {cost!r}, expected a name in info, a function or 'none'")
        self._rule, self._needed = cost, needed
        self.signals = tuple(signals)
        self._cost_seen = False
        self._kind: tuple[bool, tuple[int, ...]] | None = None

    def begin(self, *, cost_seen: bool) -> None:
        """Forget what earlier episodes were like; `cost_seen`: others have reported a cost."""
        self._cost_seen, self._kind = cost_seen, None

    def observe(self, raw: Any) -> NDArray[Any]:
        """State number (int64, no dimension) or vector float64 [d].

        Tuples of discrete parts have been numbered before (`StateNumbers`).
        """
        if isinstance(raw, Mapping | tuple):
            raise InputError(f"observations are {type(raw).__name__}s; {_FLATTEN}")
        obs = np.asarray(raw)
        discrete = obs.ndim == 0 and (np.issubdtype(obs.dtype, np.integer) or obs.dtype == np.bool_)
        try:
            obs = obs.astype(np.int64) if discrete else np.atleast_1d(obs.astype(np.float64))
        except (TypeError, ValueError) as error:
            raise EnvironmentFailure(f"the observation is no array of numbers ({error})") from error
        if obs.ndim > 1:
            raise InputError(f"observations have shape {obs.shape}; {_FLATTEN}")
        if not np.isfinite(obs).all():
            raise EnvironmentFailure("the observation holds NaN or infinity")
        kind = (discrete, obs.shape)
        if self._kind is None:
            self._kind = kind
        if kind != self._kind:
            raise EnvironmentFailure(
                f"an observation of shape {obs.shape} after ones of shape {self._kind[1]}"
            )
        return obs

    def exogenous(self, info: Any) -> Floats | None:
        """[k, d] signals of one time (k = 1), or of a whole path; None: not reported."""
        if not isinstance(info, Mapping):
            return None
        if any(name not in info for name in self.signals):
            return None
        try:
            each = [np.asarray(info[name], np.float64).reshape(-1) for name in self.signals]
            return np.stack(each, axis=1)
        except (TypeError, ValueError) as error:
            raise EnvironmentFailure(f"the signals are no numbers ({error})") from error

    def cost(
        self, obs: Any, action: Any, reward: float, following: Any, info: Any, sixth: list[Any]
    ) -> float:
        """The cost of one step, from where the user said it is."""
        reported: Any
        if self._rule == "none":
            return 0.0
        if callable(self._rule):
            try:
                reported = self._rule(obs, action, reward, following, info)
            except Exception as error:
                raise EnvironmentFailure(
                    f"the cost function raised {in_words(error)}"
                    + ("" if takes(self._rule, 5, unknown=True) else f"; expected {_SIGNATURE}")
                ) from error
        elif self._rule is None and sixth:
            reported = sixth[0]
        else:
            name = self._rule or "cost"
            if not isinstance(info, Mapping) or name not in info:
                if not self._cost_seen and not self._needed:
                    return 0.0
                if not self._cost_seen:
                    raise InputError(_NO_COST.format(where=f"no info[{name!r}]"))
                raise EnvironmentFailure(f"info[{name!r}] is missing")
            reported = info[name]
        self._cost_seen = True
        cost = _number("cost", reported)
        if cost < 0:
            raise EnvironmentFailure(f"the cost is negative: {cost:.6g}")
        return cost


class Environment:
    """One environment, made when it is first needed and made again after a failure."""

    def __init__(self, make: Callable[[], Any] | None, env: Any, reader: StepReader) -> None:
        self._make = make
        self._reader = reader
        self._raw: Any = None
        self._env: Any = None
        self._space: Any = None
        self._numbers: StateNumbers | None = None
        self.first: Floats | None = None  # the signals that the last reset reported
        self._use(env)

    def open(self) -> Any:
        """Make the environment, unless it exists."""
        if self._env is None and self._make is not None:
            self._use(self._make())
        return self._env

    def reset(self, seed: int) -> NDArray[Any]:
        """Begin an episode; the seed decides all of its randomness."""
        try:
            answer = self.open().reset(seed=seed)
            pair = isinstance(answer, tuple) and len(answer) == 2
            raw, info = answer if pair else (answer, None)
        except Exception as error:
            self.close()
            raise EnvironmentFailure(f"reset raised {in_words(error)}") from error
        self.first = self._reader.exogenous(info) if self._reader.signals else None
        return self._observed(raw)

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
            self.close()
            raise EnvironmentFailure(f"step raised {in_words(error)}") from error
        before = self._raw
        obs = self._observed(raw)
        try:
            number = _number("reward", reward)
            cost = self._reader.cost(before, move, number, raw, info, sixth)
            seen = self._reader.exogenous(info) if self._reader.signals else None
        except EnvironmentFailure:
            self.close()
            raise
        return Outcome(obs, number, cost, terminated, truncated, seen)

    def close(self) -> None:
        """Drop an environment that can be made again; the user's own stays open."""
        if self._make is not None and self._env is not None:
            with suppress(Exception):
                self._env.close()
            self._env = None

    def _use(self, env: Any) -> None:
        self._env = env
        self._space = getattr(env, "action_space", None)
        observed = getattr(env, "observation_space", None)
        self._numbers = None if observed is None else StateNumbers.of_space(observed)

    def _observed(self, raw: Any) -> NDArray[Any]:
        self._raw = raw
        try:
            return self._reader.observe(raw if self._numbers is None else self._number(raw))
        except EnvironmentFailure:
            self.close()
            raise

    def _number(self, raw: Any) -> Ints:
        """The state number of a tuple of discrete parts, such as Blackjack's."""
        assert self._numbers is not None
        try:
            return self._numbers.number(raw)
        except (InputError, TypeError) as error:
            raise EnvironmentFailure(f"the observation is not in its space ({error})") from error

    def _move(self, action: NDArray[Any]) -> Any:
        """The action in the form that the environment's action space has."""
        if action.ndim == 0 and np.issubdtype(action.dtype, np.integer):
            return int(action)
        if self._space is None:
            return action
        shape = action.shape if self._space.shape is None else self._space.shape
        return np.asarray(action, dtype=self._space.dtype).reshape(shape)


class EnvironmentPool(tuple[Environment, ...], AbstractContextManager["EnvironmentPool"]):
    """Environments that run side by side; leaving the `with` block closes those made here."""

    fleet: Fleet | None
    free: bool
    plant: str | None = None  # name of the environments
    signals: tuple[str, ...] = ()  # exogenous ones that they report
    reader: StepReader | None = None  # what all of them are read by

    def __new__(
        cls, each: Iterable[Environment], fleet: Fleet | None = None, *, free: bool = False
    ) -> EnvironmentPool:
        """The environments of a fleet are stepped by one call; `free`: its costs count as 0."""
        self = super().__new__(cls, each)
        self.fleet, self.free = fleet, free
        return self

    def __exit__(self, *exception: object) -> None:
        for environment in self:
            environment.close()

    def reset(self, seeds: Sequence[int]) -> tuple[NDArray[Any], dict[int, EnvironmentFailure]]:
        """Begin an episode in the first environments: observations, and the rows that failed."""
        if self.fleet is not None:
            return reset_fleet(self.fleet, seeds)
        failures: dict[int, EnvironmentFailure] = {}
        first: dict[int, NDArray[Any]] = {}
        for i, seed in enumerate(seeds):
            try:
                first[i] = self[i].reset(seed)
            except EnvironmentFailure as failure:
                failures[i] = failure
        return _rows(first, len(seeds)), failures

    def step(self, actions: NDArray[Any], which: Ints) -> Outcomes:
        """Take an action in each environment of `which`; the rows of the result have that order."""
        if self.fleet is not None:
            return step_fleet(self.fleet, actions, which, free=self.free)
        result = no_outcomes(len(which))
        following: dict[int, NDArray[Any]] = {}
        try:
            for row, environment in enumerate(which):
                try:
                    outcome = self[environment].step(np.asarray(actions[row]))
                except EnvironmentFailure as failure:
                    result.failures[row] = failure
                    continue
                following[row] = outcome.obs
                result.reward[row], result.cost[row] = outcome.reward, outcome.cost
                result.terminated[row] = outcome.terminated
                result.truncated[row] = outcome.truncated
                result.done[row] = True
                if outcome.exogenous is not None:
                    result.exogenous[row] = outcome.exogenous
        except KeyboardInterrupt:
            result.interrupted = True
        result.obs = _rows(following, len(which))
        return result


def open_environments(
    env: Any,
    batch: int | None = None,
    cost: str | StepCost | None = None,
    signals: Sequence[str] = (),
    *,
    needed: bool = True,
) -> EnvironmentPool:
    """Open environments to run side by side, for one or many calls of `collect`.

    Args:
        env: a Gymnasium environment, the name of a registered one, a function that makes one, or a
            `Fleet`.
        batch: how many; default 1 for an environment that exists already, else 8.
        cost: where a step's cost is found.
        signals: names of exogenous signals in ``info``.
        needed: False: an environment that reports no cost has none.
    """
    reader = StepReader(cost, signals, needed=needed)
    if batch is not None:
        check_batch(batch)
    if isinstance(env, Steppable) and hasattr(env, "num_envs"):
        raise InputError(
            "env: got a vector environment; its episodes share random numbers, so that one of "
            "them could not be repeated alone. Expected one environment, or a function that makes "
            "one with side_by_side= how many to run side by side"
        )
    if isinstance(env, Fleet) and not isinstance(env, type):
        if batch is not None and not 1 <= batch <= len(env):
            raise InputError(f"side_by_side: got {batch}, expected at most the fleet's {len(env)}")
        if cost not in (None, "none", "cost"):
            raise InputError(f"cost: got {cost!r} for a fleet, which has costs of its own")
        if signals:
            raise InputError(
                f"signals: got {signals} for a fleet, which reports none; expected columns of the "
                "observation, by their numbers"
            )
        nothing = [Environment(None, None, reader)] * (batch or len(env))  # the fleet is stepped
        pool = EnvironmentPool(nothing, env, free=cost == "none")
    elif isinstance(env, Steppable) and not isinstance(env, type):
        if batch not in (None, 1):
            raise InputError(
                f"side_by_side: got {batch} with one environment, which runs one episode at a "
                "time; try env=function that makes an environment"
            )
        pool = EnvironmentPool([Environment(None, env, reader)])
    elif isinstance(env, str) or callable(env):
        pool = _made(_registered(env) if isinstance(env, str) else env, batch, reader)
    else:
        raise InputError(
            f"env: got {type(env).__name__}, expected a Gymnasium environment, the name of a "
            "registered one, a function that makes one, or a TabularMDP"
        )
    pool.plant, pool.signals = name_of(env), tuple(signals)
    return pool


def check_batch(batch: int) -> None:
    """Refuse what is no number of environments."""
    if isinstance(batch, bool) or int(batch) != batch or batch < 1:
        raise InputError(
            f"side_by_side: got {batch!r}, expected a whole number of environments >= 1"
        )


def _made(make: Callable[[], Any], batch: int | None, reader: StepReader) -> EnvironmentPool:
    """Make the first environment now, so that mistakes show at once, and the others when needed."""
    pool = EnvironmentPool(Environment(make, None, reader) for _ in range(batch or SIDE_BY_SIDE))
    pool.reader = reader
    try:
        first = pool[0].open()
    except Exception as error:
        raise PlantError(f"the environment could not be made: {in_words(error)}") from error
    if not isinstance(first, Steppable):
        raise InputError(
            f"env: the function made a {type(first).__name__}, expected a Gymnasium environment"
        )
    return pool


def _registered(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import gymnasium

        return gymnasium.make(name, disable_env_checker=True)

    return make


def _rows(rows: dict[int, NDArray[Any]], count: int) -> NDArray[Any]:
    """Rows as one array; those not found hold anything."""
    if not rows:
        return np.empty(count)
    some = next(iter(rows.values()))
    return np.stack([rows.get(row, some) for row in range(count)])


def _number(name: str, value: Any) -> float:
    try:
        number = float(np.asarray(value).item())
    except (TypeError, ValueError) as error:
        raise EnvironmentFailure(f"the {name} is no number: {value!r}") from error
    if not np.isfinite(number):
        raise EnvironmentFailure(f"the {name} is {number}")
    return number


def name_of(env: Any) -> str | None:
    """Name of an environment: as it is registered, else of its class or of what makes it."""
    if isinstance(env, str):
        return env
    if isinstance(env, type | FunctionType):
        return None if env.__name__ == "<lambda>" else env.__name__
    spec = getattr(env, "spec", None)  # of Gymnasium: under which name it is registered
    return type(env).__name__ if spec is None else str(spec.id)


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

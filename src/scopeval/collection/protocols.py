"""What collection expects of environments, and what it gets from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints

__all__ = [
    "EnvironmentFailure",
    "Fleet",
    "FleetStep",
    "Outcome",
    "Outcomes",
    "Steppable",
    "VectorSteppable",
    "WithActionSpace",
    "WithObservationSpace",
]


@runtime_checkable
class Steppable(Protocol):
    """What is used of a Gymnasium environment."""

    def reset(self, *, seed: int) -> Any:
        """Begin an episode."""

    def step(self, action: Any, /) -> Any:
        """Take one action."""


@runtime_checkable
class VectorSteppable(Steppable, Protocol):
    """A Gymnasium vector environment."""

    num_envs: int


@runtime_checkable
class WithActionSpace(Protocol):
    """An environment that declares which actions it takes."""

    @property
    def action_space(self) -> Any:
        """A Gymnasium space; its shape and dtype are used."""


@runtime_checkable
class WithObservationSpace(Protocol):
    """An environment that declares which observations it gives."""

    @property
    def observation_space(self) -> Any:
        """A Gymnasium space; tuples of discrete parts are numbered by it."""


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

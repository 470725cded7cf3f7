"""A classic control environment as a fleet, so that `evaluate` can run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.worlds.classic_control import Control
from scopeval.arrays import Bools, Floats, Ints

__all__ = ["ControlFleet", "ControlStep"]


@dataclass(frozen=True)
class ControlStep:
    """The result of one step of B environments; see `FleetStep` of collection."""

    obs: Floats
    reward: Floats
    cost: Floats
    terminated: Bools


class ControlFleet:
    """Environments that one call steps together.

    Args:
        control: the dynamics.
        count: how many run side by side.
    """

    def __init__(self, control: Control, count: int) -> None:
        self._control, self._count = control, count
        self._state = control.start(count, np.random.default_rng(0))

    def __len__(self) -> int:
        return self._count

    def reset(self, seeds: Sequence[int], which: Ints) -> Floats:
        """Begin an episode in each of `which`."""
        first = [self._control.start(1, np.random.default_rng(seed)) for seed in seeds]
        self._state[which] = np.concatenate(first)
        return self._control.observe(self._state[which])

    def step(self, actions: Ints, which: Ints) -> ControlStep:
        """Take an action in each of `which`."""
        moved = self._control.step(self._state[which], actions)
        self._state[which] = moved.state
        return ControlStep(
            self._control.observe(moved.state), moved.reward, moved.cost, moved.ended
        )

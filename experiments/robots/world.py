"""A robot's own simulator as the dynamics of a design, see `models.simulator`.

It shows the limits of learning: no real plant has an exact simulator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.robots.bins import BinnedPolicy
from experiments.robots.env import Robots
from scopeval.arrays import Bools, Floats
from scopeval.models.simulator import Simulator

__all__ = ["robot_world"]

#: Robots that are stepped side by side.
TOGETHER = 256


def robot_world(robot: str, binned: BinnedPolicy | None = None) -> Simulator:
    """One step of the robot from any observation; `binned` for the paper's protocol."""
    robots = Robots(robot, TOGETHER)

    def step(obs: Floats, actions: NDArray[Any], t: int) -> tuple[Floats, Floats, Floats, Bools]:
        own = np.asarray(obs if binned is None else binned.own(obs), np.float64)
        moves = actions if binned is None else binned.actions(obs, actions)
        # MuJoCo resets the simulation if a number is not finite, without an error
        both = np.concatenate([own, moves], axis=1)
        sound: Bools = np.isfinite(both).all(axis=1)
        own, moves = (np.asarray(np.where(sound[:, None], x, 0.0)) for x in (own, moves))
        parts = []
        for i in range(0, max(len(obs), 1), TOGETHER):
            which = np.arange(len(obs[i : i + TOGETHER]))
            robots.put(own[i : i + TOGETHER], which)
            parts.append(robots.step(moves[i : i + TOGETHER], which))
        each = ([getattr(m, name) for m in parts] for name in ("obs", "reward", "cost"))
        ahead, reward, cost = (np.concatenate(some) for some in each)
        ends = np.concatenate([m.terminated for m in parts])
        return ahead, np.where(sound, reward, np.nan), cost, ends & sound

    return Simulator(step)

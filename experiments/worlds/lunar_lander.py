"""Gymnasium's LunarLander for many episodes side by side: one Box2D world for each.

It needs the extra ``box2d`` (`pip install '.[box2d]'` in a clone of the repository). The wind is
off, the actions are nothing, left engine, main engine, right engine. Costs are ours: fuel, 1 for a
step of the main engine and 0.1 for one of a side engine.
"""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np

from experiments.worlds.classic_control import Stepped
from scopeval.arrays import Bools, Floats, Ints
from scopeval.errors import InputError

__all__ = ["MISSING", "LunarLander", "lander_installed"]

MISSING = (
    "LunarLander needs Box2D; try pip install 'scopeval[box2d]', in a clone of the repository "
    "pip install '.[box2d]'"
)


def lander_installed() -> bool:
    """Whether LunarLander can be run here."""
    return find_spec("Box2D") is not None and find_spec("pygame") is not None


class LunarLander:
    """Land between two flags; state: number of the Box2D world, then the eight observations.

    The worlds themselves change with every step, so a state can be stepped once only, and those of
    one `start` are void after the next.
    """

    name, gymnasium, horizon = "LunarLander", "LunarLander-v3", 400
    #: Main and side engine of the four actions.
    levels = np.array([[0.0, 0.0], [0.0, -1.0], [1.0, 0.0], [0.0, 1.0]])
    fuel = np.array([0.0, 0.1, 1.0, 0.1])

    def __init__(self) -> None:
        if not lander_installed():
            raise InputError(MISSING)
        self._worlds: list[Any] = []
        self._over: Bools = np.zeros(0, np.bool_)

    def start(self, episodes: int, rng: np.random.Generator) -> Floats:
        """First states."""
        while len(self._worlds) < episodes:
            self._worlds.append(_new_world())
        self._over = np.zeros(episodes, np.bool_)
        seeds = rng.integers(2**31, size=episodes)
        first = [self._worlds[k].reset(seed=int(seed))[0] for k, seed in enumerate(seeds.tolist())]
        return np.column_stack([np.arange(episodes), np.array(first, np.float64)])

    def observe(self, state: Floats) -> Floats:
        """What a policy sees."""
        return np.asarray(state[:, 1:])

    def step(self, state: Floats, action: Ints) -> Stepped:
        """One step of every world; what has ended stays as it is, at no cost."""
        after, n = state.copy(), len(state)
        reward, ended = np.zeros(n), np.ones(n, np.bool_)
        numbers = state[:, 0].astype(np.int64)
        cost = np.where(self._over[numbers], 0.0, self.fuel[action])
        for row in np.flatnonzero(~self._over[numbers]).tolist():
            obs, reward[row], over, _, _ = self._worlds[numbers[row]].step(int(action[row]))
            after[row, 1:], ended[row] = obs, over
            self._over[numbers[row]] = over
        return Stepped(after, reward, cost, ended)

    def steer(self, obs: Floats, gains: Floats) -> Floats:
        """Wishes [n, 2] for both engines: lean toward the middle, and fall slower near the ground.

        The gains of the usual scripted controller; on the legs only the speed counts.
        """
        x, y, vx, vy, angle, spin, left, right = obs.T
        down = (left + right) > 0
        lean = np.clip(0.5 * gains[0] * x + gains[1] * vx, -0.4, 0.4)
        turn = np.where(down, 0.0, 0.5 * (lean - angle) - gains[2] * spin)
        lift = np.where(down, 0.0, 0.5 * (0.55 * np.abs(x) - y)) - 0.5 * gains[3] * vy
        wish = np.column_stack([np.clip(20.0 * lift, 0.0, 1.0), np.clip(-20.0 * turn, -1.0, 1.0)])
        return np.asarray(wish, np.float64)


def _new_world() -> Any:
    """One Box2D world; its packages greet, and warn of what concerns their authors only."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as errors these warnings end the process
        from gymnasium.envs.box2d.lunar_lander import LunarLander as Gymnasiums

        return Gymnasiums()

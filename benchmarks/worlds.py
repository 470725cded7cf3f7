"""Worlds to measure in: a pole on a cart, and an environment that computes for a given time.

Workers load this file and nothing else for it.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from scopeval.arrays import Floats
from scopeval.logs.transitions import Transitions

__all__ = ["Busy", "CartPole", "MakeBusy", "cart_logs", "cart_policy", "loops_of", "spin"]


class MakeBusy:
    """Makes busy environments."""

    def __init__(self, loops: int) -> None:
        self._loops = loops

    def __call__(self) -> Busy:
        """A new one."""
        return Busy(self._loops)


class Busy:
    """An environment whose step is a loop.

    Args:
        loops: passes of a step.
    """

    def __init__(self, loops: int) -> None:
        self._loops = loops
        self._noise: Floats = np.zeros(0)
        self._t = 0

    def reset(self, *, seed: int) -> tuple[int, dict[str, Any]]:
        """Begin an episode."""
        self._noise, self._t = np.random.default_rng(seed).random(1000), 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Count, and pay a random reward."""
        spin(self._loops)
        self._t += 1
        noise = float(self._noise[self._t % 1000])
        return 0, noise * action, False, False, {"cost": 1.0 + noise}


def spin(loops: int) -> int:
    """Compute for a while."""
    x = 1
    for k in range(loops):
        x = (x * 16807 + k) % 2147483647
    return x


def loops_of(milliseconds: float) -> int:
    """Passes that take so long on a core that does nothing else."""
    count, best = 2000, float("inf")
    for _ in range(50):
        began = time.perf_counter()
        spin(count)
        best = min(best, time.perf_counter() - began)
    return max(1, int(count * milliseconds / 1000.0 / best))


# -- a pole on a cart ------------------------------------------------------------------------------


def cart_policy(obs: Any, t: Any) -> Floats:
    """The target policy: leans against the fall, not always."""
    return _leaning(np.asarray(obs), np.array([0.0, 0.0, 8.0, 2.0]), 0.5)


class CartPole:
    """The same pole, one step at a time."""

    def reset(self, *, seed: int) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode."""
        self._state = np.random.default_rng(seed).uniform(-0.05, 0.05, 4)
        return self._state, {}

    def step(self, action: int) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """One step of 20 ms."""
        self._state = _moved(self._state[None], np.array([action]))[0]
        over = bool(abs(self._state[0]) > 2.4 or abs(self._state[2]) > 0.2094)
        return self._state, 1.0, over, False, {"cost": 0.2 + self._state[0] ** 2 + 0.2 * action}


def cart_logs(episodes: int, horizon: int, seed: int) -> Transitions:
    """Episodes of ten controllers; the reward is 1 a step, the cost grows away from the middle."""
    rng = np.random.default_rng((seed, 2))
    gains = np.column_stack(
        [
            0.3 * rng.standard_normal(10),
            0.4 * rng.standard_normal(10),
            rng.uniform(3.0, 15.0, 10),
            rng.uniform(0.0, 4.0, 10),
        ]
    )
    own = gains[np.arange(episodes) % 10]
    state = rng.uniform(-0.05, 0.05, (episodes, 4))
    running = np.arange(episodes)
    parts: list[tuple[Any, ...]] = []
    for t in range(horizon):
        obs = state[running]
        right = _leaning(obs, own[running], 0.5)[:, 1]
        action = (rng.random(len(running)) < right).astype(np.int64)
        after = _moved(obs, action)
        over = (np.abs(after[:, 0]) > 2.4) | (np.abs(after[:, 2]) > 0.2094)
        cost = 0.2 + after[:, 0] ** 2 + 0.2 * action
        parts.append((running, np.full(len(running), t), obs, action, cost, after, over))
        state[running] = after
        running = running[~over]
    episode, time_, obs, action, cost, after, over = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    order = np.lexsort((time_, episode))
    return Transitions(
        time_[order],
        obs[order],
        action[order],
        np.ones(len(order)),
        cost[order],
        after[order],
        over[order],
    )


def _leaning(obs: Any, gain: Any, steep: float) -> Floats:
    """Probabilities of left and right [n, 2]."""
    right = 1.0 / (1.0 + np.exp(-np.clip(2.0 * steep * (obs * gain).sum(axis=1), -30.0, 30.0)))
    return np.stack([1.0 - right, right], axis=1)


def _moved(obs: Any, action: Any) -> Floats:
    """One step of the cart and its pole, 20 ms."""
    x, v, angle, spin = obs.T
    force = np.where(action == 1, 10.0, -10.0)
    cos, sin = np.cos(angle), np.sin(angle)
    push = (force + 0.05 * spin**2 * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    speed = push - 0.05 * turn * cos / 1.1
    return np.stack([x + 0.02 * v, v + 0.02 * speed, angle + 0.02 * spin, spin + 0.02 * turn], 1)

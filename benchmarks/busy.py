"""An environment that computes for a given time. Workers load this file and nothing else for it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from scopeval.arrays import Floats

__all__ = ["Busy", "MakeBusy", "loops_of", "spin"]


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

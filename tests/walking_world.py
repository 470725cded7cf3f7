"""A world that workers make for themselves; it loads little, because every worker loads it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np

from scopeval.policies.protocols import Weighing


class Walk(gymnasium.Env):
    """Vectors that drift; the first action costs less. Trouble of several kinds on request.

    Args:
        trouble: "", or what goes wrong in episodes whose first number is small.
        marks: a folder that gets a file for every process and every trouble.
        seconds: a step takes.
    """

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (3,))
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, trouble="", marks="", seconds=0.0):
        self.trouble, self.marks, self.seconds = trouble, marks, seconds
        if marks:
            (Path(marks) / f"pid{os.getpid()}").touch()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.standard_normal(3)
        self.number, self.steps = int(self.np_random.integers(100)), 0
        return self.at, {}

    def step(self, action):
        self.steps += 1
        time.sleep(self.seconds)
        if self.number < 10 and self.steps == 2:
            self._break()
        self.at = 0.9 * self.at + 0.3 * self.np_random.standard_normal(3) + 0.1 * (action - 1)
        reward = float(np.sin(self.at).sum()) + 0.1 * float(action)
        info = {} if self.trouble == "no cost" else {"cost": 1.0 + 0.5 * float(action)}
        return self.at, reward, bool(self.at[0] > 1.5), False, info

    def _break(self):
        if self.trouble == "raises":
            raise RuntimeError("broken")
        once = Path(self.marks) / f"once{self.number}"
        if self.trouble == "dies" or (self.trouble == "dies once" and not once.exists()):
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Make:
    """Makes walks; can be sent to other processes."""

    def __init__(self, *how):
        self.how = how

    def __call__(self):
        return Walk(*self.how)


def target(obs, t):
    """Probabilities by a small network, in float32 as torch has them."""
    weights = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    found = np.exp(np.tanh(obs.astype(np.float32) @ weights)).astype(np.float64)
    return found / found.sum(axis=1, keepdims=True)


class Tilted:
    """A behavior policy with a control variate; a plain class."""

    def weigh(self, offered, obs, t, state):
        mu = 0.7 * offered.probs + 0.1
        control = np.tanh(obs[:, :1]) * np.arange(3) / 10
        return Weighing(mu / mu.sum(axis=1, keepdims=True), control)

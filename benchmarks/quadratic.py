"""Vectors with quadratic rewards: a problem over vectors whose true action values are known."""

from __future__ import annotations

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.logs.transitions import Transitions
from scopeval.policies.adapters import CallablePolicy

__all__ = ["Quadratic"]


class Quadratic:
    """Vectors that drift by action: x' = 0.9 x + b_a + noise; reward and cost are quadratic in x.

    The target policy does not depend on x, so its action values are quadratic too, and known.
    """

    def __init__(self, width: int = 11, actions: int = 10, *, seed: int = 0) -> None:
        rng = np.random.default_rng((seed, 41))
        self.width, self.actions, self.seed = width, actions, seed
        self.push = 0.5 * rng.normal(size=(actions, width))
        self.bend = rng.normal(size=actions) / width
        self.slope = rng.normal(size=(actions, width)) / width**0.5
        self.pi = rng.dirichlet(np.ones(actions))

    def target(self) -> CallablePolicy:
        """The target policy, the same everywhere."""
        return CallablePolicy(lambda obs, t: np.broadcast_to(self.pi, (len(obs), self.actions)))

    def log(self, episodes: int, steps: int, seed: int) -> Transitions:
        """Episodes of a controller that draws actions uniformly."""
        rng = np.random.default_rng((self.seed, seed))
        x = rng.normal(size=(episodes, self.width))
        parts = []
        for t in range(steps):
            a = rng.integers(self.actions, size=episodes)
            reward = self.reward(x, a) + 0.1 * rng.normal(size=episodes)
            cost = 0.1 * a + (x[:, 0] + 0.1 * a) ** 2
            after = 0.9 * x + self.push[a] + 0.3 * rng.normal(size=x.shape)
            parts.append(Transitions(np.full(episodes, t), x, a, reward, cost, after))
            x = after
        return Transitions.concat(parts)

    def reward(self, x: Floats, a: Ints) -> Floats:
        """Mean reward."""
        return np.asarray(self.bend[a] * (x**2).sum(axis=1) + (self.slope[a] * x).sum(axis=1))

    def values(self, log: Transitions, horizon: int) -> Floats:
        """True action values at the rows of a log: v = square |x|^2 + line x + level."""
        x: Floats = np.asarray(log.obs, np.float64)
        a: Ints = np.asarray(log.action, np.int64)
        square, line, level = 0.0, np.zeros(self.width), 0.0
        q = np.empty(len(x))
        for t in reversed(range(horizon)):
            now = np.flatnonzero(log.t == t)
            ahead = 0.9 * x[now] + self.push[a[now]]
            spread = 0.09 * self.width
            q[now] = self.reward(x[now], a[now]) + level + ahead @ line
            q[now] += square * ((ahead**2).sum(axis=1) + spread)
            mean, push = self.pi @ self.push, (self.push**2).sum(axis=1)
            level += float(line @ mean + square * (self.pi @ push + spread))
            line = self.pi @ self.slope + 0.9 * line + 1.8 * square * mean
            square = float(self.pi @ self.bend) + 0.81 * square
        return q

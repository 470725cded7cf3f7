"""A queue: how many servers for arrivals that come in quiet and in busy spells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.envs.exogenous import SoftPolicy, Step, regimes

__all__ = ["Queue"]

#: Queue at which a policy takes a server more, and how loosely.
_POLICIES = ((4.0, 2.0), (8.0, 3.0), (2.0, 1.5), (12.0, 4.0), (6.0, 6.0))


@dataclass(frozen=True)
class Queue:
    """60 steps. Reward: -1 for everyone who waits, -.5 a server. Cost: who waits beyond 20.

    A server serves one a step, Poisson. Input: arrivals, Poisson, of mean .8 or 2.4.
    """

    name: str = "arrivals"
    horizon: int = 60
    actions: int = 3

    def paths(self, count: int, rng: np.random.Generator) -> Floats:
        """[count, T] arrivals."""
        return regimes(count, self.horizon, (0.8, 2.4), 0.08, rng)

    def begin(self, count: int) -> Floats:
        """Nobody waits."""
        return np.zeros(count)

    def observe(self, state: Floats, path: Floats, t: int) -> Floats:
        """Step, length of the queue, who came last."""
        last = path[:, t - 1] if t else np.zeros(len(state))
        return np.stack([np.full(len(state), float(t)), state, last], axis=1)

    def step(self, state: Floats, action: Ints, now: Floats, rng: np.random.Generator) -> Step:
        """Arrivals join, and 1 to 3 servers serve."""
        servers = action + 1.0
        waiting = state + now
        left = np.minimum(waiting - np.minimum(waiting, rng.poisson(servers)), 50.0)
        return Step(left, -left - 0.5 * servers, np.maximum(left - 20.0, 0.0))

    def policies(self) -> list[SoftPolicy]:
        """The more servers, the longer the queue."""

        def made(length: float, loose: float) -> SoftPolicy:
            def score(obs: Floats) -> Floats:
                return np.asarray((obs[:, 1:2] - length) / loose * np.array([-1.0, 0.0, 1.0]))

            return SoftPolicy(score)

        return [made(*one) for one in _POLICIES]

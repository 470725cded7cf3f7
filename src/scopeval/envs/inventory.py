"""An inventory: order for next week's demand, which comes in quiet and in busy spells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.envs.exogenous import SoftPolicy, Step, regimes

__all__ = ["Inventory"]

#: Units that may be ordered; they arrive at once.
_ORDERS = np.array([0.0, 5.0, 10.0, 15.0])
#: Level that a policy orders up to, plus so much times last week's demand; how loosely it does.
_POLICIES = ((12.0, 0.8, 4.0), (20.0, 0.5, 4.0), (8.0, 1.2, 6.0), (16.0, 0.0, 3.0), (6.0, 0.6, 8.0))


@dataclass(frozen=True)
class Inventory:
    """26 weeks. Reward: 4 a unit sold, less 2 a unit ordered, .2 a unit kept, 1 a sale lost.

    Cost: sales that are lost. Input: the week's demand, Poisson, of mean 4 or 12.
    """

    name: str = "demand"
    horizon: int = 26
    actions: int = len(_ORDERS)

    def paths(self, count: int, rng: np.random.Generator) -> Floats:
        """[count, T] demand."""
        return regimes(count, self.horizon, (4.0, 12.0), 0.1, rng)

    def begin(self, count: int) -> Floats:
        """10 units in stock."""
        return np.full(count, 10.0)

    def observe(self, state: Floats, path: Floats, t: int) -> Floats:
        """Week, stock, last week's demand."""
        last = path[:, t - 1] if t else np.full(len(state), 8.0)
        return np.stack([np.full(len(state), float(t)), state, last], axis=1)

    def step(self, state: Floats, action: Ints, now: Floats, rng: np.random.Generator) -> Step:
        """The order arrives, and then the demand."""
        order = _ORDERS[action]
        stock = np.minimum(state + order, 40.0)
        sold = np.minimum(stock, now)
        kept, lost = stock - sold, now - sold
        return Step(kept, 4.0 * sold - 2.0 * order - 0.2 * kept - lost, lost)

    def policies(self) -> list[SoftPolicy]:
        """Order up to a level."""

        def made(base: float, follow: float, loose: float) -> SoftPolicy:
            def score(obs: Floats) -> Floats:
                wanted = base + follow * obs[:, 2]
                return np.asarray(-np.abs(obs[:, 1:2] + _ORDERS - wanted[:, None]) / loose)

            return SoftPolicy(score)

        return [made(*one) for one in _POLICIES]

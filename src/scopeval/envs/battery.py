"""A battery: charge and discharge at prices that swing, and return to their mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.envs.exogenous import SoftPolicy, Step

__all__ = ["Battery"]

_MOST = 8.0  # units of charge
#: Price at which a policy sells, and how loosely it does.
_POLICIES = ((50.0, 5.0), (45.0, 10.0), (55.0, 10.0), (50.0, 20.0), (60.0, 5.0))


@dataclass(frozen=True)
class Battery:
    """48 half hours. Reward: what is sold, of which up to 20 % is lost, less what is bought.

    Cost: units moved, which wear the battery. Input: the price, around 50 with two peaks a day;
    what it is off by falls by .85 each step.
    """

    name: str = "price"
    horizon: int = 48
    actions: int = 3

    def paths(self, count: int, rng: np.random.Generator) -> Floats:
        """[count, T] prices."""
        off = np.empty((count, self.horizon))
        off[:, 0] = rng.normal(0.0, 5.0 / np.sqrt(1.0 - 0.85**2), count)
        for t in range(1, self.horizon):
            off[:, t] = 0.85 * off[:, t - 1] + rng.normal(0.0, 5.0, count)
        return self.usual + off

    @property
    def usual(self) -> Floats:
        """[T] mean prices."""
        hours = np.arange(self.horizon)
        return np.asarray(50.0 + 10.0 * np.sin(4.0 * np.pi * (hours - 16.0) / self.horizon))

    def begin(self, count: int) -> Floats:
        """Half full."""
        return np.full(count, _MOST / 2)

    def observe(self, state: Floats, path: Floats, t: int) -> Floats:
        """Half hour, charge, price now."""
        now = path[:, min(t, self.horizon - 1)]
        return np.stack([np.full(len(state), float(t)), state, now], axis=1)

    def step(self, state: Floats, action: Ints, now: Floats, rng: np.random.Generator) -> Step:
        """Charge (0), rest (1) or discharge (2) one unit."""
        out = np.clip(action - 1.0, np.maximum(state - _MOST, -1.0), np.minimum(state, 1.0))
        sold = np.where(out > 0, out * rng.uniform(0.8, 1.0, len(out)), out)
        return Step(state - out, now * sold, np.abs(out))

    def policies(self) -> list[SoftPolicy]:
        """Sell where the price is high."""

        def made(price: float, loose: float) -> SoftPolicy:
            def score(obs: Floats) -> Floats:
                return np.asarray((obs[:, 2:] - price) / loose * np.array([-1.0, 0.0, 1.0]))

            return SoftPolicy(score)

        return [made(*one) for one in _POLICIES]

"""Scripted controllers of the computer room: from cautious to bold, and all of them random.

A controller wishes a set point, and chooses level l with probability

    (1 - slip) exp(-beta (l - wish)^2 - stay (l - in force)^2) / (its sum over levels) + slip / 5

The wish is linear: a base, less where it is hot outside, more at night and with little load.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.data_center.environment import LEVELS
from scopeval.arrays import Floats
from scopeval.policies.adapters import CallablePolicy

__all__ = ["Controller", "operators", "target_controllers"]

#: About the season's mean outdoor temperature and load.
USUAL_OUTDOOR, USUAL_LOAD = 26.0, 0.65


@dataclass(frozen=True)
class Controller:
    """Settings of a controller; `policy()` makes it one.

    Attributes:
        base: the set point it wishes in usual weather, in °C.
        heat: how much lower that is for each degree outside.
        load: how much lower at full load than without load.
        night: how much higher from 22 to 7 h.
        beta: how firmly it follows its wish, per squared degree.
        stay: how firmly it holds on to the set point in force, per squared degree.
        slip: share of choices that are uniformly random.
    """

    base: float
    heat: float = 0.1
    load: float = 4.0
    night: float = 1.0
    beta: float = 0.05
    stay: float = 0.25
    slip: float = 0.02

    def probs(self, obs: Floats, t: object = None) -> Floats:
        """Probabilities of the levels, [B, 5]; the hour is in the observation."""
        obs = np.atleast_2d(np.asarray(obs, np.float64))
        hour, outdoor, _, load, _, in_force = obs.T
        at_night = (hour < 7) | (hour >= 22)
        wish = (
            self.base
            - self.heat * (outdoor - USUAL_OUTDOOR)
            - self.load * (load - USUAL_LOAD)
            + self.night * at_night
        )
        levels = np.array(LEVELS)
        score = -self.beta * (levels - wish[:, None]) ** 2
        score -= self.stay * (levels - in_force[:, None]) ** 2
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        soft = weight / weight.sum(axis=1, keepdims=True)
        return np.asarray((1.0 - self.slip) * soft + self.slip / len(LEVELS))

    def policy(self) -> CallablePolicy:
        """For `design` and `evaluate`."""
        return CallablePolicy(self.probs)


def target_controllers() -> dict[str, Controller]:
    """Three controllers to evaluate: cautious, usual and bold."""
    return {
        "cautious": Controller(base=23.0, heat=0.2, beta=0.06),
        "usual": Controller(base=25.0, heat=0.15, beta=0.05),
        "bold": Controller(base=27.0, heat=0.05, beta=0.04, night=2.0),
    }


def operators(count: int = 10, seed: int = 0) -> list[Controller]:
    """The controllers of past seasons, drawn at random: their logs are what one has."""
    rng = np.random.default_rng((seed, 61))
    return [
        Controller(
            base=rng.uniform(21.0, 27.0),
            heat=rng.uniform(-0.1, 0.3),
            load=rng.uniform(0.0, 6.0),
            night=rng.uniform(0.0, 2.0),
            beta=np.exp(rng.uniform(np.log(0.01), np.log(0.1))),
            stay=np.exp(rng.uniform(np.log(0.03), np.log(0.2))),
            slip=0.05,
        )
        for _ in range(count)
    ]

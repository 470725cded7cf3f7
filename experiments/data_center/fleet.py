"""Many computer rooms that run side by side, on as many cores as there are."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from gymnasium.utils.seeding import np_random

from experiments.data_center.engine import Engine, Hour
from experiments.data_center.environment import (
    ALLOWED,
    FIELDS,
    LEVELS,
    WARM_UP,
    Reward,
    is_saving,
    observe,
    rewarded,
    season_of,
)
from experiments.data_center.weather import Day
from scopeval.arrays import Bools, Floats, Ints
from scopeval.errors import PlantError

__all__ = ["DataCenterFleet", "RoomsStep"]

T = TypeVar("T")


@dataclass(frozen=True)
class RoomsStep:
    """An hour in B rooms; see `scopeval.collection.environments.FleetStep`."""

    obs: Floats
    reward: Floats
    cost: Floats
    terminated: Bools


class DataCenterFleet:
    """Rooms as in `DataCenterEnv`, the same days for the same seeds; their engines run at once.

    Where an engine fails, its numbers are NaN, so that only its own day is lost, and the log of
    this module says why.

    Args:
        count: of the rooms, each with a process of its own (about 220 MB).
        reward: as of `DataCenterEnv`, and so is
        weather: the weather file.
    """

    def __init__(
        self,
        count: int,
        reward: Reward = "energy",
        weather: str | os.PathLike[str] | None = None,
    ) -> None:
        self._saving = is_saving(reward)
        self._engines = [Engine(ALLOWED, WARM_UP) for _ in range(count)]
        self._season = season_of(weather)
        self._days: list[Day | None] = [None] * count
        self._hours = np.zeros(count, np.int64)

    def __len__(self) -> int:
        return len(self._engines)

    def reset(self, seeds: Sequence[int], which: Ints) -> Floats:
        """Begin a day in each of `which`."""
        for k in which:
            self._engines[k].launch()
        begun = {}
        for k, seed in zip(which, seeds, strict=True):
            day = self._season.draw(np_random(int(seed))[0])
            self._days[k], self._hours[k] = day, 0
            begun[int(k)] = _tried(self._engines[k].ask_day, day)
        obs = np.full((len(which), len(FIELDS)), np.nan)
        for row, k in enumerate(which):
            found, day = self._answer(k, begun[int(k)]), self._days[k]
            if found is not None and day is not None:
                obs[row] = observe(day, 0, found, WARM_UP)
        return obs

    def step(self, actions: Ints, which: Ints) -> RoomsStep:
        """Run an hour in each of `which`."""
        points = [LEVELS[int(action)] for action in actions]
        asked = [
            _tried(self._engines[k].ask_hour, point) for k, point in zip(which, points, strict=True)
        ]
        obs = np.full((len(which), len(FIELDS)), np.nan)
        reward, cost = np.full(len(which), np.nan), np.full(len(which), np.nan)
        for row, k in enumerate(which):
            found, day = self._answer(k, asked[row]), self._days[k]
            self._hours[k] += 1
            if found is not None and day is not None:
                hour = int(self._hours[k])
                obs[row] = observe(day, hour, found, points[row])
                reward[row] = rewarded(day, hour, found, saving=self._saving)
                cost[row] = found.excess
        return RoomsStep(obs, reward, cost, np.zeros(len(which), np.bool_))

    def close(self) -> None:
        """End the engines' processes."""
        for engine in self._engines:
            engine.close()

    def _answer(self, k: int, asked: PlantError | None) -> Hour | None:
        """What an engine answers; None: it failed."""
        if asked is None:
            try:
                return self._engines[k].answer()
            except PlantError as error:
                asked = error
        logging.getLogger(__name__).warning("room %d: %s", k, asked)
        return None


def _tried(ask: Callable[[T], None], what: T) -> PlantError | None:
    """Ask an engine; the error, if there is one."""
    try:
        ask(what)
    except PlantError as error:
        return error
    return None

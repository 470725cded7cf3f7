"""The cooling of a computer room, simulated by EnergyPlus, as a Gymnasium environment.

A room of 20 x 10 m with 120 kW of servers. Outdoor air cools it as far as it can, and a compressor
does the rest (`building.epJSON`). Every hour one of five set points of the supply air is chosen. A
warmer set point needs less energy, because outdoor air suffices more often and the compressor works
less. But the servers take in the supply air together with a little warm air of the room, and they
should not be warmer than 27 °C at their inlet, the upper end of what ASHRAE recommends.

- An episode is a day of the hot season with noise on the weather (`weather`), of 24 hours.
- Observation: hour of the day, outdoor temperature, forecast of the day's mean, the servers' load,
  room temperature, and the set point in force.
- Reward: minus the energy of the compressor and the fan, in kWh; or, with ``reward="saving"``, the
  energy saved: that of a constant set point of 22 °C in the same weather, by a formula, minus the
  energy used. Both order controllers alike: the formula knows the weather only. But the energy of
  a day is mostly a matter of the weather, which no controller changes, and savings are what
  operators report.
- Cost: degree-hours of the servers' inlet air above 27 °C.
"""

from __future__ import annotations

import os
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt

from experiments.data_center.engine import Engine, Hour, weather_file
from experiments.data_center.weather import HOURS, Day, Season
from scopeval.arrays import Floats
from scopeval.errors import InputError, PlantError

__all__ = [
    "ALLOWED",
    "FIELDS",
    "LEVELS",
    "WARM_UP",
    "DataCenterEnv",
    "Reward",
    "is_saving",
    "observe",
    "rewarded",
    "season_of",
    "usual_energy",
]

#: Set points of the supply air to choose from, in °C.
LEVELS: tuple[float, ...] = (20.0, 22.0, 24.0, 26.0, 28.0)
#: Highest temperature of the servers' inlet air that costs nothing, in °C.
ALLOWED = 27.0
#: Rewards to choose from.
Reward = Literal["energy", "saving"]
#: What an observation holds.
FIELDS = ("hour", "outdoor", "forecast", "load", "room", "set_point")
#: The set point before the day begins.
WARM_UP = 24.0
#: Of `usual_energy`: the fan in kWh, the compressor's share for each degree above, up to so many.
FAN, PER_DEGREE, FREE_BELOW, MOST_DEGREES = 4.2, 1.95, 21.0, 16.0
#: The weather file, one of the wheel's: hot and dry summers, cool nights.
PLACE = "usa_ca_fresno"


class DataCenterEnv(gymnasium.Env[Floats, np.int64]):
    """A day in the computer room; `info["cost"]` has the degree-hours of an hour.

    EnergyPlus runs in a process of its own; `close` ends it. Needs the extra ``energyplus``.

    Args:
        reward: "energy" for minus the energy used, "saving" for the energy saved.
        weather: an EPW file of a whole year; default Fresno, California.

    Raises:
        InputError: another reward.
        MissingExtraError: EnergyPlus is not installed.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium's own convention)

    def __init__(
        self,
        reward: Reward = "energy",
        weather: str | os.PathLike[str] | None = None,
    ) -> None:
        self._saving = is_saving(reward)
        self._engine = Engine(ALLOWED, WARM_UP)
        self._season = season_of(weather)
        low = np.array([0.0, -40.0, -40.0, 0.0, -40.0, min(LEVELS)])
        high = np.array([24.0, 60.0, 60.0, 1.0, 90.0, max(LEVELS)])
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float64)
        self.action_space = gymnasium.spaces.Discrete(len(LEVELS))
        self._day: Day | None = None
        self._hour = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Draw a day and begin it."""
        super().reset(seed=seed)
        self._day, self._hour = self._season.draw(self.np_random), 0
        first = self._engine.begin(self._day)
        return observe(self._day, 0, first, WARM_UP), _told(first)

    def step(self, action: np.int64) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Run an hour with that level of the set point."""
        if self._day is None:
            raise PlantError("step before reset; begin a day with reset(seed=...)")
        if not 0 <= int(action) < len(LEVELS):
            raise InputError(
                f"action: got {action!r}, expected a level from 0 to {len(LEVELS) - 1}"
            )
        set_point = LEVELS[int(action)]
        found = self._engine.hour(set_point)
        self._hour += 1
        obs = observe(self._day, self._hour, found, set_point)
        reward = rewarded(self._day, self._hour, found, saving=self._saving)
        info = _told(found) | {"cost": found.excess}
        return obs, reward, False, self._hour == HOURS, info

    def close(self) -> None:
        """End the engine's process."""
        self._engine.close()


def season_of(weather: str | os.PathLike[str] | None) -> Season:
    """The season of a weather file; None: of Fresno."""
    return Season(weather_file(PLACE) if weather is None else weather)


def observe(day: Day, hour: int, last: Hour, set_point: float) -> Floats:
    """The observation at the beginning of an hour; 24 is the end of the day."""
    # a weather file tells the end of each hour; before the first one lies the day's own last
    outdoor = float(day.outdoor[hour - 1])
    load = float(day.load[min(hour, HOURS - 1)])
    return np.array([hour, outdoor, day.forecast, load, last.room, set_point], np.float64)


def rewarded(day: Day, hour: int, last: Hour, *, saving: bool) -> float:
    """The reward of the hour that ends at `hour`."""
    if not saving:
        return -last.energy
    ends = day.outdoor[[hour - 2, hour - 1]]
    return float(usual_energy(ends.mean())) - last.energy


def is_saving(reward: str) -> bool:
    """Whether the reward is the energy saved."""
    if reward not in ("energy", "saving"):
        raise InputError(f"reward: got {reward!r}, expected 'energy' or 'saving'")
    return reward == "saving"


def usual_energy(outdoor: npt.ArrayLike) -> Floats:
    """What an hour with a constant set point of 22 °C takes, in kWh: the fan, and 1.95 for each K.

    Fitted by least squares to 40 simulated days; its error is 0.6 kWh an hour (root mean square).
    """
    above = np.clip(np.asarray(outdoor, np.float64) - FREE_BELOW, 0.0, MOST_DEGREES)
    return np.asarray(FAN + PER_DEGREE * above)


def _told(hour: Hour) -> dict[str, Any]:
    return {"energy": hour.energy, "inlet": hour.inlet}

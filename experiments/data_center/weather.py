"""Days of a hot season: recorded weather with noise, and the load of the servers.

The season is June to September of one of the weather files that the EnergyPlus wheel ships, the
"typical meteorological years" (TMY3) of the U.S. National Renewable Energy Laboratory, which are in
the public domain. A day is drawn uniformly from it, and then changed:

    outdoor temperature:  + N(0, 1.5^2) for the whole day + AR(1) noise of the hours (0.7)
    load of the servers:  more by day than by night, + N(0, 0.05^2) + AR(1) noise (0.05)
    forecast:             the day's mean outdoor temperature + N(0, 1)

The dew point stays as recorded, unless the air is colder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from scopeval.arrays import Floats
from scopeval.errors import DataError

__all__ = ["DAYS", "HOURS", "Day", "Season"]

#: Months of the season, and how many days they have.
MONTHS = (6, 7, 8, 9)
DAYS = 122
HOURS = 24
#: Standard deviations of the noise: of a day and of its hours; what an hour keeps from the last.
DAY_NOISE, HOUR_NOISE, KEPT = 1.5, 0.7, 0.8
FORECAST_NOISE = 1.0
#: The servers' load: least and most of a usual day, and noise of a day and of its hours.
LOAD = (0.5, 0.8)
LOAD_DAY_NOISE, LOAD_HOUR_NOISE = 0.05, 0.05
LOAD_RANGE = (0.3, 1.0)

#: Columns of an EPW file.
MONTH, DATE, DRY_BULB, DEW_POINT, HUMIDITY = 1, 2, 6, 7, 8
COLUMNS, HEADER_LINES = 35, 8


@dataclass(frozen=True)
class Day:
    """One day, hour by hour.

    Attributes:
        month: of the record.
        date: day of the month, of the record.
        outdoor: temperature at the end of each hour in °C, [24].
        load: of the servers, a share of what they can do, [24].
        forecast: of the mean outdoor temperature.
        epw: the text of a weather file with this day only.
    """

    month: int
    date: int
    outdoor: Floats
    load: Floats
    forecast: float
    epw: str = field(repr=False)


class Season:
    """The hot season of a weather file, to draw days from.

    Args:
        file: in the EPW format.

    Raises:
        DataError: the file is none, or a part of the season is missing.
    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        lines = Path(file).read_text(encoding="latin-1").splitlines()
        rows = [line.split(",") for line in lines[HEADER_LINES:]]
        if not lines or not lines[0].startswith("LOCATION") or len(lines) <= HEADER_LINES:
            raise DataError(f"{file}: got no LOCATION in the first line, expected an EPW file")
        if any(len(row) != COLUMNS for row in rows):
            raise DataError(f"{file}: expected {COLUMNS} columns in every row of an EPW file")
        self._location = lines[0]
        self._hours = [row for row in rows if int(row[MONTH]) in MONTHS]
        if len(self._hours) != DAYS * HOURS:
            raise DataError(
                f"{file}: got {len(self._hours)} hours from June to September, expected "
                f"{DAYS * HOURS}; try the weather file of a whole year, hour by hour"
            )

    def draw(self, rng: np.random.Generator) -> Day:
        """A day with noise; the same for the same state of the generator."""
        first = int(rng.integers(DAYS)) * HOURS
        rows = [list(row) for row in self._hours[first : first + HOURS]]
        recorded = np.array([float(row[DRY_BULB]) for row in rows])
        outdoor = recorded + DAY_NOISE * rng.standard_normal() + _noise(HOUR_NOISE, rng)
        outdoor = np.round(outdoor, 1)
        forecast = float(outdoor.mean() + FORECAST_NOISE * rng.standard_normal())
        hours = np.arange(HOURS)
        daily = 0.5 - 0.5 * np.cos(2.0 * np.pi * (hours - 3) / HOURS)  # most at 15 h
        load = LOAD[0] + (LOAD[1] - LOAD[0]) * daily + LOAD_DAY_NOISE * rng.standard_normal()
        load = np.clip(load + _noise(LOAD_HOUR_NOISE, rng), *LOAD_RANGE)
        for row, temperature in zip(rows, outdoor, strict=True):
            dew = min(float(row[DEW_POINT]), float(temperature))
            row[DRY_BULB], row[DEW_POINT] = f"{temperature:.1f}", f"{dew:.1f}"
            row[HUMIDITY] = f"{relative_humidity(float(temperature), dew):.0f}"
        month, date = int(rows[0][MONTH]), int(rows[0][DATE])
        return Day(month, date, outdoor, load, forecast, self._file(rows, month, date))

    def _file(self, rows: list[list[str]], month: int, date: int) -> str:
        header = [
            self._location,
            "DESIGN CONDITIONS,0",
            "TYPICAL/EXTREME PERIODS,0",
            "GROUND TEMPERATURES,0",
            "HOLIDAYS/DAYLIGHT SAVINGS,No,0,0,0",
            "COMMENTS 1,a day of the file named above with noise",
            "COMMENTS 2,",
            f"DATA PERIODS,1,1,Data,Sunday,{month}/{date},{month}/{date}",
        ]
        return "\n".join([*header, *(",".join(row) for row in rows)]) + "\n"


def relative_humidity(temperature: float, dew_point: float) -> float:
    """In percent, by the Magnus formula e(T) ~ exp(17.62 T / (243.12 + T))."""
    return float(100.0 * np.exp(_magnus(dew_point) - _magnus(temperature)))


def _magnus(temperature: float) -> float:
    return 17.62 * temperature / (243.12 + temperature)


def _noise(spread: float, rng: np.random.Generator) -> Floats:
    """Stationary AR(1) noise of that standard deviation, [24]."""
    drawn = rng.standard_normal(HOURS)
    found = np.empty(HOURS)
    found[0] = drawn[0]
    for hour in range(1, HOURS):
        found[hour] = KEPT * found[hour - 1] + np.sqrt(1.0 - KEPT**2) * drawn[hour]
    return spread * found

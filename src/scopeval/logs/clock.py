"""Episodes from a column of times: a pause longer than the gap begins a new one, or every day.

A historian stores a row every few minutes, without episodes and time steps. Rows that follow each
other within the gap are one episode, whose steps are counted from 0. What never pauses is cut into
pieces of equal time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints, is_number
from scopeval.errors import DataError, InputError
from scopeval.logs.values import Origin, reals

__all__ = ["Clock", "Gap", "clock_of", "episodes_by_time", "times_of"]

Gap = str | float | timedelta
_SECONDS = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0,
    "h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0,
}  # fmt: skip


@dataclass(frozen=True)
class Clock:
    """The column of times, and the longest pause within an episode, or the time of every episode.

    Attributes:
        column: its name.
        gap: in seconds; for a column of plain numbers, in their unit. None: episodes have a column
            of their own, or are cut.
        every: likewise; None: nothing is cut.
        stated: what was given.
    """

    column: str
    gap: float | None
    every: float | None = None
    stated: str = ""


def clock_of(time: str | None, gap: Gap | None, every: Gap | None = None) -> Clock | None:
    """The arguments `time`, `gap` and `every` of `read_logs`, checked."""
    given = {"gap": gap, "every": every}
    stated = {name: value for name, value in given.items() if value is not None}
    if time is None:
        for name, value in stated.items():
            raise InputError(
                f"{name}: got {value!r} without time; expected the column of times too"
            )
        return None
    if not isinstance(time, str):
        raise InputError(f"time: got {time!r}, expected the name of a column")
    if len(stated) > 1:
        raise InputError(f"gap, every: got {gap!r}, {every!r}, expected one of them")
    seconds = {name: _seconds(name, value) for name, value in stated.items()}
    return Clock(
        time, seconds.get("gap"), seconds.get("every"), str(gap if every is None else every)
    )


def _seconds(name: str, gap: Gap) -> float:
    if isinstance(gap, timedelta):
        amount = gap.total_seconds()
    elif isinstance(gap, str):
        parts = re.fullmatch(r"\s*([0-9]*[.,]?[0-9]+)\s*([a-z]+?)s?\s*", gap.lower())
        unit = None if parts is None else _SECONDS.get(parts[2])
        if parts is None or unit is None:
            raise InputError(
                f"{name}: got {gap!r}, expected a time such as '11min', '90s', '2h' or '1d'"
            )
        amount = float(parts[1].replace(",", ".")) * unit
    elif is_number(gap):
        amount = float(gap)
    else:
        raise InputError(f"{name}: got {gap!r}, expected a time such as '11min', or seconds")
    if not (np.isfinite(amount) and amount > 0):
        raise InputError(f"{name}: got {gap!r}, expected a time above 0")
    return amount


def times_of(values: Any, origin: Origin) -> Floats:
    """A column of times in seconds, or of numbers as they are."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            first = next((x for x in values.to_pylist() if x is not None), "")
            origin.fail(
                f"is text such as {first[:40]!r}, expected times",
                "write them like 2026-01-31 08:00:00 or 31.01.2026 08:00",
            )
        if values.null_count:
            missing = values.is_null().to_numpy(zero_copy_only=False)
            origin.refuse_where(missing, "is missing (null)", "remove these rows")
        if pa.types.is_time(values.type):
            origin.fail(
                f"has type {values.type}, a time of day", "write the date into the same column"
            )
        values = values.to_numpy() if isinstance(values, pa.ChunkedArray) else _flat(values)
    array = np.asarray(values)
    if array.dtype.kind == "M":
        return array.astype("datetime64[ns]").astype(np.int64) / 1e9
    return reals(array, origin)


def _flat(values: Any) -> NDArray[Any]:
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array


def episodes_by_time(
    clock: Clock, times: Floats, episode: Ints | None, source: str
) -> tuple[Ints, list[str]]:
    """A number for the episode of each row, -1 for a row that belongs to none, and notes.

    Args:
        clock: its column and gap.
        times: of the rows.
        episode: what the log says itself; a new one also begins where this changes.
        source: name of the log in error messages.
    """
    origin = Origin(f"{source}: column {clock.column!r} (time)", error=DataError)
    steps = np.diff(times)
    new = np.zeros(len(times), np.bool_)
    if episode is not None:
        new[1:] = episode[1:] != episode[:-1]
    within = ~new[1:]
    origin.refuse_where(
        np.append(False, (steps <= 0) & within),
        "is not later than in the row before",
        "sort the rows by time, and remove rows that are there twice",
    )
    if clock.every is not None:
        return _cut(clock, clock.every, times, np.cumsum(new))
    if clock.gap is None:
        if episode is None:
            raise InputError(f"gap: needed with time={clock.column!r}; {_lengths(steps)}")
    else:
        new[1:] |= steps > clock.gap
    inside = steps[~new[1:]]
    notes = [f"{1 + int(new.sum()):,} episodes by {clock.column!r}{_spoken(clock)}"]
    if len(inside):
        usual = float(np.median(inside))
        longer = int((inside >= 2 * usual).sum())  # a row that is missing doubles the step
        if longer:
            notes.append(
                f"{longer:,} steps of {clock.column!r} are at least twice as long as the usual "
                f"{usual:g}: rows may be missing; a smaller gap= makes episodes end there"
            )
    return np.cumsum(new), notes


def _cut(clock: Clock, every: float, times: Floats, part: Ints) -> tuple[Ints, list[str]]:
    """Pieces of equal time, from midnight for dates; those with holes belong to no episode.

    A piece is whole if none of its steps, nor what is missing at its two ends, is longer than 1.5
    times the usual step.
    """
    begin = np.floor(times / every) * every
    new = np.append(True, (np.diff(begin) != 0) | (np.diff(part) != 0))
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(times)) - 1
    steps = np.diff(times)[~new[1:]]
    most = 1.5 * float(np.median(steps)) if len(steps) else every
    longest = np.maximum.reduceat(np.where(new, 0.0, np.diff(times, prepend=times[0])), first)
    holes = (longest > most) | (times[first] - begin[first] > most)
    holes |= begin[first] + every - times[last] > most
    pieces = np.where(holes, -1, np.cumsum(~holes) - 1)
    if holes.all():
        raise DataError(
            f"every: {clock.stated} by {clock.column!r} gives {len(first):,} pieces, and each has "
            f"a hole; {_lengths(np.diff(times))}"
        )
    notes = [f"{int((~holes).sum()):,} episodes of {clock.stated} each by {clock.column!r}"]
    if holes.any():
        lost = int((last - first + 1)[holes].sum())
        notes.append(f"{int(holes.sum()):,} pieces with holes left out ({lost:,} rows)")
    return np.repeat(pieces, last - first + 1), notes


def _spoken(clock: Clock) -> str:
    return "" if clock.gap is None else f", where a pause of more than {clock.stated} begins one"


def _lengths(steps: Floats) -> str:
    """What to try, by the steps that there are."""
    if not len(steps):
        return "expected a time such as '11min'"
    usual, longest = float(np.median(steps)), float(steps.max())
    return (
        f"the usual step is {usual:g} and the longest {longest:g} (seconds, or the column's unit); "
        f"try gap={1.5 * usual:g}, which begins an episode at every longer pause, or every='24h', "
        "which cuts what never pauses"
    )

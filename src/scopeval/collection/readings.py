"""Checks of what a plant reports, at the step where it is reported.

A bad reading is refused before anything of it is recorded, so that one glitch does not spoil the
episodes around it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import PROBABILITY_SLACK, is_number
from scopeval.errors import InputError

__all__ = ["check_cost_reading", "check_number", "check_probability", "check_reading"]

_LARGEST = 2**63 - 1


def check_number(name: str, value: Any, t: int) -> float:
    """A finite number."""
    if type(value) is float and math.isfinite(value):  # the usual reading
        return value
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if not is_number(value):
        raise InputError(
            f"{name}: got {value!r:.60} at t={t}, expected a finite number; nothing was recorded, "
            "try the step's call again with a good reading, or lose() the episode"
        )
    return float(value)


def check_cost_reading(name: str, value: Any, t: int) -> float:
    """A finite number that is not negative."""
    cost = check_number(name, value, t)
    if cost < 0:
        raise InputError(
            f"{name}: got {cost!r} at t={t}, expected a number >= 0; nothing was recorded, try "
            "max(cost, 0.0) if this is rounding, or add the same constant to the cost of every step"
        )
    return cost


def check_probability(name: str, value: Any, t: int, *, positive: bool) -> float:
    """A probability; what is outside [0, 1] by no more than rounding is moved to its end."""
    p = check_number(name, value, t)
    if not -PROBABILITY_SLACK <= p <= 1 + PROBABILITY_SLACK or (positive and p <= 0):
        bracket = "(" if positive else "["
        raise InputError(
            f"{name}: got {p!r} at t={t}, expected a probability in {bracket}0, 1]; nothing was "
            "recorded, try dividing the policy's probabilities by their sum"
        )
    return min(max(p, 0.0), 1.0)


def check_reading(name: str, value: Any, t: int, like: tuple[int, ...] | None) -> NDArray[Any]:
    """An observation or an action: a whole number, or finite numbers in one row.

    Args:
        name: of the reading.
        value: what was reported.
        t: the time step.
        like: shape of earlier readings; None: this is the first.
    """
    if type(value) is int and not like and -_LARGEST <= value <= _LARGEST:  # the usual reading
        return np.array(value, np.int64)
    try:
        array = np.asarray(value)
        whole = array.dtype.kind in "iu"
        array = array.astype(np.int64 if whole else np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name}: got {value!r:.60} at t={t}, expected a state number or an array of numbers "
            f"({error}); nothing was recorded"
        ) from error
    if array.ndim > 1 or not (whole or np.isfinite(array).all()):
        raise InputError(
            f"{name}: got {value!r:.60} at t={t}, expected finite numbers in one row; nothing was "
            "recorded, try again with a good reading, or lose() the episode"
        )
    if like is not None and array.shape != like:
        raise InputError(
            f"{name}: got shape {array.shape} at t={t}, expected {like} as before; nothing was "
            "recorded"
        )
    return array

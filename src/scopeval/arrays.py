"""Array types, checks that every room makes before it trusts an array, and the least of numbers.

Each check returns the array in the form the callers compute with (float64, C order), or raises an
`InputError` that names the argument and the first offending entry.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopeval.errors import InputError

__all__ = [
    "TIE",
    "Bools",
    "Floats",
    "Ints",
    "as_floats",
    "check_alpha",
    "check_cost",
    "check_probs",
    "check_whole",
    "is_number",
    "least",
    "takes",
    "where_first",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: How far a row of probabilities may be from summing to one (float32 softmax outputs pass).
PROBABILITY_SLACK = 1e-5

#: Numbers this near to each other are equal. Sums over 1e6 rows are rounded by about 1e-13; no
#: decision is about a difference of less than 1e-3.
TIE = 1e-9


def where_first(bad: NDArray[np.bool_] | np.bool_, axes: tuple[str, ...] = ()) -> str:
    """Name the first True entry: ``at t=3, s=7`` with axis names, ``at [3, 7]`` without."""
    bad = np.asarray(bad)
    if bad.ndim == 0:
        return "in the only row"
    index = np.unravel_index(int(np.argmax(bad)), bad.shape)
    count = int(bad.sum())
    if len(axes) == len(index):
        place = ", ".join(f"{axis}={int(i)}" for axis, i in zip(axes, index, strict=True))
    else:
        place = "[" + ", ".join(str(int(i)) for i in index) + "]"
    return f"at {place}" + (f" (and {count - 1:,} more)" if count > 1 else "")


def as_floats(
    name: str, value: ArrayLike, *, ndim: tuple[int, ...] | None = None, axes: tuple[str, ...] = ()
) -> Floats:
    """Float64 array of the wanted dimension, all entries finite."""
    array = _numeric(name, value)
    if ndim is not None and array.ndim not in ndim:
        wanted = " or ".join(str(n) for n in ndim)
        raise InputError(
            f"{name}: got an array of shape {array.shape}, expected {wanted} dimension(s)"
        )
    finite = np.isfinite(array)
    if not finite.all():
        bad = ~finite
        if array.ndim == 0:
            raise InputError(f"{name}: got {array}, expected a finite number")
        raise InputError(
            f"{name}: {array[bad][0]} {where_first(bad, axes[-array.ndim :] if axes else ())}; "
            "expected finite numbers, try dropping or repairing those entries"
        )
    return array


def is_number(value: Any) -> bool:
    """One finite real number of any kind; True and "1" are none."""
    real = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    return bool(real and np.isfinite(value))


def check_alpha(alpha: float) -> None:
    """A probability of error; above one half it is taken for a confidence."""
    if not (is_number(alpha) and 0 < alpha <= 0.5):
        raise InputError(
            f"alpha: got {alpha!r}, expected the probability of an error, above 0 and at most 0.5; "
            "for 95 % confidence try alpha=0.05"
        )


def check_whole(name: str, value: Any, least: int, what: str = "") -> int:
    """A whole number, at least `least`; `what` is for the message."""
    if not is_number(value) or int(value) != value or value < least:
        raise InputError(f"{name}: got {value!r}, expected a whole number{what} >= {least}")
    return int(value)


def takes(function: Callable[..., object], arguments: int, *, unknown: bool) -> bool:
    """Whether it can be called with so many arguments; `unknown`: where its signature is not known.

    That of some functions that are written in C is not.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return unknown
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True


def check_cost(name: str, value: ArrayLike, *, axes: tuple[str, ...] = (), **kw: Any) -> Floats:
    """Finite and never negative: costs are amounts."""
    array = as_floats(name, value, axes=axes, **kw)
    bad = array < 0
    if bad.any():
        raise InputError(
            f"{name}: negative cost {array[bad][0]:.6g} "
            f"{where_first(bad, axes[-array.ndim :] if axes else ())}; expected costs >= 0, "
            "try the costs alone, without what was earned; a constant added to every step would "
            "change what a promise relative to another cost means"
        )
    return array


def check_probs(name: str, value: ArrayLike, *, axes: tuple[str, ...] = ()) -> Floats:
    """Rows (last axis) that are probability distributions; returned normalized to rounding."""
    array = _numeric(name, value)
    if array.ndim < 1 or array.shape[-1] == 0:
        raise InputError(
            f"{name}: got shape {array.shape}, expected at least one action in the last axis"
        )
    if (array >= 0).all():
        total = array.sum(axis=-1)
        if (np.abs(total - 1.0) <= PROBABILITY_SLACK).all():
            return np.asarray(array / total[..., None], dtype=np.float64)
    row_axes = axes[: array.ndim - 1]
    bad = np.isnan(array).any(axis=-1)
    if bad.any():
        raise InputError(
            f"{name}: NaN probability {where_first(bad, row_axes)}; expected rows of probabilities"
        )
    bad = (array < 0).any(axis=-1)
    if bad.any():
        raise InputError(
            f"{name}: negative probability {array[bad].min():.6g} {where_first(bad, row_axes)}; "
            "expected probabilities >= 0 (are these logits? try a softmax)"
        )
    bad = ~(np.abs(total - 1.0) <= PROBABILITY_SLACK)
    raise InputError(
        f"{name}: probabilities sum to {total[bad][0]:.6g} {where_first(bad, row_axes)}; "
        "expected 1, try p / p.sum(-1, keepdims=True)"
    )


def _numeric(name: str, value: ArrayLike) -> Floats:
    try:
        return np.asarray(value, dtype=np.float64, order="C")  # keeps a number a number
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: cannot be read as an array of numbers ({error})") from error


def least(values: ArrayLike, rank: Sequence[Any] | None = None) -> int:
    """Which value is the least, whatever the rounding; NaN is the largest.

    Two choices that are the same policy differ in the last bit, and another processor rounds that
    bit otherwise. So ties have a tolerance, and an order that means something decides among them.

    Args:
        values: in units of which 1 is a usual size, such as variance relative to the target
            policy's: a tie is within `TIE` of the least, and of its size where that is above 1.
        rank: decides among ties, the smallest first; None, or equal: the first of them.
    """
    numbers = np.nan_to_num(np.asarray(values, np.float64), nan=np.inf)
    low = float(numbers.min())
    most = low + TIE * max(1.0, abs(low)) if np.isfinite(low) else low
    tied = [int(j) for j in np.flatnonzero(numbers <= most)]
    return tied[0] if rank is None else min(tied, key=lambda j: rank[j])

"""Convert one column of a log to a checked numpy array.

Every function takes the values and their `Origin`. It returns an array of the expected type and
shape, or raises an error that names the column, counts the wrong rows and lists the first of them.
The array is shared with the caller if it already has the right type, and copied otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopeval.errors import InputError, ScopevalError

__all__ = ["Origin", "actions", "flags", "observations", "reals", "vectors", "wholes"]

_SHOWN = 5  # offending rows named in a message
_EXACT = 2.0**53  # floats hold every whole number up to here


@dataclass(frozen=True)
class Origin:
    """The origin of a column, for error messages.

    Attributes:
        name: start of the message, such as ``reward`` or ``a.csv: column 'r' (reward)``.
        first_row: row number of the first value (above 0 for later batches of a file).
        starts: first row of each episode; messages then name the episode and the step.
        error: the class of the error to raise.
    """

    name: str
    first_row: int = 0
    starts: NDArray[np.int64] | None = None
    error: type[ScopevalError] = InputError

    def fail(self, what: str, advice: str = "") -> NoReturn:
        """Raise an error about the whole column."""
        raise self.error(f"{self.name} {what}" + (f"; {advice}" if advice else ""))

    def refuse_where(self, bad: NDArray[np.bool_], what: str, advice: str = "") -> None:
        """Raise an error with the count and the first rows, if any row is bad."""
        if not bad.any():
            return
        wrong = bad if bad.ndim == 1 else bad.any(axis=1)
        rows = np.flatnonzero(wrong)
        first = ", ".join(self._row(int(row)) for row in rows[:_SHOWN])
        more = ", ..." if rows.size > _SHOWN else ""
        self.fail(
            f"{what} in {rows.size:,} of {wrong.size:,} rows (counted from 0: {first}{more})",
            advice,
        )

    def _row(self, row: int) -> str:
        if self.starts is None:
            return f"{row + self.first_row}"
        episode = int(np.searchsorted(self.starts, row, side="right")) - 1
        return f"episode {episode} step {row - int(self.starts[episode])}"


def wholes(values: ArrayLike, origin: Origin) -> NDArray[np.int64]:
    """int64 [N] from integers, booleans, or floats that hold whole numbers."""
    array = _flat(_numeric(values, origin), origin)
    if array.dtype.kind == "f":
        _refuse_not_finite(array, origin)
        origin.refuse_where(array != np.trunc(array), "is not a whole number")
        origin.refuse_where(
            np.abs(array) > _EXACT,
            "is a float too large to be an exact whole number",
            "store the column as int64",
        )
    elif array.dtype.kind == "u":
        origin.refuse_where(
            array > np.iinfo(np.int64).max, "does not fit into int64", "renumber the values"
        )
    return array.astype(np.int64, copy=False)


def reals(values: ArrayLike, origin: Origin) -> NDArray[np.float64]:
    """float64 [N], every value finite."""
    return _finite(_flat(_numeric(values, origin), origin), origin)


def vectors(values: ArrayLike, origin: Origin) -> NDArray[np.float64]:
    """float64 [N, d], every value finite; a flat column is the case d = 1."""
    array = _numeric(values, origin)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        origin.fail(
            f"has shape {list(array.shape)}, expected [rows, width]", "flatten each row to a vector"
        )
    return _finite(array, origin)


def flags(values: ArrayLike, origin: Origin) -> NDArray[np.bool_]:
    """Bool [N] from booleans or from numbers that are all 0 or 1."""
    array = _flat(_numeric(values, origin), origin)
    if array.dtype.kind != "b":
        origin.refuse_where((array != 0) & (array != 1), "is neither 0 nor 1")
    return array.astype(np.bool_, copy=False)


def observations(
    values: ArrayLike, origin: Origin, discrete: bool | None = None
) -> NDArray[np.int64] | NDArray[np.float64]:
    """int64 [N] for state numbers, float64 [N, d] for vectors.

    The type decides, never the values: a flat column of integers is a state number, a flat column
    of floats is a vector of width 1, anything [N, d] is a vector. `discrete` overrules that.
    """
    array = _numeric(values, origin)
    if discrete is None:
        discrete = array.ndim == 1 and array.dtype.kind != "f"
    if not discrete:
        return vectors(array, origin)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    states = wholes(array, origin)
    origin.refuse_where(states < 0, "is a negative state number", "number the states from 0")
    return states


def actions(values: ArrayLike, origin: Origin) -> NDArray[np.int64] | NDArray[np.float64]:
    """int64 [N] for a finite action set (a flat column), float64 [N, k] for continuous actions."""
    array = _numeric(values, origin)
    if array.ndim > 1:
        return vectors(array, origin)
    if array.dtype.kind == "f":
        _refuse_not_finite(array, origin)
        origin.refuse_where(
            array != np.trunc(array),
            "is fractional",
            "number the actions 0, 1, ...; continuous actions are vectors: shape [N, k], or in "
            'a table columns={"action": ["name of the column"]}',
        )
    numbers = wholes(array, origin)
    origin.refuse_where(numbers < 0, "is a negative action", "number the actions 0, 1, ...")
    return numbers


def _numeric(values: Any, origin: Origin) -> NDArray[Any]:
    """An array of booleans, integers or floats, with at least one dimension."""
    if np.ma.isMaskedArray(values):
        mask = np.ma.getmaskarray(values)
        origin.refuse_where(mask.reshape(len(mask), -1), "is masked", "fill in or remove the rows")
    try:
        array = np.asarray(values)
    except Exception as cause:
        raise origin.error(
            f"{origin.name} is not an array of numbers ({cause}); rows must have the same width"
        ) from cause
    if array.dtype.kind not in "biuf":
        kinds = {"O": "mixed or missing values", "U": "text", "S": "text", "c": "complex numbers"}
        kinds |= {"M": "dates", "m": "time differences", "V": "records"}
        got = kinds.get(array.dtype.kind, "no numbers")
        origin.fail(f"holds {got} (dtype {array.dtype}), expected numbers", "convert the column")
    if array.ndim == 0:
        origin.fail("is a single number, expected one value per row")
    return array


def _flat(array: NDArray[Any], origin: Origin) -> NDArray[Any]:
    if array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    if array.ndim != 1:
        origin.fail(f"has shape {list(array.shape)}, expected one number per row")
    return array


def _finite(array: NDArray[Any], origin: Origin) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        result = array.astype(np.float64, copy=False)
    if array.dtype.kind == "f":
        _refuse_not_finite(result, origin)
    return result


def _refuse_not_finite(array: NDArray[np.floating[Any]], origin: Origin) -> None:
    if not np.isfinite(array).all():
        advice = "remove these rows or fill in the values"
        origin.refuse_where(np.isnan(array), "is NaN", advice)
        origin.refuse_where(np.isinf(array), "is infinite", advice)

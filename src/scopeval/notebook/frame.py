"""Pandas tables, for those who have pandas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scopeval.errors import MissingExtraError

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["frame_of", "vector_columns"]


def frame_of(columns: Mapping[str, Any], *, index: str | None = None) -> DataFrame:
    """A data frame.

    Args:
        columns: by name, of equal lengths.
        index: name of the column that names the rows; None: they are numbered.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as cause:
        raise MissingExtraError("pandas", "notebook", "to_frame") from cause
    frame = pd.DataFrame(dict(columns))
    return frame if index is None else frame.set_index(index)


def vector_columns(name: str, values: Any) -> dict[str, Any]:
    """One column for numbers, numbered columns for vectors, as `read_logs` finds them."""
    if values.ndim == 1:
        return {name: values}
    return {f"{name}_{k}": values[:, k] for k in range(values.shape[1])}

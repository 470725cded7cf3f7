"""The features of the model's critics, row by row."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

__all__ = ["fill"]

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def fill(
    points: NDArray[Any],
    mean: NDArray[Any],
    scale: NDArray[Any],
    reach: float,
    products: bool,
    seen: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """Write 1, inputs, squares (and products) of every row [n, d], and of seen [n, 2], into out."""
    n, d = points.shape
    z = np.empty(d, out.dtype)
    for i in range(n):
        row = out[i]
        row[0] = 1.0
        for j in range(d):
            value = (points[i, j] - mean[j]) / scale[j]
            z[j] = min(max(value, -reach), reach)
            row[1 + j] = z[j]
        at = 1 + d
        for j in range(d):
            if products:
                for k in range(j, d):
                    row[at + k - j] = z[j] * z[k]
                at += d - j
            else:
                row[at] = z[j] * z[j]
                at += 1
        earned, spent = seen[i, 0], seen[i, 1]
        row[at], row[at + 1] = earned, spent
        row[at + 2], row[at + 3], row[at + 4] = earned * earned, earned * spent, spent * spent

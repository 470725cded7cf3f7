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
    direction: NDArray[Any],
    offset: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """Write 1, inputs, squares (and products), soft steps of every row [n, d] into out [n, F]."""
    n, d = points.shape
    steps = len(offset)
    z, one = np.empty(d, out.dtype), np.ones(1, out.dtype)[0]
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
        soft = row[at : at + steps]
        for k in range(steps):
            soft[k] = offset[k]
        whole = d - d % 4
        for j in range(0, whole, 4):  # four at a time: fewer ways to memory, the same sums
            za, zb, zc, ze = z[j], z[j + 1], z[j + 2], z[j + 3]
            da, db, dc, de = direction[j], direction[j + 1], direction[j + 2], direction[j + 3]
            for k in range(steps):
                soft[k] = soft[k] + za * da[k] + zb * db[k] + zc * dc[k] + ze * de[k]
        for j in range(whole, d):
            for k in range(steps):
                soft[k] += z[j] * direction[j, k]
        for k in range(steps):
            soft[k] = soft[k] / (np.abs(soft[k]) + one)

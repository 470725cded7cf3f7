"""A network of two tanh layers, row by row: a row's answer does not depend on its batch."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["forward"]

Array = NDArray[np.float32]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def forward(
    x: Array, w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array
) -> Array:  # pragma: no cover  (compiled)
    """tanh, tanh, linear: [B, d] -> [B, k]."""
    out = np.empty((len(x), len(b3)), np.float32)
    first, second = np.empty_like(b1), np.empty_like(b2)
    for row in range(len(x)):
        first[:] = b1
        for i in range(x.shape[1]):
            for j in range(len(first)):
                first[j] += x[row, i] * w1[i, j]
        for j in range(len(first)):
            first[j] = np.tanh(first[j])
        second[:] = b2
        for i in range(len(first)):
            for j in range(len(second)):
                second[j] += first[i] * w2[i, j]
        for j in range(len(second)):
            second[j] = np.tanh(second[j])
        out[row] = b3
        for i in range(len(second)):
            for j in range(len(b3)):
                out[row, j] += second[i] * w3[i, j]
    return out

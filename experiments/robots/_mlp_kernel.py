"""x @ w + b, row by row: a row's answer does not depend on its batch, as BLAS's would."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["affine"]

Array = NDArray[np.float32]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def affine(x: Array, w: Array, b: Array) -> Array:  # pragma: no cover  (compiled)
    """[B, d], [d, k], [k] -> [B, k]."""
    out = np.empty((len(x), len(b)), np.float32)
    for row in range(len(x)):
        out[row] = b
        for i in range(x.shape[1]):
            for j in range(len(b)):
                out[row, j] += x[row, i] * w[i, j]
    return out

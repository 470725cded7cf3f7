"""The compiled forward pass of the model's small networks at many rows."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

__all__ = ["BLOCK", "activate", "forward"]

#: Rows that pass a network together: they stay in the cache, and the products of the usual networks
#: are too small for BLAS to start threads of its own.
BLOCK = 16

#: Every operation rounds as it is written: see `_training_kernel`.
exactly = nb.njit(cache=True, nogil=True, error_model="numpy")

ONE, HALF = np.float32(1.0), np.float32(0.5)


@exactly  # type: ignore[untyped-decorator]
def activate(z: Any, bias: Any) -> None:
    """Replace z by swish(z + bias)."""
    for i in range(z.shape[0]):
        row = z[i]
        for j in range(z.shape[1]):
            value = row[j] + bias[j]
            row[j] = HALF * value * (ONE + value / (ONE + abs(value)))


@exactly  # type: ignore[untyped-decorator]
def forward(
    x: Any,  # [n, I]
    w1: Any,
    b1: Any,
    w2: Any,
    b2: Any,
    w3: Any,
    skip: Any,
    b3: Any,
    start: int,
    stop: int,
    out: Any,  # [n, O], written at rows start .. stop - 1
) -> None:
    """The outputs of one network for the rows start .. stop - 1."""
    first = np.empty((BLOCK, w1.shape[1]), np.float32)
    second = np.empty((BLOCK, w2.shape[1]), np.float32)
    line = np.empty((BLOCK, w3.shape[1]), np.float32)
    for at in range(start, stop, BLOCK):
        upto = min(at + BLOCK, stop)
        some, rows = x[at:upto], upto - at
        np.dot(some, w1, first[:rows])
        activate(first[:rows], b1)
        np.dot(first[:rows], w2, second[:rows])
        activate(second[:rows], b2)
        np.dot(second[:rows], w3, out[at:upto])
        np.dot(some, skip, line[:rows])
        for i in range(rows):
            for j in range(line.shape[1]):
                out[at + i, j] += line[i, j] + b3[j]

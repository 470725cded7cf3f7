"""What compiled code predicts: the forward pass of small networks, and the features of critics.

Rows pass in blocks of a fixed size, the last one filled up with zeros: BLAS adds up in another
order for other sizes, and a row's bits must not depend on the batch that it comes in.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK", "fill", "forward", "products"]

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
    given = np.zeros((BLOCK, x.shape[1]), np.float32)
    first = np.empty((BLOCK, w1.shape[1]), np.float32)
    second = np.empty((BLOCK, w2.shape[1]), np.float32)
    line = np.empty((BLOCK, w3.shape[1]), np.float32)
    last = np.empty((BLOCK, w3.shape[1]), np.float32)
    for at in range(start, stop, BLOCK):
        rows = min(BLOCK, stop - at)
        given[:rows] = x[at : at + rows]
        np.dot(given, w1, first)
        activate(first, b1)
        np.dot(first, w2, second)
        activate(second, b2)
        np.dot(second, w3, last)
        np.dot(given, skip, line)
        for i in range(rows):
            for j in range(line.shape[1]):
                out[at + i, j] = last[i, j] + (line[i, j] + b3[j])


@exactly  # type: ignore[untyped-decorator]
def products(x: Any, heads: Any, out: Any) -> None:
    """Write the products of rows [n, F] with heads [F, H] into out [n, H]."""
    given = np.zeros((BLOCK, x.shape[1]), np.float32)
    some = np.empty((BLOCK, heads.shape[1]), np.float32)
    for at in range(0, len(x), BLOCK):
        rows = min(BLOCK, len(x) - at)
        given[:rows] = x[at : at + rows]
        np.dot(given, heads, some)
        out[at : at + rows] = some[:rows]


@exactly  # type: ignore[untyped-decorator]
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

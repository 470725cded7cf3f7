"""Compiled steps of Gauss and Newton back to where identities hold; see `identities`."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

__all__ = ["keep"]

exactly = nb.njit(cache=True, nogil=True, error_model="numpy")


@exactly  # type: ignore[untyped-decorator]
def keep(
    z: Any,  # [n, w] observations in standard units, changed in place
    constant: Any,  # [k]
    linear: Any,  # [w, k]
    square: Any,  # [w, k]
    steps: int,
    near: float,
    longest: float,
    damping: float,
) -> None:
    """Change every observation as little as possible until it obeys all identities.

    One with an entry that would have to move further than `longest` stays as it is.
    """
    w, k = linear.shape
    missed, slopes = np.empty(k), np.empty((w, k))
    normal, began = np.empty((k, k)), np.empty(w)
    for row in z:
        began[:] = row
        for _ in range(steps):
            most = 0.0
            for j in range(k):
                total = constant[j]
                for i in range(w):
                    total += row[i] * (linear[i, j] + row[i] * square[i, j])
                missed[j] = total
                most = max(most, abs(total))
            if not most > near:
                break
            size = 0.0
            for i in range(w):
                for j in range(k):
                    slopes[i, j] = linear[i, j] + 2.0 * row[i] * square[i, j]
                    size += slopes[i, j] * slopes[i, j]
            for j in range(k):
                for m in range(j + 1):
                    total = 0.0
                    for i in range(w):
                        total += slopes[i, j] * slopes[i, m]
                    normal[j, m] = total
                normal[j, j] += damping * (size + 1e-12)
            _solve(normal, missed)
            for i in range(w):
                for j in range(k):
                    row[i] -= slopes[i, j] * missed[j]
        stays = False
        for i in range(w):
            stays = stays or not abs(row[i] - began[i]) <= longest
        if stays:
            row[:] = began


@exactly  # type: ignore[untyped-decorator]
def _solve(a: Any, b: Any) -> None:
    """Replace b by the solution x of a x = b, by Cholesky; the lower half of a is used up."""
    k = len(b)
    for j in range(k):
        for m in range(j):
            a[j, j] -= a[j, m] * a[j, m]
        a[j, j] = np.sqrt(max(a[j, j], 1e-300))
        for i in range(j + 1, k):
            for m in range(j):
                a[i, j] -= a[i, m] * a[j, m]
            a[i, j] /= a[j, j]
    for i in range(k):
        for m in range(i):
            b[i] -= a[i, m] * b[m]
        b[i] /= a[i, i]
    for i in range(k - 1, -1, -1):
        for m in range(i + 1, k):
            b[i] -= a[m, i] * b[m]
        b[i] /= a[i, i]

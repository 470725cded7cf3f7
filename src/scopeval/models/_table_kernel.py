"""The compiled part of `scopeval.models.table`: the means of one time step, in one pass."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def grouped(key: Any, size: int) -> Any:
    """Sort entries by key: those of key k are order[begin[k] : begin[k + 1]], in their order."""
    begin = np.zeros(size + 1, np.int64)
    for i in range(len(key)):
        begin[key[i] + 1] += 1
    for k in range(size):
        begin[k + 1] += begin[k]
    place = begin[:-1].copy()
    order = np.empty(len(key), np.int64)
    for i in range(len(key)):
        order[place[key[i]]] = i
        place[key[i]] += 1
    return order, begin


@compiled  # type: ignore[untyped-decorator]
def sorted_by(order: Any, key: Any, size: int) -> Any:
    """The same entries, sorted by key; equal ones keep their order."""
    place = np.zeros(size + 1, np.int64)
    for i in range(len(key)):
        place[key[i] + 1] += 1
    for k in range(size):
        place[k + 1] += place[k]
    out = np.empty_like(order)
    for i in order:
        out[place[key[i]]] = i
        place[key[i]] += 1
    return out


@compiled  # type: ignore[untyped-decorator]
def means(order: Any, begin: Any, weight: Any, count: Any, columns: Any, noise: Any) -> Any:
    """Weighted means [pairs, heads] of columns [rows, heads], and the squares [pairs] about them.

    The squares are of the first head, with the noise of each row added.
    """
    pairs, heads = len(count), columns.shape[1]
    table = np.zeros((pairs, heads))
    squares = np.zeros(pairs)
    for p in range(pairs):
        if count[p] == 0.0:
            continue
        for r in range(begin[p], begin[p + 1]):
            i = order[r]
            for h in range(heads):
                table[p, h] += weight[i] * columns[i, h]
        for h in range(heads):
            table[p, h] /= count[p]
        for r in range(begin[p], begin[p + 1]):
            i = order[r]
            squares[p] += weight[i] * ((columns[i, 0] - table[p, 0]) ** 2 + noise[i])
    return table, squares


@compiled  # type: ignore[untyped-decorator]
def guess(table: Any, count: Any, order: Any, begin: Any, weight: Any, source: Any) -> None:
    """Fill the pairs never seen, in place.

    With the mean of the state's seen actions; for a state never left, with that of the states which
    lead to it (order, begin: the rows that end in each state; source: where they come from).
    """
    states = len(begin) - 1
    A, heads = len(count) // states, table.shape[1]
    usual = np.zeros((states, heads))
    seen = np.zeros(states, np.int64)
    for s in range(states):
        for a in range(A):
            if count[s * A + a] > 0.0:
                seen[s] += 1
                for h in range(heads):
                    usual[s, h] += table[s * A + a, h]
        for h in range(heads):
            usual[s, h] /= max(seen[s], 1)
    mean = np.empty(heads)
    for s in range(states):
        if seen[s] == A:
            continue
        mean[:] = usual[s]
        if seen[s] == 0:
            total = 0.0
            for r in range(begin[s], begin[s + 1]):
                i = order[r]
                total += weight[i]
                for h in range(heads):
                    mean[h] += weight[i] * usual[source[i], h]
            for h in range(heads):
                mean[h] /= total if total > 0.0 else 1.0
        for a in range(A):
            if count[s * A + a] == 0.0:
                table[s * A + a] = mean

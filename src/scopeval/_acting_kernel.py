"""The compiled part of `scopeval.acting`: a critic's answer at one observation.

Each kernel returns e [5, 1, A] (q, noise, carried, the target's cost, the cost in the constraint)
and known [1, A], which it allocates, so that threads may share a policy.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")
#: Sums of a network may be taken in any order; NaN stays NaN.
network = nb.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


@compiled  # type: ignore[untyped-decorator]
def from_table(
    q: Any,
    cost_target: Any,
    cost_behavior: Any,
    carried: Any,
    noise: Any,
    known: Any,
    state: int,
    follows: bool,
    own_cost: bool,
) -> Any:
    """A row of `TableCritic`."""
    A = q.shape[1]
    inside = 0 <= state < len(q)
    s = state if inside else 0
    last = cost_behavior.shape[2] - 1
    ahead = last if follows else 0
    e, sure = np.empty((5, 1, A)), np.empty((1, A), np.bool_)
    for a in range(A):
        e[0, 0, a] = q[s, a]
        e[1, 0, a] = noise[s, a]
        e[2, 0, a] = carried[s, a, ahead]
        e[3, 0, a] = cost_target[s, a]
        e[4, 0, a] = cost_behavior[s, a, last] if own_cost else cost_target[s, a]
        sure[0, a] = inside and known[s, a]
    return e, sure


@compiled  # type: ignore[untyped-decorator]
def from_network(
    net: Any,
    intercept: Any,
    slope: Any,
    centre: Any,
    spread: Any,
    mean: Any,
    scale: Any,
    low: Any,
    high: Any,
    pairs: Any,
    followed: int,
    obs: Any,
    follows: bool,
    own_cost: bool,
) -> Any:
    """`MLPCritic.at` for one vector; only the heads that are needed."""
    A, d = slope.shape[1], len(obs)
    x = np.empty(d, np.float32)
    within = True
    for i in range(d):
        x[i] = (obs[i] - mean[i]) / scale[i]
        within = within and low[i] <= obs[i] <= high[i]
    e, sure = np.empty((5, 1, A)), np.empty((1, A), np.bool_)
    folds = np.empty((2, A), np.float32)
    apart = np.empty(A, np.float32)  # how far the folds' q differ
    ahead = 2 + followed + (followed - 1 if follows else 0)
    for j, head in enumerate((0, len(centre) - 1, ahead, 1, 1 + followed)):
        if j == 4 and not own_cost:
            continue
        for f in range(2):
            _hidden(net[f, head], x, folds[f])
        for a in range(A):
            total = np.float32(0.5) * (folds[0, a] + folds[1, a])
            total += _dot(slope[head, a], x) + intercept[head, a]
            e[j, 0, a] = total * spread[head] + centre[head]
        if j == 0:
            o = net.shape[2] - A - A * d
            for a in range(A):
                w3 = slice(o + A + a * d, o + A + a * d + d)
                line = _dot(net[0, 0, w3], x) - _dot(net[1, 0, w3], x)
                bias = net[0, 0, o + a] - net[1, 0, o + a]
                apart[a] = folds[0, a] - folds[1, a] + line + bias
    for a in range(A):
        noise, least = e[1, 0, a], 0.05 * spread[-1]
        noise = least if noise < least else noise  # NaN stays
        error = (apart[a] * (0.5 * spread[0])) ** 2
        e[1, 0, a] = noise + (noise if error > noise else error)
        e[4, 0, a] = e[3, 0, a] + (e[4, 0, a] if own_cost else 0.0)
        sure[0, a] = within and pairs[0, a]
    return e, sure


@network  # type: ignore[untyped-decorator]
def _dot(slope: Any, x: Any) -> Any:
    total = np.float32(0.0)
    for i in range(len(x)):
        total += slope[i] * x[i]
    return total


@network  # type: ignore[untyped-decorator]
def _hidden(flat: Any, x: Any, out: Any) -> None:
    """What a network's hidden layer adds for every action: nothing if it is switched off."""
    d, A = len(x), len(out)
    h = (len(flat) - A - A * d) // (d + 1 + A)
    w2 = flat[d * h + h : d * h + h + A * h]
    out[:] = np.float32(0.0)
    size = np.float32(0.0)
    for j in range(len(w2)):
        size += abs(w2[j])
    if size == np.float32(0.0):
        return
    hidden = flat[d * h : d * h + h].copy()
    for i in range(d):
        for j in range(h):
            hidden[j] += x[i] * flat[i * h + j]
    for j in range(h):
        hidden[j] = np.float32(0.0) if hidden[j] < np.float32(0.0) else hidden[j]
    for a in range(A):
        out[a] = _dot(w2[a * h : a * h + h], hidden)

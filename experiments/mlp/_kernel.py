"""The compiled part of `experiments.mlp`: trains small networks, and evaluates them at many rows.

A network is max(x w1 + b1, 0) w2 + b2 + x w3. Gradients and Adam are written by hand: calls of a
library would take most of the time for networks of this size. Products are taken in blocks of rows
that stay in the processor's cache and are too small for BLAS to start threads of its own.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from scopeval.models._layers_kernel import adam
from scopeval.policies._random_kernel import next_random

#: A network must lower the held-out error by this share to be better than none.
WORTH = 0.02

#: Rows that pass a network together.
BLOCK = 64

compiled = nb.njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
#: Like `compiled`, but NaN stays NaN, so that an observation that is not finite is noticed.
honest = nb.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
#: Not cached by itself: the file would be that of the other loop, which rounds otherwise.
_adam = nb.njit(nogil=True, fastmath=True, error_model="numpy")(adam)


@compiled  # type: ignore[untyped-decorator]
def _drawn(upto: Any, u: float, even: bool) -> int:
    """The row at u in the cumulative weights; `even`: these are 1, 2, 3 ..."""
    found = int(u) if even else int(np.searchsorted(upto, u, side="right"))
    return min(found, len(upto) - 1)


@compiled  # type: ignore[untyped-decorator]
def standards(heads: Any, weight: Any) -> Any:
    """Weighted mean and standard deviation of every column."""
    n, H = heads.shape
    mean, variance, total = np.zeros(H), np.zeros(H), 0.0
    for i in range(n):
        total += weight[i]
        for j in range(H):
            mean[j] += weight[i] * heads[i, j]
    mean /= total
    for i in range(n):
        for j in range(H):
            variance[j] += weight[i] * (heads[i, j] - mean[j]) ** 2
    return mean, np.sqrt(variance / total)


@honest  # type: ignore[untyped-decorator]
def _layer(x: Any, w: Any, out: Any) -> None:
    """max(x w, 0)."""
    np.dot(x, w, out)
    flat = out.reshape(-1)
    for j in range(len(flat)):
        flat[j] = np.float32(0.0) if flat[j] < np.float32(0.0) else flat[j]  # NaN stays NaN


@compiled  # type: ignore[untyped-decorator]
def predict(inputs: Any, w1: Any, w2: Any, b2: Any, w3: Any) -> Any:
    """The network's answers [n] for `FoldInputs`; the last row of w1 is the bias."""
    x, code, act = inputs.x, inputs.code, inputs.action
    n, last = len(act), len(w1) - 1
    h = w1.shape[1]
    out = np.empty(n, np.float32)
    if len(code) > 0:
        bias = w1[last]
        for i in range(n):
            a, s = act[i], code[i]
            total = b2[a] + w3[a, s]
            for j in range(h):
                total += max(w1[s, j] + bias[j], np.float32(0.0)) * w2[a, j]
            out[i] = total
        return out
    some, hidden = np.ones((BLOCK, last + 1), np.float32), np.empty((BLOCK, h), np.float32)
    for start in range(0, n, BLOCK):
        rows = min(BLOCK, n - start)
        for i in range(rows):
            for c in range(last):
                some[i, c] = x[start + i, c]
        _layer(some, w1, hidden)
        for i in range(rows):
            a = act[start + i]
            out[start + i] = _taken(some[i, :last], hidden[i], b2[a], w2[a], w3[a])
    return out


@compiled  # type: ignore[untyped-decorator]
def _taken(x: Any, hidden: Any, b2: Any, w2: Any, w3: Any) -> Any:
    """One action's output for one row."""
    total = b2
    for c in range(len(x)):
        total += x[c] * w3[c]
    for j in range(len(hidden)):
        total += hidden[j] * w2[j]
    return total


@compiled  # type: ignore[untyped-decorator]
def train(
    inputs: Any,  # `FoldInputs` of the rows to learn from
    y: Any,  # [n]
    held: Any,  # `FoldInputs` of the rows that decide when to stop
    held_y: Any,
    flat: Any,  # all weights: w1 [d, h], b1 [h], w2 [A, h], b2 [A], w3 [A, d]
    d: int,
    h: int,
    A: int,
    steps: int,
    batch: int,
    rate: float,
    patience: int,
    seed: int,
) -> float:
    """Adam on the squared error of the taken action, for the hidden layer.

    b2 and w3, the linear part, are solved exactly elsewhere and do not move. The weights with the
    least held-out error are kept, or w2 = 0 where a network is not clearly better than none.
    Returns the held-out error.
    """
    x, code, act, upto = inputs.x, inputs.code, inputs.action, inputs.upto
    o2, o3, o4 = d * h + h, d * h + h + A * h, d * h + h + A * h + A
    gradient = np.zeros(o3, np.float32)
    m = np.zeros(o3, np.float32)
    v = np.zeros(o3, np.float32)
    w1 = flat[:o2].reshape(d + 1, h)  # the last row is the bias
    w2, b2, w3 = flat[o2:o3].reshape(A, h), flat[o3:o4], flat[o4:].reshape(A, d)
    g1, g2 = gradient[:o2].reshape(d + 1, h), gradient[o2:o3].reshape(A, h)
    sparse = len(code) > 0
    bx = np.ones((0 if sparse else batch, d + 1), np.float32)
    pick = np.empty(batch, np.int64)
    dh = np.empty((batch, h), np.float32)
    hidden = np.empty((batch, h), np.float32)
    best = flat.copy()
    answer = predict(held, w1, w2, b2, w3)
    best_error = np.mean((answer - held_y) ** 2)
    stale = 0
    even = True
    for i in range(len(upto)):
        even = even and upto[i] == i + 1.0
    state = np.uint64(seed)
    for step in range(1, steps + 1):
        for i in range(batch):
            z, state = next_random(state)
            u = (z >> np.uint64(11)) * (1.0 / 9007199254740992.0) * upto[-1]
            pick[i] = _drawn(upto, u, even)
        if sparse:
            for i in range(batch):
                for j in range(h):
                    hidden[i, j] = max(w1[code[pick[i]], j] + w1[d, j], np.float32(0.0))
        else:
            for i in range(batch):
                for j in range(d):
                    bx[i, j] = x[pick[i], j]
            _layer(bx, w1, hidden)
        gradient[:] = np.float32(0.0)
        for i in range(batch):
            a = act[pick[i]]
            own, to, back, weights = hidden[i], g2[a], dh[i], w2[a]
            if sparse:
                total = b2[a] + w3[a, code[pick[i]]]
                for j in range(h):
                    total += own[j] * weights[j]
            else:
                total = _taken(bx[i, :d], own, b2[a], weights, w3[a])
            slope = np.float32(2.0 / batch) * (total - y[pick[i]])
            for j in range(h):
                to[j] += slope * own[j]
                back[j] = slope * weights[j] if own[j] > 0 else np.float32(0.0)
            if sparse:
                row, bias = g1[code[pick[i]]], g1[d]
                for j in range(h):
                    row[j] += back[j]
                    bias[j] += back[j]
        if not sparse:
            np.dot(bx.T, dh, g1)
        now = rate if step <= 0.7 * steps else 0.3 * rate
        scale, over = np.float32(now / (1.0 - 0.9**step)), np.float32(1.0 / (1.0 - 0.999**step))
        _adam(flat[:o3], gradient, m, v, scale, over)
        if step % 20 == 0 or step == steps:
            answer = predict(held, w1, w2, b2, w3)
            error = np.mean((answer - held_y) ** 2)
            if error < best_error * 0.999:
                best_error = error
                best[:] = flat
                stale = 0
            else:
                stale += 1
                if stale >= patience:
                    break
    flat[:] = best
    answer = predict(held, w1, np.zeros_like(w2), b2, w3)
    bare = np.mean((answer - held_y) ** 2)
    if bare <= best_error * (1.0 + WORTH):
        w2[:, :] = np.float32(0.0)
        best_error = bare
    return float(best_error)


@honest  # type: ignore[untyped-decorator]
def _learned(flat: Any, x: Any, hidden: Any, out: Any) -> None:
    """The hidden layer's part of the outputs for rows x [BLOCK, d + 1]; zero if switched off.

    x ends with a column of ones, because the bias follows the first layer's weights.
    """
    inputs, h, A = x.shape[1], hidden.shape[1], out.shape[1]
    second = flat[inputs * h : inputs * h + A * h].reshape(A, h)
    if not np.any(second):
        out[:] = np.float32(0.0)
        return
    _layer(x, flat[: inputs * h].reshape(inputs, h), hidden)
    np.dot(hidden, second.T, out)


@honest  # type: ignore[untyped-decorator]
def answer(
    critic: Any,  # `MLPArrays`
    obs: Any,  # [B, d]
    out: Any,  # `Answers`, written at rows lo .. hi
    lo: int,
    hi: int,
) -> None:
    """`MLPCritic.at` for rows lo .. hi of vectors, in blocks; rows do not depend on each other."""
    net, intercept, slope = critic.net, critic.intercept, critic.slope
    centre, spread, k = critic.centre, critic.spread, critic.followed
    H, A, d = slope.shape
    o = net.shape[2] - A - A * d
    x = np.ones((BLOCK, d + 1), np.float32)
    hidden = np.empty((BLOCK, critic.hidden), np.float32)
    folds = np.empty((2, H, BLOCK, A), np.float32)
    heads, apart = np.empty((H, BLOCK, A), np.float32), np.empty((BLOCK, A), np.float32)
    line = np.empty((H, d + 1, A), np.float32)  # the linear parts, and how those of q differ
    for head in range(H):
        line[head, :d], line[head, d] = slope[head].T, intercept[head]
    tilt = np.empty((d + 1, A), np.float32)
    tilt[:d] = (net[0, 0, o + A :].reshape(A, d) - net[1, 0, o + A :].reshape(A, d)).T
    tilt[d] = net[0, 0, o : o + A] - net[1, 0, o : o + A]
    within = np.empty(BLOCK, np.bool_)
    half, least = np.float32(0.5), 0.05 * spread[-1]
    for start in range(lo, hi, BLOCK):
        rows = min(BLOCK, hi - start)
        for r in range(rows):
            within[r] = True
            for c in range(d):
                value = obs[start + r, c]
                x[r, c] = (value - critic.mean[c]) / critic.scale[c]
                within[r] = within[r] and critic.low[c] <= value <= critic.high[c]
        np.dot(x, tilt, apart)
        for head in range(H):
            np.dot(x, line[head], heads[head])
            for f in range(2):
                _learned(net[f, head], x, hidden, folds[f, head])
            for r in range(rows):
                for a in range(A):
                    both = folds[0, head, r, a] + folds[1, head, r, a]
                    heads[head, r, a] += half * both
        for r in range(rows):
            i = start + r
            for a in range(A):
                out.q[i, a] = heads[0, r, a] * spread[0] + centre[0]
                cost = heads[1, r, a] * spread[1] + centre[1]
                out.cost_target[i, a] = _positive(cost)
                for j in range(k):
                    beyond = heads[2 + j, r, a] * spread[2 + j] + centre[2 + j]
                    out.cost_behavior[i, a, j] = _positive(cost + beyond)
                    n = 2 + k + j
                    out.carried[i, a, j] = _positive(heads[n, r, a] * spread[n] + centre[n])
                chance = heads[H - 1, r, a] * spread[H - 1] + centre[H - 1]
                chance = least if chance < least else chance
                wrong = apart[r, a] + folds[0, 0, r, a] - folds[1, 0, r, a]
                wrong = (wrong * (0.5 * spread[0])) ** 2
                wrong = chance if wrong > chance else wrong
                out.noise[i, a], out.error[i, a] = chance + wrong, wrong
                out.known[i, a] = within[r] and critic.pairs[0, a]


@honest  # type: ignore[untyped-decorator]
def _positive(value: float) -> float:
    """The value, at least zero; NaN stays NaN."""
    return 0.0 if value < 0.0 else value

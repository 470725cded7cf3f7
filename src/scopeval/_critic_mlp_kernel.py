"""The compiled part of `scopeval.critic_mlp`: trains one small network, gradient by hand."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

#: A network must lower the held-out error by this share to be better than none.
WORTH = 0.02

compiled = nb.njit(cache=True, nogil=True, fastmath=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def _next(state: Any) -> Any:
    """SplitMix64: a random 64-bit number, and the state after it."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31)), state


@compiled  # type: ignore[untyped-decorator]
def predict(x: Any, code: Any, act: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any) -> Any:
    """The network's answer for the taken actions, [n]."""
    n = len(act)
    h = w1.shape[1]
    out = np.empty(n, np.float32)
    sparse = len(code) > 0
    pre = np.empty((0, 0), np.float32) if sparse else np.dot(x, w1)
    for i in range(n):
        a = act[i]
        total = b2[a]
        if sparse:
            s = code[i]
            total += w3[a, s]
            for j in range(h):
                total += max(w1[s, j] + b1[j], np.float32(0.0)) * w2[a, j]
        else:
            for j in range(x.shape[1]):
                total += x[i, j] * w3[a, j]
            for j in range(h):
                total += max(pre[i, j] + b1[j], np.float32(0.0)) * w2[a, j]
        out[i] = total
    return out


@compiled  # type: ignore[untyped-decorator]
def _adam(w: Any, g: Any, m: Any, v: Any, rate: float, first: float, second: float) -> None:
    a, b = np.float32(0.9), np.float32(0.999)
    scale = np.float32(rate / first)
    over = np.float32(1.0 / second)
    for i in range(len(w)):
        m[i] = a * m[i] + (np.float32(1.0) - a) * g[i]
        v[i] = b * v[i] + (np.float32(1.0) - b) * g[i] * g[i]
        w[i] -= scale * m[i] / (np.sqrt(v[i] * over) + np.float32(1e-8))


@compiled  # type: ignore[untyped-decorator]
def train(
    x: Any,  # [n, d] inputs (or [0, d] with codes)
    code: Any,  # [n] state numbers standing for one-hot inputs, or [0]
    act: Any,  # [n]
    y: Any,  # [n]
    upto: Any,  # [n] cumulative weights of the rows
    held_x: Any,
    held_code: Any,
    held_act: Any,
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
    """Adam on the squared error of the taken action, for the hidden layer; b2 and w3 stay.

    The weights best on held-out rows are kept, or w2 = 0 where no network is better than none.
    Returns the held-out error.
    """
    o1, o2, o3, o4 = d * h, d * h + h, d * h + h + A * h, d * h + h + A * h + A
    gradient = np.zeros(o3, np.float32)
    m = np.zeros(o3, np.float32)
    v = np.zeros(o3, np.float32)
    w1, b1 = flat[:o1].reshape(d, h), flat[o1:o2]
    w2, b2, w3 = flat[o2:o3].reshape(A, h), flat[o3:o4], flat[o4:].reshape(A, d)
    g1, gb1 = gradient[:o1].reshape(d, h), gradient[o1:o2]
    g2 = gradient[o2:o3].reshape(A, h)
    sparse = len(code) > 0
    bx = np.empty((batch, d if not sparse else 1), np.float32)
    pick = np.empty(batch, np.int64)
    dh = np.empty((batch, h), np.float32)
    hidden = np.empty((batch, h), np.float32)
    best = flat.copy()
    answer = predict(held_x, held_code, held_act, w1, b1, w2, b2, w3)
    best_error = np.mean((answer - held_y) ** 2)
    stale = 0
    first = second = 1.0
    state = np.uint64(seed)
    for step in range(1, steps + 1):
        for i in range(batch):
            z, state = _next(state)
            u = (z >> np.uint64(11)) * (1.0 / 9007199254740992.0) * upto[-1]
            pick[i] = min(np.searchsorted(upto, u, side="right"), len(upto) - 1)
        if sparse:
            for i in range(batch):
                for j in range(h):
                    hidden[i, j] = max(w1[code[pick[i]], j] + b1[j], np.float32(0.0))
        else:
            for i in range(batch):
                for j in range(d):
                    bx[i, j] = x[pick[i], j]
            pre = np.dot(bx, w1)
            for i in range(batch):
                for j in range(h):
                    hidden[i, j] = max(pre[i, j] + b1[j], np.float32(0.0))
        gradient[:] = np.float32(0.0)
        for i in range(batch):
            a = act[pick[i]]
            total = b2[a]
            if sparse:
                total += w3[a, code[pick[i]]]
            else:
                for j in range(d):
                    total += bx[i, j] * w3[a, j]
            for j in range(h):
                total += hidden[i, j] * w2[a, j]
            slope = np.float32(2.0 / batch) * (total - y[pick[i]])
            for j in range(h):
                g2[a, j] += slope * hidden[i, j]
                back = slope * w2[a, j] if hidden[i, j] > 0 else np.float32(0.0)
                dh[i, j] = back
                gb1[j] += back
            if sparse:
                for j in range(h):
                    g1[code[pick[i]], j] += dh[i, j]
        if not sparse:
            g1[:, :] = np.dot(bx.T, dh)
        first_power = 0.9**step
        second_power = 0.999**step
        first, second = 1.0 - first_power, 1.0 - second_power
        now = rate if step <= 0.7 * steps else 0.3 * rate
        _adam(flat[:o3], gradient, m, v, now, first, second)
        if step % 20 == 0 or step == steps:
            answer = predict(held_x, held_code, held_act, w1, b1, w2, b2, w3)
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
    answer = predict(held_x, held_code, held_act, w1, b1, np.zeros_like(w2), b2, w3)
    bare = np.mean((answer - held_y) ** 2)
    if bare <= best_error * (1.0 + WORTH):
        w2[:, :] = np.float32(0.0)
        best_error = bare
    return float(best_error)

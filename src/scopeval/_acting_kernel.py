"""The compiled part of `scopeval.acting`: a critic's answers at rows lo .. hi of a batch.

Each kernel writes e [5, B, A] (q, noise, carried, the target's cost, the cost in the constraint)
and sure [B, A]. Rows do not look at each other, and no lock is held.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from scopeval._critic_model_kernel import fill

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
    states: Any,
    follows: bool,
    own_cost: bool,
    e: Any,
    sure: Any,
    lo: int,
    hi: int,
) -> None:
    """Rows of `TableCritic`."""
    last = cost_behavior.shape[2] - 1
    ahead = last if follows else 0
    for i in range(lo, hi):
        inside = 0 <= states[i] < len(q)
        s = states[i] if inside else 0
        for a in range(q.shape[1]):
            e[0, i, a] = q[s, a]
            e[1, i, a] = noise[s, a]
            e[2, i, a] = carried[s, a, ahead]
            e[3, i, a] = cost_target[s, a]
            e[4, i, a] = cost_behavior[s, a, last] if own_cost else cost_target[s, a]
            sure[i, a] = inside and known[s, a]


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
    e: Any,
    sure: Any,
    lo: int,
    hi: int,
) -> None:
    """`MLPCritic.at` for vectors; only the heads that are needed."""
    A, d = slope.shape[1:]
    o = net.shape[2] - A - A * d
    x = np.empty(d, np.float32)
    folds = np.empty((2, A), np.float32)
    apart = np.empty(A, np.float32)  # how far the folds' q differ
    ahead = 2 + followed + (followed - 1 if follows else 0)
    for i in range(lo, hi):
        within = True
        for c in range(d):
            x[c] = (obs[i, c] - mean[c]) / scale[c]
            within = within and low[c] <= obs[i, c] <= high[c]
        for j, head in enumerate((0, len(centre) - 1, ahead, 1, 1 + followed)):
            if j == 4 and not own_cost:
                continue
            for f in range(2):
                _hidden(net[f, head], x, folds[f])
            for a in range(A):
                total = np.float32(0.5) * (folds[0, a] + folds[1, a])
                total += _dot(slope[head, a], x) + intercept[head, a]
                e[j, i, a] = total * spread[head] + centre[head]
            if j == 0:
                for a in range(A):
                    w3 = slice(o + A + a * d, o + A + a * d + d)
                    line = _dot(net[0, 0, w3], x) - _dot(net[1, 0, w3], x)
                    bias = net[0, 0, o + a] - net[1, 0, o + a]
                    apart[a] = folds[0, a] - folds[1, a] + line + bias
        for a in range(A):
            noise, least = e[1, i, a], 0.05 * spread[-1]
            noise = least if noise < least else noise  # NaN stays
            error = (apart[a] * (0.5 * spread[0])) ** 2
            e[1, i, a] = noise + (noise if error > noise else error)
            e[4, i, a] = e[3, i, a] + (e[4, i, a] if own_cost else 0.0)
            sure[i, a] = within and pairs[0, a]


@compiled  # type: ignore[untyped-decorator]
def from_model(
    w1: Any,
    b1: Any,
    w2: Any,
    b2: Any,
    w3: Any,
    skip: Any,
    b3: Any,
    input_mean: Any,
    input_scale: Any,
    centre: Any,
    spread: Any,
    least_ahead: Any,
    most_ahead: Any,
    world: Any,
    obs: Any,
    vectors: Any,
    time: float,
    heads: Any,
    mean: Any,
    scale: Any,
    least: Any,
    most: Any,
    low: Any,
    high: Any,
    reward_noise: float,
    followed: int,
    direction: Any,
    offset: Any,
    reach: float,
    products: bool,
    follows: bool,
    own_cost: bool,
    e: Any,
    sure: Any,
    lo: int,
    hi: int,
) -> None:
    """`ModelCritic.at` for vectors and the actions offered there: [B, K, m], or [1, K, m]."""
    K, w = vectors.shape[1], least_ahead.shape[1]
    x = np.empty((K, input_mean.shape[1]), np.float32)
    seen = np.empty((K, heads.shape[1]), np.float32)
    then = np.empty((K, len(heads)))
    last, carried = 1 + followed, 2 + followed + (followed - 1 if follows else 0)
    for b in range(lo, hi):
        said = np.zeros((K, w + 3))  # where it leads, reward, cost, chance of an end
        now, given = obs[b][world], vectors[b if len(vectors) > 1 else 0]
        for n in range(len(w1)):
            _standardise(obs[b], given, time, input_mean[n], input_scale[n], x)
            out = _network(x, w1[n], b1[n], w2[n], b2[n], w3[n], skip[n], b3[n])
            _add(out, now, centre[n], spread[n], least_ahead[n], most_ahead[n], said)
        said /= len(w1)
        inside = True
        for i in range(obs.shape[1]):
            inside = inside and low[i] <= obs[b, i] <= high[i]
        fill(said[:, :w].copy(), mean, scale, reach, products, direction, offset, seen)
        for a in range(K):
            for j in (0, 1, last, carried, len(heads) - 1):
                then[a, j] = _within(_dot(heads[j], seen[a]), least[j], most[j])
            end = said[a, w + 2]
            stays = 1.0 - end
            e[0, b, a] = said[a, w] + stays * then[a, 0]
            e[1, b, a] = stays * (_above(then[a, -1]) + end * then[a, 0] ** 2) + reward_noise
            e[2, b, a] = stays * then[a, carried]
            e[3, b, a] = _above(said[a, w + 1] + stays * then[a, 1])
            e[4, b, a] = e[3, b, a] + (stays * then[a, last] if own_cost else 0.0)
            sure[b, a] = inside


@compiled  # type: ignore[untyped-decorator]
def _standardise(obs: Any, vectors: Any, time: float, mean: Any, scale: Any, x: Any) -> None:
    """Inputs of a network of the dynamics: observation, action, and time where it matters."""
    K, m = vectors.shape
    d = len(obs)
    for k in range(K):
        for i in range(d):
            x[k, i] = obs[i]
        for i in range(m):
            x[k, d + i] = vectors[k, i]
        if len(mean) > d + m:
            x[k, d + m] = time
        for i in range(len(mean)):
            x[k, i] = (x[k, i] - mean[i]) / scale[i]


@network  # type: ignore[untyped-decorator]
def _network(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, skip: Any, b3: Any) -> Any:
    """A network of the dynamics: two hidden layers, and a linear path beside them."""
    K = len(x)
    first, second = np.empty((K, len(b1)), np.float32), np.empty((K, len(b2)), np.float32)
    out = np.empty((K, len(b3)), np.float32)
    _layer(x, w1, b1, first)
    _swish(first)
    _layer(first, w2, b2, second)
    _swish(second)
    for k in range(K):
        for j in range(len(b3)):
            out[k, j] = _dot(w3[j], second[k]) + _dot(skip[j], x[k]) + b3[j]
    return out


@compiled  # type: ignore[untyped-decorator]
def _add(out: Any, now: Any, centre: Any, spread: Any, low: Any, high: Any, said: Any) -> None:
    """Add what a network says, in its own units."""
    w = len(now)
    for k in range(len(out)):
        for i in range(w + 3):
            value = np.float64(out[k, i]) * spread[i] + centre[i]
            if i < w:
                value = _within(now[i] + value, low[i], high[i])
            elif i == w + 1:
                value = _above(value)
            elif i == w + 2:
                value = 1.0 / (1.0 + np.exp(-_within(value, -30.0, 30.0)))
            said[k, i] += value


@network  # type: ignore[untyped-decorator]
def _layer(x: Any, weights: Any, bias: Any, out: Any) -> None:
    """X weights + bias; four inputs at a time, so that weights are read once and kept near."""
    K, n = x.shape
    h = len(bias)
    for k in range(K):
        for j in range(h):
            out[k, j] = bias[j]
    whole = n - n % 4
    for i in range(0, whole, 4):
        wa, wb, wc, wd = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        for k in range(K):
            row, a, b, c, d = out[k], x[k, i], x[k, i + 1], x[k, i + 2], x[k, i + 3]
            for j in range(h):
                row[j] += a * wa[j] + b * wb[j] + c * wc[j] + d * wd[j]
    for i in range(whole, n):
        w = weights[i]
        for k in range(K):
            row, a = out[k], x[k, i]
            for j in range(h):
                row[j] += a * w[j]


@network  # type: ignore[untyped-decorator]
def _swish(z: Any) -> None:
    """The networks' soft step, in place."""
    one, half = np.float32(1.0), np.float32(0.5)
    for k in range(z.shape[0]):
        row = z[k]
        for j in range(z.shape[1]):
            row[j] = (row[j] / (abs(row[j]) + one) + one) * row[j] * half


@compiled  # type: ignore[untyped-decorator]
def _within(value: float, low: float, high: float) -> float:
    """Between the two; NaN stays."""
    return low if value < low else high if value > high else value


@compiled  # type: ignore[untyped-decorator]
def _above(value: float) -> float:
    """At least zero; NaN stays."""
    return 0.0 if value < 0.0 else value


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

"""The compiled part of `critics.fast_estimates`: answers at rows lo .. hi of a batch.

Each kernel takes a critic's arrays, in the order of `fast_estimates`, and what is asked, and writes
e [5, B, A] (q, noise, carried, the target's cost, the cost in the constraint) and sure [B, A]. Rows
do not look at each other, and no lock is held.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from scopeval.critics.model._features_kernel import fill

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")
#: Sums of a network may be taken in any order; NaN stays NaN.
network = nb.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


@compiled  # type: ignore[untyped-decorator]
def from_table(
    critic: Any, states: Any, follows: bool, own_cost: bool, e: Any, sure: Any, lo: int, hi: int
) -> None:
    """Rows of `TableCritic`."""
    q, cost_target, cost_behavior, carried, noise, known = critic
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
    critic: Any, obs: Any, follows: bool, own_cost: bool, e: Any, sure: Any, lo: int, hi: int
) -> None:
    """`MLPCritic.at` for vectors; only the heads that are needed."""
    net, intercept, slope, centre, spread, mean, scale, low, high, pairs, followed = critic
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
    dynamics: Any,
    foresight: Any,
    critic: Any,
    obs: Any,
    vectors: Any,
    follows: bool,
    own_cost: bool,
    e: Any,
    sure: Any,
    lo: int,
    hi: int,
) -> None:
    """`ModelCritic.at` for vectors and the actions offered there: [B, K, m], or [1, K, m]."""
    w1, b1, w2, b2, w3, skip, b3, input_mean, input_scale, centre, spread = dynamics[:11]
    least_ahead, most_ahead, world, time = dynamics[11:]
    f1, g1, f2, g2, f3, straight, g3, f_mean, f_scale, when, far = foresight
    heads, size, mean, scale, least, most, low, high, logged = critic[:9]
    reward_noise, followed, reach, products = critic[9:]
    K, w = vectors.shape[1], least_ahead.shape[1]
    rows = K + -K % 4  # BLAS is quicker with whole fours; those beyond K are not looked at
    x = np.zeros((rows, input_mean.shape[1]), np.float32)
    first = np.empty((rows, b1.shape[1]), np.float32)
    second = np.empty((rows, b2.shape[1]), np.float32)
    out = np.empty((rows, w + 3), np.float32)
    line = np.empty((rows, w + 3), np.float32)
    said = np.empty((K, w + 3))  # where it leads, reward, cost, chance of an end
    ahead = np.empty((K, w))
    z = np.zeros((rows, f1.shape[1]), np.float32)
    z[:, w] = when
    third = np.empty((rows, g1.shape[1]), np.float32)
    fourth = np.empty((rows, g2.shape[1]), np.float32)
    guess = np.empty((rows, 2), np.float32)
    direct = np.empty((rows, 2), np.float32)
    foreseen = np.empty((K, 2), np.float32)
    seen = np.zeros((rows, heads.shape[1]), np.float32)
    told = np.empty((rows, len(heads)), np.float32)
    then = np.empty((K, len(heads)))
    last, carried = 1 + followed, 2 + followed + (followed - 1 if follows else 0)
    for b in range(lo, hi):
        said[:] = 0.0
        now, given = obs[b][world], vectors[b if len(vectors) > 1 else 0]
        for n in range(len(w1)):
            _standardize(obs[b], given, time, input_mean[n], input_scale[n], x)
            # products of one observation, whatever the batch: too small for threads of BLAS
            np.dot(x, w1[n], first)
            _swish(first, b1[n])
            np.dot(first, w2[n], second)
            _swish(second, b2[n])
            np.dot(second, w3[n].T, out)
            np.dot(x, skip[n].T, line)
            _add(out, line, b3[n], now, centre[n], spread[n], least_ahead[n], most_ahead[n], said)
        said /= len(w1)
        inside = True
        for i in range(obs.shape[1]):
            inside = inside and low[i] <= obs[b, i] <= high[i]
        ahead[:] = said[:, :w]
        foreseen[:] = np.float32(0.0)
        for n in range(len(f1)):
            for k in range(K):
                for i in range(w):
                    value = (np.float32(ahead[k, i]) - f_mean[n, i]) / f_scale[n, i]
                    z[k, i] = _within(value, -far, far)
            np.dot(z, f1[n], third)
            _swish(third, g1[n])
            np.dot(third, f2[n], fourth)
            _swish(fourth, g2[n])
            np.dot(fourth, f3[n], guess)
            np.dot(z, straight[n], direct)
            for k in range(K):
                for i in range(2):
                    foreseen[k, i] += guess[k, i] + direct[k, i] + g3[n, i]
        foreseen /= np.float32(len(f1))
        fill(ahead, mean, scale, reach, products, foreseen, seen[:K])
        np.dot(seen, heads.T, told)
        for a in range(K):
            for j in range(len(heads)):
                then[a, j] = told[a, j] * size[j]
        for a in range(K):
            for j in (0, 1, last, carried, len(heads) - 1):
                then[a, j] = _within(then[a, j], least[j], most[j])
            end = said[a, w + 2]
            stays = 1.0 - end
            e[0, b, a] = said[a, w] + stays * then[a, 0]
            e[1, b, a] = stays * (_above(then[a, -1]) + end * then[a, 0] ** 2) + reward_noise
            e[2, b, a] = stays * then[a, carried]
            e[3, b, a] = _above(said[a, w + 1] + stays * then[a, 1])
            e[4, b, a] = e[3, b, a] + (stays * then[a, last] if own_cost else 0.0)
            sure[b, a] = inside and (len(logged) == 0 or logged[a])


@compiled  # type: ignore[untyped-decorator]
def _standardize(obs: Any, vectors: Any, time: float, mean: Any, scale: Any, x: Any) -> None:
    """Inputs of a network of the dynamics: observation, action, and time where it matters."""
    K, m = vectors.shape
    d = len(obs)
    for i in range(len(mean)):
        if i < d or i >= d + m:
            value = (np.float32(obs[i] if i < d else time) - mean[i]) / scale[i]
            for k in range(K):
                x[k, i] = value
        else:
            for k in range(K):
                x[k, i] = (np.float32(vectors[k, i - d]) - mean[i]) / scale[i]


@compiled  # type: ignore[untyped-decorator]
def _add(
    out: Any,
    line: Any,
    bias: Any,
    now: Any,
    centre: Any,
    spread: Any,
    low: Any,
    high: Any,
    said: Any,
) -> None:
    """Add what a network says by its layers and its linear path, in its own units."""
    w = len(now)
    for k in range(len(said)):
        for i in range(w + 3):
            value = np.float64(out[k, i] + line[k, i] + bias[i]) * spread[i] + centre[i]
            if i < w:
                value = _within(now[i] + value, low[i], high[i])
            elif i == w + 1:
                value = _above(value)
            elif i == w + 2:
                value = 1.0 / (1.0 + np.exp(-_within(value, -30.0, 30.0)))
            said[k, i] += value


@network  # type: ignore[untyped-decorator]
def _swish(z: Any, bias: Any) -> None:
    """The networks' soft step of z + bias, in place."""
    one, half = np.float32(1.0), np.float32(0.5)
    for k in range(z.shape[0]):
        row = z[k]
        for j in range(z.shape[1]):
            value = row[j] + bias[j]
            row[j] = (value / (abs(value) + one) + one) * value * half


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

"""The compiled part of `layers`: the forward pass of small networks, their training, and features.

Rows pass in blocks of a fixed size, the last one filled up with zeros: BLAS adds up in another
order for other sizes, and a row's bits must not depend on the batch that it comes in.

Gradients and Adam are written by hand: a library's calls would take most of the time for networks
of this size. Products are BLAS calls on one thread (`_parallel.one_blas_thread`); everything else
is a loop over rows that are in the cache.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from scopeval.policies._random_kernel import next_random

__all__ = ["BLOCK", "adam", "fill", "forward", "products", "train"]

#: Rows that pass a network together: they stay in the cache, and the products of the usual networks
#: are too small for BLAS to start threads of its own.
BLOCK = 16

#: Every operation rounds as it is written: with fast arithmetic, code just compiled and the
#: same code from the cache differ in their last bits, which training makes large.
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


# -- training -------------------------------------------------------------------------------------


def adam(w: Any, g: Any, m: Any, v: Any, scale: Any, over: Any) -> None:
    """One step of Adam on the weights w, with gradient g and running means m and v.

    scale is the rate / (1 - 0.9^step) and over is 1 / (1 - 0.999^step), as float32: they correct
    m and v for their start at zero.
    """
    a, b = np.float32(0.9), np.float32(0.999)
    for i in range(len(w)):
        m[i] = a * m[i] + (ONE - a) * g[i]
        v[i] = b * v[i] + (ONE - b) * g[i] * g[i]
        w[i] -= scale * m[i] / (np.sqrt(v[i] * over) + np.float32(1e-8))


#: Not cached by itself: another loop may compile `adam` with rules of rounding of its own.
_adam = nb.njit(nogil=True, error_model="numpy")(adam)


@exactly  # type: ignore[untyped-decorator]
def _activate(z: Any, bias: Any, slope: Any) -> None:
    """Replace z by swish(z + bias), and write its derivative into slope."""
    for i in range(z.shape[0]):
        row, to = z[i], slope[i]
        for j in range(z.shape[1]):
            value = row[j] + bias[j]
            gate = ONE / (ONE + abs(value))
            step = value * gate
            row[j] = HALF * value * (ONE + step)
            to[j] = HALF * (ONE + step + step * gate)


@exactly  # type: ignore[untyped-decorator]
def _drop(hidden: Any, slope: Any, share: float, state: Any) -> Any:
    """Leave out a share of the hidden units; returns the state of the random numbers."""
    least = np.uint64(share * 18446744073709551615.0)
    scale = np.float32(1.0 / (1.0 - share))
    for i in range(hidden.shape[0]):
        for j in range(hidden.shape[1]):
            z, state = next_random(state)
            kept = scale if z >= least else np.float32(0.0)
            hidden[i, j] *= kept
            slope[i, j] *= kept
    return state


@exactly  # type: ignore[untyped-decorator]
def _robust_slopes(out: Any, y: Any, counts: Any, usual: Any) -> None:
    """Replace outputs by the slopes of a loss that is quadratic up to an error's usual size.

    Beyond, it is linear: rare large errors count less. `usual` [O] is the running mean size of each
    output's error. The last output is not touched.
    """
    B, w = y.shape
    total = np.zeros(w, np.float32)
    for i in range(B):
        for j in range(w):
            total[j] += abs(counts[i, j] * (out[i, j] - y[i, j]))
    for j in range(w):
        usual[j] = np.float32(0.99) * usual[j] + np.float32(0.01) * total[j] / np.float32(B)
    scale = np.float32(0.1) / np.float32(B * w)
    for i in range(B):
        for j in range(w):
            unit = ONE / (usual[j] + np.float32(1e-4))
            r = counts[i, j] * (out[i, j] - y[i, j]) * unit
            out[i, j] = scale * counts[i, j] * unit * r / np.sqrt(ONE + r * r)


@exactly  # type: ignore[untyped-decorator]
def _end_slopes(out: Any, end: Any) -> None:
    """Replace the last output, a logit, by the slopes of its cross-entropy."""
    B, last = out.shape[0], out.shape[1] - 1
    scale = np.float32(0.1) / np.float32(B)
    for i in range(B):
        out[i, last] = scale * (ONE / (ONE + np.exp(-out[i, last])) - end[i])


@exactly  # type: ignore[untyped-decorator]
def _square_slopes(out: Any, y: Any) -> None:
    """Replace outputs by the slopes of the mean squared error."""
    scale = np.float32(2.0 / out.size)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = scale * (out[i, j] - y[i, j])


@exactly  # type: ignore[untyped-decorator]
def _sums(rows: Any, out: Any) -> None:
    """The sum of the rows."""
    out[:] = np.float32(0.0)
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            out[j] += rows[i, j]


@exactly  # type: ignore[untyped-decorator]
def _layers(flat: Any, inputs: int, hidden: int, outputs: int) -> Any:
    """w1, b1, w2, b2, w3, skip, b3 as parts of all weights in a row."""
    a = inputs * hidden
    b = a + hidden
    c = b + hidden * hidden
    d = c + hidden
    e = d + hidden * outputs
    f = e + inputs * outputs
    return (
        flat[:a].reshape(inputs, hidden),
        flat[a:b],
        flat[b:c].reshape(hidden, hidden),
        flat[c:d],
        flat[d:e].reshape(hidden, outputs),
        flat[e:f].reshape(inputs, outputs),
        flat[f:],
    )


@exactly  # type: ignore[untyped-decorator]
def train(
    x: Any,  # [n, I]
    y: Any,  # [n, O], or [n, O - 1] where the last output is the logit of an end
    counts: Any,  # like y: 0 where an output has no meaning; empty: the error is squared
    end: Any,  # [n]; empty: the logit of an end is not learned
    picks: Any,  # [steps, B] rows of each step
    flat: Any,  # all weights, changed in place, and so are
    moments: Any,  # [2, weights] of Adam and
    usual: Any,  # [O - 1] usual size of each output's error
    scale: Any,  # [steps] of each step of Adam, and
    over: Any,  # [steps]
    hidden: int,
    dropout: float,
    seed: int,
) -> None:
    """Some steps of Adam."""
    inputs = x.shape[1]
    robust, ends = len(counts) > 0, len(end) > 0
    outputs = y.shape[1] + 1 if robust else y.shape[1]
    steps, B = picks.shape
    w1, b1, w2, b2, w3, skip, b3 = _layers(flat, inputs, hidden, outputs)
    gradient = np.zeros_like(flat)
    g1, c1, g2, c2, g3, gs, c3 = _layers(gradient, inputs, hidden, outputs)
    bx, by = np.empty((B, inputs), np.float32), np.empty((B, y.shape[1]), np.float32)
    bc, be = np.ones_like(by), np.empty(B, np.float32)
    h1, s1 = np.empty((B, hidden), np.float32), np.empty((B, hidden), np.float32)
    h2, s2 = np.empty((B, hidden), np.float32), np.empty((B, hidden), np.float32)
    out, linear = np.empty((B, outputs), np.float32), np.empty((B, outputs), np.float32)
    back = np.empty((B, hidden), np.float32)
    state = np.uint64(seed)
    for step in range(steps):
        for i in range(B):
            row = picks[step, i]
            bx[i], by[i] = x[row], y[row]
            if robust:
                bc[i] = counts[row]
            if ends:
                be[i] = end[row]
        np.dot(bx, w1, h1)
        _activate(h1, b1, s1)
        if dropout > 0.0:
            state = _drop(h1, s1, dropout, state)
        np.dot(h1, w2, h2)
        _activate(h2, b2, s2)
        if dropout > 0.0:
            state = _drop(h2, s2, dropout, state)
        np.dot(h2, w3, out)
        np.dot(bx, skip, linear)
        for i in range(B):
            for j in range(outputs):
                out[i, j] += linear[i, j] + b3[j]
        if robust:
            _robust_slopes(out, by, bc, usual)
            if ends:
                _end_slopes(out, be)
            else:
                out[:, -1] = np.float32(0.0)
        else:
            _square_slopes(out, by)
        np.dot(h2.T, out, g3)
        np.dot(bx.T, out, gs)
        _sums(out, c3)
        np.dot(out, w3.T, back)
        for i in range(B):
            for j in range(hidden):
                back[i, j] *= s2[i, j]
        np.dot(h1.T, back, g2)
        _sums(back, c2)
        np.dot(back, w2.T, h2)
        for i in range(B):
            for j in range(hidden):
                h2[i, j] *= s1[i, j]
        np.dot(bx.T, h2, g1)
        _sums(h2, c1)
        _adam(flat, gradient, moments[0], moments[1], scale[step], over[step])

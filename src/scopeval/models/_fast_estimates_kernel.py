"""The compiled part of `models.fast_estimates`: estimates at rows lo .. hi of a batch.

Each kernel takes the arrays of a critic (its property `compiled`) and observations, and writes
e [5, B, A] (q, noise, carried, the target's cost, the cost in the constraint) and sure [B, A]. A
row does not depend on the others, and the GIL is released. The arrays come as plain tuples and get
their names here, because numba takes several microseconds longer to pass NamedTuples.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from scopeval.models.model._features_kernel import fill
from scopeval.models.model._forward_kernel import activate
from scopeval.models.model.critic import HeadArrays, ModelArrays
from scopeval.models.model.layers import StackedLayers
from scopeval.models.model.network import StackedNetworks
from scopeval.models.table import TableArrays

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def from_table(
    arrays: Any, states: Any, follows: bool, own_cost: bool, e: Any, sure: Any, lo: int, hi: int
) -> None:
    """Rows of a `TableCritic`."""
    critic = TableArrays(*arrays)
    last = critic.cost_behavior.shape[2] - 1
    ahead = last if follows else 0
    for i in range(lo, hi):
        inside = 0 <= states[i] < len(critic.q)
        s = states[i] if inside else 0
        for a in range(critic.q.shape[1]):
            e[0, i, a] = critic.q[s, a]
            e[1, i, a] = critic.noise[s, a]
            e[2, i, a] = critic.carried[s, a, ahead]
            e[3, i, a] = critic.cost_target[s, a]
            e[4, i, a] = critic.cost_behavior[s, a, last] if own_cost else critic.cost_target[s, a]
            sure[i, a] = inside and critic.known[s, a]


@compiled  # type: ignore[untyped-decorator]
def from_model(
    arrays: Any,
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
    model = _named(arrays)
    net, layers, back, critic = model.dynamics, model.dynamics.layers, model.returns, model.critic
    heads, least, most = critic.heads, critic.least, critic.most
    K, w, H = vectors.shape[1], net.low.shape[1], len(critic.heads)
    rows = K + -K % 4  # BLAS is faster for multiples of four; rows beyond K are not used
    x = np.zeros((rows, layers.mean.shape[1]), np.float32)
    first = np.empty((rows, layers.b1.shape[1]), np.float32)
    second = np.empty((rows, layers.b2.shape[1]), np.float32)
    out = np.empty((rows, w + 3), np.float32)
    line = np.empty((rows, w + 3), np.float32)
    said = np.empty((K, w + 3))  # next observation, reward, cost, probability of an end
    ahead = np.empty((K, w))
    z = np.zeros((rows, back.w1.shape[1]), np.float32)
    z[:, w] = model.return_time
    third = np.empty((rows, back.b1.shape[1]), np.float32)
    fourth = np.empty((rows, back.b2.shape[1]), np.float32)
    guess = np.empty((rows, 2), np.float32)
    direct = np.empty((rows, 2), np.float32)
    returns = np.empty((K, 2), np.float32)
    seen = np.zeros((rows, heads.shape[1]), np.float32)
    told = np.empty((rows, H), np.float32)
    then = np.empty((K, H))
    last = 1 + critic.followed
    carried = last + 1 + (critic.followed - 1 if follows else 0)
    for b in range(lo, hi):
        said[:] = 0.0
        now, given = obs[b][model.predicted], vectors[b if len(vectors) > 1 else 0]
        for n in range(len(layers.w1)):
            _standardize(obs[b], given, model.time, layers.mean[n], layers.scale[n], x)
            # one observation at a time, whatever the batch: the result does not depend on it,
            # and the products are too small for BLAS to start threads of its own
            _forward(layers, n, layers.w3[n].T, layers.skip[n].T, x, first, second, out, line)
            _add_prediction(net, n, out, line, now, said)
        said /= len(layers.w1)
        ahead[:] = said[:, :w]
        returns[:] = np.float32(0.0)
        for n in range(len(back.w1)):
            for k in range(K):
                for i in range(w):
                    value = (np.float32(ahead[k, i]) - back.mean[n, i]) / back.scale[n, i]
                    z[k, i] = _within(value, -model.return_reach, model.return_reach)
            _forward(back, n, back.w3[n], back.skip[n], z, third, fourth, guess, direct)
            for k in range(K):
                for i in range(2):
                    returns[k, i] += guess[k, i] + direct[k, i] + back.b3[n, i]
        returns /= np.float32(len(back.w1))
        fill(ahead, critic.mean, critic.scale, critic.reach, critic.products, returns, seen[:K])
        np.dot(seen, heads.T, told)
        for a in range(K):
            for j in range(H):
                then[a, j] = told[a, j] * critic.size[j]
        inside = True
        for i in range(obs.shape[1]):
            inside = inside and critic.low[i] <= obs[b, i] <= critic.high[i]
        for a in range(K):
            for j in (0, 1, last, carried, H - 1):
                then[a, j] = _within(then[a, j], least[j], most[j])
            end = said[a, w + 2]
            goes_on = 1.0 - end
            e[0, b, a] = said[a, w] + goes_on * then[a, 0]
            noise = goes_on * (_above(then[a, -1]) + end * then[a, 0] ** 2)
            e[1, b, a] = noise + critic.reward_noise
            e[2, b, a] = goes_on * then[a, carried]
            e[3, b, a] = _above(said[a, w + 1] + goes_on * then[a, 1])
            e[4, b, a] = e[3, b, a] + (goes_on * then[a, last] if own_cost else 0.0)
            sure[b, a] = inside and (len(critic.logged) == 0 or critic.logged[a])


@compiled  # type: ignore[untyped-decorator]
def _named(arrays: Any) -> Any:
    """`ModelArrays` of plain tuples."""
    dynamics, predicted, time, returns, return_time, return_reach, critic = arrays
    layers, centre, spread, low, high = dynamics
    return ModelArrays(
        StackedNetworks(StackedLayers(*layers), centre, spread, low, high),
        predicted,
        time,
        StackedLayers(*returns),
        return_time,
        return_reach,
        HeadArrays(*critic),
    )


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
def _forward(
    layers: Any,
    n: int,
    w3: Any,
    skip: Any,
    x: Any,
    first: Any,
    second: Any,
    out: Any,
    line: Any,
) -> None:
    """Network n of `StackedLayers`: the hidden layers' part into out, the linear path into line.

    w3 and skip are given as [h, outputs] and [inputs, outputs], whichever way they are stored.
    """
    np.dot(x, layers.w1[n], first)
    activate(first, layers.b1[n])
    np.dot(first, layers.w2[n], second)
    activate(second, layers.b2[n])
    np.dot(second, w3, out)
    np.dot(x, skip, line)


@compiled  # type: ignore[untyped-decorator]
def _add_prediction(net: Any, n: int, out: Any, line: Any, now: Any, said: Any) -> None:
    """Add what network n of `StackedNetworks` predicts, in its own units."""
    w = len(now)
    bias, centre, spread = net.layers.b3[n], net.centre[n], net.spread[n]
    for k in range(len(said)):
        for i in range(w + 3):
            value = np.float64(out[k, i] + line[k, i] + bias[i]) * spread[i] + centre[i]
            if i < w:
                value = _within(now[i] + value, net.low[n, i], net.high[n, i])
            elif i == w + 1:
                value = _above(value)
            elif i == w + 2:
                value = 1.0 / (1.0 + np.exp(-_within(value, -30.0, 30.0)))
            said[k, i] += value


@compiled  # type: ignore[untyped-decorator]
def _within(value: float, low: float, high: float) -> float:
    """The value, at least low and at most high; NaN stays NaN."""
    return low if value < low else high if value > high else value


@compiled  # type: ignore[untyped-decorator]
def _above(value: float) -> float:
    """The value, at least zero; NaN stays NaN."""
    return 0.0 if value < 0.0 else value

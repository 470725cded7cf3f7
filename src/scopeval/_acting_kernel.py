"""The compiled part of `scopeval.acting`: what `behavior.weigh_rows` computes, for one row.

The kernels allocate what they return, so that threads may share a policy.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

SOLVED, INDIFFERENT, INFEASIBLE = 0, 1, 2

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
    pi: Any,
    rules: Any,
) -> Any:
    """The program of one state, from a table's critics."""
    A = len(pi)
    _, follows, own_cost, _, _, _ = rules
    inside = 0 <= state < len(q)
    s = state if inside else 0
    last = cost_behavior.shape[2] - 1
    ahead = last if follows else 0
    e = np.empty((5, A))
    sure = np.empty(A, np.bool_)
    for a in range(A):
        e[0, a] = q[s, a]
        e[1, a] = noise[s, a]
        e[2, a] = carried[s, a, ahead]
        e[3, a] = cost_target[s, a]
        e[4, a] = cost_behavior[s, a, last] if own_cost else cost_target[s, a]
        sure[a] = inside and known[s, a]
    return _program(e, sure, pi, rules)


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
    pi: Any,
    rules: Any,
) -> Any:
    """The program of one observation, from a network's critics: see `MLPCritic.at`."""
    A, d = len(pi), len(obs)
    _, follows, own_cost, _, _, _ = rules
    x = np.empty(d, np.float32)
    within = True
    for i in range(d):
        x[i] = (obs[i] - mean[i]) / scale[i]
        within = within and low[i] <= obs[i] <= high[i]
    e = np.empty((5, A))
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
            total += _linear(slope[head, a], x) + intercept[head, a]
            e[j, a] = total * spread[head] + centre[head]
        if j == 0:
            o = net.shape[2] - A - A * d
            for a in range(A):
                w3 = slice(o + A + a * d, o + A + a * d + d)
                line = _linear(net[0, 0, w3], x) - _linear(net[1, 0, w3], x)
                bias = net[0, 0, o + a] - net[1, 0, o + a]
                apart[a] = folds[0, a] - folds[1, a] + line + bias
    sure = np.empty(A, np.bool_)
    for a in range(A):
        noise, least = e[1, a], 0.05 * spread[-1]
        noise = least if noise < least else noise  # NaN stays
        error = (apart[a] * (0.5 * spread[0])) ** 2
        e[1, a] = noise + (noise if error > noise else error)
        e[4, a] = e[3, a] + (e[4, a] if own_cost else 0.0)
        sure[a] = within and pairs[0, a]
    return _program(e, sure, pi, rules)


@network  # type: ignore[untyped-decorator]
def _linear(slope: Any, x: Any) -> Any:
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
        out[a] = _linear(w2[a * h : a * h + h], hidden)


@compiled  # type: ignore[untyped-decorator]
def _program(e: Any, known: Any, pi: Any, rules: Any) -> Any:
    """Weights [1, A], costs [1, A] and budget [1] for the solver, and what `choose` must know.

    e: q, noise, carried, the target's cost and the cost in the constraint.
    """
    A = len(pi)
    control_variate, _, _, share, limit, largest = rules
    finite = True
    for j in range(5):
        for a in range(A):
            finite = finite and abs(e[j, a]) <= largest
    weight, cost, budget = np.empty((1, A)), np.empty((1, A)), np.empty(1)
    top, dearest = 0.0, 0.0
    mass, own, elsewhere = 0.0, 0.0, 0.0
    for a in range(A):
        for j in range(5):
            value = e[j, a] if finite else 0.0
            e[j, a] = max(value, 0.0) if j > 0 else value
        known[a] = known[a] and finite
        rest = 0.0 if control_variate else e[0, a]
        weight[0, a] = pi[a] * np.sqrt(rest * rest + e[1, a] + e[2, a])
        top = max(top, weight[0, a])
        if known[a]:
            mass += pi[a]
            own += pi[a] * e[3, a]
            dearest = max(dearest, e[4, a])
        else:
            elsewhere += pi[a] * e[4, a]
    for a in range(A):
        if 0.0 < top < 1e-100:
            weight[0, a] /= top
        weight[0, a] = weight[0, a] if known[a] else 0.0
        cost[0, a] = e[4, a] if known[a] else dearest
        e[0, a] = e[0, a] if control_variate else 0.0
    spend = share * own if np.isnan(limit) else limit - elsewhere
    spend /= mass if mass > 0.0 else 1.0
    budget[0] = min(max(spend, -(largest**2)), largest**2)
    return weight, cost, budget, e[0], known, mass, finite


@compiled  # type: ignore[untyped-decorator]
def in_proportion(weight: Any, known: Any, pi: Any, rules: Any, mu: Any, status: Any) -> None:
    """The program without a constraint."""
    _, follows, _, _, _, _ = rules
    total = 0.0
    for a in range(len(pi)):
        total += weight[0, a]
    status[0] = INDIFFERENT if total == 0.0 else SOLVED
    for a in range(len(pi)):
        if not follows and known[a] and weight[0, a] == 0.0 and pi[a] > 0.0:
            status[0] = INDIFFERENT
        mu[0, a] = weight[0, a] / (total if total > 0.0 else 1.0)


@compiled  # type: ignore[untyped-decorator]
def choose(
    mu: Any,
    status: Any,
    b: Any,
    known: Any,
    mass: float,
    finite: bool,
    pi: Any,
    floor: float,
    u: float,
) -> Any:
    """Put the floor under mu and draw: action, its probability, b, the mean of b, and doubts."""
    A = len(pi)
    row = np.empty(A)
    total, baseline = 0.0, 0.0
    seen, unseen, solved = False, False, status[0] == SOLVED
    for a in range(A):
        row[a] = mass * mu[0, a] if solved and known[a] else pi[a]
        total += row[a]
        finite = finite and row[a] >= 0.0
        seen = seen or (known[a] and pi[a] > 0.0)
        unseen = unseen or (not known[a] and pi[a] > 0.0)
        baseline += pi[a] * b[a]
    finite = finite and abs(total - 1.0) < 1e-9
    total = 0.0
    for a in range(A):
        row[a] = (1.0 - floor) * (row[a] if finite else pi[a]) + floor * pi[a]
        total += row[a]
    k, so_far = -1, 0.0
    while True:  # the running sum counts as 1 from the last action of positive probability on
        k += 1
        so_far += row[k]
        if u < so_far or so_far == total:
            break
    infeasible = seen and status[0] == INFEASIBLE
    return k, row[k], b[k], baseline, not finite, finite and unseen, infeasible

"""The compiled part of `behavior.frontier`: line 6 for every price on a grid, row by row."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from scopeval.arrays import TIE
from scopeval.behavior._step_kernel import NOT_FINITE, UNSEEN, weigh_action
from scopeval.solver._kernel import solve_row

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")

#: Least part of a weight's square that the curvature of what follows leaves.
LEAST_BEND = 0.1


@compiled  # type: ignore[untyped-decorator]
def place(j: float, mu: float, pi: float, shift: float, per_log: float, top: float) -> Any:
    """Where on the grid the price of the next step lies: u' = u mu^2 / (gamma pi^2).

    Args:
        j: where u lies.
        mu: behavior probability of the action.
        pi: target probability; 0: the rest of the episode says nothing, so it may be cheap.
        shift: -log(gamma) in grid steps.
        per_log: 1 / log(ratio of neighboring prices).
        top: the last place.
    """
    if pi <= 0.0:
        return top
    if mu <= 0.0:
        return 0.0
    return min(max(j + shift + 2.0 * np.log(mu / pi) * per_log, 0.0), top)


@compiled  # type: ignore[untyped-decorator]
def between(row: Any, where: float) -> Any:
    """Interpolation on the grid; row[0] belongs to the target policy, row[1:] to prices.

    The cubic through four entries, kept between the two neighbors: linear interpolation would be
    pessimistic at every step, which adds up over an episode.
    """
    last = len(row) - 2
    k = min(int(where), last)
    part = where - k
    if part <= 0.0 or k >= last:
        return row[k + 1]
    low, high = row[k + 1], row[k + 2]
    before, after = row[max(k, 1)], row[min(k + 3, last + 1)]
    rest = 1.0 - part
    x = (1.0 + part) * (2.0 - part) * (rest * low + part * high) / 2.0
    x -= part * rest * ((2.0 - part) * before + (1.0 + part) * after) / 6.0
    return min(max(x, min(low, high)), max(low, high))


@compiled  # type: ignore[untyped-decorator]
def slope_at(row: Any, where: float) -> float:
    """How much an entry changes from one price to the next about there; 0 beyond the ends."""
    last = len(row) - 2
    if not 0.0 < where < last:
        return 0.0
    k = int(where)
    change: float = min(row[k + 2] - row[k + 1], 0.0)
    return change


@compiled  # type: ignore[untyped-decorator]
def readied(q: Any, noise: Any, known: Any, pi: Any, share: float, largest: float, out: Any) -> Any:
    """Rest = q - b, b and the probability of known actions of one row; False if not finite."""
    rest, b = out
    A = len(pi)
    v = 0.0
    for a in range(A):
        if not (abs(q[a]) <= largest and abs(noise[a]) <= largest):
            return 0.0, False
        v += pi[a] * q[a]
    mass = 0.0
    for a in range(A):
        rest[a] = (1.0 - share) * (q[a] - v) if share >= 0.0 else q[a]
        b[a] = q[a] - rest[a]
        mass += pi[a] if known[a] else 0.0
    return mass, True


@compiled  # type: ignore[untyped-decorator]
def best_of_starts(
    j: float, u: float, rest: Any, noise: Any, carried: Any, cost: Any, known: Any, pi: Any,
    mass: float, shift: float, per_log: float, share: float, effort: Any, room: Any, mu: Any,
) -> bool:  # fmt: skip
    """The best mu at one price; False where there is no answer.

    The objective has several local minima. `improve` begins with pi, and halfway between pi and as
    much as may be of the action that is cheapest at this price; the better end is the answer. It
    depends on the row and its price only, so that an episode runs what the sweep has assessed.
    """
    top = float(carried.shape[1] - 2)
    floor, other = room[2], room[6]
    cheapest, least, most, n = 0, np.inf, -np.inf, 0
    for a in range(len(pi)):
        mu[a] = other[a] = pi[a]
        if known[a]:
            floor[n] = min(share, 1.0) * (pi[a] / mass)
            n += 1
            ahead = between(cost[a], min(max(j, 0.0), top))
            most = max(most, ahead)
            if ahead < least and pi[a] > 0.0:
                cheapest, least = a, ahead
    value = improve(
        j, u, rest, noise, carried, cost, known, pi, mass, shift, per_log, effort, room, mu
    )
    if not value < np.inf or share >= 1.0 or not least < most:
        return bool(value < np.inf)
    for a in range(len(pi)):
        if known[a]:
            other[a] += 0.5 * (1.0 - share) * ((mass if a == cheapest else 0.0) - pi[a])
    second = improve(
        j, u, rest, noise, carried, cost, known, pi, mass, shift, per_log, effort, room, other
    )
    if second < value * (1.0 - TIE):
        for a in range(len(pi)):
            mu[a] = other[a]
    return True


@compiled  # type: ignore[untyped-decorator]
def improve(
    j: float, u: float, rest: Any, noise: Any, carried: Any, cost: Any, known: Any, pi: Any,
    mass: float, shift: float, per_log: float, effort: Any, room: Any, mu: Any,
) -> float:  # fmt: skip
    """A local minimum at one price, from the given mu on; what it is worth, or infinity.

    `effort` is the number of repetitions at most, and the change of mu below which they end.

    g_t(s, u) = A + u B is concave in u, so its tangent at the last u' lies above it, and every
    solution of the program with A and B taken there is at least as good as the last. The tangent
    alone is slow where much of the variance is still to come: so the curvature of g (dA = -u dB)
    is taken into the weights, and where that does not improve the objective, the tangent alone.
    """
    weight, charged, floor, solved, best, near, _ = room
    A, top = len(pi), float(carried.shape[1] - 2)
    price = u * mass * mass
    eta, least, tangent = -1.0, np.inf, False
    for left in range(effort[0], 0, -1):
        value = 0.0
        n = 0
        for a in range(A):
            if not known[a]:
                continue
            where = place(j, mu[a], pi[a], shift, per_log, top)
            ahead = max(between(cost[a], where), 0.0)
            second = rest[a] * rest[a] + max(noise[a], 0.0) + max(between(carried[a], where), 0.0)
            w = weigh_action(pi[a], second)
            if w > 0.0:
                value += w * (w / mu[a])
            value += u * mu[a] * ahead
            weight[n], charged[n] = w, price * ahead
            near[n] = price * slope_at(cost[a], where) * per_log
            n += 1
        if not value < np.inf:
            return np.inf
        if value > least * (1.0 + 1e-12) and not tangent:
            tangent = True
            for a in range(A):
                mu[a] = best[a]
            continue
        if value < least:
            least = value
            for a in range(A):
                best[a] = mu[a]
        plain = tangent or left <= 2
        if not plain:
            n = 0
            for a in range(A):
                if known[a]:
                    if weight[n] > 0.0:
                        m = mu[a] / mass
                        w2 = weight[n] * weight[n]
                        bent = max(w2 + 2.0 * m * m * near[n], LEAST_BEND * w2)
                        charged[n] -= (w2 - bent) / (m * m)
                        weight[n] = np.sqrt(bent)
                    n += 1
        tangent = False
        eta = solve_row(weight[:n], charged[:n], 1.0, floor[:n], solved[:n], max(eta, 0.0))
        if eta < 0.0:
            return np.inf
        change, fine = 0.0, True
        n = 0
        for a in range(A):
            if known[a]:
                new = mass * solved[n]
                gap = abs(new - mu[a])
                fine = fine and gap < 1.0 + 1e-9  # False for what is not a number
                change = max(change, gap)
                mu[a] = new
                n += 1
        if not fine:
            return np.inf
        if change < effort[1]:
            break
    return least


@compiled  # type: ignore[untyped-decorator]
def weigh_grid(
    q: Any, noise: Any, carried: Any, cost: Any, known: Any, pi: Any, prices: Any, places: Any,
    floors: Any, share: float, gamma: float, largest: float, effort: Any,
) -> Any:  # fmt: skip
    """Mu [V, B, A] and b [B, A] at many places of the grid.

    Args:
        q: [B, A] estimate, and
        noise: of its outcome.
        carried: [B, A, 1 + U] E[gamma^2 A(S', u)]; index 0: the target's own.
        cost: [B, A, 1 + U] q^c(u), likewise.
        known: [B, A].
        pi: [B, A].
        prices: [U], each the same multiple of the one before.
        places: [V] where on the grid; need not be whole, or within.
        floors: [V] least mu in units of pi at each.
        share: of the control variate; negative: none.
        gamma: discount.
        largest: magnitude of a number that is believed.
        effort: see `improve`.
    """
    B, A = pi.shape
    V, top = len(places), float(len(prices) - 1)
    step = np.log(prices[1] / prices[0])
    shift = -np.log(gamma) / step
    mu, b = np.empty((V, B, A)), np.zeros((B, A))
    rest, control = np.empty(A), np.empty(A)
    room, now = np.empty((7, A)), np.empty(A)
    for i in range(B):
        mass, fine = readied(q[i], noise[i], known[i], pi[i], share, largest, (rest, control))
        if fine:
            b[i] = control
        for k in range(V):
            j = min(max(places[k], 0.0), top)  # beyond the grid: as at its end
            solved = fine and mass > 0.0
            if solved:
                solved = best_of_starts(
                    j, prices[0] * np.exp(j * step), rest, noise[i], carried[i], cost[i], known[i],
                    pi[i], mass, shift, 1.0 / step, floors[k], effort, room, now,
                )  # fmt: skip
            mu[k, i] = now if solved else pi[i]
    return mu, b


@compiled  # type: ignore[untyped-decorator]
def look_ahead(carried: Any, cost: Any, mu: Any, pi: Any, j: float, gamma: float, step: Any) -> Any:
    """E[gamma^2 A(S', u')] and q^c(u') [B, A] that follow when mu is taken at place j."""
    B, A = pi.shape
    per_log = 1.0 / step
    shift, top = -np.log(gamma) * per_log, float(carried.shape[2] - 2)
    variance, paid = np.empty((B, A)), np.empty((B, A))
    for i in range(B):
        for a in range(A):
            where = place(j, mu[i, a], pi[i, a], shift, per_log, top)
            variance[i, a] = between(carried[i, a], where)
            paid[i, a] = between(cost[i, a], where)
    return variance, paid


@compiled  # type: ignore[untyped-decorator]
def weigh_weighted(
    q: Any, noise: Any, carried: Any, cost: Any, known: Any, pi: Any, own: Any, prices: Any,
    floors: Any, share: float, gamma: float, largest: float, effort: Any,
) -> Any:  # fmt: skip
    """Mu and b [B, A], why [B], at a price of its own for each row, `own` [B].

    Episodes differ in weight.
    """
    B, A = pi.shape
    step = np.log(prices[1] / prices[0])
    shift, top = -np.log(gamma) / step, float(len(prices) - 1)
    mu, b = np.empty((B, A)), np.zeros((B, A))
    rest, control = np.empty(A), np.empty(A)
    room = np.empty((7, A))
    why = np.zeros(B, np.uint8)
    for i in range(B):
        mass, fine = readied(q[i], noise[i], known[i], pi[i], share, largest, (rest, control))
        if fine:
            b[i] = control
        mu[i] = pi[i]
        # a price beyond the grid is that of its end, for the program and for what follows
        j = min(max(np.log(own[i] / prices[0]) / step, 0.0), top) if own[i] > 0.0 else 0.0
        u = prices[0] * np.exp(j * step)
        if fine and mass > 0.0:
            fine = best_of_starts(
                j, u, rest, noise[i], carried[i], cost[i], known[i], pi[i],
                mass, shift, 1.0 / step, floors[i], effort, room, mu[i],
            )  # fmt: skip
            if not fine:
                mu[i] = pi[i]
        if not fine:
            why[i] |= NOT_FINITE
        if mass < 1.0 - 1e-9:
            why[i] |= UNSEEN
    return mu, b, why

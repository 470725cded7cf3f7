"""The compiled part of `behavior.frontier`: line 6 for every price on a grid, row by row."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from scopeval.behavior._step_kernel import NOT_FINITE, UNSEEN, weigh_action
from scopeval.solver._kernel import HUGE, LARGE, TINY

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")

#: Repetitions of the tangent step at most, and the change of mu below which they end.
ROUNDS, CHANGE = 8, 5e-4
#: Its steps are made longer by this factor. They are cautious by nature (the tangent lies above the
#: function), and 2 is the limit of what converges.
RELAXATION = 1.8
#: A multiplier below is not used as a first guess.
LEAST_GUESS = 1e-60


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
def priced(weight: Any, cost: Any, price: float, mu: Any, guess: float) -> float:
    """Minimize sum weight^2 / mu + price sum cost mu for one row: `solver.solve_priced`, in place.

    It begins with the multiplier of a similar row, and ends where mu is known to about 1e-9: a
    repetition of the tangent step follows anyway.

    Args:
        weight: [A], at least 0.
        cost: [A].
        price: at least 0.
        mu: [A], the answer.
        guess: of the multiplier in units of (sum of weights)^2.

    Returns:
        The multiplier; 0 where nothing can be gained (the cheapest actions share the probability),
        -1 where a number is too large.
    """
    A = len(weight)
    total, cheapest = 0.0, np.inf
    for a in range(A):
        if not (0.0 <= weight[a] < LARGE and abs(cost[a]) < LARGE):
            return -1.0
        total += weight[a]
        cheapest = min(cheapest, cost[a])
    costly, count = 0.0, 0
    scale = 1.0 / total if total >= TINY else 0.0
    for a in range(A):  # at a multiplier of 0
        x = price * ((cost[a] - cheapest) * scale) * scale
        w = weight[a] * scale
        mu[a] = w / np.sqrt(x) if x > 0.0 else 0.0
        costly += mu[a] if x > 0.0 or w == 0.0 else np.inf
        count += cost[a] == cheapest
    if costly <= 1.0:  # probability is left over: for the cheapest, at no variance
        for a in range(A):
            mu[a] += (1.0 - costly) / count if cost[a] == cheapest else 0.0
        return 0.0
    low, high = 0.0, 1.0
    eta = guess if LEAST_GUESS < guess < high else 0.5  # powers of less would overflow
    for _ in range(100):
        f = slope = 0.0
        for a in range(A):
            r = 1.0 / np.sqrt(eta + min(price * ((cost[a] - cheapest) * scale) * scale, HUGE))
            mu[a] = weight[a] * scale * r
            f += mu[a]
            slope += mu[a] * r * r
        if f > 1.0:
            low = eta
        else:
            high = eta
        step = (f * f - 1.0) * f / slope  # (1 - f^-2) over the derivative of f^-2
        if abs(step) <= 1e-9 * eta or high - low <= 4e-16 * high:
            break
        eta += step
        if not low < eta < high:
            eta = 0.5 * (low + high)
    for a in range(A):
        mu[a] /= f
    return eta


@compiled  # type: ignore[untyped-decorator]
def relaxed(new: Any, mu: Any, floor: Any) -> None:
    """A longer step from mu towards new, unless a probability would become too small."""
    valid = True
    for a in range(len(mu)):
        ahead = mu[a] + RELAXATION * (new[a] - mu[a])
        valid = valid and ahead >= max(0.3 * new[a], floor[a])
    for a in range(len(mu)):
        mu[a] = mu[a] + RELAXATION * (new[a] - mu[a]) if valid else new[a]


@compiled  # type: ignore[untyped-decorator]
def improve(
    j: float, u: float, rest: Any, noise: Any, carried: Any, cost: Any, known: Any, pi: Any,
    mass: float, shift: float, per_log: float, share: float, room: Any, mu: Any,
) -> bool:  # fmt: skip
    """Repeat the tangent step at one price until mu rests; False where there is no answer.

    g_t(s, u) = A + u B is concave in u, so its tangent at the last u' lies above it, and every
    solution of the program with A and B taken there is at least as good as the last.
    """
    weight, charged, found, floor, eta = room
    A, top = len(pi), float(carried.shape[1] - 2)
    for a in range(A):
        floor[a] = share * pi[a]
    for left in range(ROUNDS - 1, -1, -1):
        most = 0.0
        for a in range(A):
            where = place(j, mu[a], pi[a], shift, per_log, top)
            second = rest[a] * rest[a] + max(noise[a], 0.0) + max(between(carried[a], where), 0.0)
            weight[a] = weigh_action(pi[a], second) if known[a] else 0.0
            charged[a] = max(between(cost[a], where), 0.0)
            if known[a]:
                most = max(most, charged[a])
        for a in range(A):
            if not known[a]:  # never given left-over probability
                charged[a] = most
        eta[0] = priced(weight, charged, u * mass * mass, found, eta[0])
        if eta[0] < 0.0:
            return False
        lost = 0.0
        for a in range(A):  # left-over probability where a known action costs as much as most
            lost += 0.0 if known[a] else found[a]
        change, fine = 0.0, True
        for a in range(A):
            new = mass * found[a] / (1.0 - lost) if known[a] else pi[a]
            found[a] = (1.0 - share) * new + floor[a]
            gap = abs(found[a] - mu[a])
            fine = fine and gap < 1.0  # False for what is not a number, which max would pass over
            change = max(change, gap)
        if not fine:
            return False
        if left > 0 and change >= CHANGE:
            relaxed(found, mu, floor)
        else:
            for a in range(A):
                mu[a] = found[a]
            break
    return True


@compiled  # type: ignore[untyped-decorator]
def weigh_grid(
    q: Any, noise: Any, carried: Any, cost: Any, known: Any, pi: Any, prices: Any,
    floors: Any, share: float, gamma: float, largest: float,
) -> Any:  # fmt: skip
    """Mu [U, B, A] and b [B, A] at every price; how many rows were not seen, not finite.

    Args:
        q: [B, A] estimate, and
        noise: of its outcome.
        carried: [B, A, 1 + U] E[gamma^2 A(S', u)]; index 0: the target's own.
        cost: [B, A, 1 + U] q^c(u), likewise.
        known: [B, A].
        pi: [B, A].
        prices: [U], each the same multiple of the one before.
        floors: [U] share of pi that is mixed in at each.
        share: of the control variate; negative: none.
        gamma: discount.
        largest: magnitude of a number that is believed.
    """
    B, A = pi.shape
    U = len(prices)
    per_log = 1.0 / np.log(prices[1] / prices[0])
    shift = -np.log(gamma) * per_log
    mu, b = np.empty((U, B, A)), np.zeros((B, A))
    rest, own = np.empty(A), np.empty(A)
    room = np.empty(A), np.empty(A), np.empty(A), np.empty(A), np.zeros(1)
    now = np.empty(A)
    unseen, not_finite = 0, 0
    for i in range(B):
        room[4][0] = 0.0  # rows do not look at each other
        mass, fine = readied(q[i], noise[i], known[i], pi[i], share, largest, (rest, own))
        if fine:
            b[i] = own
        for a in range(A):
            now[a] = pi[i, a]
        for j in range(U):
            if fine and mass > 0.0:
                good = improve(
                    float(j), prices[j], rest, noise[i], carried[i], cost[i], known[i], pi[i],
                    mass, shift, per_log, floors[j], room, now,
                )  # fmt: skip
                if not good:
                    fine = False
                    for a in range(A):
                        now[a] = pi[i, a]
            mu[j, i] = now
        not_finite += not fine
        unseen += mass < 1.0 - 1e-9
    return mu, b, (unseen, not_finite)


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
    floors: Any, share: float, gamma: float, largest: float,
) -> Any:  # fmt: skip
    """Mu and b [B, A], why [B], at a price of its own for each row, `own` [B].

    Episodes differ in weight.
    """
    B, A = pi.shape
    step = np.log(prices[1] / prices[0])
    shift, top = -np.log(gamma) / step, float(len(prices) - 1)
    mu, b = np.empty((B, A)), np.zeros((B, A))
    rest, control = np.empty(A), np.empty(A)
    room = np.empty(A), np.empty(A), np.empty(A), np.empty(A), np.zeros(1)
    why = np.zeros(B, np.uint8)
    for i in range(B):
        room[4][0] = 0.0  # rows do not look at each other
        mass, fine = readied(q[i], noise[i], known[i], pi[i], share, largest, (rest, control))
        if fine:
            b[i] = control
        mu[i] = pi[i]
        # a price beyond the grid is that of its end, for the program and for what follows
        j = min(max(np.log(own[i] / prices[0]) / step, 0.0), top) if own[i] > 0.0 else 0.0
        u = prices[0] * np.exp(j * step)
        if fine and mass > 0.0:
            fine = improve(
                j, u, rest, noise[i], carried[i], cost[i], known[i], pi[i],
                mass, shift, 1.0 / step, floors[i], room, mu[i],
            )  # fmt: skip
            if not fine:
                mu[i] = pi[i]
        if not fine:
            why[i] |= NOT_FINITE
        if mass < 1.0 - 1e-9:
            why[i] |= UNSEEN
    return mu, b, why

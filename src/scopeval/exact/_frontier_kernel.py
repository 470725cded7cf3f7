"""The compiled part of `scopeval.exact.weight_aware`: see there for the mathematics."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")

#: Sums of weights below count as zero: their squares could not be told from zero.
TINY = 1e-140
#: Prices and scaled costs above act like infinity.
HUGE = 1e200
#: A multiplier below is not used as a first guess.
LEAST_GUESS = 1e-60
#: Steps of the inner repetitions are made longer by this factor. They are cautious by nature (the
#: tangent lies above the function), and 2 is the limit of what converges.
RELAXATION = 1.8
#: Change of mu between two prices that may be the change from one minimum to another ...
JUMP = 0.02
#: ... and the relative gain for which an answer is replaced.
GAIN = 1e-9


@compiled  # type: ignore[untyped-decorator]
def split(weight: Any, cost: Any, floor: Any, mu: Any, guess: float) -> float:
    """Minimize sum weight^2 / mu + sum cost mu, with sum mu = 1 and mu >= floor, for one row.

    Stationarity gives mu = max(floor, weight / sqrt(eta + cost)). The sum of these falls as eta
    rises, so that eta is found by Newton's steps in a bracket, for the (nearly straight) power -2
    of the part that lies above the floor.

    Args:
        weight: [A], at least 0.
        cost: [A], at least 0, and 0 for the cheapest action.
        floor: [A], at least 0, with a sum of at most 1.
        mu: [A], the answer.
        guess: of eta in units of (sum of weights)^2; the answer of a similar row.

    Returns:
        eta in the same units.
    """
    A = len(weight)
    total = kept = free = 0.0
    for a in range(A):
        total += weight[a]
        kept += floor[a]
        free += weight[a] if cost[a] <= 0.0 else 0.0
    if kept >= 1.0 - 1e-14:
        for a in range(A):
            mu[a] = floor[a] / kept
        return guess
    if free <= 1e-12 * total and _leave_rest(weight, cost, floor, mu):
        return guess
    scale = 1.0 / total
    low, high = 0.0, 1.0 / (1.0 - kept) ** 2
    eta = guess if LEAST_GUESS < guess < high else 0.5 * high  # powers of less would overflow
    for _ in range(80):
        above = slope = 0.0
        left = 1.0
        for a in range(A):
            r = 1.0 / np.sqrt(eta + min(cost[a] * scale * scale, HUGE))
            p = weight[a] * scale * r
            if p > floor[a]:
                above += p
                slope += p * r * r
            else:
                p = floor[a]
                left -= p
            mu[a] = p
        if above > left:
            low = eta
        else:
            high = eta
        if high - low <= 1e-15 * high:
            break
        step = (above * above / (left * left) - 1.0) * above / slope if above > 0.0 else -eta
        if abs(step) <= 1e-8 * eta:
            break
        eta += step
        if not low < eta < high:
            eta = 0.5 * (low + high)
    _normalize(floor, mu)
    return eta


@compiled  # type: ignore[untyped-decorator]
def _leave_rest(weight: Any, cost: Any, floor: Any, mu: Any) -> bool:
    """The cheapest actions carry no weight: whether even eta = 0 leaves probability over for them.

    They share it equally. It costs no variance there.
    """
    spent = 0.0
    count = 0
    for a in range(len(mu)):
        mu[a] = floor[a]
        if cost[a] > 0.0:
            mu[a] = max(floor[a], weight[a] / np.sqrt(cost[a]))
        else:
            count += 1
        spent += mu[a]
    if spent > 1.0:
        return False
    for a in range(len(mu)):
        if cost[a] <= 0.0:
            mu[a] += (1.0 - spent) / count
    return True


@compiled  # type: ignore[untyped-decorator]
def _normalize(floor: Any, mu: Any) -> None:
    """Make the sum one by what lies above the floor."""
    above = 0.0
    left = 1.0
    for a in range(len(mu)):
        above += mu[a] - floor[a]
        left -= floor[a]
    for a in range(len(mu)):
        mu[a] = floor[a] + (mu[a] - floor[a]) * (left / above)


@compiled  # type: ignore[untyped-decorator]
def between(ahead: Any, s: int, a: int, i: int, part: float) -> Any:
    """Both tables of (s, a) between their entries i and i+1.

    The cubic through four entries, kept between the two: linear interpolation would be pessimistic
    at every step, which adds up over an episode.
    """
    rest = 1.0 - part
    first = -part * rest * (2.0 - part) / 6.0
    second = (1.0 + part) * rest * (2.0 - part) / 2.0
    third = (1.0 + part) * part * (2.0 - part) / 2.0
    fourth = -(1.0 + part) * part * rest / 6.0
    before, after = max(i - 1, 0), min(i + 2, ahead.shape[2] - 1)
    x0, x1 = ahead[s, a, i, 0], ahead[s, a, i + 1, 0]
    y0, y1 = ahead[s, a, i, 1], ahead[s, a, i + 1, 1]
    x = first * ahead[s, a, before, 0] + second * x0 + third * x1 + fourth * ahead[s, a, after, 0]
    y = first * ahead[s, a, before, 1] + second * y0 + third * y1 + fourth * ahead[s, a, after, 1]
    return min(max(x, min(x0, x1)), max(x0, x1)), min(max(y, min(y0, y1)), max(y0, y1))


@compiled  # type: ignore[untyped-decorator]
def _place(k: int, pi: float, mu: float, width: float, points: int) -> Any:
    """Where the price u mu^2 / pi^2 lies on the grid, for u at point k: entry i, and part of i+1.

    An action that pi never takes ends the episode's weight: its price is the largest.
    """
    place = points - 1.0
    if pi > 0.0:
        place = k + 2.0 * np.log(mu / pi) / width if mu > 0.0 else 0.0
    place = min(max(place, 0.0), points - 1.0)
    i = min(int(place), points - 2)
    return i, place - i


@compiled  # type: ignore[untyped-decorator]
def _relax(new: Any, mu: Any) -> None:
    """A longer step from mu towards new; no probability falls far below the new one."""
    total = 0.0
    for a in range(len(mu)):
        mu[a] = max(mu[a] + RELAXATION * (new[a] - mu[a]), 0.3 * new[a])
        total += mu[a]
    for a in range(len(mu)):
        mu[a] /= total


@compiled  # type: ignore[untyped-decorator]
def _minimize(
    row: Any,
    s: int,
    k: int,
    prices: Any,
    floor: Any,
    lead: float,
    now: Any,  # [A] first guess, and the answer
    eta: float,  # a multiplier to begin with
    room: Any,  # [5, A] for intermediate results
) -> tuple[float, float, float]:
    """One state and price: mu, and A_t, B_t and the multiplier there."""
    pi, mean, noise, cost, tables, width, gamma, repetitions, tolerance = row
    A, U = pi.shape[1], len(prices)
    weight, charge, ahead, due, new = room[0], room[1], room[2], room[3], room[4]
    left = repetitions
    while True:
        cheapest = np.inf
        for a in range(A):  # A and B at the price that this action leads to
            i, part = _place(k, pi[s, a], now[a], width, U)
            x, y = between(tables, s, a, i, part)
            ahead[a] = noise[s, a] + gamma * gamma * x
            due[a] = cost[s, a] + gamma * y
            cheapest = min(cheapest, due[a])
        if left == 0:
            break
        left -= 1
        total = 0.0
        for a in range(A):
            weight[a] = pi[s, a] * np.sqrt(mean[s, a] * mean[s, a] + ahead[a])
            charge[a] = min(prices[k], HUGE) * (due[a] - cheapest)
            total += weight[a]
        if total < TINY:
            weight[:] = 0.0
        eta = split(weight, charge, floor, new, eta)
        change = 0.0
        for a in range(A):
            change = max(change, abs(new[a] - now[a]))
        if left > 0 and change > tolerance:
            _relax(new, now)
        else:
            now[:] = new
        if change <= tolerance:
            left = 0
    variance = spent = 0.0
    for a in range(A):
        if now[a] > 0.0:
            rho = pi[s, a] / now[a]
            variance += now[a] * (rho * mean[s, a] - lead) ** 2
            variance += pi[s, a] * rho * ahead[a]
            spent += now[a] * due[a]
    return variance, spent, eta


@compiled  # type: ignore[untyped-decorator]
def _look_back(
    row: Any,
    s: int,
    prices: Any,
    share: Any,
    lead: float,
    mu: Any,
    found: Any,
    room: Any,
) -> None:
    """Where mu jumps from one price to the next, try the answer of the higher price at the lower.

    The inner program may have two minima, and the way up stays in the one it came from too long.
    """
    pi = row[0]
    other, floor = np.empty(pi.shape[1]), np.empty(pi.shape[1])
    for k in range(len(prices) - 2, -1, -1):
        jump = 0.0
        for a in range(len(other)):
            jump = max(jump, abs(mu[s, k + 1, a] - mu[s, k, a]))
            floor[a] = share[k] * pi[s, a]
        if jump < JUMP:
            continue
        other[:] = mu[s, k + 1]
        variance, spent, _ = _minimize(row, s, k, prices, floor, lead, other, -1.0, room)
        price = min(prices[k], HUGE)
        before = found[s, k, 0] + price * found[s, k, 1]
        if variance + price * spent < before - GAIN * abs(before):
            mu[s, k] = other
            found[s, k, 0], found[s, k, 1] = variance, spent


@compiled  # type: ignore[untyped-decorator]
def sweep_step(
    pi: Any,  # [S, A]
    mean: Any,  # [S, A] q - b
    noise: Any,  # [S, A] nu
    cost: Any,  # [S, A]
    tables: Any,  # [S, A, U, 2] E A_{t+1}(S', u) and E B_{t+1}(S', u)
    prices: Any,  # [U] price of cost in this step's units
    width: float,  # of the grid, in log price
    gamma: float,
    share: Any,  # [U] least share of pi
    repetitions: int,
    tolerance: float,
    chained: bool,  # begin with the answer of the price below instead of the first guess
    mu: Any,  # [S, U, A] first guess, and the answer
    found: Any,  # out [S, U, 2] A_t and B_t
    states: Any,  # which of them
) -> None:
    """One step of the recursion for all states and prices: mu_t, A_t and B_t."""
    A, U = pi.shape[1], len(prices)
    floor, room = np.empty(A), np.empty((5, A))
    row = (pi, mean, noise, cost, tables, width, gamma, repetitions, tolerance)
    for s in states:
        lead = 0.0
        for a in range(A):
            lead += pi[s, a] * mean[s, a]
        eta = -1.0
        for k in range(U):
            if chained and k > 0:
                mu[s, k] = mu[s, k - 1]
            for a in range(A):
                floor[a] = share[k] * pi[s, a]
            found[s, k, 0], found[s, k, 1], eta = _minimize(
                row, s, k, prices, floor, lead, mu[s, k], eta, room
            )
        if chained:
            _look_back(row, s, prices, share, lead, mu, found, room)


@compiled  # type: ignore[untyped-decorator]
def weigh_row(table: Any, pi: Any, place: float, share: float, mu: Any) -> None:
    """Probabilities between two prices of a table [U, A], at least `share` of pi.

    Args:
        table: mu at every price.
        pi: [A].
        place: where on the grid, beyond its ends too.
        share: in 0..1. At most the answer is pi itself.
        mu: [A], the answer: the mixture of the table's two neighbors; where that is below the
            bound it is raised, and what lies above the bound elsewhere pays for it.
    """
    A, points = len(pi), len(table)
    place = min(max(place, 0.0), points - 1.0)
    i = min(int(place), points - 2)
    part = place - i
    above = 0.0
    for a in range(A):
        mu[a] = table[i, a] + part * (table[i + 1, a] - table[i, a])
        above += max(mu[a] - share * pi[a], 0.0)
    scale = (1.0 - share) / above if above > 0.0 else 0.0
    for a in range(A):
        mu[a] = share * pi[a] + scale * max(mu[a] - share * pi[a], 0.0)


@compiled  # type: ignore[untyped-decorator]
def weigh_rows(
    tables: Any,  # [T, S, U, A]
    times: Any,  # [B]
    states: Any,  # [B]
    weights: Any,  # [B]
    pi: Any,  # [B, A]
    origin: float,  # place of weight 1 on the grid
    width: float,  # of the grid, in log price
    floor: float,
    cap: float,
    mu: Any,  # out [B, A]
) -> None:
    """`weigh_row` for episodes of given weights."""
    for n in range(len(pi)):
        place, share = price_of(weights[n], origin, width, floor, cap)
        weigh_row(tables[times[n], states[n]], pi[n], place, share, mu[n])


@compiled  # type: ignore[untyped-decorator]
def price_of(weight: float, origin: float, width: float, floor: float, cap: float) -> Any:
    """Where an episode of this weight lies on the grid, and the least share of pi."""
    place = origin - 2.0 * np.log(weight) / width if weight > 0.0 else np.inf
    return place, min(max(floor, weight / cap), 1.0)

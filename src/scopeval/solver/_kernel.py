"""The compiled part of `scopeval.solver`: see `solver.program` for the mathematics.

One row at a time, the same way for every row: a row's bits do not depend on its neighbors, hence
not on the number of threads. Weights are scaled to a sum of one, and costs are counted from the
cheapest action's, so that nothing cancels. The row program at a price (`solve_row`) may be called
from other compiled code, which often has a good first guess.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

SOLVED, INDIFFERENT, INFEASIBLE, REFUSED = 0, 1, 2, 3

#: Costs closer than this to the cheapest, relative to the row's largest magnitude, count as equal.
TIE = 1e-13
#: A relative step after which the next would be lost in rounding: Halley's error falls with the
#: third power, Newton's with the second.
NEAR, NEWTON_NEAR = 1e-5, 1e-8
#: The smallest positive share of a row's weights; its square is still a normal number.
LEAST = 1e-140
#: Weights below count as zero; weights and costs above are refused.
TINY, HUGE = 1e-300, 1e300
#: The same at a price, which is multiplied with costs and divided by squares of weights.
LARGE = 1e100
#: Steps at most. They end after about four.
STEPS = 200

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def solve_row(
    weight: Any, cost: Any, price: float, floor: Any, mu: Any, guess: float = 0.0
) -> float:
    """Minimize sum weight^2 / mu + price sum cost mu, with sum mu = 1 and mu >= floor, for one row.

    mu = max(floor, weight / sqrt(eta + price cost)). The sum of what lies above the floor, to the
    power -2, is concave in eta, and actions only ever drop to the floor as eta rises: Newton's
    steps rise to the root once they are below it, where they are after one step.

    Args:
        weight: [A], at least 0.
        cost: [A].
        price: at least 0.
        floor: [A], at least 0, with a sum of at most 1.
        mu: [A], the answer.
        guess: of eta, in units of (sum of weights)^2: the answer of a similar row; 0: none.

    Returns:
        eta in these units; 0 where probability is left over, which the cheapest actions share; -1
        where a number is negative, too large or none.
    """
    A = len(weight)
    total, kept, cheapest = 0.0, 0.0, np.inf
    valid = price >= 0.0
    for a in range(A):
        valid &= (0.0 <= weight[a] < LARGE) & (abs(cost[a]) < LARGE)
        total += weight[a]
        kept += floor[a]
        cheapest = min(cheapest, cost[a])
    if not valid:
        return -1.0
    scale = 1.0 / total if total >= TINY else 0.0
    low, spent = 0.0, 0.0
    for a in range(A):  # at eta = 0
        w, x = _scaled(weight[a], cost[a] - cheapest, price, scale)
        low = max(low, w * w - x)  # here this action alone would take all probability
        mu[a] = max(floor[a], w / np.sqrt(x)) if x > 0.0 else floor[a]
        spent += mu[a] if x > 0.0 or w == 0.0 else np.inf
    if spent <= 1.0:
        _finish(mu, floor, 1.0, cost, cheapest, 1.0 - spent)
        return 0.0
    eta = max(low, guess)
    for k in range(STEPS):
        above = slope = 0.0
        left = 1.0
        for a in range(A):
            w, x = _scaled(weight[a], cost[a] - cheapest, price, scale)
            r = 1.0 / np.sqrt(eta + x) if w > 0.0 else 0.0
            p = w * r
            if p > floor[a]:
                above += p
                slope += p * r * r
            else:
                p = floor[a]
                left -= p
            mu[a] = p
        if not (above > 0.0 and left > 0.0):  # too far to the right, or floors leave nothing
            if eta <= low:
                break
            eta = low
            continue
        step = (above * above / (left * left) - 1.0) * above / slope
        near = abs(step) <= NEWTON_NEAR * eta or (k > 1 and step <= 0.0)
        if near:  # the last step changes mu in proportion
            for a in range(A):
                if mu[a] > floor[a]:
                    _, x = _scaled(weight[a], cost[a] - cheapest, price, scale)
                    mu[a] *= 1.0 - 0.5 * step / (eta + x)
            break
        eta = max(eta + step, low)
    above = 0.0
    for a in range(A):
        above += mu[a] - floor[a]
    _finish(mu, floor, (1.0 - kept) / above if above > 0.0 else 1.0, cost, cheapest, 0.0)
    return float(eta)


@compiled  # type: ignore[untyped-decorator]
def _scaled(weight: float, excess: float, price: float, scale: float) -> Any:
    """An action's weight in units of their sum, and price times cost in units of its square."""
    w = weight * scale
    if 0.0 < w < LEAST:
        w = LEAST
    return w, min(price * (excess * scale) * scale, HUGE)


@compiled  # type: ignore[untyped-decorator]
def _finish(mu: Any, floor: Any, scale: float, cost: Any, cheapest: float, rest: float) -> None:
    """Scale what lies above the floor; the cheapest actions share the rest."""
    count = 0
    for a in range(len(mu)):
        count += cost[a] <= cheapest
    for a in range(len(mu)):
        mu[a] = floor[a] + (mu[a] - floor[a]) * scale
        mu[a] += rest / count if cost[a] <= cheapest else 0.0


@compiled  # type: ignore[untyped-decorator]
def solve_budget(
    weight: Any, cost: Any, budget: float, floor: Any, mu: Any, room: Any
) -> tuple[int, float]:
    """Minimize sum weight^2 / mu, with sum cost mu <= budget, sum mu = 1, mu >= floor, for one row.

    `room` is [4, A] for intermediate results. Returned: how it ended, and the multiplier of the
    budget. `mu` is written where it ended SOLVED.
    """
    A = len(weight)
    w, r = room[0], room[1]
    largest, cheapest, size = 0.0, np.inf, abs(budget)
    valid = size < HUGE
    for a in range(A):
        valid &= (weight[a] >= 0.0) & (weight[a] + abs(cost[a]) < HUGE)
        largest = max(largest, weight[a])
        cheapest = min(cheapest, cost[a])
        size = max(size, abs(cost[a]))
    if not valid:
        return REFUSED, 0.0
    tie, gap, kept = TIE * size, budget - cheapest, 0.0
    affordable = gap
    total, per_largest = 0.0, 1.0 / largest if largest >= TINY else 0.0
    for a in range(A):
        excess = cost[a] - cheapest
        r[a] = excess if excess > tie else 0.0
        w[a] = weight[a] * per_largest
        total += w[a]
        kept += floor[a]
        affordable -= floor[a] * r[a]
    if affordable < -tie:
        return INFEASIBLE, 0.0
    if largest < TINY:
        return INDIFFERENT, 0.0
    per_gap, per_total = 1.0 / gap if gap > TINY else 0.0, 1.0 / total
    free = costly = spent = 0.0
    for a in range(A):
        w[a] *= per_total
        if 0.0 < w[a] < LEAST:
            w[a] = LEAST
        free += w[a] if r[a] == 0.0 else 0.0
        costly += w[a] if r[a] > 0.0 else 0.0
        r[a] *= per_gap
        spent += w[a] * (r[a] - 1.0)
        mu[a] = w[a]
    if kept > 0.0:
        _share(w, floor, r, False, mu)
        spent = _excess(mu, r)
    if costly == 0.0 or (per_gap > 0.0 and spent <= 0.0):
        return SOLVED, 0.0  # the budget does not bind
    if per_gap == 0.0:  # only the cheapest actions are affordable, and others carry weight
        return INFEASIBLE, 0.0
    if free == 0.0:
        q, rest = room[2], 1.0
        for a in range(A):
            q[a] = w[a] / np.sqrt(r[a]) if r[a] > 0.0 else 0.0
        level = _share(q, floor, r, True, mu)  # the budget is spent
        for a in range(A):
            rest -= mu[a]
        if rest >= 0.0:  # even then probability is left over
            _finish(mu, floor, 1.0, r, 0.0, rest)
            return SOLVED, float(per_gap * (total * largest / level) ** 2)
    d, level = _search(w, r, floor, kept > 0.0, mu, room)
    return SOLVED, float(d * per_gap * (total * largest / level) ** 2)


@compiled  # type: ignore[untyped-decorator]
def _search(w: Any, r: Any, floor: Any, bound: bool, mu: Any, room: Any) -> tuple[float, float]:
    """Mu where the budget is spent: Halley's steps for h(y), from y = 1; see `solver.program`.

    A step that leaves the bracket goes to its middle. Returned: 1 - y^2, and mu / (w / sqrt(s)).
    """
    A = len(w)
    q, inv = room[2], room[3]
    y, d, low, high = 1.0, 0.0, 0.0, 1.0
    near = False
    level, lack = 0.0, 0.0
    for _ in range(STEPS):
        for a in range(A):
            inv[a] = 1.0 / np.sqrt(y * y + d * r[a])
            q[a] = w[a] * inv[a]
        if near:
            break
        if bound:  # what the floors spend too much, per unit of the probability above them
            level = _share(q, floor, r, False, mu)
            fixed, left = 0.0, 1.0
            for a in range(A):
                if level * q[a] <= floor[a]:
                    fixed += floor[a] * (r[a] - 1.0)
                    left -= floor[a]
            lack = fixed / left if left > 0.0 else 0.0
        h = first = second = 0.0
        for a in range(A):
            if not bound or level * q[a] > floor[a]:
                z, square = r[a] - 1.0, inv[a] * inv[a]
                p = q[a] * (z + lack)
                h += p
                p *= r[a] * square
                first += p
                second += p * z * square
        h *= y
        if h > 0.0:
            high = y
        else:
            low = y
        step = 2.0 * h * first / (2.0 * first * first - 3.0 * y * h * second)
        near = abs(step) <= max(NEAR * min(y, d), 4e-16 * y)
        if not (near or low < y - step < high):
            step = y - 0.5 * (low + high)
        d += step * (2.0 * y - step)
        y -= step
    level = _share(q, floor, r, False, mu)
    _afford(mu, floor, r)
    return float(d), float(level)


@compiled  # type: ignore[untyped-decorator]
def _share(q: Any, floor: Any, r: Any, of_cost: bool, mu: Any) -> float:
    """`mu` = max(floor, level q) with a sum of one (or a cost of one); returned: the level.

    It falls as actions drop to the floor, so that those that did stay there.
    """
    level, bound = np.inf, True
    while bound:
        moving, left, bound = 0.0, 1.0, False
        for a in range(len(q)):
            unit = r[a] if of_cost else 1.0
            if q[a] > 0.0 and level * q[a] >= floor[a]:
                moving += unit * q[a]
            else:
                left -= unit * floor[a]
            bound |= floor[a] > 0.0
        new = max(left, 0.0) / moving if moving > 0.0 else 0.0
        bound &= new < level
        level = min(level, new)
    for a in range(len(q)):
        mu[a] = max(floor[a], level * q[a])
    return level


@compiled  # type: ignore[untyped-decorator]
def _excess(mu: Any, r: Any) -> float:
    """What is spent above a budget of one."""
    excess = 0.0
    for a in range(len(mu)):
        excess += mu[a] * (r[a] - 1.0)
    return excess


@compiled  # type: ignore[untyped-decorator]
def _afford(mu: Any, floor: Any, r: Any) -> None:
    """To the feasible side of rounding: what is spent too much moves to the cheapest actions."""
    above = spent = 0.0
    left = most = 1.0
    for a in range(len(mu)):
        above += mu[a] - floor[a]
        spent += (mu[a] - floor[a]) * r[a]
        left -= floor[a]
        most -= floor[a] * r[a]
    scale = min(left / above, most / spent) if above > 0.0 and spent > 0.0 else 1.0
    _finish(mu, floor, scale, r, 0.0, max(left - scale * above, 0.0))


@compiled  # type: ignore[untyped-decorator]
def price_rows(
    weight: Any, cost: Any, price: float, floor: Any, mu: Any, status: Any, lo: int, hi: int
) -> int:
    """`solve_row` for rows lo .. hi; returns the first that is refused, or -1.

    `floor` is [B, A], or [1, A] for all rows.
    """
    for i in range(lo, hi):
        top = 0.0
        for a in range(weight.shape[1]):
            top = max(top, weight[i, a])
        eta = solve_row(weight[i], cost[i], price, floor[min(i, len(floor) - 1)], mu[i], 0.0)
        if eta < 0.0:
            return i
        status[i] = SOLVED if top >= TINY else INDIFFERENT
    return -1


@compiled  # type: ignore[untyped-decorator]
def solve_rows(
    weight: Any, cost: Any, budget: Any, floor: Any,
    mu: Any, multiplier: Any, status: Any, lo: int, hi: int,
) -> int:  # fmt: skip
    """`solve_budget` for rows lo .. hi; returns the first that is refused, or -1."""
    room = np.empty((4, weight.shape[1]))
    for i in range(lo, hi):
        bound = floor[min(i, len(floor) - 1)]
        ended, paid = solve_budget(weight[i], cost[i], budget[i], bound, mu[i], room)
        if ended == REFUSED:
            return i
        status[i], multiplier[i] = ended, paid
    return -1

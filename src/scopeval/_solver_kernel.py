"""The compiled part of `scopeval.solver`: see there for the mathematics.

Rows are worked on in blocks held with actions along the first axis and rows along the second, so
that every inner loop runs over rows and fills the vector units whatever the number of actions. Rows
that need a root are gathered into a block of their own. A row that has converged is frozen: its
bits do not depend on its neighbours, hence not on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

SOLVED, INDIFFERENT, INFEASIBLE = 0, 1, 2

#: Costs closer than this to the cheapest, relative to the row's largest magnitude, count as equal.
TIE = 1e-13
#: Halley's step relative to y below which the next iterate is exact to rounding (its error falls
#: with the third power of the step).
STEP = 1e-5
#: The same for Newton's, whose error falls with the second power.
NEWTON_STEP = 1e-8
#: Weights below count as zero; weights and costs above are refused: their squares and differences
#: could not be told from infinity.
TINY, HUGE = 1e-300, 1e300
LARGEST_BLOCK = 128
BLOCK_ENTRIES = 4096

compiled = nb.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})


@compiled  # type: ignore[untyped-decorator]
def solve_rows(
    weight: Any, cost: Any, budget: Any, mu: Any, multiplier: Any, status: Any, lo: int, hi: int
) -> int:
    """Solve rows lo..hi in place; returns the first row that is not a valid problem, or -1."""
    A = weight.shape[1]
    block = max(8, min(LARGEST_BLOCK, BLOCK_ENTRIES // A))
    w = np.empty((A, block))  # weights, scaled to a largest of 1
    e = np.empty((A, block))  # cost above the cheapest action's
    largest = np.empty(block)
    scale = np.empty(block)
    cheapest = np.empty(block)
    tie = np.empty(block)
    gap = np.empty(block)  # D
    total = np.empty(block)  # sum w
    cheap = np.empty(block)  # sum w of the cheapest actions
    m1 = np.empty(block)  # sum w e
    good = np.empty(block, np.bool_)

    # the rows that need a root
    nw = np.empty((A, block))
    nr = np.empty((A, block))  # e / D; 1 for the cheapest actions
    nd = np.empty((A, block), np.bool_)  # whether dearer than the cheapest
    nc = np.empty((A, block))  # w (e / D - 1); 0 for the cheapest actions
    row = np.empty(block, np.int64)
    top = np.empty(block)
    ngap = np.empty(block)
    free = np.empty(block)
    y = np.empty(block)
    d = np.empty(block)
    filled = 0

    for start in range(lo, hi, block):
        n = min(block, hi - start)
        for k in range(n):
            largest[k] = 0.0
            cheapest[k] = np.inf
            tie[k] = -np.inf
            good[k] = True
            total[k] = cheap[k] = m1[k] = 0.0
        for k in range(n):
            for a in range(A):
                w[a, k] = weight[start + k, a]
                e[a, k] = cost[start + k, a]
        for a in range(A):
            for k in range(n):
                good[k] = good[k] & (w[a, k] >= 0.0) & (w[a, k] + abs(e[a, k]) < HUGE)
                largest[k] = w[a, k] if w[a, k] > largest[k] else largest[k]
                cheapest[k] = e[a, k] if e[a, k] < cheapest[k] else cheapest[k]
                tie[k] = e[a, k] if e[a, k] > tie[k] else tie[k]
        for k in range(n):
            limit = budget[start + k]
            if not (good[k] and abs(limit) < HUGE):
                return start + k
            tie[k] = TIE * max(abs(cheapest[k]), abs(tie[k]), abs(limit))
            gap[k] = limit - cheapest[k]
            scale[k] = 1.0 / largest[k] if largest[k] > TINY else 0.0  # 0: all weights are zero
        for a in range(A):
            for k in range(n):
                x = e[a, k] - cheapest[k]
                x = x if x > tie[k] else 0.0
                u = w[a, k] * scale[k]
                e[a, k] = x
                w[a, k] = u
                total[k] += u
                cheap[k] += 0.0 if x > 0.0 else u
                m1[k] += u * x

        for k in range(n):
            i = start + k
            D = gap[k] if gap[k] > 0.0 else 0.0
            if gap[k] < -tie[k]:
                status[i] = INFEASIBLE
            elif total[k] == 0.0:
                status[i] = INDIFFERENT
            elif m1[k] <= D * total[k]:  # theta = 0: mu proportional to the weights
                status[i] = SOLVED
                multiplier[i] = 0.0
                norm = 1.0 / total[k]
                for a in range(A):
                    mu[i, a] = w[a, k] * norm
            elif D == 0.0:  # only the cheapest actions are affordable, and others carry weight
                status[i] = INFEASIBLE
            elif cheap[k] == 0.0 and _corner(w[:, k], e[:, k], D, largest[k], mu, multiplier, i):
                status[i] = SOLVED
            else:  # a root in (0, 1)
                status[i] = SOLVED
                per_gap = 1.0 / D
                for a in range(A):
                    x = e[a, k] * per_gap
                    u = w[a, k]
                    nw[a, filled] = u
                    nd[a, filled] = x > 0.0
                    nr[a, filled] = x if x > 0.0 else 1.0
                    nc[a, filled] = u * (x - 1.0) if x > 0.0 else 0.0
                row[filled] = i
                top[filled] = largest[k]
                ngap[filled] = D
                free[filled] = cheap[k]
                filled += 1
                if filled == block:
                    _roots(nr, nc, free, y, d, filled)
                    _finish(nw, nr, nd, row, top, ngap, y, d, mu, multiplier, filled)
                    filled = 0
    if filled:
        _roots(nr, nc, free, y, d, filled)
        _finish(nw, nr, nd, row, top, ngap, y, d, mu, multiplier, filled)
    return -1


@compiled  # type: ignore[untyped-decorator]
def _roots(r: Any, c: Any, free: Any, y: Any, d: Any, n: int) -> None:
    """The root of h / D for n rows, as y and d = 1 - y^2, each to its own relative precision.

    The same few of Halley's steps for every row; the rows that need more are followed one by one.
    """
    h = np.empty(n)
    slope = np.empty(n)
    curve = np.empty(n)
    last = np.empty(n)
    for k in range(n):
        h[k] = -free[k]
        slope[k] = curve[k] = 0.0
    for a in range(r.shape[0]):  # at y = 1 no root has to be drawn
        for k in range(n):
            s1 = c[a, k] * r[a, k]
            h[k] += c[a, k]
            slope[k] += s1
            curve[k] += s1 * (r[a, k] - 1.0)
    for k in range(n):
        step = _step(1.0, 0.0, h[k], slope[k], 3.0 * curve[k])
        y[k] = 1.0 - step
        d[k] = step * (2.0 - step)
    for _ in range(3 if r.shape[0] < 32 else 2):
        for k in range(n):
            h[k] = -free[k]
            slope[k] = curve[k] = 0.0
        for a in range(r.shape[0]):
            for k in range(n):
                inv = 1.0 / np.sqrt(r[a, k] * d[k] + y[k] * y[k])
                inv2 = inv * inv
                s1 = c[a, k] * r[a, k] * (inv * inv2)
                h[k] += c[a, k] * (y[k] * inv)
                slope[k] += s1
                curve[k] += s1 * (inv2 * (r[a, k] - 1.0))
        for k in range(n):
            step = _step(y[k], d[k], h[k], slope[k], 3.0 * curve[k] * y[k])
            d[k] += step * (2.0 * y[k] - step)
            y[k] -= step
            last[k] = abs(step)
    for k in range(n):
        if last[k] > STEP * min(y[k], d[k]):
            y[k], d[k] = _straggler(r, c, free[k], k)


@compiled  # type: ignore[untyped-decorator]
def _step(y: float, d: float, h: float, slope: float, curve: float) -> float:
    """How far y falls: Halley's step where that stays inside (0, 1), else Newton's, else half."""
    halley = 2.0 * h * slope / (2.0 * slope * slope - h * curve)
    newton = h / slope
    fits = (halley < y) & (d + halley * (2.0 * y - halley) > 0.0) & (slope > 0.0)
    step = halley if fits else newton
    fits = (step < y) & (d + step * (2.0 * y - step) > 0.0) & (slope > 0.0)
    return step if fits else 0.5 * y


@compiled  # type: ignore[untyped-decorator]
def _straggler(r: Any, c: Any, free: float, k: int) -> Any:
    """Newton from the right, y = 1: h is convex, so y falls to the root and never passes it."""
    y = 1.0
    d = 0.0
    for _ in range(2000):
        h = -free
        slope = 0.0
        for a in range(r.shape[0]):
            inv = 1.0 / np.sqrt(r[a, k] * d + y * y)
            h += c[a, k] * (y * inv)
            slope += c[a, k] * r[a, k] * (inv * inv * inv)
        step = h / slope
        if not ((h > 0.0) & (slope > 0.0) & (step < y)):
            break  # at the root to rounding
        d += step * (2.0 * y - step)
        y -= step
        if step <= NEWTON_STEP * min(y, d):
            break
    return y, d


@compiled  # type: ignore[untyped-decorator]
def _finish(
    w: Any,
    r: Any,
    dear: Any,
    row: Any,
    top: Any,
    gap: Any,
    y: Any,
    d: Any,
    mu: Any,
    multiplier: Any,
    n: int,
) -> None:
    """From the root to probabilities, on the feasible side of it."""
    A = w.shape[0]
    total = np.zeros(n)
    inverse = np.zeros(n)
    spent = np.zeros(n)
    lift = 1.0 / y[:n]
    for a in range(A):
        for k in range(n):
            s = r[a, k] * d[k] + y[k] * y[k]
            inv = 1.0 / np.sqrt(s)
            p = w[a, k] * y[k] * inv if dear[a, k] else w[a, k]
            total[k] += p
            inverse[k] += w[a, k] * (s * inv) * lift[k] if dear[a, k] else w[a, k]
            spent[k] += p * r[a, k] if dear[a, k] else 0.0
            w[a, k] = p
    for k in range(n):
        i = row[k]
        norm = 1.0 / total[k]
        # mean excess cost in units of D: rounding may leave it a hair above 1
        share = spent[k] * norm
        share = (share - 1.0) / share if share > 1.0 else 0.0
        norm *= 1.0 - share
        cheapest = 0
        for a in range(A):
            mu[i, a] = w[a, k] * norm
            if not dear[a, k]:
                cheapest = a
        mu[i, cheapest] += share
        # lambda = theta * objective, theta = (1 - y^2) / D, objective = sum w^2 / mu
        multiplier[i] = d[k] / gap[k] * (inverse[k] * total[k]) * top[k] * top[k]


@compiled  # type: ignore[untyped-decorator]
def _corner(w: Any, e: Any, D: float, largest: float, mu: Any, multiplier: Any, i: int) -> bool:
    """No weight on the cheapest actions: is theta's end still too dear?

    Then the weighted actions spend the whole budget, the left-over probability goes to the cheapest
    actions, and True is returned.
    """
    spend = 0.0  # sum w sqrt(e)
    mass = 0.0  # sum w / sqrt(e)
    count = 0
    for a in range(w.shape[0]):
        if e[a] > 0.0:
            spend += w[a] * np.sqrt(e[a])
            mass += w[a] / np.sqrt(e[a])
        else:
            count += 1
    if spend < D * mass:
        return False
    rest = max(0.0, 1.0 - D * mass / spend)
    for a in range(w.shape[0]):
        mu[i, a] = w[a] * D / (spend * np.sqrt(e[a])) if e[a] > 0.0 else rest / count
    multiplier[i] = (spend / D) ** 2 * largest * largest
    return True

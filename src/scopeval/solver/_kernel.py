"""The compiled part of `scopeval.solver`: see there for the mathematics.

A first look at a row adds up its weights and its excess cost; rows that can afford their weights
are finished there. The others need a root. With few actions they are gathered into a block held
with actions along the first axis, so that inner loops run over rows; with many actions inner loops
run over the actions of one row. Either way they fill the vector units. What happens to a row does
not depend on its neighbors, hence not on the number of threads.

Four things keep a root cheap:

- the first guess is the root of the rational function that has h(0) and h, h', h'' at y = 1;
- steps are Householder's, of fourth order: beside h' = T_1 the derivatives are made of the sums
  T_k = sum weight (r - 1) r (r - 1)^(k-1) / s^(k + 1/2), each one multiplication per action;
- 1/sqrt(s) is a guess from the bits of s and two steps of third order: right to 3e-12, and much
  faster than a division and a square root;
- the last step is not evaluated but carried into 1/sqrt(s) by its series, which also removes the
  error of the line above.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

SOLVED, INDIFFERENT, INFEASIBLE = 0, 1, 2

#: Costs closer than this to the cheapest, relative to the row's largest magnitude, count as equal.
TIE = 1e-13
#: A step relative to y and 1 - y^2 below which the next iterate is exact (its error falls with the
#: fourth power of the step) and the series is too.
STEP = 5e-4
#: The same for Newton's, whose error falls with the second power.
NEWTON_STEP = 1e-8
#: Steps before the slow and sure way is taken.
MOST_STEPS = 12
#: Weights below count as zero; weights and costs above are refused: their squares and differences
#: could not be told from infinity.
TINY, HUGE = 1e-300, 1e300
#: Between these, sums of weights need no scaling.
SMALL, LARGE = 1e-100, 1e100
#: From so many actions on, a row fills the vector units by itself.
MANY = 32
BLOCK = 128

compiled = nb.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
inlined = nb.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"contract"}, forceinline=True
)
#: Sums may be reordered, the same way for every row, so that they fill the vector units.
reordered = nb.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})


@intrinsic  # type: ignore[untyped-decorator]
def _bits(context: Any, x: Any) -> Any:
    """A double's bits as an integer."""
    return types.int64(types.float64), lambda c, b, s, args: b.bitcast(args[0], ir.IntType(64))


@intrinsic  # type: ignore[untyped-decorator]
def _double(context: Any, x: Any) -> Any:
    """The double of these bits."""
    return types.float64(types.int64), lambda c, b, s, args: b.bitcast(args[0], ir.DoubleType())


def _extreme(name: str) -> Any:
    """The smaller or larger of two numbers that are not NaN, in a form that reductions know."""

    def build(c: Any, b: Any, s: Any, args: Any) -> Any:
        t = ir.DoubleType()
        call = b.module.declare_intrinsic(f"llvm.{name}", [t], ir.FunctionType(t, [t, t]))
        return b.call(call, args, fastmath=("nnan", "nsz"))

    @intrinsic  # type: ignore[untyped-decorator]
    def chosen(context: Any, x: Any, y: Any) -> Any:
        return types.float64(types.float64, types.float64), build

    return chosen


_lesser, _greater = _extreme("minnum"), _extreme("maxnum")


@compiled  # type: ignore[untyped-decorator]
def solve_rows(
    weight: Any, cost: Any, budget: Any, mu: Any, multiplier: Any, status: Any, lo: int, hi: int
) -> Any:
    """Solve rows lo..hi in place; returns the first row that is not a valid problem, or -1."""
    if weight.shape[1] < MANY:
        return _few_actions(weight, cost, budget, mu, multiplier, status, lo, hi)
    return _many_actions(weight, cost, budget, mu, multiplier, status, lo, hi)


def _look(weight: Any, cost: Any, i: int, limit: float) -> Any:
    """Sum of the weights and of their excess cost, whether all is plain, cheapest cost, tie."""
    total = 0.0
    excess = 0.0
    least = weight[i, 0]
    cheapest = cost[i, 0]
    costliest = cost[i, 0]
    for a in range(weight.shape[1]):
        total += weight[i, a]
        excess += weight[i, a] * (cost[i, a] - limit)
        least = _lesser(least, weight[i, a])
        cheapest = _lesser(cheapest, cost[i, a])
        costliest = _greater(costliest, cost[i, a])
    # NaN would have gone into the sums
    plain = (total > SMALL) & (total < LARGE) & (abs(excess) < HUGE) & (least >= 0.0)
    plain &= (cheapest > -HUGE) & (costliest < HUGE) & (abs(limit) < HUGE)
    tie = TIE * max(abs(cheapest), abs(costliest), abs(limit))
    return total, excess, plain, cheapest, tie


def _again(function: Any, name: str) -> Any:
    """The function by another name: numba's cache tells functions apart by it."""
    copy = FunctionType(function.__code__, function.__globals__, name)
    copy.__qualname__ = name
    return copy


_look_at_few = inlined(_again(_look, "_look_at_few"))
_look_at_many = reordered(_again(_look, "_look_at_many"))


@compiled  # type: ignore[untyped-decorator]
def _odd_rows(
    weight: Any,
    cost: Any,
    budget: Any,
    mu: Any,
    multiplier: Any,
    status: Any,
    one: Any,
    rows: Any,
    n: int,
) -> int:
    """Solve whatever n rows, with all care; returns the first that is refused, or -1."""
    w, r, inv = one
    A = weight.shape[1]
    refused = -1
    for k in range(n):
        i = rows[k]
        limit = budget[i]
        largest = 0.0
        cheapest = np.inf
        tie = abs(limit)
        valid = tie < HUGE
        for a in range(A):
            valid &= (weight[i, a] >= 0.0) & (weight[i, a] + abs(cost[i, a]) < HUGE)
            largest = max(largest, weight[i, a])
            cheapest = min(cheapest, cost[i, a])
            tie = max(tie, abs(cost[i, a]))
        tie *= TIE
        gap = limit - cheapest
        multiplier[i] = 0.0
        if not valid:
            refused = i
            break
        if gap < -tie:
            status[i] = INFEASIBLE
            continue
        if largest < TINY:
            status[i] = INDIFFERENT
            continue
        per_gap = 1.0 / gap if gap > TINY else 0.0
        total = 0.0
        for a in range(A):
            total += weight[i, a] / largest
        free = costly = excess = 0.0
        for a in range(A):
            x = cost[i, a] - cheapest
            x = x if x > tie else 0.0
            w[a] = weight[i, a] / largest / total
            r[a] = x * per_gap
            free += w[a] if x == 0.0 else 0.0
            costly += w[a] if x > 0.0 else 0.0
            excess += w[a] * (x - gap)
        status[i] = SOLVED
        if (costly == 0.0) | ((per_gap > 0.0) & (excess <= 0.0)):
            for a in range(A):  # theta = 0: mu proportional to the weights
                mu[i, a] = w[a]
        elif per_gap == 0.0:  # only the cheapest actions are affordable, and others carry weight
            status[i] = INFEASIBLE
        elif (free == 0.0) & _too_expensive(w, r):
            multiplier[i] = _corner(w, r, total * largest, per_gap, mu, i)
        else:
            h, t1, t2, _ = _moments(w, r)
            fall = _first_guess(free, h, t1, t2)
            y, d = 1.0 - fall, fall * (2.0 - fall)
            multiplier[i] = _root(w, r, inv, y, d, total * largest, per_gap, mu, i)
    return refused


@compiled  # type: ignore[untyped-decorator]
def _too_expensive(w: Any, r: Any) -> bool:
    """Whether h rises from y = 0 on, nothing weighing on the cheapest actions."""
    slope = 0.0
    for a in range(len(w)):
        slope += w[a] * (r[a] - 1.0) / np.sqrt(r[a]) if r[a] > 0.0 else 0.0
    return slope >= 0.0


@compiled  # type: ignore[untyped-decorator]
def _corner(w: Any, r: Any, top: float, per_gap: float, mu: Any, i: int) -> float:
    """Nothing weighs on the cheapest actions, and theta's end is still too expensive.

    The weighted actions spend the whole budget, the left-over probability goes to the cheapest.
    """
    spend = 0.0  # sum w sqrt(r)
    mass = 0.0  # sum w / sqrt(r)
    count = 0
    for a in range(len(w)):
        if r[a] > 0.0:
            spend += w[a] * np.sqrt(r[a])
            mass += w[a] / np.sqrt(r[a])
        else:
            count += 1
    rest = max(0.0, 1.0 - mass / spend)
    for a in range(len(w)):
        mu[i, a] = w[a] / (spend * np.sqrt(r[a])) if r[a] > 0.0 else rest / count
    return float(per_gap * (spend * top) ** 2)


# -- a price instead of a budget -------------------------------------------------------------------


@compiled  # type: ignore[untyped-decorator]
def price_rows(weight: Any, cost: Any, price: float, mu: Any, status: Any, lo: int, hi: int) -> Any:
    """Solve `solver.solve_priced` for rows lo .. hi; returns the first that is refused, or -1."""
    A = weight.shape[1]
    w, x = np.empty(A), np.empty(A)
    for i in range(lo, hi):
        total = 0.0
        cheapest = np.inf
        valid = True
        for a in range(A):
            valid &= (weight[i, a] >= 0.0) & (weight[i, a] < LARGE) & (abs(cost[i, a]) < LARGE)
            total += weight[i, a]
            cheapest = min(cheapest, cost[i, a])
        if not valid:
            return i
        if total < TINY:
            status[i] = INDIFFERENT
            continue
        status[i] = SOLVED
        beyond = low = costly = 0.0
        for a in range(A):
            w[a] = weight[i, a] / total
            x[a] = price * ((cost[i, a] - cheapest) / total) / total
            beyond += w[a] * min(x[a], HUGE)
            low = max(low, w[a] * w[a] - x[a])
            costly += w[a] / np.sqrt(x[a]) if x[a] > 0.0 else (np.inf if w[a] > 0.0 else 0.0)
        if costly <= 1.0:  # even eta = 0 leaves probability over: for the cheapest, at no variance
            _give_rest(w, x, costly, mu, i)
            continue
        _normalize(w, x, _shift(w, x, max(low, 1.0 - beyond)), mu, i)
    return -1


@compiled  # type: ignore[untyped-decorator]
def _shift(w: Any, x: Any, low: float) -> float:
    """The eta in (low, 1] with sum w / sqrt(eta + x) = 1: Newton's steps for the sum's -2nd power.

    That power is nearly straight. A step that leaves the bracket is replaced by its middle.
    """
    high = 1.0
    eta = low if low > 0.0 else 0.5
    for _ in range(100):
        f = slope = 0.0
        for a in range(len(w)):
            r = 1.0 / np.sqrt(eta + x[a]) if w[a] > 0.0 else 0.0
            f += w[a] * r
            slope += w[a] * r * r * r
        if f > 1.0:
            low = eta
        else:
            high = eta
        step = (f * f - 1.0) * f / slope  # (1 - f^-2) over the derivative of f^-2
        if abs(step) <= 1e-15 * eta:
            break
        eta += step
        if not low < eta < high:
            if high - low <= 4e-16 * high:
                break
            eta = 0.5 * (low + high)
    return min(eta, high)


@compiled  # type: ignore[untyped-decorator]
def _normalize(w: Any, x: Any, eta: float, mu: Any, i: int) -> None:
    total = 0.0
    for a in range(len(w)):
        mu[i, a] = w[a] / np.sqrt(eta + x[a]) if w[a] > 0.0 else 0.0
        total += mu[i, a]
    for a in range(len(w)):
        mu[i, a] /= total


@compiled  # type: ignore[untyped-decorator]
def _give_rest(w: Any, x: Any, costly: float, mu: Any, i: int) -> None:
    count = 0
    for a in range(len(w)):
        count += x[a] == 0.0
    for a in range(len(w)):
        mu[i, a] = w[a] / np.sqrt(x[a]) if x[a] > 0.0 else (1.0 - costly) / count


# -- pieces of a root ------------------------------------------------------------------------------


@compiled  # type: ignore[untyped-decorator]
def _rsqrt(s: float) -> Any:
    """1 / sqrt(s) to rounding, for normal s > 0."""
    x = _double(np.int64(0x5FE6EB50C7B537A9) - (_bits(s) >> np.int64(1)))  # to 3 %
    u = s * (x * x)
    x = x * (1.875 + u * (0.375 * u - 1.25))  # to 1e-4
    u = s * (x * x) - 1.0
    return x + x * (u * (u * (0.375 - 0.3125 * u) - 0.5))


@compiled  # type: ignore[untyped-decorator]
def _first_guess(free: float, h: float, t1: float, t2: float) -> float:
    """How far y falls from 1, where h and the sums are given: to the root of a rational function.

    (h - B x + C x^2) / (1 + k x) with h, h', h'' at x = 1 - y = 0 and h = -free at x = 1.
    """
    half = 1.5 * t2
    q = free + h - t1
    p = q + half
    b = -(t1 * q + p * h)
    c = (half * q + p * t1) * q
    x = -2.0 * h * q / (b + np.sqrt(b * b - 4.0 * c * h))
    return x if (x > 0.0) & (x < 1.0) else 0.5


@compiled  # type: ignore[untyped-decorator]
def _step(y: float, d: float, h: float, t1: float, t2: float, t3: float) -> float:
    """How far y falls: Householder's step where that stays inside (0, 1), else half of the way."""
    square = t1 * t1
    bend = h * (3.0 * y * t2)
    third = 0.5 * t2 + 2.5 * y * y * t3
    step = h * (square - 0.5 * bend) / (t1 * (square - bend) + h * h * third)
    fits = (step < y) & (d + step * (2.0 * y - step) > 0.0)
    return step if fits else (0.5 * y if h > 0.0 else 0.5 * (y - 1.0))


# -- one row ---------------------------------------------------------------------------------------


@reordered  # type: ignore[untyped-decorator]
def _moments(w: Any, r: Any) -> Any:
    """H and T_1, T_2, T_3 at y = 1, where no root has to be drawn."""
    h = t1 = t2 = t3 = 0.0
    for a in range(len(w)):
        z = r[a] - 1.0
        c = w[a] * z
        first = c * r[a]
        second = first * z
        h += c
        t1 += first
        t2 += second
        t3 += second * z
    return h, t1, t2, t3


@reordered  # type: ignore[untyped-decorator]
def _sums(w: Any, r: Any, inv: Any, y: float, d: float) -> Any:
    """H, T_1, T_2, T_3 at y."""
    h = t1 = t2 = t3 = 0.0
    for a in range(len(w)):
        i = _rsqrt(r[a] * d + y * y)
        inv[a] = i
        square = i * i
        z = r[a] - 1.0
        c = w[a] * z * i
        z *= square
        first = c * (r[a] * square)
        second = first * z
        h += c
        t1 += first
        t2 += second
        t3 += second * z
    return h * y, t1, t2, t3


@compiled  # type: ignore[untyped-decorator]
def _root(
    w: Any, r: Any, inv: Any, y: float, d: float, top: float, per_gap: float, mu: Any, i: int
) -> float:
    """Find a row's root and write its probabilities; returns the multiplier."""
    near = False
    left = MOST_STEPS
    while left > 0 and not near:
        h, t1, t2, t3 = _sums(w, r, inv, y, d)
        step = _step(y, d, h, t1, t2, t3)
        d += step * (2.0 * y - step)
        y -= step
        near = (abs(step) < STEP * min(y, d)) & (y > SMALL)
        left -= 1
    if near:
        total, spent = _carry(w, r, inv, y, d)
    else:
        y, d, total, spent = _slowly(w, r, inv)
    # on the feasible side: what is spent too much moves to a cheapest action
    most = max(total, spent)
    norm = 1.0 / most
    cheapest = 0
    for a in range(len(r)):
        mu[i, a] = inv[a] * norm
        cheapest = a if r[a] == 0.0 else cheapest
    mu[i, cheapest] += (most - total) * norm
    # lambda = theta * objective, theta = (1 - y^2) / D, objective = (sum p / y)^2 at the root
    return float(d * per_gap * (total / y * top) ** 2)


@reordered  # type: ignore[untyped-decorator]
def _carry(w: Any, r: Any, inv: Any, y: float, d: float) -> Any:
    """Probabilities in proportion, from the 1/sqrt(s) of the last step; their sum and cost."""
    total = 0.0
    spent = 0.0
    for a in range(len(w)):
        u = (r[a] * d + y * y) * (inv[a] * inv[a]) - 1.0
        p = w[a] * (y * inv[a]) * (1.0 + u * (u * (0.375 + u * (0.2734375 * u - 0.3125)) - 0.5))
        inv[a] = p
        total += p
        spent += p * r[a]
    return total, spent


@compiled  # type: ignore[untyped-decorator]
def _slowly(w: Any, r: Any, p: Any) -> Any:
    """Newton from the right, y = 1: h is convex, so y falls to the root and never passes it.

    Returns y, 1 - y^2 and what `_carry` returns.
    """
    y = 1.0
    d = 0.0
    for _ in range(2000):
        h = 0.0
        slope = 0.0
        for a in range(len(w)):
            if r[a] > 0.0:
                inv = 1.0 / np.sqrt(r[a] * d + y * y)
                h += w[a] * (r[a] - 1.0) * (y * inv)
                slope += w[a] * (r[a] - 1.0) * r[a] * (inv * inv * inv)
            else:
                h -= w[a]
        step = h / slope
        if not ((h > 0.0) & (slope > 0.0) & (step < y)):
            break  # at the root to rounding
        d += step * (2.0 * y - step)
        y -= step
        if step <= NEWTON_STEP * min(y, d):
            break
    total = 0.0
    spent = 0.0
    for a in range(len(w)):
        p[a] = w[a] * y / np.sqrt(r[a] * d + y * y) if r[a] > 0.0 else w[a]
        total += p[a]
        spent += p[a] * r[a]
    return y, d, total, spent


# -- row after row, or in blocks ------------------------------------------------------------------


@compiled  # type: ignore[untyped-decorator]
def _many_actions(
    weight: Any, cost: Any, budget: Any, mu: Any, multiplier: Any, status: Any, lo: int, hi: int
) -> int:
    """Inner loops run over the actions of a row."""
    A = weight.shape[1]
    w, r, inv = np.empty(A), np.empty(A), np.empty(A)
    one = (w, r, inv)
    odd = np.empty(1, np.int64)
    refused = -1
    for i in range(lo, hi):
        limit = budget[i]
        total, excess, plain, cheapest, tie = _look_at_many(weight, cost, i, limit)
        status[i], multiplier[i] = SOLVED, 0.0
        per_gap = 1.0 / (limit - cheapest)
        norm = 1.0 / total
        if plain & (excess <= 0.0):  # theta = 0: mu proportional to the weights
            for a in range(A):
                mu[i, a] = weight[i, a] * norm
        else:
            free, h, t1, t2, t3 = _scale(weight, cost, i, cheapest, tie, per_gap, norm, w, r)
            if plain & (limit - cheapest > tie) & (free > 0.0) & (h > 0.0):
                fall = _step(1.0, 0.0, h, t1, t2, t3)
                fall = fall if fall < 0.4 else _first_guess(free, h, t1, t2)
                y, d = 1.0 - fall, fall * (2.0 - fall)
                multiplier[i] = _root(w, r, inv, y, d, total, per_gap, mu, i)
            else:
                odd[0] = i
                refused = _odd_rows(weight, cost, budget, mu, multiplier, status, one, odd, 1)
                if refused >= 0:
                    break
    return refused


@reordered  # type: ignore[untyped-decorator]
def _scale(
    weight: Any,
    cost: Any,
    i: int,
    cheapest: float,
    tie: float,
    per_gap: float,
    norm: float,
    w: Any,
    r: Any,
) -> Any:
    """W and r of a row; the weight of its cheapest actions, and `_moments`."""
    free = h = t1 = t2 = t3 = 0.0
    for a in range(len(w)):
        x = cost[i, a] - cheapest
        x = x * per_gap if x > tie else 0.0
        u = weight[i, a] * norm
        w[a] = u
        r[a] = x
        free += u if x == 0.0 else 0.0
        z = x - 1.0
        c = u * z
        first = c * x
        second = first * z
        h += c
        t1 += first
        t2 += second
        t3 += second * z
    return free, h, t1, t2, t3


@compiled  # type: ignore[untyped-decorator]
def _few_actions(
    weight: Any, cost: Any, budget: Any, mu: Any, multiplier: Any, status: Any, lo: int, hi: int
) -> int:
    """Inner loops run over rows: those that need a root are gathered into blocks."""
    A = weight.shape[1]
    one_w, one_r, one_inv = np.empty(A), np.empty(A), np.empty(A)
    w, r, inv = np.empty((A, BLOCK)), np.empty((A, BLOCK)), np.empty((A, BLOCK))
    row, cheap = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    top, per_gap, free = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    y, d, last = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    h, t1, t2, t3 = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    block = (w, r, inv, row, cheap, top, per_gap, free, y, d, last, h, t1, t2, t3)
    one = (one_w, one_r, one_inv)
    todo = np.empty(BLOCK, np.int64)
    totals, lows, ties = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    filled = 0
    refused = -1
    for start in range(lo, hi, BLOCK):
        left = _settle_slack(
            weight, cost, budget, mu, multiplier, status, todo, totals, lows, ties, start, hi
        )
        odd = 0
        for k in range(left):
            i = todo[k]
            gap = budget[i] - lows[k]
            tie = ties[k]
            over = 1.0 / gap
            norm = 1.0 / totals[k]
            light = 0.0
            above = 0.0
            low = 0
            for a in range(A):
                x = cost[i, a] - lows[k]
                x = x * over if x > tie else 0.0
                u = weight[i, a] * norm
                w[a, filled] = u
                r[a, filled] = x
                above += u * (x - 1.0)
                light += u if x == 0.0 else 0.0
                low = a if x == 0.0 else low
            row[filled], cheap[filled] = i, low
            top[filled], per_gap[filled], free[filled] = totals[k], over, light
            if (tie >= 0.0) & (gap > tie) & (light > 0.0) & (above > 0.0):
                filled += 1
            else:
                todo[odd] = i
                odd += 1
            if filled == BLOCK:
                _roots(block, one, mu, multiplier, filled)
                filled = 0
        if odd > 0:
            refused = _odd_rows(weight, cost, budget, mu, multiplier, status, one, todo, odd)
        if refused >= 0:
            break
    _roots(block, one, mu, multiplier, filled)
    return refused


@compiled  # type: ignore[untyped-decorator]
def _settle_slack(
    weight: Any,
    cost: Any,
    budget: Any,
    mu: Any,
    multiplier: Any,
    status: Any,
    todo: Any,
    totals: Any,
    lows: Any,
    ties: Any,
    start: int,
    hi: int,
) -> int:
    """Finish the rows of a block that can afford their weights; list the others."""
    left = 0
    for i in range(start, min(start + BLOCK, hi)):
        total, excess, plain, cheapest, tie = _look_at_few(weight, cost, i, budget[i])
        norm = 1.0 / total
        for a in range(weight.shape[1]):  # written before it is known to be right: no jump
            mu[i, a] = weight[i, a] * norm
        status[i], multiplier[i] = SOLVED, 0.0
        todo[left], totals[left], lows[left] = i, total, cheapest
        ties[left] = tie if plain else -1.0
        left += 0 if plain & (excess <= 0.0) else 1
    return left


@compiled  # type: ignore[untyped-decorator]
def _roots(block: Any, one: Any, mu: Any, multiplier: Any, n: int) -> None:
    """`_root` for n rows: two steps for all, and the few that need more are followed alone."""
    w, r, inv, row, cheap, top, per_gap, free, y, d, last, h, t1, t2, t3 = block
    one_w, one_r, one_inv = one
    A = w.shape[0]
    _start_block(w, r, free, y, d, h, t1, t2, n)
    for _ in range(2):
        _sum_block(w, r, inv, y, d, h, t1, t2, t3, n)
        for k in range(n):
            step = _step(y[k], d[k], h[k] * y[k], t1[k], t2[k], t3[k])
            d[k] += step * (2.0 * y[k] - step)
            y[k] -= step
            last[k] = abs(step)
    total, spent, norm, price, rest = h, t1, t2, t3, free
    _carry_block(w, r, inv, y, d, total, spent, n)
    for k in range(n):
        most = total[k] if total[k] > spent[k] else spent[k]
        both = 1.0 / (most * y[k])
        norm[k] = both * y[k]
        root = total[k] * (both * most) * top[k]
        price[k] = d[k] * per_gap[k] * (root * root)
        rest[k] = (most - total[k]) * norm[k]
    for k in range(n):
        i = row[k]
        if last[k] < STEP * min(y[k], d[k]):
            for a in range(A):
                mu[i, a] = inv[a, k] * norm[k]
            mu[i, cheap[k]] += rest[k]
            multiplier[i] = price[k]
        else:
            for a in range(A):
                one_w[a] = w[a, k]
                one_r[a] = r[a, k]
            multiplier[i] = _root(one_w, one_r, one_inv, y[k], d[k], top[k], per_gap[k], mu, i)


@compiled  # type: ignore[untyped-decorator]
def _start_block(
    w: Any, r: Any, free: Any, y: Any, d: Any, h: Any, t1: Any, t2: Any, n: int
) -> None:
    """`_moments` and `_first_guess`."""
    for k in range(n):
        h[k] = t1[k] = t2[k] = 0.0
    for a in range(w.shape[0]):
        for k in range(n):
            z = r[a, k] - 1.0
            c = w[a, k] * z
            first = c * r[a, k]
            h[k] += c
            t1[k] += first
            t2[k] += first * z
    for k in range(n):
        fall = _first_guess(free[k], h[k], t1[k], t2[k])
        y[k] = 1.0 - fall
        d[k] = fall * (2.0 - fall)


@compiled  # type: ignore[untyped-decorator]
def _sum_block(
    w: Any, r: Any, inv: Any, y: Any, d: Any, h: Any, t1: Any, t2: Any, t3: Any, n: int
) -> None:
    """`_sums`, but for the factor y of h."""
    for k in range(n):
        h[k] = t1[k] = t2[k] = t3[k] = 0.0
    for a in range(w.shape[0]):
        for k in range(n):
            i = _rsqrt(r[a, k] * d[k] + y[k] * y[k])
            inv[a, k] = i
            square = i * i
            z = r[a, k] - 1.0
            c = w[a, k] * z * i
            z *= square
            first = c * (r[a, k] * square)
            second = first * z
            h[k] += c
            t1[k] += first
            t2[k] += second
            t3[k] += second * z


@compiled  # type: ignore[untyped-decorator]
def _carry_block(w: Any, r: Any, inv: Any, y: Any, d: Any, total: Any, spent: Any, n: int) -> None:
    """`_carry`."""
    for k in range(n):
        total[k] = spent[k] = 0.0
    for a in range(w.shape[0]):
        for k in range(n):
            i = inv[a, k]
            u = (r[a, k] * d[k] + y[k] * y[k]) * (i * i) - 1.0
            p = w[a, k] * (y[k] * i)
            p *= 1.0 + u * (u * (0.375 + u * (0.2734375 * u - 0.3125)) - 0.5)
            inv[a, k] = p
            total[k] += p
            spent[k] += p * r[a, k]

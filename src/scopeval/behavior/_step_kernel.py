"""The compiled part of `behavior.weighing`: from critics to a program, from its answer to mu.

Rows do not look at each other: a row's bits do not depend on the batch it comes in.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from scopeval.solver._kernel import price_rows, solve_rows

SOLVED, INDIFFERENT, INFEASIBLE = 0, 1, 2

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def allowance(pi: Any, cost_target: Any, cost: Any, known: Any, rule: Any) -> Any:
    """The budget of one row, and the probability it is for: see `behavior.budget`."""
    share, limit, largest = rule
    mass, own, elsewhere = 0.0, 0.0, 0.0
    for a in range(len(pi)):
        if known[a]:
            mass += pi[a]
            own += pi[a] * cost_target[a]
        else:
            elsewhere += pi[a] * cost[a]
    spend = share * own if np.isnan(limit) else limit - elsewhere
    spend /= mass if mass > 0.0 else 1.0
    most = 0.5 * largest * largest  # the solver refuses more
    return min(max(spend, -most), most), mass


@compiled  # type: ignore[untyped-decorator]
def allowances(pi: Any, cost_target: Any, cost: Any, known: Any, rule: Any) -> Any:
    """The budgets of all rows."""
    out = np.empty(len(pi))
    for i in range(len(pi)):
        out[i], _ = allowance(pi[i], cost_target[i], cost[i], known[i], rule)
    return out


@compiled  # type: ignore[untyped-decorator]
def programs(e: Any, known: Any, pi: Any, share: float, rule: Any, priced: bool) -> Any:
    """Weights, costs and budgets for the solver, room for its answer, and what `settle` needs.

    The control variate is v + share (q - v), v the target's mean of q; none if share is negative.

    e is [5, B, A]: q, noise, carried, the target's cost, the cost in the constraint. Afterwards
    e[0] is the control variate; a row that was not finite is zero and known nowhere.
    """
    _, B, A = e.shape
    _, _, largest = rule
    weight, cost = np.empty((B, A)), np.empty((B, A))
    budget, mass, finite = np.empty(B), np.empty(B), np.empty(B, np.bool_)
    mu, status = np.empty((B, A)), np.full(B, INDIFFERENT, np.int8)
    for i in range(B):
        finite[i] = True
        for j in range(5):
            for a in range(A):
                finite[i] = finite[i] and abs(e[j, i, a]) <= largest
        top, dearest = 0.0, 0.0
        for a in range(A):
            for j in range(5):
                value = e[j, i, a] if finite[i] else 0.0
                e[j, i, a] = max(value, 0.0) if j > 0 else value
            known[i, a] = known[i, a] and finite[i]
        v = 0.0
        if 0.0 <= share < 1.0:
            for a in range(A):
                v += pi[i, a] * e[0, i, a]
        for a in range(A):
            rest = 0.0
            if share < 0.0:
                rest, e[0, i, a] = e[0, i, a], 0.0
            elif share < 1.0:
                rest = (1.0 - share) * (e[0, i, a] - v)
                e[0, i, a] -= rest
            weight[i, a] = pi[i, a] * np.sqrt(rest * rest + e[1, i, a] + e[2, i, a])
            top = max(top, weight[i, a])
            if known[i, a]:
                dearest = max(dearest, e[4, i, a])
        for a in range(A):
            if 0.0 < top < 1e-100:  # the solver's reciprocals would overflow
                weight[i, a] = 0.0 if priced else weight[i, a] / top
            weight[i, a] = weight[i, a] if known[i, a] else 0.0
            # as dear as the dearest, so never given the left-over probability
            cost[i, a] = e[4, i, a] if known[i, a] else dearest
        budget[i], mass[i] = allowance(pi[i], e[3, i], e[4, i], known[i], rule)
    return (weight, cost, budget), (mu, status), (known, mass, finite, pi)


@compiled  # type: ignore[untyped-decorator]
def at_price(weight: Any, cost: Any, price: float, mass: Any, mu: Any, status: Any) -> None:
    """The programs with a price of cost; the known actions share out the mass that pi has there."""
    for i in range(len(mass)):
        own = price * mass[i] * mass[i]
        if price_rows(weight, cost, own, mu, status, i, i + 1) >= 0:
            status[i] = INFEASIBLE


@compiled  # type: ignore[untyped-decorator]
def in_proportion(weight: Any, known: Any, pi: Any, follows: bool, mu: Any, status: Any) -> None:
    """The programs without a constraint."""
    B, A = pi.shape
    for i in range(B):
        total = 0.0
        for a in range(A):
            total += weight[i, a]
        status[i] = INDIFFERENT if total == 0.0 else SOLVED
        for a in range(A):
            # An action that pi takes but mu never would: ODI's authors keep pi at such a state.
            if not follows and known[i, a] and weight[i, a] == 0.0 and pi[i, a] > 0.0:
                status[i] = INDIFFERENT
            mu[i, a] = weight[i, a] / (total if total > 0.0 else 1.0)


@compiled  # type: ignore[untyped-decorator]
def settle(mu: Any, status: Any, known: Any, mass: Any, finite: Any, pi: Any, floor: float) -> Any:
    """Turn the solver's answers into mu, in place; how many were unseen, infeasible, not finite."""
    B, A = pi.shape
    not_seen, no_answer, not_finite = 0, 0, 0
    for i in range(B):
        total = 0.0
        valid, seen, unseen = finite[i], False, False
        for a in range(A):
            some = pi[i, a] > 0.0
            kept = not known[i, a] or status[i] != SOLVED
            mu[i, a] = pi[i, a] if kept else mass[i] * mu[i, a]
            total += mu[i, a]
            valid = valid and mu[i, a] >= 0.0
            seen = seen or (known[i, a] and some)
            unseen = unseen or (not known[i, a] and some)
        valid = valid and abs(total - 1.0) < 1e-9
        for a in range(A):
            mu[i, a] = (1.0 - floor) * (mu[i, a] if valid else pi[i, a]) + floor * pi[i, a]
        not_seen += valid and unseen
        no_answer += seen and status[i] == INFEASIBLE
        not_finite += not valid
    return not_seen, no_answer, not_finite


@compiled  # type: ignore[untyped-decorator]
def weigh_one(
    e: Any, known: Any, pi: Any, share: float, rule: Any, price: float, method: Any, floor: float
) -> Any:
    """`programs`, the solver and `settle` for a single row, in one call: a plant is waiting."""
    constrained, tilted, follows = method
    priced = constrained and price >= 0.0
    program, (mu, status), more = programs(e, known, pi, share, rule, priced)
    if priced:
        at_price(program[0], program[1], price, more[1], mu, status)
    elif constrained:
        if solve_rows(*program, mu, np.empty(1), status, 0, 1) >= 0:
            status[0] = INFEASIBLE  # refused: not to be expected, and no time to complain
    elif tilted:
        in_proportion(program[0], known, pi, follows, mu, status)
    return mu, settle(mu, status, *more, floor)


@compiled  # type: ignore[untyped-decorator]
def drawn(mu: Any, u: float) -> int:
    """The action at u in the running sum of mu; never one of probability zero."""
    total = 0.0
    for a in range(len(mu)):
        total += mu[a]
    k, so_far = 0, mu[0]
    while u >= so_far != total:  # it counts as 1 from the last action of positive probability on
        k += 1
        so_far += mu[k]
    return k

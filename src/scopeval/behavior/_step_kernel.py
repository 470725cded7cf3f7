"""The compiled part of a step of the sweep: estimates, program, mu, and what is carried on.

Rows do not look at each other: a row's bits do not depend on the batch it comes in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np

from scopeval.behavior.thresholds import FLOOR
from scopeval.solver._kernel import TINY, solve_budget, solve_row

SOLVED, INDIFFERENT, INFEASIBLE = 0, 1, 2
#: The bits of `policies.protocols.Why`.
UNSEEN, NO_ANSWER, NOT_FINITE, NOTHING_TO_GAIN, BINDING = (np.uint8(1 << k) for k in range(5))

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


class Kind(NamedTuple):
    """What distinguishes the methods in one step; a price below zero: every row has a budget."""

    constrained: bool
    tilted: bool
    follows_behavior: bool
    price: float


class Rule(NamedTuple):
    """How much a row may cost, and how far critics are believed."""

    share: float  # of the target's own cost
    limit: float  # absolute, NaN: none
    largest: float  # magnitude of a number that is believed


class Program(NamedTuple):
    """The program of every row, [B, A] or [B], and where there are doubts."""

    second_moment: Any  # X [B, A]
    weight: Any  # [B, A] pi sqrt(X)
    cost: Any  # [B, A]
    budget: Any  # [B]
    mass: Any  # [B] probability that pi gives to the known actions
    known: Any  # [B, A]
    finite: Any  # [B]


@compiled  # type: ignore[untyped-decorator]
def allowance(pi: Any, cost_target: Any, cost: Any, known: Any, rule: Any) -> Any:
    """The budget of one row per unit of the known actions' probability, and that probability.

    Relative: a share of what pi's known actions cost. Absolute: the limit, less what pi's unknown
    actions are thought to cost.
    """
    mass, own, elsewhere = 0.0, 0.0, 0.0
    for a in range(len(pi)):
        if known[a]:
            mass += pi[a]
            own += pi[a] * cost_target[a]
        else:
            elsewhere += pi[a] * cost[a]
    spend = rule.share * own if np.isnan(rule.limit) else rule.limit - elsewhere
    spend /= mass if mass > 0.0 else 1.0
    most = 0.5 * rule.largest * rule.largest  # the solver refuses more
    return min(max(spend, -most), most), mass


@compiled  # type: ignore[untyped-decorator]
def weigh_action(pi: float, X: float) -> Any:
    """The weight of an action in the program: the objective is sum weight^2 / mu."""
    return pi * np.sqrt(X)


@compiled  # type: ignore[untyped-decorator]
def rescale(weight: Any, i: int, priced: bool) -> None:
    """Weights so small that the solver's reciprocals would overflow; their scale does not matter.

    At a price it does matter, and such a row has nothing to gain.
    """
    top = 0.0
    for a in range(weight.shape[1]):
        top = max(top, weight[i, a])
    if 0.0 < top < 1e-100:
        for a in range(weight.shape[1]):
            weight[i, a] = 0.0 if priced else weight[i, a] / top


@compiled  # type: ignore[untyped-decorator]
def solve_step(program: Any, pi: Any, kind: Any, out: Any) -> None:
    """Line 6 of Algorithm 1 for all rows: mu, multiplier and status in `out`.

    Where every known action has a weight of zero, all are as good: methods with a cost budget take
    the cheapest, and such rows are SOLVED. What the solver refuses is INFEASIBLE.
    """
    mu, multiplier, status = out
    B, A = pi.shape
    none, room = np.zeros(A), np.empty((4, A))
    for i in range(B):
        weight, cost, known = program.weight[i], program.cost[i], program.known[i]
        total, hole = 0.0, False
        for a in range(A):
            total += weight[a]
            # An action that pi takes but mu never would: ODI's authors keep pi at such a state.
            hole |= known[a] and weight[a] == 0.0 and pi[i, a] > 0.0
        multiplier[i], status[i] = 0.0, INDIFFERENT
        if not kind.constrained:
            if kind.tilted and total > 0.0 and (kind.follows_behavior or not hole):
                status[i] = SOLVED
                for a in range(A):
                    mu[i, a] = weight[a] / total
            continue
        if kind.price >= 0.0:  # the known actions share the probability that pi gives them
            price = kind.price * program.mass[i] * program.mass[i]
            multiplier[i] = kind.price
            if solve_row(weight, cost, price, none, mu[i], 0.0) < 0.0:
                status[i] = INFEASIBLE
            elif total >= TINY:
                status[i] = SOLVED
        else:
            status[i], multiplier[i] = solve_budget(
                weight, cost, program.budget[i], none, mu[i], room
            )
            status[i] = min(status[i], INFEASIBLE)  # REFUSED counts as such
        if status[i] == INDIFFERENT and settle_tie(weight, cost, known, mu[i]):
            status[i] = SOLVED
            if kind.price < 0.0:
                cover(cost, program.budget[i], known, pi[i], mu[i])


@compiled  # type: ignore[untyped-decorator]
def settle_tie(weight: Any, cost: Any, known: Any, mu: Any) -> bool:
    """Where every action is as good, the cheapest known ones share the probability, in place.

    False where that is not so (a weight is positive), or nothing is known.
    """
    cheapest, count = np.inf, 0
    for a in range(len(mu)):
        if weight[a] > 0.0:
            return False
        if known[a] and cost[a] < cheapest:
            cheapest = cost[a]
    for a in range(len(mu)):
        count += known[a] and cost[a] == cheapest
    for a in range(len(mu)):
        mu[a] = 1.0 / count if known[a] and cost[a] == cheapest else 0.0
    return count > 0


@compiled  # type: ignore[untyped-decorator]
def cover(cost: Any, budget: float, known: Any, pi: Any, mu: Any) -> None:
    """Mix pi into mu, in place, so that no action of the target is left out for a tie.

    Without them its cost would be estimated too low. As much as the budget allows, at most `FLOOR`.
    """
    mass = own = least = 0.0
    for a in range(len(mu)):
        mass += pi[a] if known[a] else 0.0
        own += pi[a] * cost[a] if known[a] else 0.0
        least += mu[a] * cost[a] if known[a] else 0.0
    if mass <= 0.0:
        return
    above = own / mass - least
    share = FLOOR if above <= 0.0 else min(FLOOR, max(0.0, (budget - least) / above))
    for a in range(len(mu)):
        mu[a] = (1.0 - share) * mu[a] + (share * pi[a] / mass if known[a] else 0.0)


@compiled  # type: ignore[untyped-decorator]
def programs(e: Any, known: Any, pi: Any, share: float, rule: Any, priced: bool) -> Any:
    """The program of every row from a critic's estimates; X is built here.

    The control variate is b = v + share (q - v), v the target's mean of q; b = 0 if share is
    negative. X = (q - b)^2 + noise + carried.

    e is [5, B, A]: q, noise, carried, the target's cost, the cost in the constraint. Afterwards
    e[0] is the control variate; a row that was not finite is zero and known nowhere.
    """
    _, B, A = e.shape
    X, weight, cost = np.empty((B, A)), np.empty((B, A)), np.empty((B, A))
    budget, mass, finite = np.empty(B), np.empty(B), np.empty(B, np.bool_)
    for i in range(B):
        finite[i] = True
        for j in range(5):
            for a in range(A):
                finite[i] = finite[i] and abs(e[j, i, a]) <= rule.largest
        for a in range(A):
            for j in range(5):
                value = e[j, i, a] if finite[i] else 0.0
                e[j, i, a] = max(value, 0.0) if j > 0 else value
            known[i, a] = known[i, a] and finite[i]
        v = 0.0
        if 0.0 <= share < 1.0:
            for a in range(A):
                v += pi[i, a] * e[0, i, a]
        most_expensive = 0.0
        for a in range(A):
            rest = 0.0  # q - b
            if share < 0.0:
                rest, e[0, i, a] = e[0, i, a], 0.0
            elif share < 1.0:
                rest = (1.0 - share) * (e[0, i, a] - v)
                e[0, i, a] -= rest
            X[i, a] = rest * rest + e[1, i, a] + e[2, i, a]
            weight[i, a] = weigh_action(pi[i, a], X[i, a])
            if known[i, a]:
                most_expensive = max(most_expensive, e[4, i, a])
        rescale(weight, i, priced)
        for a in range(A):
            weight[i, a] = weight[i, a] if known[i, a] else 0.0
            # as expensive as the most expensive action, so it never gets left-over probability
            cost[i, a] = e[4, i, a] if known[i, a] else most_expensive
        budget[i], mass[i] = allowance(pi[i], e[3, i], e[4, i], known[i], rule)
    return Program(X, weight, cost, budget, mass, known, finite)


@compiled  # type: ignore[untyped-decorator]
def settle(mu: Any, status: Any, multiplier: Any, program: Any, pi: Any, floor: float) -> Any:
    """Turn the solver's answers into mu, in place; returned: [B] `Why` of every row."""
    B, A = pi.shape
    why = np.zeros(B, np.uint8)
    for i in range(B):
        total = 0.0
        valid, seen, unseen, idle = program.finite[i], False, False, True
        for a in range(A):
            some = pi[i, a] > 0.0
            known = program.known[i, a]
            kept = not known or status[i] != SOLVED
            mu[i, a] = pi[i, a] if kept else program.mass[i] * mu[i, a]
            total += mu[i, a]
            valid = valid and mu[i, a] >= 0.0
            seen = seen or (known and some)
            unseen = unseen or (not known and some)
            idle = idle and program.weight[i, a] == 0.0
        valid = valid and abs(total - 1.0) < 1e-9
        for a in range(A):
            mu[i, a] = (1.0 - floor) * (mu[i, a] if valid else pi[i, a]) + floor * pi[i, a]
        if not valid:
            why[i] |= NOT_FINITE
        elif unseen:
            why[i] |= UNSEEN
        if seen and status[i] == INFEASIBLE:
            why[i] |= NO_ANSWER
        if status[i] == INDIFFERENT or (status[i] == SOLVED and idle):
            why[i] |= NOTHING_TO_GAIN
        elif status[i] == SOLVED and multiplier[i] > 0.0:
            why[i] |= BINDING
    return why


@compiled  # type: ignore[untyped-decorator]
def weigh(e: Any, known: Any, pi: Any, share: float, rule: Any, kind: Any, floor: float) -> Any:
    """`programs`, `solve_step` and `settle` in one call: a controller may be waiting.

    `rule` and `kind` are the fields of a `Rule` and a `Kind`.
    """
    rule, kind = Rule(*rule), Kind(*kind)
    priced = kind.constrained and kind.price >= 0.0
    p = programs(e, known, pi, share, rule, priced)
    mu, status = np.empty(pi.shape), np.full(len(pi), INDIFFERENT, np.int8)
    multiplier = np.zeros(len(pi))
    if kind.tilted:
        solve_step(p, pi, kind, (mu, multiplier, status))
    why = settle(mu, status, multiplier, p, pi, floor)
    if not kind.tilted:  # pi is what was asked for
        for i in range(len(pi)):
            why[i] &= ~NOTHING_TO_GAIN
    return mu, why


# -- what a step of `behavior.sweep` carries on, row by row --------------------------------------


@compiled  # type: ignore[untyped-decorator]
def values(pi: Any, q: Any, cost: Any, error: Any) -> Any:
    """Value and cost of the target [B], and the squared error of the value [B]."""
    B, A = pi.shape
    v, v_cost, v_error = np.empty(B), np.empty(B), np.empty(B)
    for i in range(B):
        value, paid, wrong = 0.0, 0.0, 0.0
        for a in range(A):
            value += pi[i, a] * q[i, a]
            paid += pi[i, a] * cost[i, a]
            wrong += pi[i, a] * pi[i, a] * error[i, a]
        v[i], v_cost[i], v_error[i] = value, paid, wrong
    return v, v_cost, v_error


@compiled  # type: ignore[untyped-decorator]
def carry_on(
    pi: Any, mu: Any, q: Any, b: Any, noise: Any, carried: Any, cost: Any, v_error: Any
) -> Any:
    """Variance and cost of a behavior from here on, and where mu is pi, [B] each.

    With rest = q - b and lead = E_pi[rest], the variance E_mu[rho^2 X] - lead^2 is written
    E_mu[(rho rest - lead)^2] + E_mu[rho^2 (noise + carried)]: a large mean takes no digits away.
    The squared error of v is subtracted, for E[v^2] is larger than v^2.
    """
    B, A = pi.shape
    variance, paid, same = np.empty(B), np.empty(B), np.empty(B, np.bool_)
    for i in range(B):
        lead, spent, kept = 0.0, 0.0, True
        for a in range(A):
            p, m = pi[i, a], mu[i, a]
            lead += p * (q[i, a] - b[i, a]) if m > 0.0 else 0.0
            spent += m * cost[i, a]
            kept = kept and abs(m - p) < 1e-12
        left = -v_error[i]
        for a in range(A):
            p, m = pi[i, a], mu[i, a]
            rho = p / m if m > 0.0 else 0.0
            gap = rho * (q[i, a] - b[i, a]) - lead
            left += (m * gap) * gap + p * rho * (noise[i, a] + carried[i, a])
        variance[i] = 0.0 if left < 0.0 else left  # NaN stays
        paid[i] = spent
        same[i] = kept
    return variance, paid, same

"""From critics' estimates to behavior probabilities; every doubt falls back to the target."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats
from scopeval.behavior import _step_kernel as kernel
from scopeval.behavior.methods import Method
from scopeval.critics.protocols import Estimates
from scopeval.solver.program import solve

__all__ = []

#: Critics that say more than this (or not a number) are not believed: squares would overflow.
LARGEST = 1e150

#: Rows that are weighed together: what they need fits into the cache.
TOGETHER = 4096


@dataclass
class Counts:
    """How often the behavior policy was asked, and why it kept to the target."""

    asked: int = 0
    unseen: int = 0
    infeasible: int = 0
    not_finite: int = 0

    def add(self, other: Counts) -> None:
        """Count another's as well."""
        self.asked += other.asked
        self.unseen += other.unseen
        self.infeasible += other.infeasible
        self.not_finite += other.not_finite


@dataclass(frozen=True)
class Recipe:
    """How mu follows from a critic's estimates; kept with the policy.

    `share` is for methods with a control variate b: it takes over that share of how q differs
    between the actions of a state, b = v + share (q - v). With the budget "episode", cost has a
    `price` instead of a budget in every state.
    """

    method: str
    epsilon: float
    horizon: int
    gamma: float
    floor: float
    margin: float
    constraint: str
    limit: float | None
    share: float = 1.0
    budget: str = "state"
    price: float = 0.0


def weigh_rows(
    method: Method,
    recipe: Recipe,
    pi: Floats,
    e: Estimates,
    *,
    counts: Counts | None = None,
) -> tuple[Floats, Floats]:
    """Mu and b from a critic's estimates: the program, then the floor, pi wherever in doubt.

    Whatever the numbers are, the rows of mu are distributions and b is finite.
    """
    if len(pi) <= TOGETHER:
        return _weigh_some(method, recipe, pi, e, counts)
    mu, b = np.empty(pi.shape), np.empty(pi.shape)

    def work(start: int) -> Counts:
        some, told = slice(start, start + TOGETHER), Counts()
        mu[some], b[some] = _weigh_some(method, recipe, pi[some], e.select(some), told)
        return told

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for told in pool.map(work, range(0, len(pi), TOGETHER)):
            if counts is not None:
                counts.add(told)
    return mu, b


def _weigh_some(
    method: Method, recipe: Recipe, pi: Floats, e: Estimates, counts: Counts | None
) -> tuple[Floats, Floats]:
    own_cost = recipe.constraint == "behavior"
    parts = np.empty((5, *pi.shape))
    parts[0], parts[1] = e.q, e.noise
    parts[2] = e.carried[..., -1 if method.follows_behavior else 0]
    parts[3], parts[4] = e.cost_target, e.cost_behavior[..., -1] if own_cost else e.cost_target
    return weigh_parts(method, recipe, pi, parts, np.array(e.known), counts=counts)


def weigh_parts(
    method: Method,
    recipe: Recipe,
    pi: Floats,
    parts: Floats,
    known: NDArray[np.bool_],
    *,
    counts: Counts | None = None,
) -> tuple[Floats, Floats]:
    """`weigh_rows` for the five numbers that matter: see `_behavior_kernel.programs`.

    What is not known keeps pi, and the program is solved over the other actions with the
    probability and the budget that pi leaves them.
    """
    pi = np.ascontiguousarray(pi, np.float64)
    share = float(recipe.share) if method.control_variate else -1.0
    rule = _rule(recipe)
    priced = method.constrained and recipe.budget == "episode"
    if len(pi) == 1:
        kind = method.constrained, method.tilted, method.follows_behavior
        price = float(recipe.price) if priced else -1.0
        mu, told = kernel.weigh_one(parts, known, pi, share, rule, price, kind, recipe.floor)
    else:
        program, (mu, status), more = kernel.programs(parts, known, pi, share, rule, priced)
        if priced:
            kernel.at_price(program[0], program[1], float(recipe.price), more[1], mu, status)
        elif method.constrained:
            solution = solve(*program)
            mu, status = solution.mu, solution.status
        elif method.tilted:
            kernel.in_proportion(program[0], known, pi, method.follows_behavior, mu, status)
        told = kernel.settle(mu, status, *more, recipe.floor)
    unseen, infeasible, not_finite = told
    if counts is not None:
        counts.unseen += unseen
        counts.infeasible += infeasible
        counts.not_finite += not_finite
    return mu, parts[0]


def budget(
    recipe: Recipe, pi: Floats, cost_target: Floats, cost: Floats, known: NDArray[np.bool_]
) -> Floats:
    """Delta per unit of the known actions' probability.

    Relative: (1 + eps - margin) times what pi's known actions cost. Absolute: the limit, less what
    pi's unknown actions are thought to cost.
    """
    tables = (np.ascontiguousarray(x, np.float64) for x in (pi, cost_target, cost))
    return np.asarray(kernel.allowances(*tables, np.array(known), _rule(recipe)))


def _rule(recipe: Recipe) -> tuple[float, float, float]:
    """Share of the target's cost, absolute limit (NaN: none), largest number believed."""
    share = min(1.0 + recipe.epsilon - recipe.margin, LARGEST)
    if recipe.limit is None:
        return share, np.nan, LARGEST
    return share, min(recipe.limit, LARGEST) * (1.0 - recipe.margin), LARGEST

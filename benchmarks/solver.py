"""The program of line 6 beside a general convex solver: why there is a kernel of our own.

The rows are drawn as reinforcement learning asks for them: pi ~ Dirichlet(1, .., 1), weight =
pi sqrt(U), cost U, budget = pi's own mean cost. The budget then binds in about half of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import Comparison, load_peer, race
from scopeval.arrays import Floats, check_whole
from scopeval.errors import InputError, MissingExtraError
from scopeval.solver.program import solve

__all__ = ["Config", "run"]


@dataclass(frozen=True)
class Config:
    """What to measure."""

    rows: int = 1_000_000
    """Rows of ours."""
    actions: int = 4
    """Of each row."""
    solves: int = 200
    """Rows that the convex solver gets, one after the other."""
    repeats: int = 3
    """Turns of each side; the best counts."""
    seed: int = 0
    """Seed of the problems."""

    def __post_init__(self) -> None:
        check_whole("actions", self.actions, 2)
        if not 1 <= self.solves <= self.rows:
            raise InputError(f"solves: got {self.solves}, expected 1 to the {self.rows} rows")


@dataclass(frozen=True)
class Problem:
    """A batch of rows: weight and cost [B, A], budget [B]."""

    weight: Floats
    cost: Floats
    budget: Floats


def draw(rows: int, actions: int, seed: int) -> Problem:
    """Rows as reinforcement learning asks for them."""
    rng = np.random.default_rng((seed, actions))
    pi = rng.dirichlet(np.ones(actions), rows)
    weight = pi * np.sqrt(rng.random((rows, actions)))
    cost = rng.random((rows, actions))
    return Problem(weight, cost, (pi * cost).sum(axis=1))


def run(config: Config) -> list[Comparison]:
    """One row: ours on all rows at once, the peer row after row."""
    for package in ("cvxpy", "clarabel"):
        if load_peer(package) is None:
            raise MissingExtraError(package, "bench", "The solver's benchmark")
    problem = draw(config.rows, config.actions, config.seed)
    few = Problem(*(x[: config.solves] for x in (problem.weight, problem.cost, problem.budget)))
    peer = _through_cvxpy(few)
    ours = solve(few.weight, few.cost, few.budget).mu
    optima = [(few.weight**2 / mu).sum(axis=1) for mu in (ours, peer())]
    gap = float(np.abs(optima[1] / optima[0] - 1.0).max())
    times = race(
        lambda: solve(problem.weight, problem.cost, problem.budget, threads=1),
        peer,
        repeats=config.repeats,
    )
    return [
        Comparison(
            f"cvxpy + Clarabel, {config.actions} actions",
            times.ours / config.rows,
            times.peer / config.solves,
            unit="row",
            sense="faster",
            goal=1000.0,
            note=f"{config.solves:,} solves; optima agree to {gap:.0e}",
        )
    ]


def _through_cvxpy(few: Problem) -> Callable[[], Floats]:
    """One parametrized problem (DPP: compiled once), solved row after row.

    w^2 / mu <= t is the second-order cone |(2 w, mu - t)| <= mu + t.
    """
    import cvxpy as cp

    A = few.weight.shape[1]
    weight, cost, budget = cp.Parameter(A, nonneg=True), cp.Parameter(A), cp.Parameter()
    mu, t = cp.Variable(A), cp.Variable(A)
    cones = cp.SOC(mu + t, cp.vstack([2 * weight, mu - t]), axis=0)
    problem = cp.Problem(cp.Minimize(cp.sum(t)), [cones, cp.sum(mu) == 1, cost @ mu <= budget])

    def solve_all() -> Floats:
        answers = np.empty_like(few.weight)
        for k in range(len(answers)):
            weight.value, cost.value, budget.value = few.weight[k], few.cost[k], few.budget[k]
            problem.solve(solver=cp.CLARABEL)
            answers[k] = mu.value
        return answers

    return solve_all

"""The solver against one pass of numpy over the same arrays, and against general convex solvers.

The rows are drawn as reinforcement learning asks for them: pi ~ Dirichlet(1, .., 1), weight =
pi sqrt(U), cost U, budget = pi's own mean cost. The budget then binds in about half of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import BestSeconds, Comparison, race
from scopeval.arrays import Floats
from scopeval.errors import InputError, MissingExtraError
from scopeval.solver.program import solve

__all__ = ["Config", "run"]


@dataclass(frozen=True)
class Config:
    """What to measure."""

    rows: tuple[tuple[int, int], ...] = ((1_000_000, 4), (400_000, 10), (40_000, 100))
    """(rows, actions) of the batches that are compared with a pass of numpy; the first one is also
    compared with the convex solvers."""
    solves: int = 200
    """Rows that the convex solvers get, one after the other."""
    repeats: int = 10
    """Turns of each side; the best counts."""
    seed: int = 0
    """Seed of the problems."""

    def __post_init__(self) -> None:
        for rows, actions in self.rows:
            if rows < 1 or actions < 2:
                raise InputError(
                    f"rows: got {rows} rows of {actions} actions, expected at least 1 and 2"
                )
        if not self.rows or not 1 <= self.solves <= self.rows[0][0]:
            raise InputError(
                f"solves: got {self.solves}, expected 1 to the number of rows of the first batch"
            )


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
    """All rows of the benchmark."""
    peers: list[tuple[str, float, Callable[[Problem], Callable[[], Floats]]]] = [
        ("cvxpy + Clarabel", 5000.0, _through_cvxpy),
        ("Clarabel, built anew", 1000.0, _through_clarabel),
        ("Clarabel, updated", 1000.0, _through_clarabel_updated),
    ]
    _need_peers()
    table = []
    for rows, actions in config.rows:
        problem = draw(rows, actions, config.seed)
        times, share = _against_numpy(problem, config.repeats)
        table.append(
            Comparison(
                f"numpy pass, A = {actions}",
                times.ours / rows,
                times.peer / rows,
                unit="row",
                sense="slower",
                goal=1.5,
                note=f"{rows:,} rows, {100 * share:.0f} % binding, one thread",
            )
        )
    rows, actions = config.rows[0]
    problem = draw(rows, actions, config.seed)
    few = Problem(*(x[: config.solves] for x in (problem.weight, problem.cost, problem.budget)))
    for name, goal, build in peers:
        times, gap = _against_convex(problem, few, build(few), config.repeats)
        table.append(
            Comparison(
                f"{name}, A = {actions}",
                times.ours / rows,
                times.peer / config.solves,
                unit="row",
                sense="faster",
                goal=goal,
                note=f"{config.solves:,} solves; optima agree to {gap:.0e}",
            )
        )
    return table


def _against_numpy(problem: Problem, repeats: int) -> tuple[BestSeconds, float]:
    """Times of a whole batch, and the share of rows whose budget binds."""
    weight, cost, budget = problem.weight, problem.cost, problem.budget
    share = float(solve(weight, cost, budget).binding.mean())
    times = race(
        lambda: solve(weight, cost, budget, threads=1),
        lambda: (np.sqrt(weight) / cost).sum(axis=1),
        repeats=repeats,
    )
    return times, share


def _against_convex(
    problem: Problem, few: Problem, peer: Callable[[], Floats], repeats: int
) -> tuple[BestSeconds, float]:
    """Times of ours on all rows and of the peer on a few; how far its optima are from ours."""
    ours = solve(few.weight, few.cost, few.budget).mu
    optima = [(few.weight**2 / mu).sum(axis=1) for mu in (ours, peer())]
    gap = float(np.abs(optima[1] / optima[0] - 1.0).max())
    times = race(
        lambda: solve(problem.weight, problem.cost, problem.budget, threads=1),
        peer,
        repeats=repeats,
    )
    return times, gap


def _need_peers() -> None:
    for package in ("cvxpy", "clarabel"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingExtraError(package, "bench", "The solver's benchmark") from error


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


class _Cones:
    """The same cones written by hand, in Clarabel's form: minimize objective x, b - matrix x in K.

    x = (mu, t). Rows: sum mu = 1; cost mu <= budget; for each action the cone (mu+t, mu-t, 2w).
    """

    def __init__(self, few: Problem) -> None:
        import clarabel
        from scipy import sparse

        self.few = few
        A = few.weight.shape[1]
        eye = np.eye(A)
        rows = np.zeros((A, 3, 2 * A))
        rows[:, 0], rows[:, 1] = np.hstack([-eye, -eye]), np.hstack([-eye, eye])
        top = np.zeros((2, 2 * A))
        top[:, :A] = 1.0
        self.matrix = sparse.csc_matrix(np.vstack([top, rows.reshape(3 * A, 2 * A)]))
        #: Where the costs stand among the matrix's numbers, action after action.
        self.place = np.flatnonzero(self.matrix.indices == 1)
        self.quadratic = sparse.csc_matrix((2 * A, 2 * A))
        self.objective = np.concatenate([np.zeros(A), np.ones(A)])
        self.cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(1)]
        self.cones += [clarabel.SecondOrderConeT(3)] * A
        self.settings = clarabel.DefaultSettings()
        self.settings.verbose = False

    def right_side(self, k: int) -> Floats:
        """B of row k."""
        b = np.zeros(2 + 3 * self.few.weight.shape[1])
        b[0], b[1] = 1.0, self.few.budget[k]
        b[4::3] = 2.0 * self.few.weight[k]
        return b

    def solver(self, k: int) -> Any:
        """A Clarabel solver for row k."""
        import clarabel

        self.matrix.data[self.place] = self.few.cost[k]
        b = self.right_side(k)
        return clarabel.DefaultSolver(
            self.quadratic, self.objective, self.matrix, b, self.cones, self.settings
        )


def _through_clarabel(few: Problem) -> Callable[[], Floats]:
    """Clarabel's own interface, a new solver object for each row."""
    cones = _Cones(few)

    def solve_all() -> Floats:
        rows, A = few.weight.shape
        return np.array([cones.solver(k).solve().x[:A] for k in range(rows)])

    return solve_all


def _through_clarabel_updated(few: Problem) -> Callable[[], Floats]:
    """Clarabel at its fastest: one solver object whose numbers are replaced row after row."""
    cones = _Cones(few)
    cones.settings.presolve_enable = False  # or the numbers could not be replaced
    solver = cones.solver(0)

    def solve_all() -> Floats:
        answers = np.empty_like(few.weight)
        for k in range(len(answers)):
            solver.update(A=(cones.place, few.cost[k]), b=cones.right_side(k))
            answers[k] = solver.solve().x[: answers.shape[1]]
        return answers

    return solve_all

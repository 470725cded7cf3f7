"""The program's solver, judged by an independent convex solver and by its optimality conditions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopeval import Solution, Status, solve
from scopeval.errors import InputError
from scopeval.solver import solve_priced
from scopeval.solver._kernel import solve_row

EPS = np.finfo(float).eps


# -- problems ------------------------------------------------------------------------------------


@st.composite
def problems(draw: st.DrawFn, most_actions: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that sit on the corners: ties, zeros, 12 orders of magnitude, budgets just feasible."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = 16
    A = draw(st.integers(1, most_actions))
    weight = rng.random((rows, A))
    if draw(st.booleans()):
        weight = 10.0 ** rng.uniform(-12, 0, (rows, A))
    weight *= rng.random((rows, A)) < draw(st.sampled_from([1.0, 0.7, 0.3, 0.0]))
    cost = rng.random((rows, A)) * 10.0 ** draw(st.integers(-6, 6))
    if draw(st.booleans()):  # ties
        cost = np.round(cost / cost.max() * 3) / 3 * cost.max()
    if draw(st.booleans()):
        cost = cost - draw(st.sampled_from([0.5, 10.0])) * cost.max()
    cheapest, highest = cost.min(1), cost.max(1)
    share = draw(st.sampled_from([0.0, 1e-15, 1e-12, 1e-6, 0.1, 0.5, 0.9, 1.5]))
    budget = cheapest + share * (highest - cheapest)
    if draw(st.integers(0, 9)) == 0:
        budget = cheapest - 0.1 * (np.abs(cheapest) + 1)
    if draw(st.integers(0, 3)) == 0:  # what the reinforcement learning rooms ask: pi's own mean
        pi = rng.dirichlet(np.ones(A), rows)
        budget = (pi * cost).sum(1)
    return weight, cost, budget


def objective(weight: np.ndarray, mu: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(weight > 0, weight**2 / mu, 0.0).sum(-1)


def scale_of(cost: np.ndarray, budget: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(cost).max(1), np.abs(budget))


def dual_bound(weight: np.ndarray, cost: np.ndarray, budget: np.ndarray) -> np.ndarray:
    """The largest of many lower bounds on the optimum, one for each kappa >= 0."""
    excess = cost - cost.min(1, keepdims=True)
    gap = budget - cost.min(1)
    best = np.zeros(len(weight))
    for kappa in np.concatenate([[0.0], np.logspace(-12, 18, 4001)]):
        k = kappa / np.maximum(excess.max(1), 1e-300)
        root = np.sqrt(1 + k[:, None] * excess)
        best = np.maximum(best, (weight * root).sum(1) ** 2 / (1 + k * gap))
    return best


def check_optimal(weight: np.ndarray, cost: np.ndarray, budget: np.ndarray, sol: Solution) -> None:
    """Feasible to rounding, and a Lagrange multiplier that proves optimality."""
    solved = sol.status == Status.SOLVED
    w, q, b, mu, lam = (x[solved] for x in (weight, cost, budget, sol.mu, sol.multiplier))
    assert np.isfinite(mu).all()
    assert (mu >= 0).all()
    np.testing.assert_allclose(mu.sum(1), 1.0, atol=4e-15 * max(8, w.shape[1]))
    scale = scale_of(q, b)
    assert ((mu * q).sum(1) - b <= 1e-12 * scale).all()
    assert (lam >= 0).all()
    # Weak duality: for any theta in [0, 1/gap] this is at most the optimum; equal at the root.
    value = objective(w, mu)
    assert np.isfinite(value).all()
    excess = q - q.min(1, keepdims=True)
    excess = np.where(excess > 1e-13 * scale[:, None], excess, 0.0)
    gap = np.maximum(b - q.min(1), 0.0)
    theta = np.where(lam > 0, lam / value, 0.0)
    slack = np.maximum(1 - theta * gap, 0.0)
    bound = (w * np.sqrt(slack[:, None] + theta[:, None] * excess)).sum(1) ** 2
    np.testing.assert_allclose(value, bound, rtol=1e-6)  # 1 - theta gap cancels


@settings(max_examples=400, deadline=None)
@given(problems())
def test_solution_is_feasible_and_proves_itself_optimal(problem):
    weight, cost, budget = problem
    sol = solve(weight, cost, budget)
    check_optimal(weight, cost, budget, sol)

    scale = scale_of(cost, budget)
    too_dear = cost.min(1) - budget > 1e-13 * scale
    assert (sol.status[too_dear] == Status.INFEASIBLE).all()
    affordable = budget - cost.min(1) > 1e-13 * scale
    assert (sol.status[affordable] != Status.INFEASIBLE).all()
    idle = (weight == 0).all(1) & ~too_dear
    assert (sol.status[idle] == Status.INDIFFERENT).all()
    assert np.isnan(sol.mu[sol.status == Status.INFEASIBLE]).all()
    mu = sol.mu[sol.status == Status.INDIFFERENT]
    np.testing.assert_allclose(mu.sum(1), 1.0)


@settings(max_examples=60, deadline=None)
@given(problems(most_actions=6))
def test_no_dual_bound_beats_it_and_one_reaches_it(problem):
    weight, cost, budget = problem
    sol = solve(weight, cost, budget)
    solved = (sol.status == Status.SOLVED) & (budget - cost.min(1) > 1e-9 * scale_of(cost, budget))
    value = objective(weight[solved], sol.mu[solved])
    bound = dual_bound(weight[solved], cost[solved], budget[solved])
    assert (bound <= value * (1 + 1e-9)).all()
    np.testing.assert_allclose(value, bound, rtol=1e-2)


def clarabel(
    weight: np.ndarray,
    cost: np.ndarray,
    budget: float | None = None,
    *,
    price: float = 0.0,
    floor: np.ndarray | float = 0.0,
) -> np.ndarray:
    import cvxpy as cp

    mu = cp.Variable(len(weight))
    scale = weight.max()
    terms = [cp.quad_over_lin(float(w / scale), mu[a]) for a, w in enumerate(weight) if w > 0]
    paid = (price / scale**2) * (cost @ mu)
    limits = [cp.sum(mu) == 1, mu >= floor, *([] if budget is None else [cost @ mu <= budget])]
    problem = cp.Problem(cp.Minimize(cp.sum(terms) + paid), limits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver=cp.CLARABEL)
    assert problem.status in ("optimal", "optimal_inaccurate"), problem.status
    return np.asarray(mu.value)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 10),
    st.floats(0.02, 1.2),
    st.booleans(),
    st.booleans(),
)
def test_agrees_with_clarabel(seed, A, share, zeros, ties):
    rng = np.random.default_rng(seed)
    weight = rng.random(A) + 0.05
    if zeros:
        weight[rng.random(A) < 0.4] = 0.0
        weight[rng.integers(A)] = 1.0
    cost = rng.random(A)
    if ties:
        cost = np.round(cost * 2) / 2
    budget = cost.min() + share * (cost.max() - cost.min() + 1e-3)
    ours = solve(weight[None], cost[None], [budget])
    assert ours.status[0] == Status.SOLVED
    theirs = clarabel(weight, cost, budget)
    f = objective(weight[None], np.maximum(theirs, 1e-300)[None])[0]
    bought = ours.multiplier[0] * max(cost @ theirs - budget, 0.0)  # what its tolerance won it
    assert objective(weight[None], ours.mu)[0] <= (f + bought) * (1 + 1e-6)
    np.testing.assert_allclose(ours.mu[0][weight > 0], theirs[weight > 0], atol=2e-4)


# -- a floor, and a price --------------------------------------------------------------------------


def drawn_row(seed: int, A: int, zeros: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weight, cost and floor [A] of one row; the floor binds somewhere in most of them."""
    rng = np.random.default_rng(seed)
    weight = rng.random(A) ** 3 + 0.01
    if zeros:
        weight[rng.random(A) < 0.4] = 0.0
        weight[rng.integers(A)] = 1.0
    return weight, rng.random(A), rng.dirichlet(np.ones(A)) * rng.uniform(0.0, 0.9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.floats(0.02, 1.2), st.booleans())
def test_a_budget_with_a_floor_agrees_with_clarabel(seed, A, share, zeros):
    weight, cost, floor = drawn_row(seed, A, zeros)
    cheapest = floor @ cost + (1.0 - floor.sum()) * cost.min()
    budget = cheapest + share * (cost.max() - cheapest)
    ours = solve(weight[None], cost[None], [budget], floor=floor[None])
    assert ours.status[0] == Status.SOLVED
    mu = ours.mu[0]
    assert (mu >= floor * (1 - 1e-12)).all()
    assert mu @ cost <= budget + 1e-12
    assert mu.sum() == pytest.approx(1.0, abs=1e-14)
    theirs = clarabel(weight, cost, budget, floor=floor)
    np.testing.assert_allclose(mu[weight > 0], theirs[weight > 0], atol=2e-4)
    # one program: at the price that the budget has, the answer is the same
    again = solve_priced(weight[None], cost[None], ours.multiplier[0], floor=floor[None]).mu[0]
    np.testing.assert_allclose(again[weight > 0], mu[weight > 0], atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.floats(-3, 3), st.booleans())
def test_a_price_with_a_floor_agrees_with_clarabel(seed, A, log_price, zeros):
    weight, cost, floor = drawn_row(seed, A, zeros)
    price = 10.0**log_price
    mu = solve_priced(weight[None], cost[None], price, floor=floor[None]).mu[0]
    assert (mu >= floor * (1 - 1e-12)).all()
    assert mu.sum() == pytest.approx(1.0, abs=1e-14)
    value = objective(weight, mu) + price * cost @ mu
    theirs = np.maximum(clarabel(weight, cost, price=price, floor=floor), 1e-300)
    assert value <= (objective(weight, theirs) + price * cost @ theirs) * (1 + 1e-6)


@settings(max_examples=200, deadline=None)
@given(problems(), st.floats(-6, 6), st.sampled_from([0.0, 0.02, 0.5]), st.floats(-6, 2))
def test_a_price_is_stationary_whatever_the_first_guess(problem, log_price, share, log_guess):
    """mu = max(floor, weight / sqrt(eta + price cost)) for one eta: it is convex."""
    weight, cost, _ = problem
    cost = cost / np.abs(cost).max()
    A = weight.shape[1]
    floor = share * np.random.default_rng(A).dirichlet(np.ones(A), len(weight))
    price = 10.0**log_price
    sol = solve_priced(weight, cost, price, floor=floor)
    for w, c, f, mu in zip(weight, cost, floor, sol.mu, strict=True):
        if w.sum() == 0.0:
            continue
        assert mu.sum() == pytest.approx(1.0, abs=1e-13)
        assert (mu >= f * (1 - 1e-12)).all()
        guessed = np.empty(A)
        eta = solve_row(w, c, price, f, guessed, 10.0**log_guess)
        np.testing.assert_allclose(guessed, mu, rtol=1e-9, atol=1e-12)
        eta *= w.sum() ** 2
        size = eta + price * (c - c.min())
        wanted = np.maximum(f, w / np.sqrt(np.where(size > 0.0, size, np.inf)))
        dear = size > 1e-9 * w.sum() ** 2  # else eta is what cancellation leaves of it
        np.testing.assert_allclose(mu[dear], wanted[dear], rtol=1e-6, atol=1e-12)


def test_a_floor_that_is_a_bound_costs_no_variance_where_it_does_not_bind():
    """Mixing in the floor afterwards is never better, and it is worse where mu was above it."""
    rng = np.random.default_rng(4)
    pi = rng.dirichlet(np.ones(5), 300)
    weight, cost = pi * rng.random((300, 5)), rng.random((300, 5))
    floor = 0.2 * pi
    budget = (pi * cost).sum(1)
    bound = solve(weight, cost, budget, floor=floor)
    mixed = 0.8 * solve(weight, cost, budget).mu + floor
    assert (bound.status == Status.SOLVED).all()
    gain = objective(weight, mixed) / objective(weight, bound.mu)
    assert (gain > 1 - 1e-9).all()
    assert gain.mean() > 1.01


def test_a_floor_that_cannot_be_paid():
    sol = solve([[1.0, 1.0]], [[0.0, 1.0]], [0.2], floor=[[0.0, 0.3]])
    assert sol.status[0] == Status.INFEASIBLE
    sol = solve([[1.0, 1.0]], [[0.0, 1.0]], [0.4], floor=[[0.7, 0.0]])
    np.testing.assert_allclose(sol.mu, [[0.7, 0.3]])


@pytest.mark.parametrize(
    ("floor", "message"),
    [
        ([[0.1]], "floor: got shape"),
        ([[0.1, -0.1]], "floor: row 0"),
        ([[0.6, 0.4]], "floor: row 0 holds .* expected a sum of less than 1"),
        ([[np.nan, 0.0]], "floor: row 0"),
    ],
)
def test_bad_floors(floor, message):
    with pytest.raises(InputError, match=message):
        solve([[1.0, 1.0]], [[1.0, 2.0]], [1.5], floor=floor)
    with pytest.raises(InputError, match=message):
        solve_priced([[1.0, 1.0]], [[1.0, 2.0]], 1.0, floor=floor)


def test_a_thousand_actions():
    rng = np.random.default_rng(0)
    weight, cost = rng.random((50, 1000)), rng.random((50, 1000))
    budget = cost.min(1) + rng.uniform(0.001, 0.7, 50)
    sol = solve(weight, cost, budget)
    check_optimal(weight, cost, budget, sol)
    assert sol.binding.sum() > 20


def test_multiplier_is_the_price_of_the_budget():
    rng = np.random.default_rng(1)
    weight, cost = rng.random((200, 5)), rng.random((200, 5))
    budget = cost.min(1) + 0.3 * (cost.mean(1) - cost.min(1))
    step = 1e-6
    up = objective(weight, solve(weight, cost, budget + step).mu)
    down = objective(weight, solve(weight, cost, budget - step).mu)
    np.testing.assert_allclose(
        -(up - down) / (2 * step), solve(weight, cost, budget).multiplier, rtol=1e-4
    )


# -- corners -------------------------------------------------------------------------------------


def test_slack_budget_gives_weights_themselves():
    sol = solve([[1.0, 3.0]], [[1.0, 1.0]], [5.0])
    np.testing.assert_allclose(sol.mu, [[0.25, 0.75]])
    assert sol.multiplier[0] == 0


def test_left_over_probability_goes_to_the_free_cheapest_action():
    # only the dear action carries weight, and it may be taken half of the time at most
    sol = solve([[0.0, 1.0]], [[0.0, 1.0]], [0.5])
    np.testing.assert_allclose(sol.mu, [[0.5, 0.5]])
    # two cheapest actions share the rest
    sol = solve([[0.0, 1.0, 0.0]], [[0.0, 1.0, 0.0]], [0.5])
    np.testing.assert_allclose(sol.mu, [[0.25, 0.5, 0.25]])


def test_single_action():
    assert solve([[2.0]], [[1.0]], [1.0]).mu[0, 0] == 1.0
    assert solve([[2.0]], [[1.0]], [0.5]).status[0] == Status.INFEASIBLE
    assert solve([[0.0]], [[1.0]], [2.0]).status[0] == Status.INDIFFERENT


def test_budget_equal_to_the_cheapest():
    tied = solve([[1.0, 1.0, 0.0]], [[2.0, 2.0, 3.0]], [2.0])
    np.testing.assert_allclose(tied.mu, [[0.5, 0.5, 0.0]])
    assert solve([[1.0, 1.0]], [[2.0, 3.0]], [2.0]).status[0] == Status.INFEASIBLE


def test_equal_costs_and_a_budget_that_rounding_put_below_them():
    cost = np.full((1, 3), 0.3)
    budget = np.nextafter(0.3, 0)  # as sum(pi * 0.3) may come out
    sol = solve([[1.0, 2.0, 1.0]], cost, [budget])
    assert sol.status[0] == Status.SOLVED
    np.testing.assert_allclose(sol.mu, [[0.25, 0.5, 0.25]])


def test_fallback_fills_what_is_not_solved():
    pi = np.array([[0.2, 0.8]] * 3)
    sol = solve([[1, 1], [0, 0], [1, 1]], [[1, 2], [1, 2], [1, 2]], [0.5, 9.0, 9.0], fallback=pi)
    assert list(sol.status) == [Status.INFEASIBLE, Status.INDIFFERENT, Status.SOLVED]
    np.testing.assert_array_equal(sol.mu[:2], pi[:2])
    np.testing.assert_allclose(sol.mu[2], [0.5, 0.5])


@pytest.mark.parametrize("exponent", [-200, -100, 100, 150])
def test_scale_of_the_weights_does_not_matter(exponent):
    rng = np.random.default_rng(2)
    weight, cost = rng.random((64, 4)), rng.random((64, 4))
    budget = (cost.min(1) + cost.mean(1)) / 2
    plain = solve(weight, cost, budget).mu
    np.testing.assert_allclose(solve(weight * 10.0**exponent, cost, budget).mu, plain, rtol=1e-12)


@pytest.mark.parametrize("spread", [1e-12, 1e-50, 1e-150, 1e-300])
def test_vanishing_weight_on_the_cheapest_action(spread):
    """The root in y is about as small as that weight; nothing may cancel on the way there."""
    sol = solve([[spread, 1.0, 0.5]], [[0.0, 1.0, 2.0]], [0.5])
    mu = sol.mu[0]
    assert mu @ [0.0, 1.0, 2.0] == pytest.approx(0.5, abs=1e-15)
    # at the end of the curve: mu proportional to w / sqrt(e) on the dear actions
    assert mu[1] / mu[2] == pytest.approx(1.0 / (0.5 / np.sqrt(2)), rel=1e-9)


def test_same_bits_for_any_number_of_threads_and_any_neighbors():
    rng = np.random.default_rng(3)
    B = 40_001
    pi = rng.dirichlet(np.ones(4), B)
    weight, cost = pi * rng.random((B, 4)) ** 4, rng.random((B, 4))
    budget = (pi * cost).sum(1)
    one = solve(weight, cost, budget, threads=1)
    for threads in (2, 3):
        many = solve(weight, cost, budget, threads=threads)
        assert many.mu.tobytes() == one.mu.tobytes()
        assert many.multiplier.tobytes() == one.multiplier.tobytes()
    some = rng.permutation(B)[:1000]
    alone = solve(weight[some], cost[some], budget[some])
    assert alone.mu.tobytes() == one.mu[some].tobytes()


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "cost", "budget", "message"),
    [
        ([[1, np.nan]], [[1, 1]], [1], "weight: got nan at row 0, action 1"),
        ([[1, 1], [1, -2]], [[1, 1]] * 2, [1, 1], "weight: got -2 at row 1, action 1"),
        ([[1, 1]], [[1, np.inf]], [1], "cost: got inf at row 0, action 1"),
        ([[1, 1]], [[1, 1]], [np.nan], "budget: got nan at row 0"),
        ([[1, 1]], [[1, 1, 1]], [1], "cost: got shape"),
        ([[1, 1]], [[1, 1]], [1, 2], "budget: got shape"),
        ([[]], [[]], [1], "at least one action"),
        ([1, 1], [1, 1], [1], "weight: got shape"),
        ([["a", "b"]], [[1, 1]], [1], "weight: cannot be read"),
        ([[1, 1]], [[1e308, -1e308]], [1], "row 0: a weight, cost or budget is 1e300 or larger"),
        ([[1, 1]], [[1, 1]], [1e305], "row 0: a weight, cost or budget is 1e300 or larger"),
    ],
)
def test_bad_input_names_the_row(weight, cost, budget, message):
    with pytest.raises(InputError, match=message):
        solve(weight, cost, budget)


def test_weights_too_small_to_be_told_from_zero():
    sol = solve([[1e-310, 1e-312]], [[1.0, 2.0]], [1.5], fallback=[[0.3, 0.7]])
    assert sol.status[0] == Status.INDIFFERENT
    np.testing.assert_array_equal(sol.mu, [[0.3, 0.7]])


def test_no_rows():
    assert solve(np.empty((0, 3)), np.empty((0, 3)), np.empty(0)).mu.shape == (0, 3)

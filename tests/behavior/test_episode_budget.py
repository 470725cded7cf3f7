"""One budget for whole episodes: a price of cost instead of a budget in every state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from logged_worlds import cells
from random_mdps import cases, random_case
from scopeval import (
    Method,
    Promise,
    Question,
    Status,
    Table,
    Transitions,
    design,
    exact,
    load,
    solve,
)
from scopeval.behavior import candidates, evidence, step, sweep
from scopeval.behavior.evidence import evidence_of, with_price
from scopeval.behavior.methods import METHODS
from scopeval.behavior.price import approach, find_price
from scopeval.behavior.step import Recipe, weigh_rows
from scopeval.behavior.sweep import Kind, line_6
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.errors import InputError
from scopeval.models.protocols import Estimates
from scopeval.solver import solve_priced

# -- the program with a price --------------------------------------------------------------------


@st.composite
def priced(draw):
    """Rows on the corners: ties, zeros, weights, costs and prices of many sizes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    A = draw(st.integers(1, 12))
    weight = rng.gamma(0.3, size=(16, A)) * 10.0 ** draw(st.integers(-20, 20))
    weight *= rng.random((16, A)) < draw(st.sampled_from([1.0, 0.7, 0.3, 0.0]))
    cost = rng.normal(size=(16, A)) * 10.0 ** draw(st.integers(-6, 6))
    if draw(st.booleans()):
        cost = np.round(cost / np.abs(cost).max() * 2) * np.abs(cost).max()
    return weight, cost, draw(st.sampled_from([0.0, 1e-12, 1e-6, 1.0, 1e6, 1e12]))


@given(priced())
@settings(max_examples=300, deadline=None)
def test_no_mu_is_cheaper(problem):
    """Weak duality: for every eta, sum 2 w sqrt(eta + x) - eta is below every mu's objective."""
    weight, cost, price = problem
    found = solve_priced(weight, cost, price)
    mu, solved = found.mu, found.status == Status.SOLVED
    assert ((weight.sum(1) > 0) == solved).all()
    assert (mu >= 0).all()
    np.testing.assert_allclose(mu.sum(1), 1.0, rtol=0, atol=1e-12)
    x = price * (cost - cost.min(1, keepdims=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.where(weight > 0, weight**2 / mu, 0.0).sum(1)
        eta = np.where(weight > 0, (weight / mu) ** 2 - x, -np.inf)
    objective = spread + (mu * x).sum(1)
    eta = np.where(np.isfinite(eta), np.maximum(eta, 0.0), 0.0)
    # each action implies an eta, to the rounding of x; zero is that of left-over probability
    bounds = [
        2 * (weight * np.sqrt(one[:, None] + x)).sum(1) - one
        for one in (*eta.T, np.zeros(len(eta)))
    ]
    gap = objective - np.max(bounds, axis=0)
    assert (gap[solved] <= 1e-9 * objective[solved]).all()


def test_the_price_of_a_budget_gives_the_budgets_answer():
    rng = np.random.default_rng(1)
    weight, cost = rng.gamma(0.5, size=(400, 6)), rng.random((400, 6))
    by_budget = solve(weight, cost, np.quantile(cost, 0.4, axis=1))
    some = np.flatnonzero(by_budget.binding)
    assert len(some) > 200
    for i in some:
        row = slice(i, i + 1)
        by_price = solve_priced(weight[row], cost[row], by_budget.multiplier[i])
        np.testing.assert_allclose(by_price.mu[0], by_budget.mu[i], rtol=1e-9, atol=1e-13)


def test_left_over_probability_goes_to_the_cheapest():
    found = solve_priced([[0.0, 0.1, 0.2]], [[0.0, 1.0, 4.0]], 1.0)
    np.testing.assert_allclose(found.mu, [[0.8, 0.1, 0.1]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0, -1.0]], [[0.0, 1.0]], 1.0), "row 0"),
        (([[1.0, 1.0]], [[0.0, np.nan]], 1.0), "row 0"),
        (([[1.0, 1.0]], [[0.0]], 1.0), "expected weight's shape"),
        (([1.0], [1.0], 1.0), "expected \\[rows"),
        (([[1.0]], [[1.0]], -1.0), "price: got -1"),
        (([[1.0]], [[1.0]], "dear"), "price: got 'dear'"),
    ],
)
def test_bad_programs_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        solve_priced(*arguments)


# -- the price -----------------------------------------------------------------------------------


CURVES = {  # costs that fall with the logarithm of the price: convex, concave, a step
    "hyperbola": lambda x: 1 / (1 + x),
    "parabola": lambda x: 1 - 0.5 * x**1.5,
    "line": lambda x: 1 - 0.5 * x,
    "step": lambda x: 1 / (1 + x**20),
}


@given(
    st.floats(1e-9, 1e9), st.floats(1e-3, 1e3), st.sampled_from(list(CURVES)), st.floats(0.01, 0.99)
)
def test_the_price_is_found(root, unit, curve, falls):
    """Half of the fall is allowed, and met at the root."""

    def spent(prices):
        shape = CURVES[curve]
        return [1 - falls * (1 - shape(min(price / (root * unit), 1e9))) for price in prices]

    allowed = 1 - falls / 2
    for slack, rounds in ((0.0, 60), (1e-3 * allowed, 12)):
        found = find_price(spent, allowed, unit, slack=slack, rounds=rounds)
        if root > 1e6:
            assert found is None
            continue
        assert spent([found])[0] <= allowed
        if root > 0.02:  # less than a hundredth of the unit is not looked for
            if not slack:
                assert found == pytest.approx(root * unit, rel=1e-9)
            if curve != "step":
                assert allowed - spent([found])[0] <= max(slack, 1e-8)


# -- designs with exact values -------------------------------------------------------------------


@given(cases(), st.sampled_from(["scope", "scope-dr"]), st.sampled_from([0.0, 0.1]))
@settings(deadline=None)
def test_episodes_keep_the_promise_and_vary_no_more(case, method, epsilon):
    mdp = case.mdp
    own = exact.assess(mdp, case.target, case.target)
    found = {}
    for budget in ("state", "episode"):
        mu = exact.design(
            mdp, case.target, method, promise=Promise(at_most=1 + epsilon, per=budget)
        )
        found[budget] = exact.assess(mdp, case.target, mu, mu.control)
    size = max(own.variance, own.value**2, 1e-12)
    assert found["episode"].cost <= (1 + epsilon) * own.cost * (1 + 1e-9) + 1e-12
    assert found["episode"].variance <= found["state"].variance + 1e-9 * size
    assert abs(found["episode"].bias) <= 1e-9 * max(1.0, abs(own.value))


@pytest.mark.parametrize("seed", range(6))
def test_one_step_from_several_states_is_optimal(seed):
    """With one step the price is not an approximation: an independent solver finds no better."""
    case = random_case(seed, states=3, actions=3, horizon=1)
    mdp, pi = case.mdp, case.target[0]
    start = np.asarray(mdp.initial)
    mu = exact.design(mdp, case.target, "scope", promise=Promise(per="episode"))
    found = exact.assess(mdp, case.target, mu)
    own = exact.assess(mdp, case.target, case.target)
    X = own.second_moments[0]
    cost = np.asarray(mdp.at("cost", 0))

    def spread(flat):
        return float(start @ (pi**2 * X / flat.reshape(pi.shape)).sum(1))

    rules = [
        {"type": "eq", "fun": lambda flat: flat.reshape(pi.shape).sum(1) - 1},
        {"type": "ineq", "fun": lambda f: own.cost - start @ (f.reshape(pi.shape) * cost).sum(1)},
    ]
    best = minimize(
        spread, pi.ravel(), method="SLSQP", bounds=[(1e-6, 1)] * pi.size, constraints=rules,
        options={"maxiter": 1000, "ftol": 1e-14},
    )  # fmt: skip
    assert spread(mu.probs(np.arange(3), 0).ravel().clip(1e-300)) <= best.fun * (1 + 1e-6)
    assert found.cost <= own.cost * (1 + 1e-9)


def test_states_that_do_not_matter_save_all_they_can():
    """Nothing follows from the second state: there the cheapest action costs no variance."""
    pi = np.full((1, 2, 2), 0.5)
    mdp = exact.TabularMDP(
        [0.5, 0.5], np.full((2, 2, 2), 0.5), [[1.0, 9.0], [0.0, 0.0]], [[1.0, 2.0], [1.0, 9.0]], 1
    )
    own = exact.assess(mdp, pi, pi)
    mu = exact.design(mdp, pi, "scope", promise=Promise(per="episode"))
    found = exact.assess(mdp, pi, mu)
    assert found.variance < 0.5 * own.variance
    assert found.bias == 0.0
    assert found.cost <= own.cost


def test_saving_here_pays_there():
    """Where every state alone can do nothing: no choice between cost and value in one state."""
    horizon, pi = 1, np.full((1, 2, 2), 0.5)
    mdp = exact.TabularMDP(
        [0.5, 0.5],
        np.full((2, 2, 2), 0.5),
        [[1.0, 9.0], [3.0, 3.0]],  # the first state's values lie apart, the second's do not
        [[1.0, 2.0], [1.0, 2.0]],  # and what is worth more costs more
        horizon,
    )
    own = exact.assess(mdp, pi, pi)
    state, episode = (
        exact.assess(mdp, pi, exact.design(mdp, pi, "scope", promise=Promise(per=budget)))
        for budget in ("state", "episode")
    )
    assert state.variance == pytest.approx(own.variance)  # nothing to be done
    assert episode.variance < 0.75 * own.variance
    assert episode.cost == pytest.approx(own.cost)


# -- learned designs -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def worlds():
    made = []
    for k in range(4):
        mdp, target = Gridworld(10, seed=k).mdp(), target_policies(30, 10, seed=0)[k]
        log = gridworld_logs(mdp, 1000, seed=k)
        made.append((mdp, target, log, exact.assess(mdp, target, target)))
    return made


def test_gridworlds_have_half_the_variance_at_the_same_cost(worlds):
    relative = {"state": [], "episode": []}
    for mdp, target, log, own in worlds:
        for budget, found in relative.items():
            policy = design(
                log,
                target,
                horizon=10,
                method="scope",
                promise=Promise(per=budget),
                learn=Table(features=cells(10)),
            )
            mu, b = policy.table(mdp.states)
            real = exact.assess(mdp, target, mu, b)
            found.append((real.variance / own.variance, real.cost / own.cost))
            assert policy.predicted.variance == pytest.approx(found[-1][0], rel=0.3)
            assert policy.predicted.cost <= 1 + 1e-9
    state, episode = (np.array(found) for found in relative.values())
    assert (episode[:, 0] < 0.8 * state[:, 0]).all()
    assert episode[:, 0].mean() < 0.6 * state[:, 0].mean()
    assert episode[:, 1].mean() <= 1.003
    assert episode[:, 1].max() <= 1.01


def test_it_is_kept_in_files_and_told(worlds, tmp_path):
    mdp, target, log, _ = worlds[0]
    policy = design(log, target, horizon=10, method="scope", promise=Promise(per="episode"))
    assert policy.recipe.budget == "episode"
    assert policy.recipe.price > 0
    assert "one for whole episodes, at a price of" in policy.summary()
    policy.save(tmp_path / "mu")
    back = load(tmp_path / "mu", target)
    assert back.recipe == policy.recipe
    np.testing.assert_array_equal(back.table(mdp.states)[0], policy.table(mdp.states)[0])
    one = np.random.default_rng(0)
    assert policy.act(3, 2, one).probability in policy.probs(np.array([3]), 2)


def recipe_of(**asked):
    return Recipe(METHODS["scope"], 10, budget="episode", **asked)


def opened(worlds, **asked):
    """The evidence before anything was designed, and scope's recipe."""
    _, target, log, _ = worlds[0]
    return evidence_of(log, Question(target, 10)), recipe_of(**asked)


@pytest.mark.parametrize(("epsilon", "margin"), [(0.0, 0.0), (0.01, 0.0), (0.0, 0.02)])
def test_the_budget_is_spent_but_for_the_margin(worlds, epsilon, margin):
    run, recipe = opened(worlds, epsilon=epsilon)
    found = with_price(run, run.whole, replace(recipe, margin=margin))
    assert found.price > 0
    swept = sweep.sweep(run.whole, line_6([Kind(found)]), 2)
    assert 1 + epsilon - margin - 0.0011 <= swept.cost[1] / swept.cost[0] <= 1 + epsilon - margin
    assert swept.start_spread[1] == 0.0  # all episodes begin in one state
    wider = replace(recipe, epsilon=epsilon, margin=margin + 0.01)
    more = with_price(run, run.whole, wider)
    assert more.price > found.price


def test_few_first_observations_leave_some_of_the_budget_unspent():
    """Whose promise it is depends on where episodes begin: two standard errors stay unspent.

    Each of 60 designs is above its budget with a chance of 2.3 %, 6 or more with one of 0.3 %;
    without the precaution it is about half of them.
    """
    pi = np.full((1, 2, 2), 0.5)
    mdp = exact.TabularMDP(
        [0.5, 0.5], np.full((2, 2, 2), 0.5), [[3.0, 3.0], [1.0, 9.0]], [[1.0, 3.0], [1.0, 3.0]], 1
    )
    own, n, above, tilted = exact.assess(mdp, pi, pi), 200, 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        s, a = rng.integers(2, size=n), rng.integers(2, size=n)
        log = Transitions(
            np.zeros(n, int), s, a, mdp.reward[s, a], mdp.cost[s, a], rng.integers(2, size=n)
        )
        policy = design(
            log, pi[0], horizon=1, seed=seed, method="scope", promise=Promise(per="episode")
        )
        cost = exact.assess(mdp, pi, policy.table(2)[0]).cost / own.cost
        above += cost > 1 + 1e-6
        tilted += policy.recipe.budget == "episode"
    assert tilted > 40
    assert above < 6


def test_without_a_price_that_saves_enough_every_state_keeps_its_budget(worlds, monkeypatch):
    monkeypatch.setattr(evidence, "find_price", lambda *_, **__: None)
    run, recipe = opened(worlds)
    assert with_price(run, run.whole, recipe).budget == "state"
    _, target, log, _ = worlds[0]
    policy, plain = (
        design(log, target, horizon=10, method="scope", promise=Promise(per=budget))
        for budget in ("episode", "state")
    )
    assert policy.recipe == plain.recipe
    np.testing.assert_array_equal(policy.table(100)[0], plain.table(100)[0])


def test_a_price_that_fails_in_the_end_is_dropped(worlds, monkeypatch):
    """Found on the halves, but on the whole it takes too much: the paper's budgets are left."""

    def wrong(evidence, data, recipe):
        found = with_price(evidence, data, recipe)
        return replace(found, price=1e6 * found.price) if found.budget == "episode" else found

    monkeypatch.setattr(candidates, "with_price", wrong)
    _, target, log, _ = worlds[0]
    policy, plain = (
        design(log, target, horizon=10, method="scope", promise=Promise(per=budget))
        for budget in ("episode", "state")
    )
    assert policy.recipe == plain.recipe


def test_each_half_has_its_own_price(worlds, monkeypatch):
    """A half's critics are judged with the price of that half, by the critics of the other."""
    run, recipe = opened(worlds)
    prices = {id(run.halves[0]): 0.3, id(run.halves[1]): 7.0, id(run.whole): 1.0}
    followed = []
    monkeypatch.setattr(candidates, "with_price", lambda _, g, r: replace(r, price=prices[id(g)]))
    right = step.weigh_rows

    def spy(recipe, pi, e):
        followed.append(recipe.price)
        return right(recipe, pi, e)

    monkeypatch.setattr(sweep, "weigh_rows", spy)
    candidates.compare(run, [sweep.Kind(recipe)])
    T = 10
    assert followed == [0.3] * T + [7.0] * T + [0.3] * T + [7.0] * T + [1.0] * T


def test_the_unit_of_rewards_does_not_matter(worlds):
    _, target, log, _ = worlds[0]
    large = replace(log, reward=1e6 * log.reward)
    one, other = (
        design(x, target, horizon=10, method="scope", promise=Promise(per="episode")).table(100)[0]
        for x in (log, large)
    )
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_staying_at_the_target_has_no_price(worlds):
    _, target, log, _ = worlds[0]
    few = log.select(np.arange(20))
    policy = design(few, target, horizon=10, method="scope", promise=Promise(per="episode"))
    assert policy.recipe.method.name == "on-policy"
    assert (policy.recipe.budget, policy.recipe.price) == ("state", 0.0)
    assert policy.report.binding == 0.0


def test_what_is_not_known_keeps_its_share():
    """The known actions divide what pi leaves them at the price, against a fine grid."""
    pi, q = np.array([[0.3, 0.4, 0.3]]), np.array([[1.0, 3.0, 5.0]])
    cost, known = np.array([[1.0, 4.0, 9.0]]), np.array([[True, True, False]])
    e = Estimates(
        q=q, cost_target=cost, cost_behavior=cost[..., None], carried=np.zeros((1, 3, 1)),
        noise=np.zeros((1, 3)), error=np.zeros((1, 3)), known=known,
    )  # fmt: skip
    recipe = replace(recipe_of(), price=0.5, floor=0.0)
    first = np.linspace(1e-4, 0.7 - 1e-4, 200_001)
    both = np.stack([first, 0.7 - first])
    goal = (pi[0, :2, None] ** 2 * q[0, :2, None] ** 2 / both + 0.5 * cost[0, :2, None] * both).sum(
        0
    )
    best = both[:, np.argmin(goal)]
    for rows in (1, 3):
        some = e.select(np.zeros(rows, np.int64))
        mu, _, _ = weigh_rows(recipe, np.repeat(pi, rows, axis=0), some)
        np.testing.assert_allclose(mu[:, :2], np.tile(best, (rows, 1)), atol=1e-5)
        np.testing.assert_allclose(mu[:, 2], 0.3)


def test_act_is_one_row_of_many(worlds):
    _, target, log, _ = worlds[0]
    policy = design(log, target, horizon=10, method="scope", promise=Promise(per="episode"))
    states = np.arange(100)
    many = policy.probs(states, 4)
    assert policy.recipe.price > 0
    for s in states:
        np.testing.assert_array_equal(policy.probs(states[s : s + 1], 4)[0], many[s])


def test_a_free_departure_needs_no_price(worlds):
    """With room enough it is ODI's program, and so it is with the paper's budgets."""
    _, target, log, _ = worlds[0]
    policy = design(
        log, target, horizon=10, method="scope", promise=Promise(at_most=10.0, per="episode")
    )
    plain = design(log, target, horizon=10, method="scope", promise=Promise(at_most=10.0))
    assert policy.recipe == replace(plain.recipe, budget=policy.recipe.budget)
    np.testing.assert_allclose(policy.table(100)[0], plain.table(100)[0], rtol=1e-9)


def test_an_episode_budget_is_spent_on_the_behavior_policys_own_cost(worlds):
    _, target, log, _ = worlds[0]
    own = Method("scope", constrained=True, constraint="target")
    with pytest.raises(InputError, match="constraint: got 'target' with"):
        design(log, target, horizon=10, method=own, promise=Promise(per="episode"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"promise": 1.1}, "promise: got 1.1, limits: got None, expected Promise"),
        ({"promise": Promise(at_most=0.7)}, "expected the target policy's own cost or more"),
        ({"promise": Promise(limit=1.0)}, "or a limit with per='state'; others are for scopeval.d"),
        ({"promise": Promise(), "limits": [1.0]}, r"limits: got \[1.0\], expected Promise"),
        (
            {"promise": Promise(per="episode"), "constraint": "target"},
            "constraint: got 'target' with budget",
        ),
    ],
)
def test_bad_arguments(worlds, arguments, message):
    mdp, target, _, _ = worlds[0]
    with pytest.raises(InputError, match=message):
        exact.design(mdp, target, **arguments)


@settings(max_examples=200, deadline=None)
@given(st.floats(0.2, 0.95), st.floats(0.5, 3.0), st.floats(-0.05, 0.3))
def test_a_price_is_approached_from_costs_that_are_nearly_known(allowed, steep, off):
    """The last try costs no more than is allowed, and little is left unspent, in a few tries."""
    places = np.linspace(-6.0, 6.0, 25)

    def cost(x):
        return 1.0 / (1.0 + np.exp(steep * x))

    calls = []

    def spent(x):
        calls.append(x)
        return cost(x) * (1.0 + off * (1.0 - cost(x)))  # what the cap adds

    found = approach(spent, allowed, places, cost(places))
    assert len(calls) <= 6
    assert found in calls
    assert allowed * 0.98 <= spent(found) <= allowed * (1.0 + 1e-6)


def test_a_price_that_does_not_exist_is_the_highest():
    places = np.linspace(0.0, 2.0, 5)
    assert approach(lambda x: 1.0, 0.5, places, np.linspace(0.9, 0.6, 5)) == 2.0
    assert approach(lambda x: 0.1, 0.5, places, np.linspace(0.9, 0.6, 5)) == 0.0

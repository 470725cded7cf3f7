"""The frontier: optimal among all histories, monotone, within its cap, and true to its word."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from histories import best_of_all, enumerate_design
from random_mdps import Case, cases, random_case
from scopeval import Promise, exact, simulate
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.errors import InputError
from scopeval.exact import _weighted_kernel as kernel
from scopeval.exact import known as sweeps
from scopeval.exact.tables import control_table
from scopeval.policies.protocols import Behavior, Candidates, EpisodeState, weight_aware

#: |z| beyond this happens once in a million comparisons of a right program.
Z = 4.9
FINE = {"points": 160}


def own_unit(case):
    own = exact.assess(case.mdp, case.target, case.target, None)
    return own.variance / own.cost


# -- between the prices of a table --------------------------------------------------------------


def test_the_share_of_the_target_is_kept_and_the_rest_is_scaled():
    table = np.array([[0.0, 0.1, 0.9], [0.2, 0.1, 0.7]])
    pi, mu = np.array([0.5, 0.3, 0.2]), np.empty(3)
    kernel.weigh_row(table, pi, 0.5, 0.0, mu)
    np.testing.assert_allclose(mu, [0.1, 0.1, 0.8])
    kernel.weigh_row(table, pi, 0.5, 0.5, mu)
    np.testing.assert_allclose(mu, [0.25, 0.15, 0.6])
    kernel.weigh_row(table, pi, -7.0, 1.0, mu)
    np.testing.assert_allclose(mu, pi)


# -- the theorem ---------------------------------------------------------------------------------


def theorem_cases():
    yield random_case(1, states=2, actions=2, horizon=3, zero_probabilities=False)
    yield random_case(2, states=2, actions=2, horizon=3, zero_probabilities=False, gamma=0.8)
    yield random_case(4, states=2, actions=2, horizon=3, zero_probabilities=True)
    yield random_case(5, states=2, actions=2, horizon=3, noisy=True, zero_probabilities=False)
    yield random_case(6, states=2, actions=2, horizon=3, next_state=True, zero_probabilities=False)
    yield random_case(7, states=3, actions=2, horizon=3, zero_probabilities=False)


@pytest.mark.parametrize("number", range(6))
def test_no_behavior_of_any_history_is_better(number):
    """Brute force over all histories finds the same variance + price * cost, to 1e-3.

    The brute force may stop early, never below the optimum; the grid's error is of either sign.
    """
    case = list(theorem_cases())[number]
    unit = own_unit(case)
    controls = {"q": exact.values(case.mdp, case.target).q, "none": np.zeros_like(case.control)}
    for name in ("q",) if number % 2 else ("q", "none"):
        curve = exact.frontier(case.mdp, case.target, control_variate=name, cap=None, **FINE)
        for price in (unit, 10.0 * unit):
            variance, cost = best_of_all(case, controls[name], price, starts=1)
            found = curve.at_price(price).predicted
            ours = found.variance + price * found.cost
            assert ours == pytest.approx(variance + price * cost, rel=1e-3)
            assert found.cost == pytest.approx(cost, rel=1e-2)


def test_the_best_policy_that_ignores_the_weight_is_worse():
    case = random_case(4, states=2, actions=2, horizon=3, zero_probabilities=True)
    price = 10.0 * own_unit(case)
    b = np.zeros_like(case.control)
    variance, cost = best_of_all(case, b, price, blind=True, starts=4)
    found = (
        exact.frontier(case.mdp, case.target, control_variate="none", cap=None, **FINE)
        .at_price(price)
        .predicted
    )
    assert variance + price * cost > 1.05 * (found.variance + price * found.cost)


@pytest.mark.parametrize("number", range(6))
def test_the_best_policy_that_ignores_the_weight_by_passes_and_by_brute_force(number):
    """Coordinate descent and L-BFGS find the same sum, to 1 %: the problem is not convex."""
    case = list(theorem_cases())[number]
    method, b = (("scope-dr", exact.values(case.mdp, case.target).q), ("scope", None))[number % 2]
    price = 3.0 * own_unit(case)
    found = exact.improve_blind(case.mdp, case.target, price, method, rounds=500, tolerance=1e-8)
    ours = exact.assess(case.mdp, case.target, found)
    control = np.zeros_like(case.control) if b is None else b
    variance, cost = best_of_all(case, control, price, blind=True, starts=4)
    assert ours.variance + price * ours.cost == pytest.approx(variance + price * cost, rel=1e-2)
    first = exact.assess(
        case.mdp, case.target, exact.design_at_price(case.mdp, case.target, price, method)
    )
    assert ours.variance + price * ours.cost <= first.variance + price * first.cost
    assert abs(ours.bias) < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_within_the_cap_nearly_no_behavior_is_better(seed):
    case = random_case(seed, states=2, actions=2, horizon=3, zero_probabilities=False)
    unit = own_unit(case)
    q = exact.values(case.mdp, case.target).q
    curve = exact.frontier(case.mdp, case.target, cap=10.0, **FINE)
    variance, cost = best_of_all(case, q, 10.0 * unit, cap=10.0, starts=2)
    found = curve.at_price(10.0 * unit).predicted
    assert found.variance + 10 * unit * found.cost < 1.01 * (variance + 10 * unit * cost)


# -- what is predicted is so ---------------------------------------------------------------------


def enumerated(case, design):
    every = np.arange(case.actions)[None]

    def probs(t, s, weight):
        offered = Candidates(every, case.target[t, s][None])
        state = EpisodeState.of_weights(np.array([weight]))
        return design.weigh(offered, np.array([s]), t, state).probs[0]

    return enumerate_design(case, control_table(case.mdp, design.control), probs)


@settings(max_examples=25, deadline=None)
@given(
    cases(horizons=(1, 4)),
    st.sampled_from(["q", "none", "given"]),
    st.sampled_from([0.1, 1.0, 10.0]),
    st.sampled_from([2.0, 30.0]),
)
def test_enumeration_unbiased_within_the_cap_and_as_predicted(case, which, times, cap):
    own = exact.assess(case.mdp, case.target, case.target, None)
    b = case.control if which == "given" else which
    curve = exact.frontier(case.mdp, case.target, control_variate=b, cap=cap, points=120)
    unit = own.variance / own.cost if own.variance > 0 and own.cost > 0 else 1.0
    design = curve.at_price(times * unit)
    mean, variance, cost, largest = enumerated(case, design)
    scale = 1.0 + abs(own.value) + np.sqrt(own.variance)
    assert mean == pytest.approx(own.value, abs=1e-9 * scale)
    assert largest <= cap * (1 + 1e-9)
    # the grid's error is relative to the variances on it, such as the target's own; a design may
    # have a thousandth of that
    grid = 1e-3 * exact.assess(case.mdp, case.target, case.target, design.control).variance
    slack = max(grid, 1e-9 * scale**2)
    assert variance == pytest.approx(design.predicted.variance, rel=0.03, abs=slack)
    assert cost == pytest.approx(design.predicted.cost, rel=0.01, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(cases(horizons=(2, 4), next_state=True), st.sampled_from([0.0, 0.3]))
def test_enumeration_with_rewards_of_the_next_state_and_a_floor(case, floor):
    own = exact.assess(case.mdp, case.target, case.target, None)
    curve = exact.frontier(case.mdp, case.target, floor=floor, points=120)
    unit = own.variance / own.cost if own.variance > 0 and own.cost > 0 else 1.0
    design = curve.at_price(unit)
    mean, variance, cost, _ = enumerated(case, design)
    scale = 1.0 + abs(own.value) + np.sqrt(own.variance)
    assert mean == pytest.approx(own.value, abs=1e-9 * scale)
    assert variance == pytest.approx(design.predicted.variance, rel=0.02, abs=1e-9 * scale**2)
    assert cost == pytest.approx(design.predicted.cost, rel=0.01, abs=1e-9)
    for weight in (0.01, 1.0, 29.0):
        assert (design.table_at(weight) >= floor * case.target - 1e-12).all()


def test_the_cap_holds_at_every_weight():
    """W pi / mu <= cap whatever the weight is: between the prices of the grid, too."""
    case = random_case(1, states=2, actions=2, horizon=3, zero_probabilities=False)
    design = exact.frontier(case.mdp, case.target, cap=2.0, points=20).at(cost=0.9)
    for weight in (0.5, 1.0, 1.5, 1.9, 1.999):
        assert (weight * case.target <= 2.0 * design.table_at(weight) * (1 + 1e-9)).all()


def test_without_a_cap_weights_exceed_it():
    """The cap does something: without it this design has weights above 2."""
    case = random_case(1, states=2, actions=2, horizon=3, zero_probabilities=False)
    design = exact.frontier(case.mdp, case.target, cap=None).at(cost=0.85)
    assert enumerated(case, design)[3] > 2.0


@pytest.mark.parametrize("gamma", [1.0, 0.8])
def test_simulation_has_the_enumerated_moments(gamma):
    """Four comparisons at one in a million each, for each discount."""
    case = random_case(
        3, states=3, actions=3, horizon=4, gamma=gamma, noisy=True, zero_probabilities=False
    )
    design = exact.frontier(case.mdp, case.target, cap=5.0).at(cost=0.8)
    mean, variance, cost, largest = enumerated(case, design)
    run = simulate.summaries(
        case.mdp, case.target, design, episodes=200_000, control_variate=design.control
    )
    own_cost = exact.assess(case.mdp, case.target, case.target).cost
    for x, want in (
        (run.estimate, mean),
        ((run.estimate - mean) ** 2, variance),
        (run.cost, cost),
        (run.weighted_cost, own_cost),
    ):
        assert abs(x.mean() - want) < Z * x.std() / np.sqrt(len(x))
    assert run.weight.max() <= largest * (1 + 1e-12) <= 5.0 * (1 + 1e-9)
    moments = simulate.moments(
        case.mdp, case.target, design, episodes=20_000, control_variate=design.control
    )
    assert moments.variance == pytest.approx(run.estimate[:20_000].var(ddof=1), rel=1e-9)


def test_the_simulator_refuses_another_target():
    case = random_case(3, states=2, actions=2, horizon=3, zero_probabilities=False)
    design = exact.frontier(case.mdp, case.target).best()
    with pytest.raises(InputError, match=r"^behavior: designed for another target policy"):
        simulate.summaries(case.mdp, case.behavior, design, episodes=1)


# -- the curve -----------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(cases(horizons=(1, 5)), st.sampled_from(["q", "none"]))
def test_the_curve_is_monotone_and_convex(case, b):
    """Cost falls and variance rises with the price, at the rate -price: the curve's slope."""
    assert_monotone_and_convex(case, b)


def test_the_curve_leaves_a_local_minimum_in_time():
    """Without a control variate the inner program may have two minima.

    On its way up the sweep stays in the one it came from. Without the look back from the higher
    price, the price times the saved cost exceeds the paid variance by 0.0005 of both here.
    """
    two = np.ones((2, 1, 1))
    case = Case(
        initial=np.ones(1),
        transition=np.ones((1, 2, 1)),
        reward=two * [-0.45501425, 2.17937851],
        spread=two * [0.35066724, 0.92477454],
        cost=two * [0.45501425, 2.17937851],
        gamma=1.0,
        target=two * [0.04095428, 0.95904572],
        behavior=two * [0.77647888, 0.22352112],
        control=two * [-0.67121352, -0.31322527],
        next_reward=None,
        next_cost=None,
    )
    assert_monotone_and_convex(case, "none")


def assert_monotone_and_convex(case, b):
    curve = exact.frontier(case.mdp, case.target, control_variate=b, reach=(1e-2, 1e3), **FINE)
    variance, cost = curve.variance, curve.cost
    scale_v, scale_c = np.abs(variance).max() + 1e-300, np.abs(cost).max() + 1e-300
    assert (np.diff(variance) >= -1e-6 * scale_v).all()
    assert (np.diff(cost) <= 1e-6 * scale_c).all()
    saved, paid = -np.diff(cost), np.diff(variance)
    low, high = curve.prices[:-1], curve.prices[1:]
    slack = 1e-5 * (scale_v + high * scale_c)
    assert (paid >= low * saved - slack).all()
    assert (paid <= high * saved + slack).all()


def test_the_cheap_end_is_the_cheapest_and_the_other_the_least_variance():
    case = random_case(8, states=3, actions=3, horizon=4, zero_probabilities=False)
    curve = exact.frontier(case.mdp, case.target, reach=(1e-8, 1e12), points=80)
    dopt = exact.design(case.mdp, case.target, "dopt")
    assert curve.variance[0] == pytest.approx(
        exact.assess(case.mdp, case.target, dopt).variance, rel=1e-4
    )
    least = np.zeros(case.states)
    for t in reversed(range(case.horizon)):
        least = (case.cost[t] + case.transition @ least).min(axis=1)
    assert curve.cost[-1] == pytest.approx(float(case.initial @ least), rel=1e-2)


def test_states_that_no_episode_reaches_are_left_out(monkeypatch):
    """Of the sweeps, and of nothing else: what is found is what the sweep of all states finds."""
    case = random_case(2, states=5, actions=2, horizon=4, next_state=True)
    transition = case.transition.copy()
    transition[:3, :, 3:] = 0.0  # the last two states are met only if an episode begins there
    transition[:3] /= transition[:3].sum(axis=2, keepdims=True)
    case = case.but(initial=np.array([0.0, 1.0, 0.0, 0.0, 0.0]), transition=transition)

    def found():
        curve = exact.frontier(case.mdp, case.target, points=30)
        point = curve.at(cost=0.95).predicted
        return np.array([*curve.variance, *curve.cost, point.variance, point.cost])

    visited = sweeps.visited(case.mdp)
    assert visited.sum(axis=1).tolist() == [1, 3, 3, 3]
    some = found()
    monkeypatch.setattr(sweeps, "visited", lambda mdp: np.ones_like(visited))
    np.testing.assert_allclose(some, found(), rtol=1e-9)


GRID, PI = Gridworld(6).mdp(), target_policies(1, 6)[0]
CURVE = exact.frontier(GRID, PI)


def test_points_by_cost_and_variance():
    for asked in (0.9, 0.7, 0.5):
        found = CURVE.at(cost=asked).predicted
        assert asked * (1 - 2.1e-3) <= found.relative_cost <= asked
    whole = CURVE.at(cost=5.0).predicted  # more than it takes: the least variance
    assert whole.relative_variance == pytest.approx(CURVE.relative_variance[0], rel=1e-3)
    even = CURVE.at(variance=1.0).predicted
    assert 1.0 - 2.1e-3 <= even.relative_variance <= 1.0
    assert even.relative_cost < 0.6
    cheapest = CURVE.at(variance=1e9).predicted
    assert cheapest.relative_cost <= CURVE.at(variance=3.0).predicted.relative_cost


def test_the_best_point_has_the_least_product():
    best = CURVE.best().predicted
    product = best.variance * best.cost
    for asked in (0.95, 0.85, 0.75, 0.65):
        other = CURVE.at(cost=asked).predicted
        assert product <= other.variance * other.cost * 1.001


def test_the_weight_blind_optimum_refuses_prices_that_are_none():
    with pytest.raises(InputError, match=r"^price: got 0, expected a number > 0"):
        exact.improve_blind(GRID, PI, 0)


def test_a_weight_aware_design_beats_the_one_price_of_today_at_its_own_cost():
    price = exact.design(GRID, PI, "scope-dr", promise=Promise(per="episode"))
    found = exact.assess(GRID, PI, price)
    ours = CURVE.at(cost=found.cost / CURVE.own.cost).predicted
    assert ours.variance <= found.variance * (1 + 1e-3)


def test_designs_are_weighted_behaviors():
    design = CURVE.at(cost=0.6)
    assert isinstance(design, Behavior)
    assert weight_aware(design)
    for weight in (0.0, 1e-9, 0.3, 1.0, 29.999, 30.0, 1e6):
        mu = design.table_at(weight)
        np.testing.assert_allclose(mu.sum(axis=2), 1.0, atol=1e-12)
        assert (mu >= 0).all()
        if weight > 0:
            assert (mu[np.broadcast_to(design.target > 0, mu.shape)] > 0).all()
    np.testing.assert_allclose(design.table_at(30.0), design.target, atol=1e-12)
    assert np.abs(design.table_at(1.0) - design.target).max() > 0.1
    with pytest.raises(InputError, match=r"^behavior: it depends on the weight of the episode"):
        exact.assess(GRID, PI, design)
    with pytest.raises(InputError, match=r"^weigh: this behavior policy depends on the weight"):
        design.weigh(Candidates(np.arange(4)[None], np.full((1, 4), 0.25)), np.array([0]), 0)
    assert "relative cost 0.5" in repr(design) or "relative cost 0.6" in repr(design)


def test_deterministic_worlds_cost_nothing_but_the_cap():
    """With b = q nothing varies: every price leads to the cheapest actions that the cap allows."""
    case = random_case(3, states=3, actions=3, horizon=4, deterministic=True, costs="sparse")
    case = case.but(initial=np.eye(3)[0])
    curve = exact.frontier(case.mdp, case.target, cap=None)
    np.testing.assert_allclose(curve.variance, 0.0, atol=1e-12)
    np.testing.assert_allclose(curve.cost, curve.cost[0])
    assert curve.at(variance=1.0).predicted.variance == pytest.approx(0.0, abs=1e-12)


def test_a_world_without_cost_or_variance():
    case = random_case(3, states=2, actions=2, horizon=3, costs="zero")
    found = exact.frontier(case.mdp, case.target).at(cost=1.0).predicted
    assert found.cost == 0.0
    mdp = exact.TabularMDP([1.0], np.ones((1, 2, 1)), [[1.0, 1.0]], [[0.0, 1.0]], 2)
    found = exact.frontier(mdp, [[0.5, 0.5]], cap=None).at(variance=1.0).predicted
    assert (found.variance, found.cost) == (0.0, 0.0)


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"control_variate": "v"}, r"^control_variate: got 'v', expected 'q', 'none' or a table"),
        ({"control_variate": np.ones(3)}, r"^control_variate: got an array of shape \(3,\)"),
        ({"cap": 0.5}, r"^cap: got 0.5, expected a weight >= 1, or None"),
        ({"cap": float("nan")}, r"^cap: got nan"),
        ({"floor": -0.1}, r"^floor: got -0.1, expected a share in 0..1"),
        ({"points": 3}, r"^points: got 3, expected a whole number of prices >= 4"),
        ({"reach": (1.0, 0.1)}, r"^reach: got \(1.0, 0.1\), expected two numbers, 0 < smallest"),
        ({"target": np.full((3, 4), 0.25)}, r"^target: got a policy over 3 states and 4 actions"),
    ],
)  # fmt: skip
def test_bad_settings(arguments, message):
    with pytest.raises(InputError, match=message):
        exact.frontier(GRID, **{"target": PI, **arguments})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CURVE.at(), r"^at: got cost=None, variance=None, expected exactly one of them"),
        (lambda: CURVE.at(cost=0.5, variance=1.0), r"^at: got .*expected exactly one"),
        (lambda: CURVE.at(cost=float("nan")), r"^at: got cost=nan, variance=None, expected exac"),
        (lambda: CURVE.at(cost=60), r"^cost: got 60, expected a number above 0, and at most 10 \("),
        (lambda: CURVE.at(cost=0.001), r"^cost: got 0.001, but the least cost within the cap 30"),
        (lambda: CURVE.at(variance=0.001), r"^variance: got 0.001, but the least variance"),
        (lambda: CURVE.at(cost=0.0), r"^cost: got 0.0, expected a number above 0"),
        (lambda: CURVE.at_price(-1.0), r"^price: got -1.0, expected a number > 0"),
    ],
)  # fmt: skip
def test_bad_points(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"obs": np.array([36])}, r"^state: got 36, expected 0..35"),
        ({"t": 6}, r"^time: got 6, expected 0..5"),
        ({"weight": np.array([np.nan])}, r"^weight: nan"),
        ({"probs": np.full((1, 3), 1 / 3)}, r"^target: offers 3 actions, the design has 4"),
    ],
)  # fmt: skip
def test_bad_weighing(changes, message):
    good = {"obs": np.array([0]), "t": 0, "weight": np.ones(1), "probs": np.full((1, 4), 0.25)}
    x = {**good, **changes}
    design = CURVE.at_price(1.0)
    state = EpisodeState.of_weights(x["weight"])
    with pytest.raises(InputError, match=message):
        design.weigh(Candidates(np.arange(4)[None], x["probs"]), x["obs"], x["t"], state)

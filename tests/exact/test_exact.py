"""Finite MDPs: representations, values, big instances, precision, and every bad input."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import sparse

from random_mdps import cases, every_path, loop_values, random_case, total_cost
from scopeval import Promise, exact
from scopeval.behavior.methods import METHODS
from scopeval.errors import InputError

# -- representations -----------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(cases())
def test_dense_and_sparse_transitions_are_one_mdp(case):
    S, A = case.states, case.actions
    dense = case.mdp
    flat = case.transition.reshape(S * A, S)
    for form in (flat, sparse.csr_array(flat), sparse.coo_matrix(flat), sparse.csc_array(flat)):
        other = exact.TabularMDP(
            case.initial,
            form,
            case.reward,
            case.cost,
            case.horizon,
            gamma=case.gamma,
            reward_variance=case.spread**2,
        )
        one = exact.assess(dense, case.target, case.behavior, case.control)
        two = exact.assess(other, case.target, case.behavior, case.control)
        np.testing.assert_array_equal(one.second_moments, two.second_moments)
        np.testing.assert_array_equal(one.variances, two.variances)
        assert (one.value, one.cost) == (two.value, two.cost)
        for method in METHODS:
            np.testing.assert_array_equal(
                exact.design(dense, case.target, method).table(case.horizon),
                exact.design(other, case.target, method).table(case.horizon),
            )


def test_duplicate_entries_of_a_sparse_matrix_add_up():
    rows, columns = [0, 0, 0, 1], [0, 0, 1, 1]
    p = sparse.coo_array(([0.25, 0.25, 0.5, 1.0], (rows, columns)), shape=(2, 2))
    mdp = exact.TabularMDP([1, 0], p, [[1.0], [3.0]], [[0.0], [0.0]], 2)
    assert exact.values(mdp, np.ones((2, 1))).v[0] == pytest.approx([1 + 2, 6])
    assert exact.assess(mdp, np.ones((2, 1)), np.ones((2, 1))).variance == pytest.approx(1.0)


@settings(max_examples=20, deadline=None)
@given(cases(time_varying=False))
def test_tables_without_time_are_tables_of_every_time(case):
    flat = exact.TabularMDP(
        case.initial,
        case.transition,
        case.reward[0],
        case.cost[0],
        case.horizon,
        gamma=case.gamma,
        reward_variance=case.spread[0] ** 2,
    )
    one = exact.assess(flat, case.target[0], case.behavior[0], case.control[0])
    two = exact.assess(case.mdp, case.target, case.behavior, case.control)
    np.testing.assert_array_equal(one.second_moments, two.second_moments)
    assert (one.value, one.variance, one.cost) == (two.value, two.variance, two.cost)


# -- values --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(cases())
def test_values_by_every_trajectory(case):
    rewards, costs = exact.values(case.mdp, case.target), exact.cost_values(case.mdp, case.target)
    for t in range(case.horizon):
        for s in range(case.states):
            paths = every_path(case, case.target, t, s)
            discount = case.gamma ** np.arange(case.horizon - t)
            assert rewards.v[t, s] == pytest.approx(
                float(paths.chance @ (paths.rewards @ discount)), abs=1e-11
            )
            assert costs.v[t, s] == pytest.approx(
                float(paths.chance @ total_cost(case, paths)), abs=1e-11
            )
    assert not rewards.v[-1].any()
    assert not costs.v[-1].any()
    np.testing.assert_allclose(
        rewards.q, loop_values(case, case.reward, case.target)[0], atol=1e-12
    )


@settings(max_examples=40, deadline=None)
@given(cases())
def test_cost_of_a_behavior_by_every_trajectory(case):
    paths = every_path(case, case.behavior)
    found = exact.assess(case.mdp, case.target, case.behavior)
    assert found.cost == pytest.approx(float(paths.chance @ total_cost(case, paths)), abs=1e-12)
    assert found.cost == exact.assess(case.mdp, case.behavior, case.behavior).cost


@settings(max_examples=40, deadline=None)
@given(cases())
def test_on_policy_is_the_target_itself(case):
    found = exact.design(case.mdp, case.target, "on-policy")
    np.testing.assert_allclose(found.table(case.horizon), case.target, rtol=1e-14)
    assert found.control is None
    assert not found.binding.any()


def test_a_control_variate_equal_to_q_leaves_only_the_environments_variance():
    """With b = q and a deterministic environment one episode says it all, whatever mu is."""
    case = random_case(0, deterministic=True, states=4, horizon=5)
    case = case.but(initial=np.eye(4)[1])
    q = exact.values(case.mdp, case.target).q
    assert exact.assess(case.mdp, case.target, case.behavior, q).variance == 0.0
    assert exact.assess(case.mdp, case.target, case.behavior).variance > 0.1


# -- precision -----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [1e3, 1e6, 1e9])
def test_a_constant_added_to_every_reward_changes_nothing_with_b_equal_to_q(level):
    """The variance of v(S') must not drown in its square: mu and V stay what they were."""
    case = random_case(5, states=4, actions=3, horizon=4, zero_probabilities=False)
    lifted = case.but(reward=case.reward + level)
    found = {}
    for key, x in (("plain", case), ("lifted", lifted)):
        for method in ("scope-dr", "dopt"):
            design = exact.design(x.mdp, x.target, method)
            V = exact.assess(x.mdp, x.target, design, design.control).variance
            own = exact.assess(x.mdp, x.target, x.target).variance  # pi itself, b = 0
            found[key, method] = design.table(x.horizon), V, own
    for method in ("scope-dr", "dopt"):
        mu, V, own = found["lifted", method]
        slack = level * 1e-14
        np.testing.assert_allclose(mu, found["plain", method][0], atol=1e-8 + 10 * slack)
        assert pytest.approx(found["plain", method][1], rel=1e-8 + 10 * slack) == V
        assert own == pytest.approx(found["plain", method][2], rel=1e-8 + 10 * slack)


def test_no_variance_is_exactly_none():
    """Equal values of all next states: X is 0 and not rounding noise, so the cheapest is taken."""
    rng = np.random.default_rng(0)
    S, A, T = 6, 3, 20
    mdp = exact.TabularMDP(
        rng.dirichlet(np.ones(S)), rng.dirichlet(np.ones(S), (S, A)), np.full((S, A), 0.1),
        rng.random((S, A)), T,
    )  # fmt: skip
    pi = rng.dirichlet(np.ones(A), S)
    found = exact.design(mdp, pi, "scope-dr")
    assert not exact.assess(mdp, pi, pi, found.control).second_moments.any()
    assert (found.status == 1).all()
    least = np.zeros(S)
    for t in reversed(range(T)):
        least = (q := mdp.at("cost", t) + mdp.expect(least)).min(axis=1)
        np.testing.assert_array_equal(found.table(T)[t].argmax(axis=1), q.argmin(axis=1))
    own, spent = exact.assess(mdp, pi, pi).cost, exact.assess(mdp, pi, found, found.control).cost
    best = mdp.initial @ least  # a small share of the target is kept, so that none is left out
    assert best < spent < best + 0.05 * (own - best)
    assert (found.table(T) > 0.0).all()


@settings(max_examples=40, deadline=None)
@given(cases())
def test_variances_are_never_negative(case):
    for b in (None, case.control):
        found = exact.assess(case.mdp, case.target, case.behavior, b)
        assert (found.variances >= 0).all()
        assert (found.second_moments >= 0).all()


def test_a_tiny_probability_makes_a_large_variance_and_no_overflow():
    mdp = exact.TabularMDP([1.0], np.ones((1, 2, 1)), [[0.0, -0.5]], [[0.0, 1.0]], 1)
    mu = np.array([[1.0, 1e-250]])
    found = exact.assess(mdp, [[0.5, 0.5]], mu)
    assert found.variance == pytest.approx(0.5**2 / 1e-250 * 0.5**2)


# -- size ----------------------------------------------------------------------------------------


def test_a_million_programs_in_two_gigabytes():
    """n = 100: a million (t, s) pairs, each with its own program; memory, not time, is promised."""
    program = """
import resource, sys
from scopeval import exact
from scopeval.envs.gridworld import Gridworld, target_policies
n = 100
mdp, target = Gridworld(n).mdp(), target_policies(1, n)[0]
found = exact.design(mdp, target, "scope")
ours, own = exact.assess(mdp, target, found), exact.assess(mdp, target, target)
assert found.status.shape == (n, n * n) and not found.status.any()
assert ours.cost <= own.cost * (1 + 1e-12) and ours.variance < own.variance
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(used * (1 if sys.platform == "darwin" else 1024))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2 * 2**30


# -- bad input -----------------------------------------------------------------------------------


def build(**changes):
    good = {
        "initial": [0.5, 0.5],
        "transition": np.full((2, 3, 2), 0.5),
        "reward": np.ones((2, 3)),
        "cost": np.ones((2, 3)),
        "horizon": 4,
    }
    return exact.TabularMDP(**{**good, **changes})


def but(table, index, value):
    table = np.array(table, float)
    table[index] = value
    return table


NAN, INF = float("nan"), float("inf")
HALVES = np.full((2, 3, 2), 0.5)
SPARSE_NAN = sparse.csr_array(but(HALVES.reshape(6, 2), (4, 1), NAN))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, r"^horizon: got 0, expected a whole number of steps >= 1$"),
        ({"horizon": 2.5}, r"^horizon: got 2.5"),
        ({"horizon": NAN}, r"^horizon: got nan"),
        ({"horizon": "ten"}, r"^horizon: got 'ten'"),
        ({"horizon": True}, r"^horizon: got True"),
        ({"horizon": None}, r"^horizon: got None"),
        ({"gamma": 0}, r"^gamma: got 0, expected a discount in \(0, 1\]$"),
        ({"gamma": 1.01}, r"^gamma: got 1.01"),
        ({"gamma": NAN}, r"^gamma: got nan"),
        ({"gamma": "1"}, r"^gamma: got '1'"),
        ({"initial": [0.5, 0.6]}, r"^initial: probabilities sum to 1.1 in the only row"),
        ({"initial": [1.5, -0.5]}, r"^initial: negative probability -0.5"),
        ({"initial": [NAN, 1]}, r"^initial: NaN probability"),
        ({"initial": [0.2, 0.3, 0.5]}, r"^initial: got 3 states, reward has 2"),
        ({"initial": [[0.5, 0.5]]}, r"^initial: got shape \(1, 2\), expected \[S\]"),
        ({"initial": []}, r"^initial: got shape \(0,\)"),
        ({"reward": but(np.ones((2, 3)), (1, 2), NAN)}, r"^reward: nan at s=1, a=2"),
        ({"reward": but(np.ones((4, 2, 3)), (3, 1, 2), INF)}, r"^reward: inf at t=3, s=1, a=2"),
        ({"reward": np.ones(3)}, r"^reward: got shape \(3,\), expected \[S, A\] or \[T, S, A\]"),
        ({"reward": np.ones((5, 2, 3))}, r"^reward: got 5 time steps, expected the horizon 4"),
        ({"reward": [["a"] * 3] * 2}, r"^reward: cannot be read as an array of numbers"),
        ({"reward": np.ones((2, 0))}, r"^reward: got shape \(2, 0\)"),
        ({"cost": but(np.ones((2, 3)), (0, 1), -2)}, r"^cost: negative cost -2 at s=0, a=1"),
        ({"cost": but(np.ones((2, 3)), (0, 1), NAN)}, r"^cost: nan at s=0, a=1"),
        ({"cost": np.ones((3, 2))}, r"^cost: got \[S, A\] = \(3, 2\), expected reward's \(2, 3\)"),
        ({"cost": np.ones((3, 2, 3))}, r"^cost: got 3 time steps, expected the horizon 4"),
        ({"reward_variance": -np.ones((2, 3))}, r"^reward_variance: negative .*at s=0, a=0"),
        ({"reward_variance": np.ones(2)}, r"^reward_variance: got shape \(2,\)"),
        ({"transition": but(HALVES, (1, 2, 0), 0.6)}, r"^transition: .* sum to 1.1 at s=1, a=2"),
        ({"transition": but(HALVES, (1, 2, 0), NAN)}, r"^transition: nan at s=1, a=2, s'=0"),
        ({"transition": but(HALVES, (1, 0), (-1, 2))}, r"^transition: .* -1 at s=1, a=0, s'=0"),
        ({"transition": SPARSE_NAN}, r"^transition: probability nan at s=1, a=1, s'=1"),
        ({"transition": np.ones((2, 3, 3))}, r"^transition: got shape \(2, 3, 3\), expected"),
        ({"transition": np.ones((2, 6))}, r"^transition: got shape \(2, 6\), expected \[S\*A, S\]"),
        ({"transition": sparse.csr_array((5, 2))}, r"^transition: got shape \(5, 2\)"),
        ({"transition": sparse.csr_array((6, 2))}, r"^transition: .* sum to 0 at s=0, a=0 \(and 5"),
        ({"transition": "p"}, r"^transition: cannot be read"),
    ],
)  # fmt: skip
def test_bad_mdp(changes, message):
    check_one_line(lambda: build(**changes), message)


UNIFORM = np.full((2, 3), 1 / 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"promise": 0.1}, r"^promise: got 0.1, limits: got None, expected Promise"),
        ({"method": "scop"}, r"^method: got 'scop', expected one of scope, scope-dr, odi, dopt"),
        ({"constraint": "mu"}, r"^constraint: got 'mu', expected 'behavior' or 'target'"),
        ({"limits": [1, 2, 3]}, r"^limits: got shape \(3,\), expected a number, \[S\] or \[T, S\]"),
        ({"limits": NAN}, r"^limits: got nan, expected a finite number$"),
        ({"limits": but(np.ones((4, 2)), (2, 1), NAN)}, r"^limits: nan at t=2, s=1"),
        ({"target": np.full((3, 3), 1 / 3)}, r"^target: got a policy over 3 states and 3 actions"),
        ({"target": np.full((3, 2, 3), 1 / 3)}, r"covers 3 time steps, .* the horizon 4"),
        ({"target": UNIFORM[0]}, r"^policy: got a table of shape \(3,\)"),
        ({"target": but(UNIFORM, (1, 0), 0.5)}, r"probabilities sum to 1.16667 at s=1"),
        ({"target": but(UNIFORM, (1, 0), NAN)}, r"NaN probability at s=1"),
    ],
)  # fmt: skip
def test_bad_design(arguments, message):
    good = {"target": UNIFORM}
    check_one_line(lambda: exact.design(build(), **{**good, **arguments}), message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"behavior": np.full((2, 2), 0.5)}, r"^behavior: got a policy over 2 states and 2"),
        ({"control_variate": np.ones((3, 2))}, r"^control_variate: got shape \(3, 2\), expected"),
        ({"control_variate": but(UNIFORM, (1, 1), NAN)}, r"^control_variate: nan at s=1, a=1"),
        ({"control_variate": 1.0}, r"^control_variate: got an array of shape \(\)"),
    ],
)  # fmt: skip
def test_bad_assessment(arguments, message):
    good = {"target": UNIFORM, "behavior": UNIFORM}
    check_one_line(lambda: exact.assess(build(), **{**good, **arguments}), message)


def check_one_line(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["scope", "scope-dr"])
def test_a_budget_counts_what_the_behavior_policy_itself_will_cost(method):
    """Where it binds, the cost from there on is the budget; counted by the target's, it is not."""
    bound = 0
    for seed in range(12):
        case = random_case(seed, horizon=3, zero_rewards=False)
        found = exact.design(case.mdp, case.target, method, promise=Promise(at_most=1.01))
        _, own = loop_values(case, case.cost, found.table(case.horizon))
        _, target = loop_values(case, case.cost, case.target)
        own, allowed = own[: case.horizon], 1.01 * target[: case.horizon]
        assert (own <= allowed * (1 + 1e-9)).all()
        np.testing.assert_allclose(own[found.binding], allowed[found.binding], rtol=1e-7)
        bound += int(found.binding[:-1].sum())  # before the last step, where something follows
    assert bound > 0

"""Rewards and costs that depend on the next state: every form, against every trajectory."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from scipy import sparse

from experiments.baselines.bps import bps_tabular
from experiments.baselines.ros import ros_tabular
from random_mdps import cases, estimates, every_path, mean_and_variance, random_case, total_cost
from scopeval import exact, simulate
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError
from scopeval.exact import TabularMDP

#: |z| beyond this happens once in a million comparisons of a right program.
Z = 4.9


@settings(max_examples=60, deadline=None)
@given(cases(next_state=True))
def test_value_variance_and_cost_by_every_trajectory(case):
    paths = every_path(case, case.behavior)
    for b in (None, case.control):
        found = exact.assess(case.mdp, case.target, case.behavior, b)
        mean, variance = mean_and_variance(paths.chance, estimates(case, paths, case.behavior, b))
        assert found.expectation == pytest.approx(mean, abs=1e-10)
        assert found.value == pytest.approx(mean, abs=1e-10)
        assert found.variance == pytest.approx(variance, rel=1e-9, abs=1e-10)
    assert found.cost == pytest.approx(float(paths.chance @ total_cost(case, paths)), abs=1e-11)


@settings(max_examples=30, deadline=None)
@given(cases(next_state=True))
def test_designs_vary_no_more_and_cost_no_more(case):
    own = exact.assess(case.mdp, case.target, case.target)
    for method in ("scope", "scope-dr"):
        found = exact.assess(case.mdp, case.target, exact.design(case.mdp, case.target, method))
        assert found.variance <= own.variance * (1 + 1e-9) + 1e-12
        assert found.cost <= own.cost * (1 + 1e-9) + 1e-12


@settings(max_examples=30, deadline=None)
@given(cases(next_state=True, time_varying=False))
def test_every_form_is_one_mdp(case):
    S, A, T = case.states, case.actions, case.horizon
    p = sparse.csr_array(case.transition.reshape(S * A, S))
    rows = np.repeat(np.arange(S * A), np.diff(p.indptr))
    dense = (case.next_reward[0], case.next_cost[0])
    flat = [x.reshape(S * A, S) for x in dense]
    stored = [x[rows, p.indices] for x in flat]
    forms = [
        dense,
        [sparse.coo_array(x) for x in flat],
        [[sparse.csr_array(x)] * T for x in flat],
        stored,
        [np.broadcast_to(x, (T, p.nnz)) for x in stored],
    ]
    want = exact.assess(case.mdp, case.target, case.behavior, case.control)
    for next_reward, next_cost in forms:
        mdp = TabularMDP(
            case.initial, p, case.reward, case.cost, T, gamma=case.gamma,
            reward_variance=case.spread**2, next_reward=next_reward, next_cost=next_cost,
        )  # fmt: skip
        found = exact.assess(mdp, case.target, case.behavior, case.control)
        for name in ("value", "variance", "cost"):
            assert getattr(found, name) == pytest.approx(getattr(want, name), rel=1e-11, abs=1e-13)


@settings(max_examples=30, deadline=None)
@given(cases(next_state=True))
def test_simulated_rewards_and_costs_are_those_of_the_transition(case):
    run = simulate.trajectories(case.mdp, case.behavior, episodes=64, seed=4)
    s, a, following = run.states[:, :-1], run.actions, run.states[:, 1:]
    t = np.arange(case.horizon)
    cost = case.cost[t, s, a] + case.next_cost[t, s, a, following]
    np.testing.assert_allclose(run.costs, cost, atol=1e-14)
    if not case.spread.any():
        reward = case.reward[t, s, a] + case.next_reward[t, s, a, following]
        np.testing.assert_allclose(run.rewards, reward, atol=1e-14)
    for b in (None, case.control):
        short = simulate.summaries(
            case.mdp, case.target, case.behavior, episodes=64, control_variate=b, seed=4
        )
        want = estimates(case, run, case.behavior, b)
        np.testing.assert_allclose(short.estimate, want, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(short.cost, total_cost(case, run), rtol=1e-12)


def test_simulated_moments_are_the_exact_ones():
    """Four comparisons at one in a million each."""
    case = random_case(3, states=3, actions=2, horizon=4, noisy=True, next_state=True, gamma=0.9)
    run = simulate.summaries(
        case.mdp, case.target, case.behavior, episodes=300_000, control_variate=case.control
    )
    truth = exact.assess(case.mdp, case.target, case.behavior, case.control)
    own_cost = exact.assess(case.mdp, case.target, case.target).cost
    for x, want in (
        (run.estimate, truth.value),
        ((run.estimate - truth.value) ** 2, truth.variance),
        (run.cost, truth.cost),
        (run.weighted_cost, own_cost),
    ):
        assert abs(x.mean() - want) < Z * x.std() / np.sqrt(len(x))


def test_environment_replays_the_simulator():
    case = random_case(2, states=4, actions=3, horizon=4, next_state=True)
    run = simulate.trajectories(case.mdp, case.behavior, episodes=200, seed=1)
    env = TabularEnv(case.mdp)
    seen = set()
    for i in range(200):
        env.reset(seed=i)
        for t in range(case.horizon):
            s = env._state
            after, reward, _, _, info = env.step(run.actions[i, t])
            a = run.actions[i, t]
            assert reward == pytest.approx(
                case.reward[t, s, a] + case.next_reward[t, s, a, after], abs=1e-14
            )
            assert info["cost"] == pytest.approx(
                case.cost[t, s, a] + case.next_cost[t, s, a, after], abs=1e-14
            )
            seen.add((t, s, int(a), int(after)))
    assert len(seen) > 50


@settings(max_examples=20, deadline=None)
@given(cases(next_state=True, horizons=(2, 5)))
def test_shorter_without_cost_and_with_another_reward(case):
    mdp, T = case.mdp, case.horizon - 1
    short = mdp.shortened(T)
    cut = case.but(
        **{
            name: getattr(case, name)[:T]
            for name in ("reward", "spread", "cost", "target", "behavior", "control")
        },
        next_reward=case.next_reward[:T],
        next_cost=case.next_cost[:T],
    )
    one = exact.assess(short, cut.target, cut.behavior, cut.control)
    two = exact.assess(cut.mdp, cut.target, cut.behavior, cut.control)
    for name in ("value", "variance", "cost"):
        assert getattr(one, name) == pytest.approx(getattr(two, name), rel=1e-11, abs=1e-13)
    free = exact.assess(mdp.without_cost(), case.target, case.behavior, case.control)
    full = exact.assess(mdp, case.target, case.behavior, case.control)
    assert free.cost == 0.0
    assert free.variance == pytest.approx(full.variance, rel=1e-11, abs=1e-13)
    other = exact.assess(mdp.with_reward(case.control), case.target, case.behavior)
    assert other.cost == pytest.approx(full.cost, abs=1e-13)
    assert other.value == pytest.approx(
        exact.assess(case.but(reward=case.control, next_reward=None, next_cost=None).mdp,
                     case.target, case.target).value, abs=1e-12,
    )  # fmt: skip


def test_baselines_see_the_next_states_reward():
    """A fair coin between reward 0 and 2: means at one in a million, and both outcomes occur."""
    p = np.array([[[0.0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]], float)
    extra = np.zeros((3, 1, 3))
    extra[0, 0, 2] = 2.0
    zeros = np.zeros((3, 1))
    mdp = TabularMDP([1, 0, 0], p, zeros, zeros, 1, next_reward=extra, next_cost=extra)
    pi = np.ones((3, 1))
    for result in (
        ros_tabular(mdp, pi, runs=20, episodes=500, alpha=1.0),
        bps_tabular(mdp, pi, runs=20, episodes=500),
    ):
        mean = float(np.mean(result.costs))
        assert abs(mean - 1.0) < Z / np.sqrt(10_000)


# -- Gymnasium ---------------------------------------------------------------------------------


def falls(s, a, after, reward, terminated):
    return float(reward == -100)


def test_cliff_walking_is_the_environment():
    """A step and a fall that both end at the start are two outcomes; rewards as in `step`."""
    env = gymnasium.make("CliffWalking-v1", is_slippery=True).unwrapped
    mdp = TabularMDP.from_gymnasium(env, 40, cost=falls)
    assert (mdp.states, mdp.actions) == (48, 4)
    right = mdp.transition[[36 * 4 + 1]].toarray().ravel()
    assert right[36] == pytest.approx(2 / 3)  # right: falls, or slips down and stays
    assert mdp.cost[36, 1] == pytest.approx(1 / 3)
    assert mdp.reward[36, 1] == pytest.approx((-100 - 1 - 1) / 3)
    pi = np.full((48, 4), 0.25)
    own = exact.assess(mdp, pi, pi)
    rng = np.random.default_rng(0)
    returns, costs = np.zeros(2_000), np.zeros(2_000)
    for i in range(2_000):
        env.reset(seed=i)
        for _ in range(40):
            _, reward, terminated, _, _ = env.step(int(rng.integers(4)))
            returns[i] += reward
            costs[i] += reward == -100
            if terminated:
                break
    assert abs(returns.mean() - own.value) < Z * returns.std() / np.sqrt(2_000)
    assert abs(costs.mean() - own.cost) < Z * costs.std() / np.sqrt(2_000)
    assert returns.var() == pytest.approx(own.variance, rel=0.2)  # five standard errors


def test_frozen_lake_pays_once_and_ends():
    mdp = TabularMDP.from_gymnasium(
        gymnasium.make("FrozenLake-v1", map_name="4x4", is_slippery=True),
        30,
        cost=lambda s, a, after, reward, terminated: float(terminated and reward == 0),
    )
    goal, hole = 15, 5
    for s in (goal, hole):
        np.testing.assert_array_equal(mdp.reward[s], 0.0)
        np.testing.assert_array_equal(mdp.cost[s], 0.0)
        np.testing.assert_allclose(mdp.expect(np.eye(16)[s])[s], 1.0)
    own = exact.assess(mdp, np.full((16, 4), 0.25), np.full((16, 4), 0.25))
    assert own.variance == pytest.approx(own.value * (1 - own.value))  # the return is 0 or 1
    assert 0.0 < own.cost < 1.0


def test_taxi_starts_as_the_environment_does():
    mdp = TabularMDP.from_gymnasium(
        gymnasium.make("Taxi-v4"), 20, cost=lambda s, a, after, reward, over: float(reward == -10)
    )
    assert (mdp.states, mdp.actions) == (500, 6)
    assert np.count_nonzero(mdp.initial) == 300


def test_bad_environments():
    with pytest.raises(InputError, match=r"^env: BlackjackEnv has no transition table P"):
        TabularMDP.from_gymnasium(gymnasium.make("Blackjack-v1"), 10, cost=falls)
    env = gymnasium.make("FrozenLake-v1").unwrapped
    env.P[0][0] = [(1.0, 5, 0.0, False)]  # into a hole, and on
    with pytest.raises(InputError, match=r"^env: state 5 ends an episode in some .* s=0, a=0"):
        TabularMDP.from_gymnasium(env, 10, cost=falls)
    del env.initial_state_distrib
    env.P[0][0] = [(1.0, 0, 0.0, False)]
    with pytest.raises(InputError, match=r"^initial: the environment has no initial_state"):
        TabularMDP.from_gymnasium(env, 10, cost=falls)
    mdp = TabularMDP.from_gymnasium(env, 10, cost=falls, initial=np.eye(16)[0])
    assert mdp.initial[0] == 1.0


# -- bad input ---------------------------------------------------------------------------------

HALVES = np.full((2, 3, 2), 0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"next_reward": np.ones((2, 3))}, r"^transition: got ndarray, expected a scipy CSR"),
        ({"next_reward": np.ones((3, 2, 2))}, r"^next_reward: got shape \(3, 2, 2\), expected \[S"),
        ({"next_reward": np.ones((5, 2, 3, 2))}, r"^next_reward: got 5 time steps, expected the h"),
        ({"next_reward": np.full((2, 3, 2), np.nan)}, r"^next_reward: nan at s=0, a=0, s'=0"),
        ({"next_reward": sparse.csr_array((5, 2))}, r"^next_reward: got shape \(5, 2\), expected"),
        ({"next_reward": [sparse.csr_array((6, 2))] * 3}, r"^next_reward: got 3 time steps"),
        ({"next_cost": np.full((2, 3, 2), -2.0)}, r"^next_cost: .* add up to -1 at s=0, a=0, s'=0"),
        (
            {"transition": sparse.csr_array(HALVES.reshape(6, 2)), "next_cost": np.ones(5)},
            r"^next_cost: got shape \(5,\), expected .* each of the 12 entries",
        ),
    ],
)  # fmt: skip
def test_bad_tables(changes, message):
    good = {
        "initial": [0.5, 0.5],
        "transition": HALVES,
        "reward": np.ones((2, 3)),
        "cost": np.ones((2, 3)),
        "horizon": 4,
    }
    with pytest.raises(InputError, match=message):
        TabularMDP(**{**good, **changes})

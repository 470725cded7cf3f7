"""Gridworld: Gymnasium's own checker, a naive second implementation, cost laws, policies."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import scopeval.envs  # noqa: F401  (registers the environments)
from scopeval import exact
from scopeval.envs.gridworld import COST_LAWS, Gridworld, logging_policies, target_policies
from scopeval.errors import InputError


def naive_transition(n: int) -> np.ndarray:
    """Cell by cell: 0.9 the intended move, 0.1 a uniform one; a wall means to stay."""
    moves = {0: (0, 1), 1: (0, -1), 2: (-1, 0), 3: (1, 0)}
    p = np.zeros((n * n, 4, n * n))
    for x in range(n):
        for y in range(n):
            for intended in range(4):
                for executed in range(4):
                    chance = 0.1 * 0.25
                    if executed == intended:
                        chance += 0.9
                    to_x, to_y = x + moves[executed][0], y + moves[executed][1]
                    if not (0 <= to_x < n and 0 <= to_y < n):
                        to_x, to_y = x, y
                    p[x * n + y, intended, to_x * n + to_y] += chance
    return p


# -- the environment -----------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", [{}, {"size": 4}, {"size": 5, "cost_law": "uniform", "seed": 3}])
def test_gymnasium_approves(recipe):
    env = gymnasium.make("scopeval/Gridworld-v0", **recipe)
    check_env(env.unwrapped, skip_render_check=True)
    assert env.observation_space == gymnasium.spaces.Discrete(recipe.get("size", 10) ** 2)
    assert env.action_space == gymnasium.spaces.Discrete(4)


def test_an_episode_has_n_steps_and_says_what_they_cost():
    n = 6
    env = gymnasium.make("scopeval/Gridworld-v0", size=n)
    mdp = Gridworld(n).mdp()
    s, info = env.reset(seed=0)
    assert s == (n // 2) * n + n // 2
    assert info == {}
    for t in range(n):
        a = t % 4
        following, reward, terminated, truncated, info = env.step(a)
        assert reward == mdp.reward[s, a]  # of the intended action, wherever the wind blew
        assert info == {"cost": mdp.cost[s, a]}
        assert not terminated
        assert truncated == (t == n - 1)
        s = following


def test_episodes_repeat_by_seed():
    def episode(seed: int) -> list[int]:
        env = gymnasium.make("scopeval/Gridworld-v0", size=8)
        env.reset(seed=seed)
        return [int(env.step(t % 4)[0]) for t in range(8)]

    assert episode(1) == episode(1)
    assert len({tuple(episode(seed)) for seed in range(20)}) > 3


# -- the model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 7])
def test_transitions_are_the_naive_ones(n):
    mdp = Gridworld(n).mdp()
    p = mdp.transition.toarray().reshape(n * n, 4, n * n)
    np.testing.assert_allclose(p, naive_transition(n), atol=1e-15)
    assert mdp.horizon == n
    assert mdp.gamma == 1.0
    assert mdp.initial.nonzero()[0].tolist() == [(n // 2) * n + n // 2]
    assert not mdp.reward_variance.any()


@pytest.mark.parametrize("law", COST_LAWS)
@pytest.mark.parametrize("seed", [0, 1])
def test_cost_laws(law, seed):
    n = 20
    mdp = Gridworld(n, law, seed).mdp()
    x, y = np.divmod(np.arange(n * n), n)
    tilt = (20 * y + 10 * x + 1)[:, None]
    top = 30 * (n - 1) + 1
    for table in (mdp.reward, mdp.cost):
        assert table.shape == (n * n, 4)
        assert (table >= 0).all()
        assert table.max() <= 1.0
    assert mdp.reward.max() == 1.0
    assert (mdp.reward <= tilt / (0.9 * top)).all()  # U (20y + 10x + 1) over the grid's largest
    slope = np.corrcoef(mdp.cost.mean(1), tilt[:, 0])[0, 1]
    link = np.corrcoef((mdp.cost / tilt).ravel(), (mdp.reward / tilt).ravel())[0, 1]
    if law == "same-tilt":
        assert mdp.cost.max() == 1.0
        assert (mdp.cost <= tilt / (0.9 * top)).all()
        assert slope > 0.6
        assert abs(link) < 0.12  # independent draws
    elif law == "opposite-tilt":
        assert (mdp.cost <= tilt[::-1] / (0.9 * top)).all()
        assert slope < -0.6
    elif law == "uniform":
        assert abs(slope) < 0.25
        assert mdp.cost.mean() == pytest.approx(0.5, abs=5 * np.sqrt(1 / 12 / 1600))
        assert not np.allclose(mdp.cost, mdp.reward)
    else:
        np.testing.assert_array_equal(mdp.cost, mdp.reward)


def test_the_reward_does_not_depend_on_the_cost_law():
    worlds = [Gridworld(6, law, seed=4).mdp() for law in COST_LAWS]
    for mdp in worlds[1:]:
        np.testing.assert_array_equal(mdp.reward, worlds[0].reward)


def test_worlds_repeat_by_seed():
    one, two, other = (Gridworld(5, seed=s).mdp() for s in (7, 7, 8))
    np.testing.assert_array_equal(one.reward, two.reward)
    np.testing.assert_array_equal(one.cost, two.cost)
    assert not np.isin(one.reward, other.reward[other.reward < 1]).any()
    assert not np.isin(one.cost[one.cost < 1], one.reward).any()


@pytest.mark.parametrize("law", COST_LAWS)
@pytest.mark.parametrize("method", ["scope", "scope-dr"])
def test_scope_is_safe_and_better_on_every_law(law, method):
    mdp = Gridworld(10, law).mdp()
    for target in target_policies(3, 10, seed=1):
        found = exact.design(mdp, target, method)
        own = exact.assess(mdp, target, target)
        ours = exact.assess(mdp, target, found, found.control)
        assert ours.cost <= own.cost * (1 + 1e-12)
        # cost = reward: what would lower the variance is what safety forbids, unless b = q
        least = 1.0 if (law, method) == ("reward", "scope") else 0.95
        assert ours.variance < least * own.variance
        assert abs(ours.bias) < 1e-12


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"size": 1}, r"^size: got 1, expected a whole number of cells >= 2$"),
        ({"size": 2.5}, r"^size: got 2.5"),
        ({"size": "10"}, r"^size: got '10'"),
        ({"size": True}, r"^size: got True"),
        ({"cost_law": "free"}, r"^cost_law: got 'free', expected one of same-tilt, uniform, rew"),
    ],
)
def test_bad_recipes(recipe, message):
    with pytest.raises(InputError, match=message):
        Gridworld(**recipe)


# -- policies ------------------------------------------------------------------------------------


def test_targets_are_state_independent_and_repeat_by_seed():
    targets = target_policies(30, 6)
    assert len(targets) == 30
    for policy in targets:
        table = policy.table(1)[0]
        assert table.shape == (36, 4)
        assert (table > 0).all()
        np.testing.assert_allclose(table.sum(1), 1.0)
        assert (table == table[0]).all()
    rows = np.array([policy.table(1)[0, 0] for policy in targets])
    assert len(np.unique(rows, axis=0)) == 30
    again = np.array([policy.table(1)[0, 0] for policy in target_policies(30, 6)])
    np.testing.assert_array_equal(rows, again)
    assert not np.isclose(rows, [p.table(1)[0, 0] for p in target_policies(30, 6, seed=1)]).any()
    # the first few do not depend on how many are asked for, nor on the grid
    few = np.array([policy.table(1)[0, 0] for policy in target_policies(3, 9)])
    np.testing.assert_array_equal(few, rows[:3])


@pytest.mark.parametrize("n", [5, 10])
def test_loggers_run_from_random_to_near_optimal(n):
    mdp = Gridworld(n).mdp()
    policies = logging_policies(30, mdp)
    assert len(policies) == 30
    J = []
    for policy in policies:
        table = policy.table(n)
        assert table.shape == (n, n * n, 4)
        assert (table >= 0).all()
        np.testing.assert_allclose(table.sum(-1), 1.0)
        J.append(float(mdp.initial @ exact.values(mdp, policy).v[0]))
    first = policies[0].table(n)
    assert (first == first[0, 0]).all()  # untrained: a draw of its own, the same everywhere
    # by backward induction, number by number: the best that any policy does
    dense = mdp.transition.toarray().reshape(n * n, 4, n * n)
    best = np.zeros(n * n)
    for _ in range(n):
        best = (mdp.reward + dense @ best).max(axis=1)
    optimum = float(mdp.initial @ best)
    J = np.array(J)
    assert J[-1] <= optimum + 1e-12
    share = (J - J[0]) / (optimum - J[0])
    assert share[-1] > 0.85
    assert np.corrcoef(np.arange(30), J)[0, 1] > 0.9
    assert ((share > 0.2) & (share < 0.8)).sum() >= 5  # various performances in between


def test_one_logger_and_a_world_without_rewards():
    mdp = Gridworld(4).mdp()
    alone = logging_policies(1, mdp)[0].table(4)
    np.testing.assert_allclose(alone, np.broadcast_to(alone[0, 0], alone.shape))
    dull = exact.TabularMDP(mdp.initial, mdp.transition, mdp.reward * 0, mdp.cost, 4)
    for policy in logging_policies(3, dull):
        np.testing.assert_allclose(
            policy.table(4), np.broadcast_to(policy.table(4)[0, 0], (4, 16, 4))
        )

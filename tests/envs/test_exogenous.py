"""Worlds with an exogenous input: the environment and the simulation are one world."""

from __future__ import annotations

import numpy as np
import pytest

from scopeval.collection.signal_paths import signal_paths
from scopeval.envs.battery import Battery
from scopeval.envs.exogenous import ExogenousEnv, simulate
from scopeval.envs.inventory import Inventory
from scopeval.envs.queue import Queue
from scopeval.estimation.estimators import doubly_robust
from scopeval.policies.protocols import Weighing

WORLDS = (Inventory(), Queue(), Battery())


@pytest.mark.parametrize("world", WORLDS, ids=lambda w: w.name)
def test_actions_change_rewards_but_not_the_input(world):
    """The same input under five policies; 4.9 standard errors apart by chance: 1e-6."""
    rng = np.random.default_rng(0)
    paths = world.paths(2000, rng)
    returns = []
    for policy in world.policies():
        found = simulate(world, policy, paths, np.random.default_rng(1))
        assert signal_paths(found, [world.name], 99)[:, :, 0] == pytest.approx(paths)
        assert (found.behavior_prob > 0).all()
        returns.append(found.returns())
    means = np.mean(returns, axis=1)
    assert np.ptp(means) > 4.9 * np.std(returns) / np.sqrt(2000)


@pytest.mark.parametrize("world", WORLDS, ids=lambda w: w.name)
def test_the_environment_has_the_law_of_the_simulation(world):
    """Means of 60 episodes each; 4.9 standard errors apart by chance: 1e-6."""
    rng = np.random.default_rng(2)
    env, policy = ExogenousEnv(world), world.policies()[1]
    single = []
    for seed in range(60):
        obs, _ = env.reset(seed=seed)
        total, over, t = 0.0, False, 0
        while not over:
            action = rng.choice(world.actions, p=policy.probs(obs[None], t)[0])
            obs, reward, _, over, info = env.step(action)
            assert info["cost"] >= 0
            assert info[world.name] == env._path[0, t]
            total, t = total + reward, t + 1
        assert t == world.horizon
        single.append(total)
    many = simulate(world, policy, world.paths(2000, rng), rng).returns()
    assert abs(np.mean(single) - many.mean()) < 4.9 * many.std() * np.sqrt(1 / 60 + 1 / 2000)


class Tilted:
    """Takes the first action more often, with a control variate that is not even a good one."""

    def weigh(self, offered, obs, t, state):
        mu = 0.7 * offered.probs + 0.3 * np.eye(offered.probs.shape[1])[0]
        return Weighing(mu, 0.1 * obs[:, 1:2] + offered.actions)


def test_another_behavior_policy_has_the_same_value():
    """Two means of the queue's first 6 steps; 4.9 standard errors apart by chance: 1e-6."""
    world, rng = Queue(horizon=6), np.random.default_rng(4)
    policy, paths = world.policies()[0], world.paths(20_000, rng)
    own = simulate(world, policy, paths, rng).returns()
    found = doubly_robust(simulate(world, policy, paths, rng, behavior=Tilted()))
    off = found - own
    assert off.std() > 0.1
    assert abs(off.mean()) < 4.9 * off.std() / np.sqrt(len(off))


def test_regimes_last():
    x = Queue().paths(4000, np.random.default_rng(3))
    assert np.corrcoef(x[:, 10], x[:, 11])[0, 1] > 0.2
    assert abs(np.corrcoef(x[:, 0], x[:, 59])[0, 1]) < 0.1
    assert x.mean() == pytest.approx(1.6, abs=0.05)

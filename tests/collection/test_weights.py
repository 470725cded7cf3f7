"""Behavior policies that depend on the weight of the episode so far are given it, step by step."""

from __future__ import annotations

import numpy as np
import pytest

from logged_worlds import cells
from scopeval import collect, evaluate, exact
from scopeval.behavior.frontier import frontier
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.policies.protocols import Weighing

MDP = Gridworld(5, seed=3).mdp()
PI = target_policies(1, 5, seed=3)[0]


class Recorder:
    """Runs the target mixed with uniform actions, and keeps the weights it was given."""

    def __init__(self):
        self.given = []

    def weigh_at(self, offered, obs, t, weight):
        self.given.append((t, weight.copy()))
        return self.weigh(offered, obs, t)

    def weigh(self, offered, obs, t):
        return Weighing(0.5 * offered.probs + 0.5 / offered.probs.shape[1])


def test_the_weight_is_the_product_of_the_ratios_so_far():
    recorder = Recorder()
    episodes = collect(lambda: TabularEnv(MDP), PI, recorder, episodes=6, horizon=5, seed=1)
    ratios = episodes.target_prob / episodes.behavior_prob
    so_far = np.cumprod(np.column_stack([np.ones(6), ratios]), axis=1)
    given = {t: np.concatenate([w for s, w in recorder.given if s == t]) for t in range(5)}
    for t in range(5):
        np.testing.assert_allclose(np.sort(given[t]), np.sort(so_far[:, t]), rtol=1e-12)


def test_a_frontier_is_evaluated_in_an_environment_at_its_cost():
    """3,000 episodes; all bounds are beyond 4 standard errors."""
    logs = gridworld_logs(MDP, episodes=600, seed=3)
    policy = frontier(logs, PI, horizon=5, features=cells(5)).at(cost=0.7)
    own = exact.assess(MDP, PI, PI)
    found = evaluate(lambda: TabularEnv(MDP), PI, policy, episodes=3000, horizon=5, guard=None)
    error = found.interval.high - found.estimate
    assert abs(found.estimate - own.value) < 2.2 * error
    assert found.cost.per_episode / own.cost < 0.74
    assert found.diagnostics.largest_weight <= 30.0 + 1e-9
    relative = (error / 1.96) ** 2 * 3000 / own.variance
    assert relative == pytest.approx(policy.predicted.variance, rel=0.4)

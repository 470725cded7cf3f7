"""What no function of the path can do better than: computed from pairs, and found by search."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from experiments import context
from scopeval.envs.exogenous import SoftPolicy, Step


class Coins:
    """One step. Reward: 3 times the input, a coin, and the action, which is another coin."""

    name, horizon, actions = "coin", 1, 2

    def paths(self, count, rng):
        return rng.integers(2, size=(count, 1)).astype(float)

    def begin(self, count):
        return np.zeros(count)

    def observe(self, state, path, t):
        return np.zeros((len(state), 3))

    def step(self, state, action, now, rng):
        return Step(state, 3.0 * now + action, np.zeros(len(state)))

    def policies(self):
        return [SoftPolicy(lambda obs: np.zeros((len(obs), 2)))]


def test_what_does_not_go_with_the_path_is_told_by_pairs_of_one_path(monkeypatch):
    """Exactly 2, 2.5 and 1/10; of 400,000 returns, to six standard errors."""
    monkeypatch.setitem(context.WORLDS, "coins", Coins())
    value, variance, rest = (float(x[0]) for x in context.reference("coins"))
    assert value == pytest.approx(2.0, abs=0.015)
    assert variance == pytest.approx(2.5, abs=0.015)
    assert rest == pytest.approx(0.1, abs=0.001)


def test_no_function_of_the_path_leaves_less():
    """rest + (1 - rest) / (M + 1), by search over all g of five paths, M paths for each episode."""
    rng = np.random.default_rng(0)
    p, mean, noise, M = rng.dirichlet(np.ones(5)), rng.normal(size=5), rng.uniform(1, 2, 5), 30

    def variance(x):
        return p @ (x - p @ x) ** 2

    total = variance(mean) + p @ noise
    rest = p @ noise / total

    def left(g):
        """Of one episode, and of the history's mean, of which there are M paths for each."""
        return (p @ noise + variance(mean - g) + variance(g) / M) / total

    found = minimize(left, np.zeros(5))
    least = rest + (1.0 - rest) / (M + 1.0)
    assert found.fun == pytest.approx(least, abs=1e-6)
    assert left(mean * M / (M + 1.0)) == pytest.approx(least, abs=1e-12)

"""Algorithm 1 on logs that leave nothing to guess: discounts, terminations, and the price."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scopeval import Check, Transitions, design, exact
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe
from scopeval.behavior.weighted_step import PriceGrid, weigh_weighted
from scopeval.exact import TabularMDP
from scopeval.models.protocols import Estimates


def deterministic_world(seed, gamma, horizon=5, states=4, actions=3):
    """A model without randomness of its own, a policy, and logs that show every step often."""
    rng = np.random.default_rng(seed)
    following = rng.integers(0, states, (states, actions))
    transition = np.eye(states)[following]
    reward, cost = rng.normal(size=(states, actions)), rng.random((states, actions))
    mdp = TabularMDP(np.full(states, 1 / states), transition, reward, cost, horizon, gamma=gamma)
    episodes = 3000
    s = np.arange(episodes) % states
    columns = []
    for t in range(horizon):
        a = rng.integers(0, actions, episodes)
        columns.append((np.full(episodes, t), s, a, reward[s, a], cost[s, a], following[s, a]))
        s = following[s, a]
    # one episode after the other
    t, *others = (np.stack(x, axis=1).ravel() for x in zip(*columns, strict=True))
    log = Transitions(t, *others)
    return mdp, rng.dirichlet(np.ones(actions), states), log


@pytest.mark.parametrize("method", ["scope", "scope-dr", "odi"])
@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_predictions_are_exact_where_nothing_is_random(method, gamma):
    """Variance and cost to come are discounted as dynamic programming says."""
    mdp, pi, log = deterministic_world(1, gamma)
    found = design(log, pi, horizon=5, gamma=gamma, method=method, check=Check(least_gain=0.0))
    mu, b = found.table(4)
    own, truth = exact.assess(mdp, pi, pi), exact.assess(mdp, pi, mu, b)
    assert found.predicted.variance == pytest.approx(truth.variance / own.variance, rel=0.01)
    assert found.predicted.cost == pytest.approx(truth.cost / own.cost, rel=0.01)


def test_nothing_follows_a_termination():
    """The next state of a terminated row has a value of its own, which does not count."""
    rng = np.random.default_rng(0)
    n = 2000
    s = np.arange(n) % 2
    a = rng.integers(0, 2, n)
    reward, cost = np.where(s == 0, 1.0 + a, 100.0), np.where(s == 0, 1.0 + a, 50.0)
    # state 0 always ends the episode, on the way to state 1; state 1 goes on
    t = np.zeros(n, int)
    log = Transitions(t, s, a, reward, cost, np.ones(n, int), s == 0)
    pi = np.full((2, 2), 0.5)
    found = design(log, pi, horizon=3, method="scope", check=Check(least_gain=0.0))
    for t, critic in enumerate(found.critics):
        e = critic.at(np.arange(2))
        np.testing.assert_allclose(e.q, [[1.0, 2.0], [100.0 * (3 - t)] * 2], rtol=1e-6)
        np.testing.assert_allclose(e.cost_target, [[1.0, 2.0], [50.0 * (3 - t)] * 2], rtol=1e-6)


GRID = PriceGrid(1e-3, 4.0, 9)
RECIPE = Recipe(
    METHODS["scope-dr"], 4, 0.9, epsilon=-0.3, budget="weighted", price=0.3,
    prices=(GRID.low, GRID.ratio, GRID.count),
)  # fmt: skip


def weighed(recipe, t, weight, rows=slice(None)):
    """Mu of six random states, or of some of them."""
    rng, shape = np.random.default_rng(7), (6, 3)
    e = Estimates(
        q=rng.normal(size=shape),
        cost_target=rng.random(shape),
        cost_behavior=rng.random((*shape, 1 + GRID.count)),
        carried=rng.random((*shape, 1 + GRID.count)),
        noise=rng.random(shape),
        error=np.zeros(shape),
        known=np.ones(shape, bool),
    )
    pi = rng.dirichlet(np.ones(3), 6)[rows]
    weights = np.full(len(pi), weight)
    return weigh_weighted(recipe, GRID, pi, e.select(rows), t, weights)[0]


@pytest.mark.parametrize("weight", [0.3, 1.7, 4.0])
def test_the_price_is_relative_to_the_square_of_the_weight(weight):
    """An episode of weight W at a price is one of weight 1 at the price over W^2."""
    same = replace(RECIPE, price=0.3 / weight**2)
    np.testing.assert_allclose(weighed(RECIPE, 3, weight), weighed(same, 3, 1.0), rtol=1e-9)
    assert np.abs(weighed(RECIPE, 3, weight) - weighed(RECIPE, 3, 1.0)).max() > 1e-3
    # and relative to gamma^t
    first = replace(RECIPE, price=0.3 / 0.9**3)
    np.testing.assert_allclose(weighed(RECIPE, 3, weight), weighed(first, 0, weight), rtol=1e-9)


@pytest.mark.parametrize("cap", [None, 5.0])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.7, 4.0])
def test_one_row_is_weighed_like_many(weight, cap):
    """A controller asks about one observation at a time."""
    recipe = replace(RECIPE, cap=cap)
    many = weighed(recipe, 2, weight)
    for row in range(6):
        one = weighed(recipe, 2, weight, slice(row, row + 1))
        np.testing.assert_allclose(one[0], many[row], rtol=1e-12)

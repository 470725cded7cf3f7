"""Rounding decides nothing: choices that are the same policy are told apart by a stated order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scopeval import Frontier, Promise, Transitions, design
from scopeval.arrays import TIE, least
from scopeval.behavior.frontier_point import Point

#: How a design is asked for: every combination that has choices which can tie.
ASKED = (
    {"method": "scope-dr", "promise": Promise(per="episode")},
    {"method": "scope-dr", "promise": Promise(at_most=1.1, per="episode")},
    {"method": "scope-dr"},
    {"method": "scope", "promise": Promise(per="episode")},
)


def log_of_a_random_world(seed: int, kind: str = "any") -> tuple[Transitions, np.ndarray, int]:
    """Some episodes of a random small MDP, and a target policy near the one that logged them.

    Some kinds of world have more ties: every step costs the same, or the target policy mostly takes
    the cheapest action.
    """
    rng = np.random.default_rng((seed, 7))
    sizes = rng.integers((3, 2, 2, 60), (6, 4, 5, 200))
    states, actions, horizon, n = (int(size) for size in sizes)
    target = rng.dirichlet(np.ones(actions), states)
    logger = 0.5 * target + 0.5 / actions
    move = rng.dirichlet(np.ones(states), (states, actions))
    reward, cost = rng.normal(size=(states, actions)), rng.random((states, actions))
    if kind == "same cost":
        cost[:] = 0.7
    elif kind == "cheapest":
        cost = 0.1 + 0.7 * (target < target.max(axis=1, keepdims=True))
    rows, state = [], rng.integers(0, states, n)
    for t in range(horizon):
        action = (rng.random((n, 1)) > logger[state].cumsum(axis=1)).sum(axis=1)
        after = (rng.random((n, 1)) > move[state, action].cumsum(axis=1)).sum(axis=1)
        action, after = np.minimum(action, actions - 1), np.minimum(after, states - 1)
        noisy = reward[state, action] + 0.3 * rng.normal(size=n)
        rows.append((np.full(n, t), state, action, noisy, cost[state, action], after))
        state = after
    columns = [np.stack(column, axis=1).ravel() for column in zip(*rows, strict=True)]
    log = Transitions(*columns, np.zeros(n * horizon, bool))
    return log, target, horizon


@pytest.mark.parametrize("asked", ASKED, ids=lambda how: "-".join(map(str, how.values())))
@pytest.mark.parametrize("kind", ["any", "same cost", "cheapest"])
def test_rounding_does_not_choose(asked, kind):
    """Rewards that differ by less than anybody can measure give the same decision."""
    changed = []
    for seed in range(12):
        log, target, horizon = log_of_a_random_world(seed, kind)
        found = set()
        for size in (0.0, 1e-12, -1e-12, 1e-9):
            uniform = np.random.default_rng(seed).uniform(-1.0, 1.0, len(log))
            near = replace(
                log,
                reward=log.reward * (1.0 + size * uniform),
                cost=log.cost * (1.0 + np.sign(size) * 1e-15 * uniform[::-1]),  # a few last bits
            )
            made = design(near, target, horizon=horizon, **asked)
            recipe = made.recipe
            found.add((recipe.budget, recipe.method.name, recipe.floor, recipe.share))
        if len(found) > 1:
            changed.append((seed, found))
    assert not changed


@pytest.mark.parametrize("asked", ASKED[:3:2], ids=lambda how: "-".join(map(str, how.values())))
def test_small_changes_of_rewards_and_costs_change_no_value(asked):
    """A billionth of both: what is run has the same variance and cost."""
    for seed in range(8):
        log, target, horizon = log_of_a_random_world(seed)
        noise = np.random.default_rng(seed).uniform(-1e-9, 1e-9, (2, len(log)))
        near = replace(log, reward=log.reward * (1 + noise[0]), cost=log.cost * (1 + noise[1]))
        one, other = (design(some, target, horizon=horizon, **asked) for some in (log, near))
        assert one.recipe.method == other.recipe.method
        assert one.predicted.variance == pytest.approx(other.predicted.variance, rel=1e-6)
        assert one.predicted.cost == pytest.approx(other.predicted.cost, rel=1e-6)


@pytest.mark.parametrize(
    ("values", "rank", "expected"),
    [
        ([2.0, 1.0, 3.0], None, 1),
        ([1.0 + 1e-15, 1.0, 3.0], None, 0),  # the first of those that tie
        ([1.0, 1.0 + 1e-15, 1.0 - 1e-15], [3, 1, 2], 1),
        ([1.0, 1.0 + 2.0 * TIE], [2, 1], 0),  # no tie
        ([1e9, 1e9 + 0.5], [2, 1], 1),  # large numbers are rounded more
        ([1e-17, 0.0, -1e-17], [3, 1, 2], 1),  # and nothing is left of small ones
        ([np.nan, 2.0, np.inf], [1, 2, 3], 1),
        ([np.nan, np.nan], [2, 1], 1),
    ],
)
def test_ties_have_an_order(values, rank, expected):
    assert least(values, rank) == expected


@pytest.mark.parametrize("last_bit", [-1e-16, 0.0, 1e-16])
def test_of_equal_points_of_a_frontier_the_one_that_costs_less_is_best(last_bit):
    curve = Frontier.__new__(Frontier)
    curve.points = tuple(
        Point(price, variance, cost, variance, cost, 0.0)
        for price, variance, cost in (
            (1.0, 0.5, 1.0),
            (2.0, 0.4 + last_bit, 0.8),
            (3.0, 0.8 - last_bit, 0.4),
            (4.0, 3.0, 0.3),
        )
    )
    assert curve.least_needed.price == 3.0

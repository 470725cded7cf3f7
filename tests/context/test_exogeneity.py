"""Is a column exogenous? Named where it is not; not named where it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scopeval import History
from scopeval.context.exogeneity import _shift_score, exogeneity, exogeneity_warnings
from scopeval.envs.battery import Battery
from scopeval.envs.exogenous import simulate
from scopeval.envs.inventory import Inventory
from scopeval.envs.queue import Queue

HISTORY = History(np.zeros((3, 60)), "arrivals")


def episodes(n, seed, effect=0.0):
    """Queues whose next arrivals are `effect` more for each server, if that is not 0."""
    rng, world = np.random.default_rng(seed), Queue()
    found = simulate(world, world.policies()[1], world.paths(n, rng), rng)
    if not effect:
        return found
    pushed = found.exogenous.copy()
    pushed[:, 1:, 0] += effect * found.action
    return replace(found, exogenous=pushed)


def test_what_does_not_depend_on_actions_is_not_named():
    """120 logs at 5 %: more than 14 named by chance has a probability of about 1e-3."""
    named = sum(
        bool(exogeneity_warnings(exogeneity(episodes(80, seed), HISTORY))) for seed in range(120)
    )
    assert named <= 14


def test_what_depends_on_actions_is_named():
    """An effect of .05 arrivals a server, 1,000 episodes; arrivals have a deviation of 1.5."""
    [test] = exogeneity(episodes(1000, 1, 0.05), HISTORY)
    [told] = exogeneity_warnings((test,))
    assert told.startswith("arrivals depends on the actions")
    assert np.all(np.diff(test.effect) > 0)


def test_a_column_that_is_the_state_is_named():
    """Stock is what orders make of it, demand is not."""
    world, rng = Inventory(), np.random.default_rng(2)
    found = simulate(world, world.policies()[0], world.paths(200, rng), rng)
    stock, demand = exogeneity(found, History(np.zeros((3, 27, 2)), (1, 2)))
    assert stock.p_value < 1e-12
    assert demand.p_value > 0.01
    assert stock.column == "column 1 of the observation"


def test_a_value_that_was_seen_before_the_action_is_not_what_is_tested():
    """The battery sees the price of the half hour; .5 more in the next one for each action."""
    world, rng = Battery(), np.random.default_rng(5)

    def influence(paths, action, t):
        paths[:, t + 1 : t + 2] += 0.5 * action[:, None]

    history = History(np.zeros((3, 48)), "price")
    paths = world.paths(400, rng)
    found = simulate(world, world.policies()[1], paths, rng, influence)
    [told] = exogeneity_warnings(exogeneity(found, history))
    assert told.startswith("price depends on the actions")
    plain = simulate(world, world.policies()[1], paths, rng)
    assert exogeneity_warnings(exogeneity(plain, history)) == ()


def test_steps_of_a_counter_are_small_beside_its_levels_and_are_tested():
    """Meters start anywhere within thousands; each server adds .5 to the next reading's step."""
    found, rng = episodes(400, 8), np.random.default_rng(8)
    n, steps = found.action.shape
    start, step = 3000.0 * rng.normal(size=(n, 1)), rng.normal(size=(n, steps + 1))
    told = []
    for effect in (0.0, 0.5):
        path = start + np.cumsum(step, axis=1)
        path[:, 1:] += effect * np.cumsum(found.action, axis=1)
        moved = replace(found, exogenous=path[:, :, None], signals=("meter",))
        told.append(exogeneity_warnings(exogeneity(moved, History(np.zeros((3, 60)), "meter"))))
    assert told[0] == ()
    assert told[1][0].startswith("meter depends on the actions")


def test_a_column_that_time_decides_says_nothing():
    """Hours of the day leave nothing to the actions: p = 1."""
    world, rng = Queue(), np.random.default_rng(6)
    found = simulate(world, world.policies()[1], world.paths(100, rng), rng)
    [test] = exogeneity(found, History(np.zeros((3, 61)), 0))
    assert test.p_value == 1.0


def test_what_cannot_be_tested_has_no_result():
    few = episodes(20, 3)
    assert exogeneity(few, HISTORY) == ()
    assert exogeneity(few, History.starts(np.zeros((4, 3)))) == ()
    vectors = episodes(60, 4)
    moved = replace(vectors, action=vectors.action[:, :, None] + 0.5)
    assert exogeneity(moved, HISTORY) == ()


def test_the_score_of_a_shift_is_that_of_the_density():
    """-(d / dx) log p of two normal laws 6 apart, which past values tell apart, or do not."""
    rng = np.random.default_rng(9)
    center = 3.0 * rng.choice([-1.0, 1.0], size=(4000, 5))
    x = center + rng.normal(size=center.shape)
    weight = 1.0 / (1.0 + np.exp(-6.0 * x))  # that the center is 3, where nothing else is known
    seen = _shift_score(x, center).ravel()
    assert np.corrcoef(seen, (x - center).ravel())[0, 1] > 0.99
    hidden, true = _shift_score(x, 0.0 * x).ravel(), (x - 3.0 * (2.0 * weight - 1.0)).ravel()
    assert np.corrcoef(hidden, true)[0, 1] > 0.75  # hinges at quartiles bend only there
    assert abs(np.corrcoef(x.ravel(), true)[0, 1]) < 0.5  # a regression does not see it

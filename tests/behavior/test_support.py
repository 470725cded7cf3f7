"""Support for vectors: is it noticed when the target policy leaves what was logged?"""

from __future__ import annotations

import numpy as np
import pytest

from scopeval import CallablePolicy, Question, Table
from scopeval.behavior.support import (
    USUAL,
    Steps,
    simulated_steps,
    single_steps,
    vector_support,
)
from scopeval.models.protocols import Points, SweepData
from scopeval.models.rows import Rows

LENGTH = 20


def walks(rng, episodes, start=0.0, width=3, actions=2, drift=0.0):
    """Random walks, one episode after the other."""
    shape = (episodes, LENGTH, width)
    obs = start + np.cumsum(rng.normal(drift, 0.3, shape), axis=1)
    return rows_of(obs.reshape(-1, width), rng.integers(actions, size=episodes * LENGTH))


def rows_of(obs, action, alive=None):
    n = len(obs)
    return Rows(
        t=np.arange(n) % LENGTH,
        obs=obs,
        action=action,
        reward=np.zeros(n),
        reward_noise=np.zeros(n),
        cost=np.zeros(n),
        cost_noise=np.zeros(n),
        next_obs=obs,
        alive=np.ones(n) if alive is None else alive,
        weight=np.ones(n),
        borrowed=np.zeros(n, np.bool_),
        has_next=np.ones(n, np.bool_),
    )


def steps_of(rows):
    return Steps(np.asarray(rows.obs), rows.action)


@pytest.mark.parametrize("width", [1, 3, 12])
@pytest.mark.parametrize("episodes", [10, 300])
def test_steps_like_the_logged_ones_are_shown(width, episodes):
    """New episodes by the same controller: 99 % of 2,000 steps, up to what few episodes differ."""
    rng = np.random.default_rng(width)
    log = walks(rng, episodes, width=width)
    found = vector_support(log, steps_of(walks(rng, 100, width=width)))
    assert found == pytest.approx(USUAL, abs=0.15 if episodes == 10 else 0.02)


def test_the_share_outside_is_counted():
    rng = np.random.default_rng(0)
    log = walks(rng, 300)
    inside, outside = walks(rng, 75), walks(rng, 25, start=30.0)
    steps = steps_of(Rows.joined([inside, outside]))
    assert vector_support(log, steps) == pytest.approx(0.75 * USUAL, abs=0.03)


def test_a_hole_inside_the_range_of_the_logs_is_noticed():
    """No bound on any coordinate can see it."""
    rng = np.random.default_rng(1)
    angle = rng.uniform(0, 2 * np.pi, 4000)
    ring = np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(0, 0.02, (4000, 2))
    log = rows_of(ring, rng.integers(2, size=4000))
    middle = Steps(rng.normal(0, 0.2, (500, 2)), rng.integers(2, size=500))
    assert vector_support(log, middle) < 0.01


def test_actions_that_were_never_logged_there_are_not_shown():
    rng = np.random.default_rng(2)
    left, right = walks(rng, 150, start=-20.0), walks(rng, 150, start=20.0)
    log = Rows.joined([left, right])
    log.action[: len(left)] = 0
    log.action[len(left) :] = 1
    there = steps_of(walks(rng, 50, start=-20.0))
    assert vector_support(log, Steps(there.obs, np.zeros(1000, int))) > 0.95
    assert vector_support(log, Steps(there.obs, np.ones(1000, int))) == 0.0
    assert vector_support(log, Steps(there.obs, np.full(1000, 2))) == 0.0


def test_units_do_not_matter_and_a_constant_coordinate_is_no_freedom():
    rng = np.random.default_rng(3)
    log, steps = walks(rng, 200), walks(rng, 50, start=1.0)
    scale = np.array([1e-6, 1.0, 1e6])
    other = rows_of(np.asarray(log.obs) * scale, log.action)
    found = vector_support(log, steps_of(steps))
    assert 0.3 < found < 0.99
    again = Steps(np.asarray(steps.obs) * scale, steps.action)
    assert vector_support(other, again) == pytest.approx(found, abs=1e-9)
    flat = rows_of(np.column_stack([log.obs, np.full(len(log), 2.0)]), log.action)
    for value, expected in ((2.0, found), (2.1, 0.0)):
        moved = Steps(np.column_stack([steps.obs, np.full(len(steps), value)]), steps.action)
        assert vector_support(flat, moved) == pytest.approx(expected, abs=1e-9)


def test_continuous_actions_count_as_coordinates():
    rng = np.random.default_rng(4)
    log = walks(rng, 200)
    small = rng.normal(0, 0.1, (len(log), 2))
    log = rows_of(log.obs, small)
    there = walks(rng, 50).obs
    like = Steps(there, rng.normal(0, 0.1, (1000, 2)))
    unlike = Steps(there, rng.normal(2.0, 0.1, (1000, 2)))
    assert vector_support(log, like) > 0.9
    assert vector_support(log, unlike) < 0.01


def test_simulated_steps_are_as_frequent_as_episodes_last():
    """Half of the episodes end at every step: step t stands for 1 / 2^t of them."""
    rng = np.random.default_rng(5)
    parts = []
    for t in range(4):
        alive = np.arange(600) % 2 * 1.0
        rows = rows_of(np.full((600, 1), float(t)), np.zeros(600, int), alive)
        parts.append(rows)
    share = np.full(600, 1 / 600)
    points = [Points(part.obs, share, share) for part in parts]
    data = SweepData(
        parts, points, [np.arange(600)] * 4, Table(), Question(np.ones((1, 1)), 4), 1, 0
    )
    found = simulated_steps(data, int(rng.integers(100)))
    counts = np.bincount(found.obs[:, 0].astype(int))
    expected = len(found.obs) * np.array([8, 4, 2, 1]) / 15
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected))  # fails by chance: < 1e-5


def test_single_steps_follow_the_policy():
    rng = np.random.default_rng(6)
    log = walks(rng, 100)
    policy = CallablePolicy(lambda obs, t: np.tile([0.25, 0.75], (len(obs), 1)))
    found = single_steps(log, policy, 0)
    assert abs(found.action.mean() - 0.75) < 5 * np.sqrt(0.25 * 0.75 / len(found.obs))
    assert len(np.unique(found.obs[:, 0])) == len(found.obs)

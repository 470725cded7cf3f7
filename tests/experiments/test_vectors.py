"""Environments with vectors: dynamics as in Gymnasium, logs, and measuring."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from experiments.worlds import vectors
from experiments.worlds.vectors import (
    HIDDEN,
    VECTOR_LOGS,
    VECTORS,
    measure,
    vector_world,
)
from scopeval import Networks, design
from scopeval.errors import InputError
from scopeval.models.training import Training
from scopeval.policies.protocols import Weighing


@pytest.mark.parametrize("name", VECTORS)
def test_dynamics_are_gymnasiums(name):
    """Random actions for ten episodes, step by step."""
    control = vector_world(name).control
    env = gymnasium.make(control.gymnasium).unwrapped
    rng = np.random.default_rng(0)
    ends = 0
    for episode in range(10):
        obs, _ = env.reset(seed=episode)
        state = np.array(env.state, np.float64)[None]
        np.testing.assert_array_equal(control.observe(state)[0], obs)
        for _ in range(control.horizon):
            action = rng.integers(len(control.levels), size=1)
            own = int(action[0])
            stepped = control.step(state, action)
            given = np.array([2.0 * control.levels[own]]) if name == "Pendulum" else own
            obs, reward, over, _, _ = env.step(given)
            np.testing.assert_allclose(control.observe(stepped.state)[0], obs, atol=1e-6)
            assert stepped.reward[0] == pytest.approx(reward, abs=1e-9)
            assert stepped.ended[0] == over
            assert 0.0 <= stepped.cost[0] <= 1.1
            state = stepped.state
            if over:
                ends += 1
                break
    assert (ends > 0) == (name == "CartPole")  # random actions reach no other end


@pytest.mark.parametrize("name", VECTORS)
def test_starts_are_gymnasiums(name):
    """Range of 500 first states: within, and to a hundredth of, the bounds of many more."""
    control = vector_world(name).control
    env = gymnasium.make(control.gymnasium).unwrapped
    theirs = np.stack([env.reset(seed=k)[0] for k in range(500)])
    ours = control.observe(control.start(20_000, np.random.default_rng(0)))
    room = 0.05 * (np.ptp(ours, axis=0) + 1e-6)
    assert (theirs.min(axis=0) >= ours.min(axis=0) - room).all()
    assert (theirs.max(axis=0) <= ours.max(axis=0) + room).all()
    assert np.abs(theirs.mean(axis=0) - ours.mean(axis=0)).max() < 5 * ours.std() / 20


@pytest.mark.parametrize("name", VECTORS)
def test_policies_are_distributions_and_functions_of_the_seed(name):
    world = vector_world(name, 1)
    obs = np.asarray(world.logs("mixed", 10, 0).obs)
    for policy in (world.target(0), world.target(1), *world.loggers()):
        probs = policy.probs(obs, 0)
        np.testing.assert_allclose(probs.sum(axis=1), 1.0)
        assert (probs > 0).all()
    np.testing.assert_array_equal(world.target(1).probs(obs, 0), probs_of(name, 1, obs))
    assert not np.array_equal(world.target(0).probs(obs, 0), world.target(1).probs(obs, 0))
    assert np.ptp(world.loggers()[0].probs(obs, 0)) < 1e-12


def probs_of(name, seed, obs):
    return vector_world(name, seed).target(1).probs(obs, 0)


def test_logs_are_whole_episodes():
    world = vector_world("CartPole")
    log = world.logs("mixed", 30, 0)
    assert log == world.logs("mixed", 30, 0)
    first = np.flatnonzero(log.t == 0)
    assert len(first) == 30
    last = np.append(first[1:], len(log)) - 1
    inside = np.setdiff1d(np.arange(len(log)), last)
    np.testing.assert_array_equal(log.next_obs[inside], log.obs[inside + 1])
    cut_off = log.t[last] == world.control.horizon - 1
    assert (log.terminated[last] | cut_off).all()
    assert not log.terminated[inside].any()


def test_the_hidden_region_is_a_tenth_of_the_steps():
    world = vector_world("Pendulum")
    whole, part = (world.logs(kind, 50, 1) for kind in ("mixed", "hidden region"))
    assert len(whole) - len(part) > 0
    run = world._episodes(world.target(1), 500, np.random.default_rng(9))
    share = world._hidden(1, run.obs[run.steps]).mean()
    assert share == pytest.approx(HIDDEN, abs=0.02)
    assert not world._hidden(1, np.asarray(part.obs)).any()


def test_random_logs_of_the_mountain_car_never_reach_the_flag():
    log = vector_world("MountainCar").logs("random", 100, 0)
    assert not log.terminated.any()


def test_logs_that_never_reach_the_flag_are_noticed():
    """The target reaches it; most of its steps are unlike anything in these logs."""
    world = vector_world("MountainCar")
    quick = Networks(training=Training(steps=500), paths=50)
    found = {}
    for kind in ("random", "mixed"):
        learned = design(
            world.logs(kind, 20, 0), world.target(0), horizon=200, method="scope", learn=quick
        )
        found[kind] = learned.report.support
        if kind == "random":
            assert learned.falls_back
            assert "as near to the logs" in learned.report.fallback
            assert f"{learned.report.support:.1%} of the target policy's own" in learned.summary()
    assert found["random"] < 0.5
    assert found["mixed"] > 0.8


class Tilted:
    """A behavior policy that takes each action more often than the target, with a control."""

    def weigh(self, offered, obs, t, state):
        mu = offered.probs + 0.3
        return Weighing(mu / mu.sum(axis=1, keepdims=True), np.full(mu.shape, 5.0 - 0.1 * t))


def test_measured_values_are_unbiased():
    """2,000 episodes each; fails on right code with probability 1e-6."""
    world = vector_world("CartPole")
    world.control.horizon = 20  # of this instance
    target = world.target(2)
    own = measure(world, target, None, 2000, np.random.default_rng(0))
    tilted = measure(world, target, Tilted(), 2000, np.random.default_rng(1))
    spread = np.sqrt((own.value.var() + tilted.value.var()) / 2000)
    assert abs(own.value.mean() - tilted.value.mean()) < 4.9 * spread
    assert spread < 0.5
    assert len(own.cost) == 2000


def test_episodes_are_measured_in_parts(monkeypatch):
    world = vector_world("Pendulum")
    monkeypatch.setattr(vectors, "TOGETHER", 40)
    found = measure(world, world.target(0), None, 100, np.random.default_rng(0))
    assert len(found.value) == 100
    assert (found.value < 0).all()


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="environment: got 'Chess'"):
        vector_world("Chess")
    with pytest.raises(InputError, match="logs: got 'none'"):
        vector_world("CartPole").logs("none", 5, 0)
    assert VECTOR_LOGS[0] == "mixed"

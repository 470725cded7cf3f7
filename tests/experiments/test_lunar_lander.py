"""LunarLander in the experiment with unseen environments; skipped where Box2D is missing."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import unseen_envs
from experiments.worlds import lunar_lander
from experiments.worlds.vectors import measure, vector_world
from scopeval.errors import InputError

needs_box2d = pytest.mark.skipif(
    not lunar_lander.lander_installed(), reason="LunarLander needs Box2D: the extra box2d"
)


@needs_box2d
def test_episodes_are_gymnasiums():
    """The same seeds and actions in worlds of our own, side by side and one after the other."""
    control = lunar_lander.LunarLander()
    state = control.start(3, np.random.default_rng(0))
    seeds = np.random.default_rng(0).integers(2**31, size=3)
    rng = np.random.default_rng(1)
    worlds = [lunar_lander._new_world() for _ in range(3)]
    for world, seed, obs in zip(worlds, seeds, control.observe(state), strict=True):
        np.testing.assert_array_equal(world.reset(seed=int(seed))[0], obs)
    over = np.zeros(3, np.bool_)
    for _ in range(control.horizon):
        action = rng.integers(4, size=3)
        stepped = control.step(state, action)
        for k in np.flatnonzero(~over):
            obs, reward, over[k], _, _ = worlds[k].step(int(action[k]))
            np.testing.assert_array_equal(control.observe(stepped.state)[k], obs)
            assert stepped.reward[k] == reward
            assert stepped.cost[k] == (0.0, 0.1, 1.0, 0.1)[action[k]]
            assert stepped.ended[k] == over[k]
        state = stepped.state
        if over.all():
            break
    assert over.all()
    assert control.step(state, action).cost.sum() == 0.0


@needs_box2d
def test_the_scripted_controller_lands():
    """Its wishes are those of a good controller: far better than random actions."""
    world = vector_world("LunarLander")
    assert world.slower == 10
    best, worst = world.loggers()[-1], world.loggers()[0]
    good, bad = (measure(world, p, None, 12, np.random.default_rng(0)) for p in (best, worst))
    assert np.median(good.value) > 100
    assert np.median(bad.value) < -50
    log = world.logs("mixed", 10, 0)
    assert log == world.logs("mixed", 10, 0)
    assert log.obs.shape[1] == 8
    probs = world.target(0).probs(np.asarray(log.obs), 0)
    assert probs.shape[1] == 4
    np.testing.assert_allclose(probs.sum(axis=1), 1.0)


def test_it_is_left_out_where_box2d_is_missing(monkeypatch):
    for module in (unseen_envs, lunar_lander):
        monkeypatch.setattr(module, "lander_installed", lambda: False)
    assert "LunarLander" not in unseen_envs.Args().environments
    assert len(unseen_envs.Args().environments) == 8
    with pytest.raises(InputError, match=r"pip install 'scopeval\[box2d\]'.*'\.\[box2d\]'"):
        unseen_envs.Args(environments=("LunarLander",)).check()
    with pytest.raises(InputError, match=r"pip install 'scopeval\[box2d\]'.*'\.\[box2d\]'"):
        vector_world("LunarLander")

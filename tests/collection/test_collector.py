"""Collection: seeds, ragged episodes, costs, failures, guards, candidates, and the fast path."""

from __future__ import annotations

import re
from dataclasses import fields
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch

from scopeval import Episodes, GaussianPolicy, Plant, TabularPolicy, TorchPolicy, collect, exact
from scopeval.collection.collector import NoEpisodeError
from scopeval.collection.environments import open_environments
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError, PlantError
from scopeval.estimation.estimators import (
    doubly_robust,
    monte_carlo,
    pdis,
    pdis_cost,
    trajectory_weights,
)
from scopeval.policies.drawing import draw_actions
from scopeval.policies.protocols import Candidates, Weighing
from small_worlds import random_mdp, random_rows

UNIFORM = TabularPolicy(np.full((50, 2), 0.5))


class Walk(gymnasium.Env):
    """A state that counts steps by action + 1 and ends above `top`; all it does can be broken."""

    observation_space = gymnasium.spaces.Discrete(50)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, top=8, break_at=None, how="raise"):
        self.top, self.break_at, self.how = top, break_at, how
        self.closed = False
        self.broken = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        assert not self.closed
        self.state = int(self.np_random.integers(3))
        self.lucky = self.np_random.random() < 0.5
        self.t = 0
        return self.state, {}

    def step(self, action):
        self.state += int(action) + 1
        self.t += 1
        obs, reward, cost = self.state, float(self.state), 0.5 + action
        if self.t == self.break_at and not self.lucky:
            self.broken = True
            if self.how == "raise":
                raise RuntimeError("the belt slipped")
            obs = {"obs": np.nan, "text": "??", "width": np.zeros(2)}.get(self.how, obs)
            reward = {"nan": np.nan, "inf": -np.inf, "none": None}.get(self.how, reward)
            cost = {"cost": np.nan, "negative": -1.0}.get(self.how, cost)
            if self.how == "short":
                return obs, reward
            if self.how == "gone":
                return obs, reward, False, False, {}
        return obs, reward, self.state > self.top, False, {"cost": cost}

    def close(self):
        self.closed = True


def same(a, b):
    """Whether all but the provenance is equal: the name of the environment may differ."""
    for f in fields(Episodes):
        if f.name == "provenance":
            continue
        x, y = getattr(a, f.name), getattr(b, f.name)
        if not ((x is None and y is None) or np.array_equal(x, y)):
            return False
    return True


class Tilted:
    """A behavior with a control variate."""

    def weigh(self, offered, obs, t, state):
        mu = offered.probs * (1.0 + np.arange(offered.probs.shape[1]))
        return Weighing(mu / mu.sum(axis=1, keepdims=True), offered.actions * 1.0 + obs[:, None])


@pytest.mark.parametrize("behavior", [None, Tilted()])
def test_an_episode_is_the_same_however_it_is_asked_for(behavior):
    whole = collect(Plant(Walk, side_by_side=1), UNIFORM, behavior, horizon=6, episodes=20, seed=3)
    assert same(collect(Walk(), UNIFORM, behavior, horizon=6, episodes=20, seed=3), whole)
    for batch in (2, 7, 32):
        again = collect(
            Plant(Walk, side_by_side=batch), UNIFORM, behavior, horizon=6, episodes=20, seed=3
        )
        assert same(again, whole)
    parts = [
        collect(
            Plant(Walk, side_by_side=3), UNIFORM, behavior, horizon=6, episodes=n, first=f, seed=3
        )
        for f, n in ((0, 5), (5, 1), (6, 14))
    ]
    assert same(Episodes.concat(parts), whole)
    other = collect(Walk, UNIFORM, behavior, horizon=6, episodes=20, seed=4)
    assert not np.array_equal(other.action, whole.action)
    assert len(np.unique(whole.returns())) > 5


def test_columns_are_what_happened():
    episodes = collect(Walk, UNIFORM, Tilted(), horizon=6, episodes=40, seed=1)
    assert (episodes.length < 6).any()
    assert (episodes.length == 6).any()
    for i in range(40):
        n = episodes.length[i]
        states = [*episodes.obs[i, :n], episodes.last_obs[i]]
        np.testing.assert_array_equal(np.diff(states), episodes.action[i, :n] + 1)
        np.testing.assert_array_equal(episodes.reward[i, :n], states[1:])
        np.testing.assert_array_equal(episodes.cost[i, :n], episodes.action[i, :n] + 0.5)
        assert episodes.terminated[i] == (states[-1] > 8)
        assert episodes.terminated[i] or n == 6
        mu = np.array([1, 2]) / 3
        np.testing.assert_allclose(episodes.behavior_prob[i, :n], mu[episodes.action[i, :n]])
        np.testing.assert_allclose(episodes.target_prob[i, :n], 0.5)
        np.testing.assert_allclose(
            episodes.control[i, :n], np.array(states[:-1]) + episodes.action[i, :n]
        )
        np.testing.assert_allclose(episodes.baseline[i, :n], np.array(states[:-1]) + 0.5)
    assert not episodes.by_target.any()
    assert not episodes.fallbacks.any()


def test_on_policy_needs_no_behavior():
    episodes = collect(Walk, UNIFORM, horizon=6, episodes=10)
    assert episodes.by_target.all()
    assert episodes.control is None
    np.testing.assert_array_equal(monte_carlo(episodes), episodes.returns())


def world(seed=0):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, states=4, actions=3, horizon=5)
    return mdp, TabularPolicy(random_rows(rng, 4, 3) * 0.7 + 0.1)


def within(values, mean, deviations=4.9):
    """Wrong with probability 1e-6 for a right mean (fixed seeds: it was right once and stays)."""
    return abs(values.mean() - mean) < deviations * values.std() / np.sqrt(len(values))


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("method", ["scope", "scope-dr"])
def test_unbiased_and_as_variable_and_dear_as_computed(method, fast):
    mdp, target = world()
    behavior = exact.design(mdp, target, method)
    n = 60_000 if fast else 3_000
    env = mdp if fast else (lambda: TabularEnv(mdp))
    episodes = collect(env, target, behavior, horizon=mdp.horizon, episodes=n, seed=5)
    estimate = (doubly_robust if method == "scope-dr" else pdis)(episodes, mdp.gamma)
    expected = exact.assess(mdp, target, behavior, behavior.control)
    assert within(estimate, expected.value)
    assert within((estimate - expected.value) ** 2, expected.variance)
    assert within(episodes.costs(), expected.cost)
    assert within(pdis_cost(episodes), mdp.initial @ exact.cost_values(mdp, target).v[0])
    assert within(trajectory_weights(episodes), 1.0)


def test_the_fast_path_chunks_cuts_and_refuses():
    mdp, target = world()
    whole = collect(mdp, target, episodes=50, seed=2)
    assert whole.horizon == 5
    assert whole.by_target.all()
    parts = [collect(mdp, target, episodes=25, first=f, seed=2) for f in (0, 25)]
    assert same(Episodes.concat(parts), whole)
    short = collect(mdp, target, episodes=50, seed=2, horizon=3)
    np.testing.assert_array_equal(short.reward, whole.reward[:, :3])
    np.testing.assert_array_equal(short.last_obs, whole.obs[:, 3])
    assert not collect(Plant(mdp, cost="none"), target, episodes=5).cost.any()
    with pytest.raises(InputError, match="at most"):
        collect(mdp, target, episodes=5, horizon=6)
    table = target.table(5)
    called = collect(mdp, lambda obs, t: table[t, obs], episodes=50, seed=2)
    assert same(called, whole)
    tilted = collect(mdp, target, Tilted(), episodes=50, seed=2)
    assert not same(tilted, whole)
    assert (tilted.ratios[~tilted.by_target] != 1.0).any()
    with pytest.raises(InputError, match="TabularEnv"):
        collect(mdp, target, episodes=5, guard_step=lambda paid: paid > 1)


def test_the_fast_path_ends_episodes_in_absorbing_states():
    rng = np.random.default_rng(6)
    mdp = random_mdp(rng, states=4, actions=2, horizon=6, ends=True)
    target = TabularPolicy(random_rows(rng, 4, 2))
    behavior = exact.design(mdp, target, "scope-dr")
    episodes = collect(mdp, target, behavior, episodes=20_000, seed=1)
    assert episodes.terminated.any()
    assert not episodes.terminated.all()
    np.testing.assert_array_equal(episodes.terminated, episodes.last_obs == 3)
    assert (episodes.terminated | (episodes.length == 6)).all()
    assert not (episodes.obs[episodes.steps] == 3).any()
    expected = exact.assess(mdp, target, behavior, behavior.control)
    assert within(doubly_robust(episodes), expected.value)
    assert within((doubly_robust(episodes) - expected.value) ** 2, expected.variance)
    assert within(episodes.costs(), expected.cost)


def test_costs_from_info_six_values_a_name_a_function_or_not_at_all():
    class Six(Walk):
        def step(self, action):
            obs, reward, terminated, truncated, _ = super().step(action)
            return obs, reward, 2.0, terminated, truncated, {"energy": 3.0}

    def run(env, cost=None):
        return np.unique(collect(Plant(env, cost=cost), UNIFORM, horizon=2, episodes=5).cost)

    np.testing.assert_array_equal(run(Walk), [0.5, 1.5])
    np.testing.assert_array_equal(run(Six), [2.0])
    np.testing.assert_array_equal(run(Six, "energy"), [3.0])
    np.testing.assert_array_equal(run(Six, "none"), [0.0])

    def function(obs, action, reward, next_obs, info):
        assert next_obs == obs + action + 1 == reward
        return info["energy"] + 10

    np.testing.assert_array_equal(run(Six, function), [13.0])
    with pytest.raises(InputError, match=r"info\['watts'\].*cost='none'"):
        run(Six, "watts")
    with pytest.raises(InputError, match="cost"):
        run(Six, 3)


def test_a_registered_name_vectors_and_a_torch_policy():
    torch.manual_seed(0)
    policy = TorchPolicy(torch.nn.Linear(4, 2))
    kw = {"horizon": 60, "episodes": 6, "seed": 1}
    episodes = collect(Plant("CartPole-v1", "none", 3), policy, **kw)
    assert episodes.obs.shape == (6, 60, 4)
    assert (episodes.length < 60).any()
    assert (episodes.obs[~episodes.steps] == 0).all()
    alone = collect(Plant("CartPole-v1", "none", 1), policy, **kw)
    np.testing.assert_array_equal(alone.action, episodes.action)
    np.testing.assert_array_equal(alone.obs, episodes.obs)
    with pytest.raises(PlantError, match="could not be made"):
        collect("NoSuchThing-v7", policy, **kw)
    with pytest.raises(InputError, match="cost='none'"):
        collect("CartPole-v1", policy, horizon=5, episodes=2)


class Square(gymnasium.Env):
    """One step, reward a^2."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-9, 9, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert action.dtype == np.float32
        assert action.shape == (1,)
        reward = float(action[0]) ** 2
        return np.zeros(1, np.float32), reward, True, False, {"cost": abs(float(action[0]))}


class Normal:
    """Candidates from N(0, 1)."""

    def candidates(self, obs, t, rng):
        return Candidates(rng.normal(size=(len(obs), 6, 1)), np.full((len(obs), 6), 1 / 6))


class Large:
    """Prefers large actions, with a control variate."""

    def weigh(self, offered, obs, t, state):
        weight = 0.3 + offered.actions[..., 0] ** 2
        return Weighing(weight / weight.sum(axis=1, keepdims=True), offered.actions[..., 0] ** 2)


def test_continuous_actions_by_candidates():
    kw = {"horizon": 1, "episodes": 3000, "seed": 8}
    episodes = collect(Plant(Square, side_by_side=50), Normal(), Large(), **kw)
    assert episodes.action.shape == (3000, 1, 1)
    assert episodes.action.dtype == np.float64
    assert within(pdis(episodes), 1.0)
    assert within(doubly_robust(episodes), 1.0)
    # with b = the reward itself only the spread between candidate sets is left: 2 / 6 of 2
    assert doubly_robust(episodes).var() == pytest.approx(2 / 6, rel=0.15)
    assert pdis(episodes).var() < 1.0 < collect(Square, Normal(), **kw).returns().var()
    assert within(pdis_cost(episodes), np.sqrt(2 / np.pi))
    few = collect(Plant(Square, side_by_side=2), Normal(), Large(), horizon=1, episodes=7, seed=8)
    np.testing.assert_array_equal(few.action, episodes.action[:7])
    np.testing.assert_array_equal(few.behavior_prob, episodes.behavior_prob[:7])
    with pytest.raises(InputError, match="continuous"):
        collect(Square, Normal(), Normal(), **kw)


FAULTS = {
    "raise": "RuntimeError: the belt slipped",
    "short": "step returned 2 values",
    "obs": "NaN or infinity",
    "width": "after ones of shape",
    "text": "no array of numbers",
    "nan": "reward is nan",
    "inf": "reward is -inf",
    "none": "reward is no number",
    "cost": "cost is nan",
    "negative": "cost is negative",
    "gone": r"info\['cost'\] is missing",
}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("how", FAULTS)
def test_a_failing_environment_loses_that_episode_only(how, own):
    good = collect(Walk, UNIFORM, horizon=6, episodes=20, seed=3)
    made = []

    def factory():
        made.append(Walk(break_at=2, how=how))
        return made[-1]

    env = factory() if own else factory
    episodes = collect(env, UNIFORM, horizon=6, episodes=20, seed=3)
    gone = [lost.index for lost in episodes.lost]
    assert 3 < len(gone) < 17
    assert len(episodes) + len(gone) == 20
    kept = np.setdiff1d(np.arange(20), gone)
    np.testing.assert_array_equal(episodes.index, kept)
    np.testing.assert_array_equal(episodes.action, good.action[kept])
    np.testing.assert_array_equal(episodes.reward, good.reward[kept])
    for lost in episodes.lost:
        assert lost.step == 1
        assert re.search(FAULTS[how], lost.reason)
    if own:
        assert not made[0].closed
    else:
        assert all(env.closed for env in made)
        assert sum(env.broken for env in made) == len(gone)


def test_nothing_finished_and_reset_failures():
    class Stuck(Walk):
        def reset(self, **kw):
            raise OSError("no power")

    with pytest.raises(NoEpisodeError, match=r"none of 3 .* no power") as caught:
        collect(Stuck, UNIFORM, horizon=4, episodes=3)
    assert [lost.index for lost in caught.value.episodes.lost] == [0, 1, 2]
    good = collect(Walk, UNIFORM, horizon=4, episodes=2)
    assert len(Episodes.concat([caught.value.episodes, good])) == 2
    with pytest.raises(PlantError, match="no license"):
        collect(lambda: _raise("no license"), UNIFORM, horizon=4, episodes=3)


def _raise(text):
    raise RuntimeError(text)


def test_an_interrupt_keeps_what_is_finished():
    done = []

    def progress(finished, total):
        done.append((finished, total))
        if finished == 5:
            raise KeyboardInterrupt

    episodes = collect(
        Plant(Walk, side_by_side=1), UNIFORM, horizon=6, episodes=20, progress=progress
    )
    assert episodes.interrupted
    assert len(episodes) == 5
    assert done == [(i, 20) for i in range(1, 6)]
    whole = collect(Walk, UNIFORM, horizon=6, episodes=20)
    np.testing.assert_array_equal(episodes.reward, whole.reward[:5])

    class Impatient(Walk):
        def step(self, action):
            if self.t == 3:
                raise KeyboardInterrupt
            return super().step(action)

    episodes = collect(Plant(Impatient, side_by_side=2), UNIFORM, horizon=6, episodes=4)
    assert episodes.interrupted
    assert len(episodes) == 0
    assert [(lost.index, lost.step) for lost in episodes.lost] == [(0, 3), (1, 3)]
    assert "interrupted" in episodes.lost[0].reason


def test_environments_opened_once_serve_many_calls():
    made = []

    def factory():
        made.append(Walk(break_at=2))
        return made[-1]

    with open_environments(factory, 4) as machines:
        parts = [collect(machines, UNIFORM, horizon=6, episodes=8, first=f, seed=3) for f in (0, 8)]
        assert sum(not env.closed for env in made) > 0
        with pytest.raises(InputError, match="neither"):
            collect(Plant(machines, side_by_side=2), UNIFORM, horizon=6, episodes=8)
    assert all(env.closed for env in made)
    whole = collect(factory, UNIFORM, horizon=6, episodes=16, seed=3)
    assert same(Episodes.concat(parts), whole)


class Walks:
    """`Walk`s behind one call."""

    def __init__(self, n, how=None):
        self.envs = [Walk() for _ in range(n)]
        self.how = how

    def __len__(self):
        return len(self.envs)

    def reset(self, seeds, which):
        if self.how == "reset":
            raise OSError("no power")
        each = zip(which, seeds, strict=True)
        return np.array([self.envs[i].reset(seed=seed)[0] for i, seed in each])

    def step(self, actions, which):
        obs, reward, ends, _, infos = zip(
            *(self.envs[i].step(a) for i, a in zip(which, actions, strict=True)), strict=True
        )
        unlucky = np.array([not self.envs[i].lucky and self.envs[i].t == 2 for i in which])
        cost = np.array([info["cost"] for info in infos], float)
        reward = np.array(reward)
        if self.how == "raise" and unlucky.any():
            raise RuntimeError("the belt slipped")
        if self.how == "interrupt" and unlucky.any():
            raise KeyboardInterrupt
        if self.how == "nan":
            reward[unlucky] = np.nan
        if self.how == "negative":
            cost[unlucky] = -1.0
        return SimpleNamespace(
            obs=np.array(obs), reward=reward, cost=cost, terminated=np.array(ends)
        )


@pytest.mark.parametrize("behavior", [None, Tilted()])
def test_a_fleet_is_the_same_environments(behavior):
    kw = {"horizon": 6, "episodes": 20, "seed": 3}
    whole = collect(Plant(Walk, side_by_side=1), UNIFORM, behavior, **kw)
    for n in (1, 7, 32):
        assert same(collect(Walks(n), UNIFORM, behavior, **kw), whole)
    assert same(collect(Plant(Walks(9), side_by_side=4), UNIFORM, behavior, **kw), whole)
    assert not collect(Plant(Walks(4), cost="none"), UNIFORM, **kw).cost.any()
    guarded = [
        collect(env, UNIFORM, Tilted(), guard_step=lambda paid: paid > 2, **kw)
        for env in (Walk, Walks(5))
    ]
    assert same(*guarded)
    assert guarded[0].guarded.sum() > 0
    with pytest.raises(InputError, match="at most the fleet's 3"):
        collect(Plant(Walks(3), side_by_side=4), UNIFORM, **kw)
    with pytest.raises(InputError, match="costs of its own"):
        collect(Plant(Walks(3), cost="energy"), UNIFORM, **kw)


def test_a_failing_fleet_loses_the_rows_that_failed():
    kw = {"horizon": 6, "episodes": 20, "seed": 3}
    good = collect(Walk, UNIFORM, **kw)
    for how, why in (("nan", "the reward holds NaN"), ("negative", "the cost is negative: -1")):
        episodes = collect(Walks(6, how), UNIFORM, **kw)
        assert 3 < len(episodes.lost) < 17
        assert {lost.step for lost in episodes.lost} == {1}
        assert all(lost.reason.startswith(why) for lost in episodes.lost)
        np.testing.assert_array_equal(episodes.reward, good.reward[episodes.index])
    episodes = collect(Walks(2, "raise"), UNIFORM, **kw)  # both of a pair, if one
    assert 3 < len(episodes.lost) <= 20
    assert "the belt slipped" in episodes.lost[0].reason
    np.testing.assert_array_equal(episodes.reward, good.reward[episodes.index])
    with pytest.raises(NoEpisodeError, match="no power"):
        collect(Walks(6, "reset"), UNIFORM, **kw)
    stopped = collect(Walks(2, "interrupt"), UNIFORM, **kw)
    assert stopped.interrupted
    assert [lost.step for lost in stopped.lost] == [1, 1]


class Drifts:
    """Numbers that drift by what is done; an episode ends beyond 2."""

    def __init__(self, n):
        self.x = np.zeros((n, 2))
        self.rngs = [np.random.default_rng(0) for _ in range(n)]

    def __len__(self):
        return len(self.x)

    def reset(self, seeds, which):
        for i, seed in zip(which, seeds, strict=True):
            self.rngs[i] = np.random.default_rng(seed)
            self.x[i] = self.rngs[i].normal(size=2)
        return self.x[which].copy()

    def step(self, actions, which):
        noise = np.array([self.rngs[i].normal(size=2) for i in which])
        self.x[which] += 0.3 * actions + 0.1 * noise
        x = self.x[which].copy()
        cost = (actions**2).sum(axis=1)
        return SimpleNamespace(obs=x, reward=x[:, 0], cost=cost, terminated=x[:, 1] > 2)


class Leaning:
    """Prefers candidates with a large first number; fails where the observation is far out."""

    def weigh(self, offered, obs, t, state):
        mu = np.exp(offered.actions[..., 0])
        mu[obs[:, 0] < -1.5] = np.nan
        return Weighing(mu / mu.sum(axis=1, keepdims=True), None)


@pytest.mark.parametrize("behavior", [None, Leaning()])
def test_a_fleet_of_any_size_runs_the_same_episodes(behavior):
    target = GaussianPolicy(lambda obs, t: 0.1 * obs, [0.0, 0.0], low=[-1, -1], high=[1, 1])
    kw = {"horizon": 8, "episodes": 50, "seed": 3}
    whole = collect(Drifts(50), target, behavior, **kw)
    assert 0 < whole.terminated.sum() < 50
    assert behavior is None or whole.fallbacks.sum() > 0
    for n in (50, 7, 1):
        assert same(collect(Drifts(n), target, behavior, **kw), whole)


def test_a_target_that_fails_in_mid_episode_is_an_error():
    def mean(obs, t):
        return np.full_like(obs, np.nan if t == 3 else 0.0)

    target = GaussianPolicy(mean, [0.0, 0.0], low=[-1, -1], high=[1, 1])
    with pytest.raises(InputError, match="mean holds NaN"):
        collect(Drifts(6), target, horizon=8, episodes=6)


def test_stop_begins_no_more():
    asked = []

    def stop():
        asked.append(1)
        return len(asked) > 2

    episodes = collect(Plant(Walk, side_by_side=3), UNIFORM, horizon=6, episodes=20, stop=stop)
    assert len(episodes) == 6
    assert not episodes.interrupted


class Flaky:
    """Fails in one way or another where the state is 4 or more."""

    def __init__(self, how):
        self.how = how

    def weigh(self, offered, obs, t, state):
        mu = np.tile([0.2, 0.8], (len(obs), 1))
        b = np.ones_like(mu)
        bad = obs >= 4
        if self.how == "raise" and bad.any():
            raise RuntimeError("no answer")
        if self.how == "nan":
            mu[bad] = np.nan
        if self.how == "sum":
            mu[bad] = 0.7
        if self.how == "negative":
            mu[bad] = [-0.5, 1.5]
        if self.how == "control":
            b[bad] = np.inf
        if self.how == "shape" and bad.any():
            mu = mu[:, :1]
        return Weighing(mu, b)


@pytest.mark.parametrize("how", ["raise", "nan", "sum", "negative", "control", "shape"])
def test_a_failing_behavior_leaves_the_step_to_the_target(how):
    episodes = collect(Walk, UNIFORM, Flaky(how), horizon=6, episodes=20)
    bad = (episodes.obs >= 4) & episodes.steps
    np.testing.assert_array_equal(episodes.fallbacks, bad.sum(axis=1))
    np.testing.assert_array_equal(episodes.ratios[bad], 1)
    np.testing.assert_array_equal(episodes.control[bad], 0)
    np.testing.assert_array_equal(episodes.control[episodes.steps & ~bad], 1)
    assert (episodes.ratios[episodes.steps & ~bad] != 1).all()
    assert not episodes.lost


def test_once_a_step_was_run_no_behavior_ends_an_episode():
    """It fails in another way at first, and then as one does that never worked."""
    said = []

    class Broken:
        def weigh(self, offered, obs, t, state):
            said.append(t)
            raise InputError("no") if said.count(0) > 1 else RuntimeError("no power")

    alone = Plant(Walk, side_by_side=1)
    episodes = collect(alone, UNIFORM, Broken(), horizon=6, episodes=8)
    assert len(episodes) == 8
    np.testing.assert_array_equal(episodes.fallbacks, episodes.length)


def test_a_behavior_that_never_worked_is_an_error_and_so_is_a_broken_target():
    with pytest.raises(InputError, match="action set"):
        collect(Walk, UNIFORM, np.full((50, 3), 1 / 3), horizon=4, episodes=3)

    class Wrong:
        def weigh(self, offered, obs, t, state):
            return Weighing(np.ones((len(obs), 5)) / 5)

    with pytest.raises(InputError, match="action set"):
        collect(Walk, UNIFORM, Wrong(), horizon=4, episodes=3)

    class Nan:
        def probs(self, obs, t):
            return np.full((len(obs), 2), np.nan if t == 2 else 0.5)

    with pytest.raises(InputError, match="target at t=2: NaN"):
        collect(Walk, Nan(), horizon=4, episodes=3)


def test_a_guard_hands_the_rest_of_an_episode_to_the_target():
    seen = []

    def guard(paid):
        seen.append(paid)
        return paid > 2

    episodes = collect(
        Plant(Walk, side_by_side=9), UNIFORM, Tilted(), horizon=6, episodes=60, guard_step=guard
    )
    paid = np.cumsum(episodes.cost, axis=1)
    forced = np.zeros_like(episodes.steps)
    forced[:, 1:] = (paid[:, :-1] > 2) & episodes.steps[:, 1:]
    assert 0 < forced.sum() < episodes.steps.sum()
    np.testing.assert_array_equal(episodes.ratios[forced], 1)
    assert (episodes.ratios[episodes.steps & ~forced] != 1).all()
    np.testing.assert_array_equal(episodes.guarded, forced.sum(axis=1))
    assert seen

    wild = collect(
        Walk, UNIFORM, Tilted(), horizon=6, episodes=9, guard_step=lambda paid: _raise("guard")
    )
    assert (wild.ratios[:, 1:] == 1).all()
    assert (wild.ratios[:, 0] != 1).all()


def test_a_guard_is_not_taken_back():
    calls = iter([True, *[False] * 100])
    episodes = collect(
        Plant(Walk, side_by_side=3),
        UNIFORM,
        Tilted(),
        horizon=4,
        episodes=3,
        guard_step=lambda p: next(calls),
    )
    assert (episodes.ratios[:, 0] != 1).all()
    assert (episodes.ratios[:, 1:] == 1).all()


def test_an_environment_that_truncates_ends_the_episode():
    def make():
        return gymnasium.wrappers.TimeLimit(Walk(), 2)

    episodes = collect(make, UNIFORM, horizon=6, episodes=4)
    np.testing.assert_array_equal(episodes.length, 2)
    assert not episodes.terminated.any()


def test_draws_invert_and_never_take_what_has_no_probability():
    probs = np.array([[0.0, 0.5, 0.0, 0.5, 0.0]])
    for u, action in ((0.0, 1), (0.4999, 1), (0.5, 3), (1 - 1e-16, 3)):
        assert draw_actions(probs, np.array([u])) == action
    assert draw_actions(probs * (1 - 1e-7), np.array([1 - 1e-9])) == 3  # a sum just short of u


def test_estimates_stay_unbiased_under_a_guard():
    mdp, target = world(1)
    behavior = TabularPolicy(np.full((4, 3), 1 / 3))
    episodes = collect(
        Plant(lambda: TabularEnv(mdp), side_by_side=100),
        target,
        behavior,
        horizon=mdp.horizon,
        episodes=3000,
        guard_step=lambda paid: paid > 2,
    )
    assert 0.1 < (episodes.guarded > 0).mean() < 0.95
    assert within(pdis(episodes), exact.assess(mdp, target, target).value)


def test_arguments_are_checked():
    for change, message in (
        ({"horizon": None}, "horizon"),
        ({"horizon": 0}, "horizon"),
        ({"episodes": 0}, "episodes"),
        ({"seed": -1}, "seed"),
        ({"first": 0.5}, "first"),
    ):
        with pytest.raises(InputError, match=message):
            collect(Walk, UNIFORM, **({"horizon": 3, "episodes": 2} | change))
    with pytest.raises(InputError, match="one episode at a time"):
        collect(Plant(Walk(), side_by_side=4), UNIFORM, horizon=3, episodes=2)
    with pytest.raises(InputError, match="vector environment"):
        collect(gymnasium.make_vec("CartPole-v1", num_envs=2), UNIFORM, horizon=3, episodes=2)
    with pytest.raises(InputError, match="expected a Gymnasium environment"):
        collect(3, UNIFORM, horizon=3, episodes=2)
    with pytest.raises(InputError, match="made a int"):
        collect(lambda: 3, UNIFORM, horizon=3, episodes=2)


def test_observations_that_are_no_vectors_say_how_to_flatten():
    class Image(Walk):
        def reset(self, **kw):
            super().reset(**kw)
            return np.zeros((2, 2)), {}

    class Words(Walk):
        def reset(self, **kw):
            super().reset(**kw)
            return {"x": 1}, {}

    for env in (Image, Words):
        with pytest.raises(InputError, match="FlattenObservation"):
            collect(env, UNIFORM, horizon=3, episodes=2)

"""Worlds that need not be learned: a simulator's step in the place of learned dynamics.

The problem is that of `test_continuous`: x' = x + DRIFT a, reward a + SLOPE x, cost a^2 and
a ~ N(0, 1), without noise, so that q is linear in (x, a) and known.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import gymnasium
import numpy as np
import pytest

from scopeval import (
    CallablePolicy,
    GaussianPolicy,
    Networks,
    Simulator,
    Transitions,
    collect,
    design,
)
from scopeval.behavior.designer import designs
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe
from scopeval.errors import InputError
from scopeval.estimation.estimators import doubly_robust, pdis
from scopeval.models.dynamics import Encoder
from scopeval.models.model_critic import Study
from scopeval.models.rows import Rows
from scopeval.models.simulator import SimulatorModel
from scopeval.policies.protocols import Redraws, Why

T = 3
DRIFT, SLOPE, START = 0.4, 0.5, 1.0
STUDY = Study(paths=400, hidden=16, steps=300, batch=256)


def step(obs, actions, t):
    x, a = obs[:, 0], actions[:, 0]
    return (x + DRIFT * a)[:, None], a + SLOPE * x, a**2, np.zeros(len(x), bool)


def regression(known=step, **settings):
    return Networks(dynamics=Simulator(known), **({"paths": 200, "study": STUDY} | settings))


class Drift(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-9.0, 9.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = np.array([START + 0.2 * self.np_random.standard_normal()])
        return self.x, {}

    def step(self, action):
        ahead, reward, cost, _ = step(self.x[None], np.asarray(action)[None], 0)
        self.x = ahead[0]
        return self.x, float(reward[0]), False, False, {"cost": float(cost[0])}


@pytest.fixture(scope="module")
def target():
    return GaussianPolicy(
        lambda obs, t: np.zeros((len(obs), 1)), [0.0], low=[-9.0], high=[9.0], draws=10
    )


@pytest.fixture(scope="module")
def logged():
    """Few rows: they only tell where episodes start and which observations are usual."""
    rng = np.random.default_rng(0)
    n = 240
    t = np.arange(n)[::-1] % T
    x = START + np.where(t == 0, 0.2, 1.5) * rng.standard_normal(n)
    a = 1.5 * rng.standard_normal(n)
    return Transitions(t, x[:, None], a[:, None], a + SLOPE * x, a**2, (x + DRIFT * a)[:, None])


@pytest.fixture(scope="module")
def made(logged, target):
    return designs(
        logged,
        target,
        [Recipe(METHODS[name], T) for name in ("scope", "scope-dr")],
        learn=regression(),
    )


def test_critics_are_exact_where_one_step_is_all(made, target):
    """At T-1 nothing follows, so the simulator's own numbers are the answer."""
    rng = np.random.default_rng(1)
    x = START + 0.3 * rng.standard_normal((100, 1))
    actions = target.candidates(x, T - 1, rng).actions
    told = made["scope"].critics[T - 1].at(x, actions)
    a = actions[..., 0]
    assert told.known.all()
    np.testing.assert_allclose(told.q, a + SLOPE * x, rtol=1e-9)
    np.testing.assert_allclose(told.cost_target, a**2, rtol=1e-9)


def test_critics_know_what_follows_too(made, target):
    rng = np.random.default_rng(1)
    x = START + 0.3 * rng.standard_normal((300, 1))
    for t in range(T):
        a = target.candidates(x, t, rng).actions
        q = a[..., 0] + SLOPE * x + SLOPE * (T - t - 1) * (x + DRIFT * a[..., 0])
        told = made["scope"].critics[t].at(x, a)
        assert np.sqrt(np.mean((told.q - q) ** 2)) < 0.04 * q.std()


def test_estimates_are_right_and_sharp(made, target):
    """J = sum of SLOPE START. Wrong with probability < 2e-4 (four standard errors, twice).

    The control variate leaves 2.5 % of the variance (0.023 to 0.026 of 3,000 episodes).
    """
    truth = T * SLOPE * START
    own = pdis(collect(Drift(), target, horizon=T, episodes=400, seed=5))
    for method, estimate in (("scope", pdis), ("scope-dr", doubly_robust)):
        values = estimate(collect(Drift(), target, made[method], horizon=T, episodes=400, seed=3))
        assert abs(values.mean() - truth) < 4 * values.std(ddof=1) / np.sqrt(len(values))
    assert values.var(ddof=1) < 0.05 * own.var(ddof=1)


def test_the_logs_tell_how_wrong_the_simulator_is(made):
    told = made["scope"].report.holdout
    for what in ("reward", "cost", "end", "observation"):
        assert told[f"simulator, {what}"] < 1e-9


def test_a_simulator_that_is_somewhat_wrong_is_believed_no_more_than_that(logged, target):
    """What it leaves unexplained of next observations comes back in simulated episodes."""
    rng = np.random.default_rng(5)
    shaken = Transitions(
        logged.t,
        logged.obs,
        logged.action,
        logged.reward + 0.2 * rng.standard_normal(len(logged)),
        logged.cost,
        logged.next_obs + 0.3 * rng.standard_normal(logged.next_obs.shape),
    )
    world = Simulator(step).model(Encoder(np.empty((0, 1)), np.ones(1, bool)))
    told = world.compare(Rows.of(shaken), 0)
    assert world.reward_noise == pytest.approx(0.04, rel=0.3)  # 240 rows: 3 standard errors
    errors = world.draw_errors(np.zeros((5000, 1)), np.zeros((5000, 1)), 0, rng)
    assert errors.std() == pytest.approx(0.3, rel=0.2)
    assert 0.2 < told["simulator, observation"] < 0.8
    assert told["simulator, cost"] < 1e-9


@pytest.mark.parametrize("what", ["reward", "cost", "end"])
def test_a_simulator_of_another_plant_is_refused(logged, target, what):
    def other(obs, actions, t):
        ahead, reward, cost, over = step(obs, actions, t)
        return {
            "reward": (ahead, -reward, cost, over),
            "cost": (ahead, reward, np.exp(-cost), over),
            "end": (ahead, reward, cost, ahead[:, 0] > 1.0),
        }[what]

    with pytest.raises(InputError, match=f"step: its {what}s are further from the logged ones"):
        design(logged, target, horizon=T, method="scope", learn=regression(other))


def test_time_is_passed_on(target):
    """Rewards (t + 1) times as large at time t: what follows is worth more than it was."""

    def growing(obs, actions, t):
        ahead, reward, cost, over = step(obs, actions, t)
        return ahead, (t + 1) * reward, cost, over

    rng = np.random.default_rng(0)
    t = np.arange(240)[::-1] % T
    x, a = START + rng.standard_normal((240, 1)), 1.5 * rng.standard_normal((240, 1))
    rewards = (t + 1) * (a + SLOPE * x)[:, 0]
    log = Transitions(t, x, a, rewards, a[:, 0] ** 2, x + DRIFT * a)
    mu = design(log, target, method="scope", horizon=T, learn=regression(growing))
    x = START + 0.3 * rng.standard_normal((200, 1))
    for t in range(T):
        actions = target.candidates(x, t, rng).actions
        a = actions[..., 0]
        later = SLOPE * sum(k + 1 for k in range(t + 1, T)) * (x + DRIFT * a)
        q = (t + 1) * (a + SLOPE * x) + later
        assert np.sqrt(np.mean((mu.critics[t].at(x, actions).q - q) ** 2)) < 0.04 * q.std()


class Redrawing:
    """Uniform over two actions; the second number of an observation is its own."""

    drawn = 1

    def probs(self, obs, t):
        return np.full((len(obs), 2), 0.5)

    def redraw(self, obs, t, rng):
        return np.column_stack([obs[:, 0], rng.standard_normal(len(obs))])


def test_what_a_target_redraws_may_be_left_out_of_the_answer():
    rng = np.random.default_rng(0)
    obs, k = rng.standard_normal((300, 2)), rng.integers(2, size=300)

    def whole(obs, actions, t):
        ahead = np.column_stack([0.5 * obs[:, 0] + actions, np.full(len(obs), 99.0)])
        return ahead, obs.sum(axis=1) + actions, 1.0 + actions, np.zeros(len(obs))

    def part(obs, actions, t):
        ahead, *rest = whole(obs, actions, t)
        return ahead[:, :1], *rest

    ahead, reward, cost, _ = whole(obs, k, 0)
    log = Transitions(np.arange(300)[::-1] % T, obs, k, reward, cost, ahead)
    one, other = (
        design(log, Redrawing(), horizon=T, method="scope", learn=regression(known))
        for known in (whole, part)
    )
    assert isinstance(Redrawing(), Redraws)
    for mine, theirs in zip(one.critics, other.critics, strict=True):
        np.testing.assert_array_equal(mine.heads, theirs.heads)


def test_a_simulator_may_scribble_on_what_it_is_given(logged, target):
    """Neither the design nor what is executed changes by it."""

    def scribbling(obs, actions, t):
        told = step(obs.copy(), actions.copy(), t)
        obs[:], actions[:] = np.nan, 0.0
        return told

    clean, scribbled = (
        design(logged, target, method="scope", horizon=T, learn=regression(known))
        for known in (step, scribbling)
    )
    taken = []
    for mu in (clean, scribbled):
        rng = np.random.default_rng(3)
        taken.append([float(mu.act(np.array([START]), 0, rng).action[0]) for _ in range(20)])
    assert np.ptp(taken[0]) > 0.5
    assert taken[0] == taken[1]


def test_it_is_asked_by_one_thread_at_a_time():
    inside, most = 0, 0

    def slow(obs, actions, t):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.005)
        inside -= 1
        return step(obs, actions, t)

    dynamics = Simulator(slow)
    worlds = [dynamics.model(Encoder(np.empty((0, 1)), np.ones(1, bool))) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda w: w.predict(np.zeros((2, 1)), np.zeros((2, 3, 1)), 0), worlds))
    assert most == 1


def test_finite_actions_are_asked_by_number(logged):
    moves = np.array([-1.0, 0.5, 2.0])

    def by_number(obs, actions, t):
        assert actions.ndim == 1
        assert actions.dtype.kind == "i"
        return step(obs, moves[actions][:, None], t)

    k = np.random.default_rng(4).integers(3, size=len(logged))
    ahead, reward, cost, _ = step(logged.obs, moves[k][:, None], 0)
    numbered = Transitions(logged.t, logged.obs, k, reward, cost, ahead)
    pi = CallablePolicy(lambda obs, t: np.full((len(obs), 3), 1 / 3))
    mu = design(numbered, pi, horizon=T, method="scope", learn=regression(by_number))
    x = np.array([[0.7], [1.3]])
    told = mu.critics[T - 1].at(x)
    np.testing.assert_allclose(told.q, moves + SLOPE * x, rtol=1e-9)


def test_an_end_is_an_end(target, logged):
    """Beyond 1.5 the episode is over: nothing follows there, whatever follows elsewhere."""

    def ending(obs, actions, t):
        ahead, reward, cost, _ = step(obs, actions, t)
        over = ahead[:, 0] > 1.5
        ahead[over] = np.nan  # nobody may look there
        return ahead, reward, cost, over

    over = logged.next_obs[:, 0] > 1.5
    stopped = Transitions(
        logged.t, logged.obs, logged.action, logged.reward, logged.cost, logged.next_obs, over
    )
    mu = design(stopped, target, horizon=T, method="scope", learn=regression(ending))
    x, a = np.array([[1.2]]), np.array([[[3.0], [2.0]]])
    told = mu.critics[0].at(x, a)
    np.testing.assert_allclose(told.q, a[..., 0] + SLOPE * x, rtol=1e-9)
    np.testing.assert_allclose(told.cost_target, a[..., 0] ** 2, rtol=1e-9)


# -- trouble -------------------------------------------------------------------------------------


def changed(**parts):
    """The step with some of its answers replaced by functions of them."""

    def bad(obs, actions, t):
        names = ("next_obs", "reward", "cost", "terminated")
        return tuple(
            parts.get(name, lambda x: x)(x)
            for name, x in zip(names, step(obs, actions, t), strict=True)
        )

    return bad


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (lambda o, a, t: None, "got NoneType; at t = 0 for"),
        (lambda o, a, t: step(o, a, t)[:3], "got tuple of 3; at t = 0"),
        (lambda o, a, t: 1 / 0, "ZeroDivisionError: division by zero; at t = 0"),
        (changed(next_obs=lambda x: np.zeros((len(x), 2))), "next_obs has shape"),
        (changed(reward=lambda x: 1.0), "reward has shape"),
        (changed(reward=lambda x: ["x"] * len(x)), "could not convert string"),
        (changed(next_obs=lambda x: x + np.nan), "not finite, or costs below zero, the first at"),
        (changed(next_obs=lambda x: x * 1e40), "not finite"),
        (changed(cost=lambda x: -x - 1), "costs below zero, the first at"),
        (changed(terminated=lambda x: x + 0.01), "not finite"),
        (changed(terminated=lambda x: x + np.nan), "not finite"),
    ],
)
def test_a_simulator_that_answers_badly_is_told_at_once(logged, target, bad, said):
    with pytest.raises(InputError, match=said):
        design(logged, target, horizon=T, method="scope", learn=regression(bad))


def test_what_is_no_function_is_refused():
    with pytest.raises(InputError, match="got float, expected a function"):
        Simulator(1.0)


@pytest.mark.parametrize("kind", ["raises", "nan"])
def test_trouble_on_the_plant_is_answered_by_the_target(logged, target, kind):
    broken = False

    def fragile(obs, actions, t):
        told = step(obs, actions, t)
        if not broken:
            return told
        if kind == "raises":
            raise RuntimeError("the licence server is down")
        return np.full_like(told[0], np.nan), *told[1:]

    mu = design(logged, target, horizon=T, method="scope", learn=regression(fragile))
    x = np.full((5, 1), START)
    offered = target.candidates(x, 0, np.random.default_rng(0))
    assert np.abs(mu.weigh(offered, x, 0).probs - 0.1).max() > 1e-3
    assert "simulator failed" not in mu.summary()
    broken = True
    weighing = mu.weigh(offered, x, 0)
    np.testing.assert_allclose(weighing.probs, 0.1)
    assert ((weighing.why & Why.NOT_FINITE) > 0).all()
    assert "warning: the simulator failed; last error: " in mu.summary()
    words = "the licence server is down" if kind == "raises" else "50 of 50 answers"
    assert words in mu.summary()


def test_one_bad_answer_of_many_costs_only_its_own_state():
    world = SimulatorModel(
        lambda o, a, t: (np.where(o > 5, np.nan, o), a[:, 0], a[:, 0] ** 2, np.zeros(len(o))),
        Encoder(np.empty((0, 1)), np.ones(1, bool)),
    )
    world.start_running()
    told = world.predict(np.array([[1.0], [9.0]]), np.ones((2, 3, 1)), 0)
    assert np.isfinite(told.reward[0]).all()
    assert np.isnan(told.reward[1]).all()


def test_a_finished_designs_simulator_is_not_taken_for_learned(made, logged, target):
    used = made["scope"].critics[0].dynamics
    with pytest.raises(InputError, match="expected Simulator"):
        design(logged, target, horizon=T, method="scope", learn=Networks(dynamics=used))


def test_it_cannot_be_saved(made, tmp_path):
    with pytest.raises(InputError, match="a simulator, which no file can hold"):
        made["scope"].save(tmp_path / "mu.scope")
    assert not list(tmp_path.iterdir())


def test_the_same_seed_gives_the_same_design(made, logged, target):
    again = design(logged, target, method="scope", horizon=T, learn=regression())
    for one, other in zip(made["scope"].critics, again.critics, strict=True):
        np.testing.assert_array_equal(one.heads, other.heads)

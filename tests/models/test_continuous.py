"""Continuous actions: candidate sets, dynamics from logs, critics on simulated episodes.

`Drift` is a problem whose answers are known: x' = x + DRIFT a + noise, reward a + SLOPE x, cost a^2
and a ~ N(0, 1), so that q is linear in (x, a) and the cost-to-go is a^2 plus one for each later
step.
"""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from scipy import stats

from scopeval import (
    BehaviorPolicy,
    Check,
    GaussianPolicy,
    Networks,
    Question,
    Table,
    Transitions,
    collect,
    design,
    load,
    solve,
)
from scopeval.behavior.designer import designs
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe
from scopeval.errors import InputError
from scopeval.estimation.estimators import doubly_robust, monte_carlo, pdis, pdis_cost
from scopeval.models.dynamics import Dynamics, Encoder, Network
from scopeval.models.model_critic import (
    LearnedModel,
    ReturnSamples,
    RolloutRegression,
    Study,
    features,
    learn_returns,
)
from scopeval.models.networks import sample_returns, simulate_episodes
from scopeval.models.protocols import Caution, Targets
from scopeval.models.rows import Rows
from scopeval.models.training import Training, learn_network
from scopeval.policies.protocols import Candidates, Weighing, Why

T = 3
DRIFT, SLOPE, NOISE, START = 0.4, 0.5, 0.1, 1.0
QUICK = Networks(
    training=Training(hidden=32, steps=1500, batch=256),
    paths=400,
    study=Study(paths=400, hidden=16, steps=300, batch=256),
)


class Drift(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-9.0, 9.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = START + 0.2 * self.np_random.standard_normal()
        return np.array([self.x]), {}

    def step(self, action):
        a = float(action[0])
        reward, cost = a + SLOPE * self.x, a * a
        self.x += DRIFT * a + NOISE * self.np_random.standard_normal()
        return np.array([self.x]), reward, False, False, {"cost": cost}


def q_exact(x, a, t):
    """r + v(x'), v_t(x) = SLOPE x (T - t): actions and noise have mean zero."""
    return a + SLOPE * x + SLOPE * (T - t - 1) * (x + DRIFT * a)


def cost_exact(a, t):
    return a**2 + (T - t - 1)


@pytest.fixture(scope="module")
def target():
    return GaussianPolicy(
        lambda obs, t: np.zeros((len(obs), 1)), [0.0], low=[-9.0], high=[9.0], draws=10
    )


@pytest.fixture(scope="module")
def logged():
    """Other controllers: wider and shifted actions, from anywhere."""
    rng = np.random.default_rng(0)
    n = 6000
    t = np.arange(n)[::-1] % T
    x = np.where(t == 0, START + 0.2 * rng.standard_normal(n), START + rng.standard_normal(n))
    a = np.clip(0.3 + 1.5 * rng.standard_normal(n), -4.5, 4.5)
    following = x + DRIFT * a + NOISE * rng.standard_normal(n)
    return Transitions(t, x[:, None], a[:, None], a + SLOPE * x, a**2, following[:, None])


@pytest.fixture(scope="module")
def made(logged, target):
    return designs(
        logged, target, [Recipe(METHODS[name], T) for name in ("scope", "scope-dr")], learn=QUICK
    )


# -- against the exact answer --------------------------------------------------------------------


def test_critics_know_the_exact_values_at_candidates(made, target):
    rng = np.random.default_rng(1)
    x = START + 0.3 * rng.standard_normal((300, 1))
    for t in range(T):
        actions = target.candidates(x, t, rng).actions
        e = made["scope"].critics[t].at(x, actions)
        a = actions[..., 0]
        q = q_exact(x, a, t)
        assert e.known.all()
        assert np.sqrt(np.mean((e.q - q) ** 2)) < 0.04 * q.std()
        cost = cost_exact(a, t)
        assert np.sqrt(np.mean((e.cost_target - cost) ** 2)) < 0.1 * cost.std()


def test_the_last_step_is_the_exact_program_for_every_candidate_set(made, target):
    """At T-1 nothing follows: X = q^2 + noise, cost a^2, budget the candidates' mean."""
    rng = np.random.default_rng(2)
    x = START + 0.5 * rng.standard_normal((200, 1))
    offered = target.candidates(x, T - 1, rng)
    mu = made["scope"].weigh(offered, x, T - 1).probs
    a = offered.actions[..., 0]
    q, cost = q_exact(x, a, T - 1), a**2
    truth = solve(offered.probs * np.abs(q), cost, cost.mean(axis=1)).mu
    floor = made["scope"].recipe.floor
    expected = (1 - floor) * truth + floor / 10
    assert np.abs(mu - expected).mean() < 0.012
    assert (np.abs(expected - 0.1)).mean() > 0.03  # the exact answer is far from the target's
    # the promise, judged by true costs: at each state up to the critics' error, and on average
    assert ((mu * cost).sum(axis=1) - cost.mean(axis=1)).mean() < 0.01


def test_predictions_are_what_happens(made, target):
    """4,000 episodes: relative s.e. of a variance ratio about 4 %; bounds are 5 of those."""
    on = collect(Drift, target, horizon=T, episodes=4000, seed=3)
    base, base_cost = monte_carlo(on), on.cost.sum(axis=1)
    for name, estimator in (("scope", pdis), ("scope-dr", doubly_robust)):
        behavior = made[name]
        run = collect(Drift, target, behavior, horizon=T, episodes=4000, seed=4)
        found, cost = estimator(run), run.cost.sum(axis=1)
        # the start is what J depends on: E[x0] SLOPE T, up to 5 standard errors
        error = found.std() / np.sqrt(len(found))
        assert abs(found.mean() - SLOPE * START * T) < 5 * error
        relative = found.var() / base.var()
        assert relative == pytest.approx(behavior.predicted.variance, rel=0.2, abs=0.01)
        assert relative < (0.95 if name == "scope" else 0.15)
        excess = cost.mean() - base_cost.mean()
        error = np.sqrt((cost.var() + base_cost.var()) / 4000)
        assert excess < 4 * error
        # the certificate's estimate of the target's cost, from these episodes alone
        assert pdis_cost(run).mean() == pytest.approx(T, abs=5 * pdis_cost(run).std() / 63)


@pytest.mark.parametrize("name", ["scope", "scope-dr"])
def test_unbiased_with_a_critic_that_is_badly_wrong(made, target, name):
    """Nonsense from the critics costs variance, never bias; 5 standard errors."""

    class Wrong:
        def weigh(self, offered: Candidates, obs, t, state) -> Weighing:
            seen = np.random.default_rng(int(1e6 * abs(obs[0, 0])) % 2**32)
            mu = seen.dirichlet(np.ones(10), len(obs)) * 0.9 + 0.01
            control = 2 * seen.standard_normal(mu.shape) + 3 if name == "scope-dr" else None
            return Weighing(mu, control)

    run = collect(Drift, target, Wrong(), horizon=T, episodes=6000, seed=5)
    found = (doubly_robust if name == "scope-dr" else pdis)(run)
    error = found.std() / np.sqrt(len(found))
    assert abs(found.mean() - SLOPE * START * T) < 5 * error
    assert error < 0.15
    # and with power: leaving out the last ratio, or the baseline, is far off
    rho = run.target_prob / run.behavior_prob
    assert np.abs(rho - 1).mean() > 0.5
    if name == "scope-dr":
        assert abs(np.mean(run.baseline.sum(axis=1))) > 5


# -- the model -----------------------------------------------------------------------------------


def rows_of(logged, target):
    from scopeval.models.rows import gather

    log = gather(logged, target, T, 0, False)
    return [log.rows.select(log.fold == k) for k in range(2)], log


ENCODER = Encoder(np.empty((0, 1)), np.ones(1, np.bool_))


def test_dynamics_learn_the_step_and_keep_its_noise(logged, target):
    halves, _ = rows_of(logged, target)
    network = learn_network(*halves, ENCODER, QUICK.training, 0)
    x, a = np.linspace(0, 2, 50)[:, None], np.linspace(-2, 2, 50)[:, None, None]
    said = network.predict(x, a, 0)
    np.testing.assert_allclose(said.next_obs[:, 0], x + DRIFT * a[:, 0], atol=0.03)
    np.testing.assert_allclose(said.reward[:, 0], (a[:, 0] + SLOPE * x)[:, 0], atol=0.1)
    np.testing.assert_allclose(said.cost[:, 0], (a[:, 0] ** 2)[:, 0], atol=0.15)
    assert said.end.max() < 1e-9  # no episode of the log ended
    # what is drawn when episodes are simulated has the spread of the true noise
    assert network.errors.std() == pytest.approx(NOISE, rel=0.1)
    again = learn_network(*halves, ENCODER, QUICK.training, 0)
    np.testing.assert_array_equal(again.weights["w2"], network.weights["w2"])
    other = learn_network(*halves, ENCODER, QUICK.training, 1)
    assert not np.array_equal(other.weights["w2"], network.weights["w2"])


def fake(end: float) -> Network:
    """A network that always says the same, to see what simulated episodes make of it."""
    w = {
        "w1": np.zeros((2, 1)),
        "b1": np.zeros(1),
        "w2": np.zeros((1, 1)),
        "b2": np.zeros(1),
        "w3": np.zeros((1, 4)),
        "skip": np.zeros((2, 4)),
        "b3": np.array([1.0, 2.0, 3.0, end]),
        "mean": np.zeros(2),
        "scale": np.ones(2),
        "centre": np.zeros(4),
        "spread": np.ones(4),
    }
    weights = {name: value.astype(np.float32) for name, value in w.items()}
    return Network(
        ENCODER, weights, np.array([-50.0]), np.array([50.0]), np.zeros((1, 1)), 0.0, 0.0
    )


def test_simulated_episodes_follow_the_network(logged, target):
    _, log = rows_of(logged, target)
    rng = np.random.default_rng(0)
    network = fake(0.0)  # ends with probability one half
    found = simulate_episodes(network, log.starts, Question(target, 4), 2000, rng)
    assert len(found.rows) == len(found.predictions) == len(found.candidates) == 4
    assert len(found.obs) == 5
    for t, rows in enumerate(found.rows):
        np.testing.assert_array_equal(rows.obs, found.obs[t])
        again = network.predict(found.obs[t], found.candidates[t], t)
        np.testing.assert_array_equal(again.next_obs, found.predictions[t].next_obs)
        np.testing.assert_allclose(rows.next_obs, rows.obs + 1.0)
        assert rows.alive.mean() == pytest.approx(0.5, abs=0.06)  # 5 standard errors
        assert (rows.reward == 2.0).all()
        assert (rows.cost == 3.0).all()
        # those that go on are found at their own place in the next step
        on = rows.alive > 0
        np.testing.assert_array_equal(found.obs[t + 1][on], rows.next_obs[on])
    # actions are the target's
    action = found.rows[0].action[:, 0]
    assert stats.kstest(action, "norm").pvalue > 1e-6
    asked = Question(target, 2)
    never = simulate_episodes(fake(-30.0), log.starts, asked, 50, rng)
    assert all((rows.alive == 1).all() for rows in never.rows)
    always = simulate_episodes(fake(30.0), log.starts, asked, 50, rng)
    assert all((rows.alive == 0).all() for rows in always.rows)


def test_a_variance_that_diverges_stays_finite(logged, target):
    _, log = rows_of(logged, target)
    network = fake(-30.0)
    rng = np.random.default_rng(0)
    found = simulate_episodes(network, log.starts, Question(target, 1), 300, rng)
    rows = found.rows[0]
    endless = np.full((300, 2), np.inf)
    endless[::2] = np.nan
    zero = np.zeros(300)
    targets = Targets(rows.reward, rows.cost, np.tile(rows.cost[:, None], 2), endless, zero)
    nothing = ReturnSamples(np.empty((0, 1)), np.empty(0, np.int64), np.empty((0, 2)))
    returns = learn_returns(nothing, 1, QUICK.study, 0)
    model = LearnedModel.of(0, Dynamics((network,)), returns, log.rows)
    step = network.predict(rows.obs, rows.action[:, None], 0).next_obs[:, 0]
    taken = [(step, returns.at(step, 0))]
    critic = RolloutRegression(model, QUICK.ridge, taken).learner(rows, 10, 0).fit(targets)
    e = critic.at(found.obs[0], found.candidates[0])
    assert np.isfinite(e.carried).all()
    assert e.carried.max() > 1e90
    assert np.isfinite(e.q).all()


def test_where_episodes_end_is_found_in_few_steps(monkeypatch):
    """Rare ends at a sharp border: the logistic regression after training finds it."""
    rng = np.random.default_rng(6)
    rows = [_ending(rng, 3000) for _ in range(2)]
    encoder = Encoder(np.empty((0, 1)), np.ones(2, bool))
    how, entropies = Training(hidden=32, steps=400), []
    for steps in (0, 8):
        monkeypatch.setattr("scopeval.models.layers.NEWTON_STEPS", steps)
        network = learn_network(*rows, encoder, how, 0)
        said = network.predict(np.asarray(rows[1].obs), rows[1].action[:, None], 0).end[:, 0]
        ended = rows[1].alive == 0
        entropies.append(-np.mean(np.log(np.where(ended, said, 1.0 - said) + 1e-12)))
    assert entropies[1] < 0.5 * entropies[0]


def _ending(rng, n):
    obs, action = rng.standard_normal((n, 2)), rng.standard_normal((n, 1))
    after = obs + 0.1 * action
    columns = np.zeros(n, int), obs, action, obs[:, 0], action[:, 0] ** 2, after
    return Rows.of(Transitions(*columns, after[:, 0] + after[:, 1] > 2.8))


def test_dropout_keeps_a_wide_network_from_learning_noise():
    """Few noisy rows and many steps: without dropout the noise is learned by heart."""
    rng = np.random.default_rng(8)
    rows = [_noisy(rng, 300) for _ in range(2)]
    encoder = Encoder(np.empty((0, 1)), np.ones(3, bool))
    how = Training(hidden=64, steps=1500, batch=64)
    plain, thinned, again = (
        learn_network(*rows, encoder, replace(how, dropout=share), 0) for share in (0.0, 0.2, 0.2)
    )
    assert thinned.loss < 0.9 * plain.loss
    np.testing.assert_array_equal(thinned.weights["w2"], again.weights["w2"])


def test_of_several_trainings_the_one_with_less_held_out_error_is_kept(logged, target):
    """One of them learns nothing to speak of; its place in the list does not matter."""
    good, bad = QUICK.training, Training(hidden=2, steps=1, batch=8)
    errors = [
        design(
            logged, target, horizon=T, method="scope", learn=replace(QUICK, training=trainings)
        ).report.holdout["dynamics"]
        for trainings in (good, (good, bad), (bad, good), (bad,))
    ]
    assert errors[0] == errors[1] == errors[2]
    assert errors[3] > 2 * errors[0]


def _noisy(rng, n):
    obs, action = rng.standard_normal((n, 3)), rng.standard_normal((n, 1))
    after = obs + np.tanh(obs * action) + rng.standard_normal((n, 3))
    return Rows.of(Transitions(np.zeros(n, int), obs, action, obs[:, 0], action[:, 0] ** 2, after))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dropout": 1.0}, "dropout: got 1.0"),
        ({"dropout": float("nan")}, "dropout: got nan"),
        ({"rate": 0.0}, "rate: got 0.0"),
        ({"hidden": 0}, "hidden"),
        ({"steps": 0}, "steps"),
    ],
)
def test_training_that_cannot_be_is_refused(change, said):
    with pytest.raises(InputError, match=said):
        Training(**change)


def test_training_that_diverges_is_refused(logged, target):
    halves, _ = rows_of(logged, target)
    wild = Training(hidden=16, steps=60, batch=64, rate=1e30)
    with pytest.raises(InputError, match="training diverges"):
        learn_network(*halves, ENCODER, wild, 0)


def test_training_that_diverged_is_slower_the_next_time(logged, target, monkeypatch):
    halves, _ = rows_of(logged, target)
    rates = []

    def trained(rows, held_out, encoder, how, seed, tick, start, *more):
        rates.append(how.rate)
        network = fake(0.0)
        if len(rates) < 3:
            network.weights["w1"][0, 0] = np.nan
        return network

    monkeypatch.setattr("scopeval.models.training._trained", trained)
    network = learn_network(*halves, ENCODER, Training(rate=0.16), 0)
    np.testing.assert_allclose(rates, [0.16, 0.04, 0.01])
    assert np.isfinite(network.weights["w1"]).all()


def test_the_mean_of_networks():
    obs, actions = np.zeros((4, 1)), np.zeros((4, 3, 1))
    both = Dynamics((fake(0.0), fake(-30.0))).predict(obs, actions, 0)
    np.testing.assert_allclose(both.end, 0.25)


def test_stored_predictions_are_what_the_models_predict(logged, target):
    """Sweeps read what was stored with the points; asking the models again is the same."""
    _, log = rows_of(logged, target)
    quick = replace(QUICK, training=Training(hidden=8, steps=30, batch=64), paths=40)
    data = quick.sweep_data(log, Question(target, T), 0)
    models = [own.regression.model for own in (*data.halves, data.whole)]
    for own, numbers in zip((*data.halves, data.whole), ((0, 1), (0, 1), (2,)), strict=True):
        assert len(own.points) == T + 1
        for t, points in enumerate(own.points[:-1]):
            assert set(points.predicted) == set(numbers)
            for k in numbers:
                step, returns = points.predicted[k]
                again = models[k].dynamics.predict(points.obs, points.actions, t)
                for name in ("next_obs", "reward", "cost", "end"):
                    one, other = getattr(step, name), getattr(again, name)
                    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
                wanted = models[k].returns.at(again.next_obs, t)
                np.testing.assert_allclose(returns, wanted, rtol=1e-4, atol=1e-4)
        for t, rows in enumerate(own.rows):  # what the rows themselves lead to
            ahead, returns = own.regression.taken[t]
            model = own.regression.model
            again = model.dynamics.predict(np.asarray(rows.obs), rows.action[:, None], t)
            np.testing.assert_allclose(ahead, again.next_obs[:, 0], rtol=1e-5, atol=1e-6)
            wanted = model.returns.at(again.next_obs[:, 0], t)
            np.testing.assert_allclose(returns, wanted, rtol=1e-4, atol=1e-4)
        rows = own.rows[0]
        zero = np.zeros(len(rows))
        two = np.column_stack([zero, zero])
        targets = Targets(rows.reward, rows.cost, two + rows.cost[:, None], two, zero)
        learner = own.step(0, own.learners)[2]
        assert own.step(0, own.learners)[2] is learner
        critic = learner.fit(targets)
        stored, direct = own.at(0).estimates(critic), critic.at(own.at(0).obs, own.at(0).actions)
        for name in ("q", "cost_target", "noise"):
            one, other = getattr(stored, name), getattr(direct, name)
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
        assert (stored.known == direct.known).all()


def test_features_are_inputs_squares_products_and_return_features():
    rng = np.random.default_rng(0)
    x, seen = rng.standard_normal((50, 3)) * 2 + 1, rng.standard_normal((50, 2))
    f = features(x, np.ones(3), np.full(3, 2.0), seen)
    z = (x - 1) / 2
    np.testing.assert_allclose(f[:, 1:4], z)
    pairs = np.stack([z[:, i] * z[:, j] for i in range(3) for j in range(i, 3)], axis=1)
    np.testing.assert_allclose(f[:, 4:10], pairs)
    v, c = seen.T
    np.testing.assert_allclose(f[:, 10:], np.stack([v, c, v * v, v * c, c * c], axis=1))
    single = features(x, np.ones(3), np.full(3, 2.0), seen.astype(np.float32), np.float32)
    np.testing.assert_allclose(single, f, atol=1e-5)
    wide = features(np.zeros((2, 60)), np.zeros(60), np.ones(60), np.zeros((2, 2)))
    assert wide.shape[1] == 1 + 60 + 60 + 5  # no products of 60 inputs


def test_return_samples_are_what_followed(logged, target):
    _, log = rows_of(logged, target)
    rng = np.random.default_rng(0)
    asked = Question(target, 4, 0.5)
    where, when, what = sample_returns(fake(-30.0), log.starts, asked, 50, rng)
    assert where.shape == (200, 1)
    later = {3: 0.0, 2: 1.0, 1: 1.5, 0: 1.75}  # steps that follow, discounted
    expected = np.array([later[t] for t in when])
    np.testing.assert_allclose(what, expected[:, None] * [2.0, 3.0])
    started = np.asarray(log.starts.obs).ravel()
    assert (where[when == 0] >= started.min() + 1.0).all()
    assert (where[when == 3] >= started.min() + 4.0).all()
    # half of the episodes end at each step: rows are those that go on, and so on
    where, when, what = sample_returns(fake(0.0), log.starts, asked, 4000, rng)
    alive = np.bincount(when) / 4000
    np.testing.assert_allclose(alive, [0.5, 0.25, 0.125, 0.0625], atol=0.04)  # 5 standard errors
    assert set(np.round(what[when == 2, 0], 9)) == {2.0}  # one more step at least: 2 + 0.5 * 0
    where, when, what = sample_returns(fake(30.0), log.starts, asked, 10, rng)
    assert len(where) == len(when) == len(what) == 0


def learned_from(x, a, following):
    """A network learned from the first half of the rows, judged on the second."""
    n = len(x)
    rows = Rows.of(Transitions(np.zeros(n, np.int64), x, a, x[:, 0], np.ones(n), following))
    half = np.arange(n) < n // 2
    return learn_network(rows.select(half), rows.select(~half), ENCODER, QUICK.training, 0)


def test_errors_are_drawn_where_they_are_as_large():
    """The world is quiet on the left and noisy on the right."""
    rng = np.random.default_rng(3)
    n = 6000
    x, a = rng.uniform(-1, 1, (n, 1)), rng.standard_normal((n, 1))
    noise = np.where(x < 0, 0.01, 0.5)
    following = x + 0.2 * a + noise * rng.standard_normal((n, 1))
    network = learned_from(x, a, following)
    place, act = rng.uniform(0.3, 0.9, (4000, 1)), np.zeros((4000, 1))
    left, right = network.draw_errors(-place, act, 0, rng), network.draw_errors(place, act, 0, rng)
    assert np.abs(left).mean() < 0.05
    assert right.std() == pytest.approx(0.5, rel=0.2)


def test_a_jump_now_and_then_does_not_spoil_the_rest():
    """One row in twenty is a contact that nothing foretells; elsewhere the world is exact."""
    rng = np.random.default_rng(4)
    n = 6000
    x, a = rng.uniform(-1, 1, (n, 1)), rng.uniform(-1, 1, (n, 1))
    following = x + 0.3 * np.sin(2 * x) + 0.2 * a
    jump = rng.random(n) < 0.05
    following[jump] += rng.choice([-5.0, 8.0], (int(jump.sum()), 1))
    network = learned_from(x, a, following)
    later = slice(n // 2, None)
    said = network.predict(x[later], a[later, None], 0).next_obs[:, 0]
    quiet = ~jump[later]
    # squares would move every answer towards the jumps' mean, 0.075, and follow each single one
    assert np.median(np.abs(said - following[later])[quiet]) < 0.03


# -- around it -----------------------------------------------------------------------------------


def test_saved_and_loaded(made, target, tmp_path):
    path = tmp_path / "mu.npz"
    rng = np.random.default_rng(0)
    obs = START + rng.standard_normal((20, 1))
    for name, behavior in made.items():
        behavior.save(path)
        back = load(path, target)
        for t in range(T):
            offered = target.candidates(obs, t, rng)
            a, b = behavior.weigh(offered, obs, t), back.weigh(offered, obs, t)
            np.testing.assert_array_equal(a.probs, b.probs)
            if name == "scope-dr":
                np.testing.assert_array_equal(a.control, b.control)
        assert back.report == behavior.report
    drawn = back.act(obs[0], 1, np.random.default_rng(7))
    assert drawn.action.shape == (1,)
    assert drawn.target_probability == pytest.approx(0.1)


def test_far_from_the_logs_the_target_is_kept_and_counted(made, target):
    behavior = made["scope"]
    offered = target.candidates(np.full((5, 1), 80.0), 0, np.random.default_rng(0))
    weighing = behavior.weigh(offered, np.full((5, 1), 80.0), 0)
    np.testing.assert_allclose(weighing.probs, 0.1)
    assert ((weighing.why & Why.UNSEEN) > 0).all()


def test_bad_input(logged, target):
    with pytest.raises(InputError, match=r"'table' for continuous actions, expected Networks\(\)"):
        design(logged, target, horizon=T, method="scope", learn=Table())
    wide = GaussianPolicy(
        lambda obs, t: np.zeros((len(obs), 2)), [0, 0], low=[-1] * 2, high=[1] * 2
    )
    with pytest.raises(InputError, match="1 dimensions, the target offers 2"):
        design(logged, wide, horizon=T, method="scope")
    few = Transitions([0, 1], [[0.0], [1.0]], [[0.0], [1.0]], [0, 1], [0, 1], [[1.0], [2.0]])
    with pytest.raises(InputError, match="at least 8"):
        design(few, target, horizon=T, method="scope")


def test_finite_actions_with_vectors_go_the_same_way():
    """Two actions that are the world's +1 and -1, one-hot or by an embedding of their values."""
    rng = np.random.default_rng(0)
    n = 4000
    t, k = np.arange(n)[::-1] % T, rng.integers(2, size=n)
    a = 2.0 * k - 1
    x = START + rng.standard_normal(n)
    following = x + DRIFT * a + NOISE * rng.standard_normal(n)
    log = Transitions(t, x[:, None], k, a + SLOPE * x, 1 + k * 1.0, following[:, None])

    class Fair:
        def probs(self, obs, t):
            return np.full((len(obs), 2), 0.5)

    class Placed(Fair):
        embedding = np.array([[-1.0], [1.0]])

    obs = START + 0.5 * rng.standard_normal((100, 1))
    for target in (Fair(), Placed()):
        bold = replace(QUICK, caution=Caution())  # there is little to win here
        behavior = design(
            log, target, horizon=T, method="scope", learn=bold, check=Check(least_gain=0.0)
        )
        e = behavior.critics[0].at(obs)
        q = q_exact(obs, np.array([[-1.0, 1.0]]), 0)
        assert np.abs(e.q - q).max() < 0.25
        np.testing.assert_allclose(e.cost_target - (T - 1) * 1.5, [[1, 2]] * 100, atol=0.15)
        assert behavior.predicted.variance < 1.0
        cautious = design(log, target, horizon=T, method="scope", learn=QUICK)
        assert cautious.recipe.method.name == "on-policy"
        assert cautious.falls_back


class Coin:
    """Either action, whatever is seen."""

    def probs(self, obs, t):
        return np.full((len(obs), 2), 0.5)


def test_a_rare_large_cost_is_not_overlooked():
    """An action that mostly costs nothing and now and then ten is the dearer one on average."""
    rng = np.random.default_rng(0)
    n = 8000
    k = rng.integers(2, size=n)
    x = rng.standard_normal((n, 1))
    cost = np.where(k == 0, 0.5, np.where(rng.random(n) < 0.1, 10.0, 0.0))
    reward = np.where(k == 0, 0.3, 3.0)
    log = Transitions(np.arange(n) // 2 % 2, x, k, reward, cost, rng.standard_normal((n, 1)))
    behavior = design(
        log, Coin(), horizon=2, method="scope", learn=replace(QUICK, caution=Caution())
    )
    obs = rng.standard_normal((200, 1))
    e = behavior.critics[1].at(obs)
    # 800 rare rows: the standard error of the mean is 0.05; a median would say 0
    np.testing.assert_allclose(e.cost_target.mean(axis=0), [0.5, 1.0], atol=0.25)
    mu = behavior.probs(obs, 1)
    assert (mu @ [0.5, 1.0]).mean() <= 0.75 * 1.05


def test_an_action_that_was_never_logged_keeps_its_probability():
    rng = np.random.default_rng(0)
    n = 3000
    k = rng.integers(2, size=n)  # the third is never taken
    x = rng.standard_normal((n, 1))
    reward = 2.0 * k + x[:, 0]
    log = Transitions(np.arange(n) // 2 % 2, x, k, reward, np.ones(n), rng.standard_normal((n, 1)))

    class Three:
        embedding = np.eye(3)

        def probs(self, obs, t):
            return np.full((len(obs), 3), 1 / 3)

    bold = replace(QUICK, caution=Caution())
    behavior = design(log, Three(), horizon=2, method="scope", learn=bold)
    bare = replace(behavior.recipe, method=METHODS["scope"], floor=0.0)
    free = BehaviorPolicy(Three(), behavior.critics, bare, behavior.report)
    mu = free.probs(rng.standard_normal((50, 1)), 0)
    np.testing.assert_allclose(mu[:, 2], 1 / 3)
    assert free.counts.unseen == 50
    assert not behavior.critics[0].at(rng.standard_normal((5, 1))).known[:, 2].any()


def test_only_candidates_are_asked_of_a_policy_of_ones_own(logged, target):
    """Something else may be called `sample` there; and no two threads ask at once."""
    busy, together = [0], [0]

    class Own:
        def candidates(self, obs, t, rng):
            busy[0] += 1
            together[0] = max(together[0], busy[0])
            offered = target.candidates(obs, t, rng)
            busy[0] -= 1
            return offered

        def sample(self):
            raise AssertionError

    brief = replace(
        QUICK,
        training=Training(hidden=8, steps=40, batch=64),
        paths=30,
        study=Study(paths=30, hidden=8, steps=40),
    )
    design(logged, Own(), horizon=T, method="scope", learn=brief)
    assert together == [1]


def test_estimates_are_finite_when_a_variance_runs_away(made, target):
    behavior = made["scope-dr"]
    rng = np.random.default_rng(0)
    obs = START + 0.3 * rng.standard_normal((20, 1))
    offered = target.candidates(obs, 0, rng)
    critic = behavior.critics[0]
    far = replace(critic, heads=critic.heads * 1e60, least=critic.least * 1e60,
                  most=critic.most * 1e60)  # fmt: skip
    e = far.at(obs, offered.actions)
    assert all(np.isfinite(getattr(e, name)).all() for name in ("q", "carried", "noise"))
    assert e.known.all()
    near = critic.at(obs, offered.actions)
    reward = behavior.critics[0].dynamics.predict(obs, offered.actions, 0).reward
    np.testing.assert_allclose(e.q - reward, (near.q - reward) * 1e60, rtol=1e-3, atol=1e55)


def test_caution_is_checked():
    for shares in ((), (1.2,), (-1.0, 1.0)):
        with pytest.raises(InputError, match="caution: got shares"):
            Caution(shares)


def test_progress_tells_every_stage(logged, target):
    told = []
    brief = replace(
        QUICK,
        training=Training(hidden=8, steps=40, batch=64),
        paths=30,
        study=Study(paths=30, hidden=8, steps=40),
    )
    what = {"horizon": T, "progress": lambda *now: told.append(now), "learn": brief}
    design(logged, target, **what)
    stages = list(dict.fromkeys(name for name, _, _ in told))
    assert stages == ["learning the dynamics", "learning how episodes go on", "design"]
    for stage in stages:
        done = [(n, total) for name, n, total in told if name == stage]
        assert done == sorted(done)
        assert all(n <= total for n, total in done)
    assert ("learning the dynamics", 80, 80) in told


def test_redrawn_inputs_are_the_targets(logged):
    """The last entry of an observation is the policy's own earlier draw: the world is not asked."""
    rng = np.random.default_rng(0)
    n = 3000
    own = rng.standard_normal(n)  # of the loggers
    x = rng.standard_normal(n)
    k = rng.integers(2, size=n)
    following = np.stack([x + 0.5 * own, rng.standard_normal(n)], axis=1)
    log = Transitions(
        np.arange(n)[::-1] % T, np.stack([x, own], axis=1), k, x + own + k, 1.0 * k, following
    )

    class Target:
        drawn = 1

        def probs(self, obs, t):
            return np.full((len(obs), 2), 0.5)

        def redraw(self, obs, t, rng):
            return np.column_stack([obs[:, 0], 2.0 + 0.1 * rng.standard_normal(len(obs))])

    behavior = design(log, Target(), horizon=T, method="scope", learn=QUICK)
    x = np.array([[0.0, 2.0], [1.0, 2.0]])
    # v = sum of x + own + 1/2; x grows by one half of its own draw, whose mean is 2
    v = behavior.critics[0].at(x).q.mean(axis=1)
    later = np.array([0.0, 1.0])[:, None] + np.arange(T)[None]
    np.testing.assert_allclose(v, (later + 2.5).sum(axis=1), atol=0.5)


def test_rows_of_continuous_actions_are_selected_whole(logged, target):
    halves, log = rows_of(logged, target)
    assert isinstance(halves[0], Rows)
    assert halves[0].action.shape[1:] == (1,)
    assert len(halves[0]) + len(halves[1]) == len(logged) == log.count

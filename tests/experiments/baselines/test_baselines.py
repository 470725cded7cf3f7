"""The baselines against closed forms, against enumeration, and against their authors' numbers."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from experiments.baselines._reparametrized import own_parameters, with_parameters
from experiments.baselines.bps import bps, bps_gradient, bps_tabular
from experiments.baselines.ros import RosSampler, ros, ros_tabular
from scopeval import TabularPolicy, TorchPolicy, collect, exact
from scopeval._simulate_kernel import draw
from scopeval.collection.collector import NoEpisodeError
from scopeval.collection.simulated import absorbing
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError
from scopeval.estimation.estimators import importance_sampling
from scopeval.exact import TabularMDP
from scopeval.policies._random_kernel import stream, uniform
from scopeval.simulate import cumulative
from small_worlds import every_trajectory, random_mdp, random_rows


class Table(torch.nn.Module):
    """A tabular softmax policy as a module."""

    def __init__(self, probs, *, timed=False):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.log(torch.tensor(np.array(probs))))
        self.unused = torch.nn.Parameter(torch.ones(2))
        self.timed = timed

    def forward(self, obs, t=None):
        return self.logits[t, obs] if self.timed else self.logits[obs]


def authors_grid():
    """The 4 x 4 grid of the ROS authors, and a policy of value 2.92 as theirs.

    Deterministic moves from (0, 0); entering (3, 3) ends with +10, (1, 1) costs 10, (1, 3) gives 1,
    any other step costs 1; at most 100 steps. The policy prefers the goal's direction, softly.
    """
    n, goal = 4, 15
    transition = np.zeros((17, 4, 17))
    reward = np.zeros((17, 4))
    distance = np.zeros((17, 4))
    for s in range(16):
        x, y = divmod(s, n)
        for a, (dx, dy) in enumerate([(0, 1), (0, -1), (1, 0), (-1, 0)]):
            u, v = min(max(x + dx, 0), n - 1), min(max(y + dy, 0), n - 1)
            cell = u * n + v
            transition[s, a, 16 if cell == goal else cell] = 1.0
            reward[s, a] = {15: 10.0, 5: -10.0, 7: 1.0}.get(cell, -1.0)
            distance[s, a] = (n - 1 - u) + (n - 1 - v) + (3.0 if cell == 5 else 0.0)
    transition[15:, :, 16] = 1.0
    transition[15, :, :16] = 0.0
    reward[15] = 0.0
    mdp = TabularMDP(np.eye(17)[0], transition, reward, np.abs(reward), 100)

    def soft(sharpness):
        weight = np.exp(-sharpness * (distance - distance.min(axis=1, keepdims=True)))
        return weight / weight.sum(axis=1, keepdims=True)

    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        if exact.assess(mdp, soft(middle), soft(middle)).value < 2.92:
            low = middle
        else:
            high = middle
    return mdp, TabularPolicy(soft(high))


def test_ros_reaches_its_authors_accuracy_on_their_grid():
    """Their mean squared errors at 1,000 episodes: 2.7e-4 on-policy, 1.4e-5 ROS (ratio 0.05)."""
    mdp, target = authors_grid()
    value = exact.assess(mdp, target, target).value
    assert value == pytest.approx(2.92, abs=1e-6)
    kw = {"runs": 200, "episodes": 1000, "seed": 1}
    error = {
        alpha: np.mean((ros_tabular(mdp, target, alpha=alpha, **kw).estimates[:, -1] - value) ** 2)
        for alpha in (0.0, 1000.0)
    }
    assert error[1000.0] / error[0.0] < 0.12
    assert error[0.0] == pytest.approx(exact.assess(mdp, target, target).variance / 1000, rel=0.4)


def test_ros_on_the_gridworld_and_its_ablation():
    mdp = Gridworld(10).mdp()
    target = target_policies(1, 10)[0]
    expected = exact.assess(mdp, target, target)

    def relative(**kw):
        runs = ros_tabular(mdp, target, runs=200, episodes=500, **kw)
        assert runs.returns.shape == runs.costs.shape == (200, 500)
        assert runs.costs.mean() / expected.cost == pytest.approx(1, abs=0.02)
        return np.var(runs.estimates[:, -1]) / (expected.variance / 500)

    assert relative() < 0.5
    assert relative(positions=False) < 0.5
    assert relative(reset_each_episode=True) > 0.55
    assert relative(alpha=0.0) == pytest.approx(1, abs=0.35)


def episode_key(seed, run, episode):
    return np.uint64(stream(np.uint64(stream(seed, run)), episode))


def closed_form(pi, counts, alpha, s):
    n = counts.sum()
    logit = np.log(pi[s]) - (alpha * (counts[s] - counts[s].sum() * pi[s]) / n if n else 0)
    weight = np.exp(logit - logit.max())
    return weight / weight.sum()


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("ends", [False, True])
def test_the_compiled_runs_are_the_autograd_ones(ends, reset):
    """The same random numbers, probabilities from torch: the same returns, episode by episode."""
    rng = np.random.default_rng(4)
    mdp = random_mdp(rng, states=4, actions=3, horizon=6, gamma=0.9, ends=ends)
    pi = random_rows(rng, 4, 3)
    alpha = 20.0
    runs = ros_tabular(mdp, pi, runs=2, episodes=25, alpha=alpha, seed=7, reset_each_episode=reset)
    start, p = cumulative(mdp.initial), mdp.transition.toarray()
    for r in range(2):
        sampler = RosSampler(TorchPolicy(Table(pi)), alpha)
        beginning = sampler.state()
        counts = np.zeros((4, 3))
        for e in range(25):
            if reset:
                sampler.restore(beginning)
                counts[:] = 0
            key = episode_key(7, r, e)
            s = draw(start, 0, 4, uniform(key, 0))
            total = paid = 0.0
            for t in range(6):
                if ends and s == 3:
                    break
                mu = sampler.probs(np.array([s]), t)[0]
                np.testing.assert_allclose(mu, closed_form(pi, counts, alpha, s), atol=1e-9)
                a = draw(cumulative(mu), 0, 3, uniform(key, 4 * t + 1))
                sampler.observe(np.array([s]), [a], t)
                counts[s, a] += 1
                total += 0.9**t * mdp.at("reward", t)[s, a]
                paid += 0.9**t * mdp.at("cost", t)[s, a]
                row = cumulative(p[s * 3 + a])
                s = draw(row, 0, 4, uniform(key, 4 * t + 2))
            assert runs.returns[r, e] == pytest.approx(total, abs=1e-9)
            assert runs.costs[r, e] == pytest.approx(paid, abs=1e-9)
        assert sampler.steps == counts.sum()


def test_runs_depend_on_nothing_but_their_number():
    mdp = Gridworld(5).mdp()
    target = target_policies(1, 5)[0]
    for method in (ros_tabular, bps_tabular):
        whole = method(mdp, target, runs=7, episodes=30, seed=3, threads=1)
        again = method(mdp, target, runs=7, episodes=30, seed=3, threads=3)
        part = method(mdp, target, runs=4, episodes=30, seed=3, first=3)
        longer = method(mdp, target, runs=7, episodes=40, seed=3)
        np.testing.assert_array_equal(whole.estimates, again.estimates)
        np.testing.assert_array_equal(whole.estimates[3:], part.estimates)
        np.testing.assert_array_equal(whole.estimates, longer.estimates[:, :30])
        other = method(mdp, target, runs=7, episodes=30, seed=4)
        assert (other.costs != whole.costs).mean() > 0.9


def test_ros_with_offline_data():
    """On-policy episodes to begin with count like ROS's own, and their returns stay in the mean."""
    mdp, target = authors_grid()
    value = exact.assess(mdp, target, target).value
    offline = collect(mdp, target, episodes=100, seed=3)
    kw = {"runs": 200, "episodes": 100, "alpha": 10_000.0}
    corrected = ros_tabular(mdp, target, offline=offline, **kw)
    start = offline.returns().mean()
    first = (offline.returns().sum() + corrected.returns[:, 0]) / 101
    np.testing.assert_allclose(corrected.estimates[:, 0], first)
    # most of the error the offline data began with is taken back
    plain = ros_tabular(mdp, target, offline=offline, runs=200, episodes=100, alpha=0.0)
    assert abs(start - value) > 0.2
    assert abs(plain.estimates[:, -1].mean() - value) > 0.4 * abs(start - value)
    assert abs(corrected.estimates[:, -1].mean() - value) < 0.1 * abs(start - value)


def test_offline_data_move_the_first_step_by_the_closed_form():
    """One state, one step: the first action's frequency over runs, at 4.9 standard errors."""
    mdp = TabularMDP([1.0], np.ones((1, 3, 1)), [[0.0, 1.0, 2.0]], [[0.0, 1.0, 4.0]], 1)
    pi = np.array([[0.2, 0.3, 0.5]])
    offline = collect(mdp, pi, episodes=40, seed=1)
    counts = np.bincount(offline.action[:, 0], minlength=3)[None].astype(float)
    runs = ros_tabular(mdp, pi, offline=offline, runs=40_000, episodes=1, alpha=3.0)
    expected = closed_form(pi, counts, 3.0, 0)
    assert np.abs(expected - pi[0]).max() > 0.03
    got = np.array([(runs.returns == a).mean() for a in range(3)])
    assert (np.abs(got - expected) < 4.9 * np.sqrt(expected * (1 - expected) / 40_000)).all()


def test_absorbing_states_end_episodes_and_are_not_counted():
    mdp, _ = authors_grid()
    np.testing.assert_array_equal(np.flatnonzero(absorbing(mdp)), [16])
    assert not absorbing(random_mdp(np.random.default_rng(0))).any()


def test_torch_ros_in_an_environment_is_the_closed_form():
    rng = np.random.default_rng(2)
    mdp = random_mdp(rng, states=4, actions=3, horizon=5)
    pi = random_rows(rng, 4, 3)
    module = Table(pi)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    before = module.logits.clone()
    kw = {"horizon": 5, "episodes": 12, "alpha": 30.0, "seed": 5}
    episodes = ros(lambda: TabularEnv(mdp), TorchPolicy(module), **kw)
    assert torch.equal(module.logits, before)
    assert module.logits.grad is None
    counts = np.zeros((4, 3))
    for i in range(12):
        for t in range(episodes.length[i]):
            s, a = episodes.obs[i, t], episodes.action[i, t]
            mu = closed_form(pi, counts, 30.0, s)
            assert episodes.behavior_prob[i, t] == pytest.approx(mu[a], abs=1e-9)
            assert episodes.target_prob[i, t] == pytest.approx(pi[s, a], abs=1e-12)
            counts[s, a] += 1
    on_policy = ros(lambda: TabularEnv(mdp), TorchPolicy(module), **kw | {"alpha": 0.0})
    plain = collect(lambda: TabularEnv(mdp), pi, horizon=5, episodes=12, seed=5)
    np.testing.assert_array_equal(on_policy.action, plain.action)
    warm = ros(lambda: TabularEnv(mdp), TorchPolicy(module), **kw, offline=plain)
    counts = np.zeros((4, 3))
    np.add.at(counts, (plain.obs.ravel(), plain.action.ravel()), 1)
    mu = closed_form(pi, counts, 30.0, warm.obs[0, 0])
    assert warm.behavior_prob[0, 0] == pytest.approx(mu[warm.action[0, 0]], abs=1e-9)
    fresh = ros(lambda: TabularEnv(mdp), TorchPolicy(module), **kw, reset_each_episode=True)
    np.testing.assert_allclose(fresh.ratios[:, 0], 1)


def test_torch_ros_depends_on_time_where_the_module_does():
    rng = np.random.default_rng(3)
    pi = random_rows(rng, 2, 4, 3)
    sampler = RosSampler(TorchPolicy(Table(pi, timed=True), with_time=True), 5.0)
    sampler.observe(np.array([1, 1]), [0, 2], 1)
    counts = np.zeros((8, 3))
    counts[5, [0, 2]] = 1
    mu = sampler.probs(np.array([1, 1]), np.array([0, 1]))
    np.testing.assert_allclose(mu[0], pi[0, 1])
    np.testing.assert_allclose(mu[1], closed_form(pi.reshape(8, 3), counts, 5.0, 5))


class Breaks(TabularEnv):
    """Fails in every third episode, at its second step."""

    episode = -1

    def reset(self, **kw):
        type(self).episode += 1
        return super().reset(**kw)

    def step(self, action):
        if self.episode % 3 == 2 and self._t == 1:
            raise RuntimeError("jam")
        return super().step(action)


def test_torch_ros_forgets_lost_episodes_and_keeps_finished_ones():
    rng = np.random.default_rng(2)
    mdp = random_mdp(rng, states=4, actions=3, horizon=5)
    pi = random_rows(rng, 4, 3)
    Breaks.episode = -1
    episodes = ros(lambda: Breaks(mdp), TorchPolicy(Table(pi)), horizon=5, episodes=9, alpha=30.0)
    assert [lost.index for lost in episodes.lost] == [2, 5, 8]
    counts = np.zeros((4, 3))
    for i in range(len(episodes)):
        for t in range(5):
            s, a = episodes.obs[i, t], episodes.action[i, t]
            mu = closed_form(pi, counts, 30.0, s)
            assert episodes.behavior_prob[i, t] == pytest.approx(mu[a], abs=1e-9)
            counts[s, a] += 1

    def progress(done, total):
        if done == 2:
            raise KeyboardInterrupt

    stopped = ros(
        lambda: TabularEnv(mdp),
        TorchPolicy(Table(pi)),
        horizon=5,
        episodes=9,
        progress=progress,
    )
    assert stopped.interrupted
    assert len(stopped) == 2

    class Dead(TabularEnv):
        def reset(self, **kw):
            raise RuntimeError("off")

    for method in (ros, bps):
        with pytest.raises(NoEpisodeError, match="off"):
            method(lambda: Dead(mdp), TorchPolicy(Table(pi)), horizon=5, episodes=2)


def test_torch_ros_and_bps_run_a_network_on_cartpole():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    before = [p.clone() for p in module.parameters()]
    policy = TorchPolicy(module)
    kw = {"horizon": 15, "cost": "none"}
    episodes = ros("CartPole-v1", policy, episodes=3, **kw)
    assert len(episodes) == 3
    assert (episodes.ratios != 1).any()
    found = bps("CartPole-v1", policy, episodes=20, **kw)
    assert len(found.episodes) == 20
    assert np.array_equal(found.episodes.ratios[:10], np.ones((10, 15)))
    assert (found.episodes.ratios[10:] != 1).any()
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    with gymnasium.make("CartPole-v1") as env:
        assert len(ros(env, policy, episodes=2, **kw)) == 2


def tiny(timed=False):
    rng = np.random.default_rng(11)
    mdp = random_mdp(rng, states=2, actions=2, horizon=2, gamma=0.9)
    shape = (2, 2, 2) if timed else (2, 2)
    return mdp, random_rows(rng, *shape), random_rows(rng, *shape)


def second_moment(mdp, pi, mu):
    episodes, chance = every_trajectory(mdp, TabularPolicy(pi), TabularPolicy(mu))
    return chance @ importance_sampling(episodes, mdp.gamma) ** 2


def exact_gradient(mdp, pi, mu, h=1e-5):
    """d E[IS^2] / d logits of mu, by central differences of the enumerated sum."""
    theta = np.log(mu)
    slope = np.zeros_like(theta)
    for at in np.ndindex(theta.shape):
        ends = []
        for step in (h, -h):
            moved = theta.copy()
            moved[at] += step
            weight = np.exp(moved)
            ends.append(second_moment(mdp, pi, weight / weight.sum(axis=-1, keepdims=True)))
        slope[at] = (ends[0] - ends[1]) / (2 * h)
    return slope


@pytest.mark.parametrize("timed", [False, True])
def test_bps_gradient_is_the_gradient_of_the_variance(timed):
    """Expectation over every trajectory of the sampled gradient = derivative of the exact sum."""
    mdp, pi, mu = tiny(timed)
    target = TorchPolicy(Table(pi, timed=timed), with_time=timed)
    theta = own_parameters(Table(mu, timed=timed))
    np.testing.assert_allclose(
        with_parameters(target, theta).probs(np.array([0, 1]), 1), mu[1] if timed else mu
    )
    episodes, chance = every_trajectory(mdp, TabularPolicy(pi), TabularPolicy(mu))
    expected = exact_gradient(mdp, pi, mu)
    mean = sum(
        c * bps_gradient(target, theta, episodes.select([i]), mdp.gamma)["logits"].numpy()
        for i, c in enumerate(chance)
    )
    np.testing.assert_allclose(mean, expected, atol=1e-7)
    both = bps_gradient(target, theta, episodes.select([0, 3]), mdp.gamma)["logits"]
    alone = [bps_gradient(target, theta, episodes.select([i]), mdp.gamma) for i in (0, 3)]
    np.testing.assert_allclose(both, (alone[0]["logits"] + alone[1]["logits"]) / 2, atol=1e-12)


@pytest.mark.parametrize("timed", [False, True])
def test_compiled_bps_descends_along_the_exact_gradient(timed):
    """One step from theta_e, averaged over runs: z-tests at 5 standard errors."""
    mdp, pi, _ = tiny(timed)
    rate = 1e-3
    runs = bps_tabular(mdp, pi, runs=40_000, episodes=10, learning_rate=rate, positions=not timed)
    steps = (np.log(runs.policies) - np.log(pi)) / -rate
    steps -= steps.mean(axis=-1, keepdims=True)  # logits are known up to a constant
    expected = exact_gradient(mdp, pi, pi)
    error = np.abs(steps.mean(axis=0) - expected)
    assert (error < 5 * steps.std(axis=0) / np.sqrt(len(steps)) + 1e-3 * np.abs(expected)).all()
    assert np.abs(expected).max() > 30 * (steps.std(axis=0) / np.sqrt(len(steps))).max()


def test_compiled_and_torch_bps_take_the_same_step():
    """From the same episodes: the compiled run's own trajectory, replayed for torch."""
    mdp, pi, _ = tiny()
    run = bps_tabular(mdp, pi, runs=1, episodes=1, batch=1, learning_rate=0.05, seed=6)
    start, p = cumulative(mdp.initial), mdp.transition.toarray()
    key = episode_key(6, 0, 0)
    s = draw(start, 0, 2, uniform(key, 0))
    steps = []
    for t in range(2):
        a = draw(cumulative(pi[s]), 0, 2, uniform(key, 4 * t + 1))
        steps.append((s, a))
        s = draw(cumulative(p[s * 2 + a]), 0, 2, uniform(key, 4 * t + 2))
    every, _ = every_trajectory(mdp, TabularPolicy(pi), TabularPolicy(pi))
    match = (every.obs == [x[0] for x in steps]) & (every.action == [x[1] for x in steps])
    episode = every.select(np.flatnonzero(match.all(axis=1))[:1])
    assert run.values[0, 0] == pytest.approx(importance_sampling(episode, 0.9)[0])
    target = TorchPolicy(Table(pi))
    theta = own_parameters(target.module)
    moved = np.log(pi) - 0.05 * bps_gradient(target, theta, episode, 0.9)["logits"].numpy()
    weight = np.exp(moved)
    np.testing.assert_allclose(
        run.policies[0], weight / weight.sum(axis=1, keepdims=True), atol=1e-12
    )


def test_bps_lowers_the_variance_of_importance_sampling_and_stays_unbiased():
    mdp, pi, _ = tiny()
    value = exact.assess(mdp, pi, pi).value
    runs = bps_tabular(mdp, pi, runs=300, episodes=3000, learning_rate=0.02, search=2500, seed=2)
    begun, ended = runs.values[:, :10], runs.values[:, 2500:]
    assert second_moment(mdp, pi, runs.policies[0]) < 0.9 * second_moment(mdp, pi, pi)
    assert ended.var() < 0.85 * begun.var()
    error = runs.estimates[:, -1] - value
    assert abs(error.mean()) < 4.9 * error.std() / np.sqrt(len(error))
    assert not runs.diverged.any()
    module = Table(pi)
    found = bps(
        lambda: TabularEnv(mdp),
        TorchPolicy(module),
        horizon=2,
        episodes=600,
        gamma=0.9,
        learning_rate=0.1,
        search=400,
    )
    mu = found.behavior.probs(np.array([0, 1]), 0)
    assert second_moment(mdp, pi, mu) < 0.95 * second_moment(mdp, pi, pi)
    np.testing.assert_allclose(
        found.episodes.behavior_prob[-1, 0],
        mu[found.episodes.obs[-1, 0], found.episodes.action[-1, 0]],
    )
    assert torch.equal(module.logits, torch.log(torch.tensor(pi)))


def test_a_search_that_is_over_leaves_the_policy_alone():
    mdp, pi, _ = tiny()
    kw = {"runs": 3, "learning_rate": 0.05, "seed": 2}
    short = bps_tabular(mdp, pi, episodes=20, **kw)
    longer = bps_tabular(mdp, pi, episodes=50, search=20, **kw)
    np.testing.assert_array_equal(short.policies, longer.policies)
    assert (bps_tabular(mdp, pi, episodes=50, **kw).policies != longer.policies).any()
    none = bps_tabular(mdp, pi, episodes=50, search=0, **kw)
    np.testing.assert_allclose(none.policies, np.broadcast_to(pi, (3, 2, 2)))


def test_a_search_that_overflows_keeps_the_policy_from_before():
    mdp, pi, _ = tiny()
    loud = TabularMDP(mdp.initial, mdp.transition, mdp.reward * 1e200, mdp.cost, 2)
    runs = bps_tabular(loud, pi, runs=3, episodes=30)
    assert runs.diverged.all()
    np.testing.assert_allclose(runs.policies, np.broadcast_to(pi, (3, 2, 2)))
    with np.errstate(over="ignore"):
        found = bps(lambda: TabularEnv(loud), TorchPolicy(Table(pi)), horizon=2, episodes=20)
    assert found.diverged
    np.testing.assert_allclose(found.behavior.probs(np.array([0, 1]), 0), pi)


def test_actions_the_target_never_takes_are_never_taken():
    rng = np.random.default_rng(0)
    mdp = random_mdp(rng, states=3, actions=3, horizon=4)
    mdp = TabularMDP(mdp.initial, mdp.transition, mdp.reward, np.eye(3)[[0, 0, 0]], 4)
    pi = np.tile([0.0, 0.5, 0.5], (3, 1))  # only action 0 costs anything
    for runs in (
        ros_tabular(mdp, pi, runs=3, episodes=50),
        bps_tabular(mdp, pi, runs=3, episodes=50),
    ):
        assert not runs.costs.any()
        assert np.isfinite(runs.estimates).all()


def test_arguments_are_checked():
    mdp, pi, _ = tiny()
    timed = tiny(timed=True)[1]
    for call, message in (
        (lambda: ros_tabular(mdp, pi, runs=0, episodes=1), "runs"),
        (lambda: ros_tabular(mdp, pi, runs=1, episodes=1, alpha=-1.0), "alpha"),
        (lambda: ros_tabular(mdp, timed, runs=1, episodes=1), "positions=False"),
        (lambda: ros_tabular(mdp, pi, runs=1, episodes=1, seed=-1), "seed"),
        (lambda: bps_tabular(mdp, pi, runs=1, episodes=1, learning_rate=0.0), "learning_rate"),
        (lambda: bps_tabular(mdp, pi, runs=1, episodes=1, batch=0), "batch"),
        (lambda: ros(TabularEnv(mdp), pi, horizon=2, episodes=1), "ros_tabular"),
        (lambda: bps(TabularEnv(mdp), pi, horizon=2, episodes=1), "bps_tabular"),
    ):
        with pytest.raises(InputError, match=message):
            call()
    big = collect(random_mdp(np.random.default_rng(0)), np.full((3, 2), 0.5), episodes=20)
    with pytest.raises(InputError, match="offline: obs 2 is outside"):
        ros_tabular(mdp, pi, runs=1, episodes=1, offline=big)

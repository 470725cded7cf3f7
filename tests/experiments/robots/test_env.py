"""The robots: Gymnasium's numbers bit for bit, Gaussian policies, bins, shipped weights, logs."""

from __future__ import annotations

import warnings
from dataclasses import fields

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import scopeval
import scopeval.envs  # (registers the environments)
from experiments.robots.bins import BINS, BinnedPolicy, BinnedRobot, BinnedRobots
from experiments.robots.env import HORIZON, ROBOTS, Robots, robot_env
from experiments.robots.logs import robot_logs, write_robot_logs
from experiments.robots.policies import (
    FOLDER,
    WEIGHTS,
    RobotPolicy,
    robot_policies,
    robot_policy,
    robot_record,
)
from experiments.robots.training import run_episodes
from experiments.robots.world import robot_world
from scopeval import Episodes, GaussianPolicy, Plant, as_policy, collect
from scopeval.errors import DataError, InputError
from scopeval.policies.protocols import ContinuousPolicy, Policy, Weighing

pytest.importorskip("mujoco")

SHIPPED = [name for name in ROBOTS if (FOLDER / f"{name}.json").exists()]


def linear(robot, scale=0.1, seed=0):
    """A policy that nobody trained."""
    rng = np.random.default_rng(seed)
    one = Robots(robot)
    weights = scale * rng.standard_normal((one.width, len(one.low)))
    log_std = rng.normal(-0.5, 0.2, len(one.low))

    def mean(obs, t):  # row by row, whatever the batch
        return np.array([row @ weights for row in obs])

    return GaussianPolicy(mean, log_std, low=one.low, high=one.high)


# -- the robots ----------------------------------------------------------------------------------


@pytest.mark.parametrize("robot", ROBOTS)
def test_every_number_is_gymnasiums(robot):
    n, rng = 3, np.random.default_rng(1)
    fleet, envs = Robots(robot, n), [robot_env(robot) for _ in range(n)]
    fallen = 0
    for episode in range(4):
        seeds = list(range(n * episode, n * episode + n))
        obs = fleet.reset(seeds)
        for env, seed, seen in zip(envs, seeds, obs, strict=True):
            np.testing.assert_array_equal(env.reset(seed=seed)[0], seen)
        live = np.arange(n)
        for t in range(HORIZON if episode < 2 else 30):
            actions = rng.standard_normal((len(live), len(fleet.low))) * (0.1, 1.5)[episode % 2]
            moves = fleet.step(actions, live)
            going = []
            for row, i in enumerate(live):
                obs, reward, terminated, truncated, info = envs[i].step(actions[row])
                np.testing.assert_array_equal(obs, moves.obs[row])
                assert reward == moves.reward[row]
                assert info["cost"] == moves.cost[row]
                assert terminated == moves.terminated[row]
                assert truncated == (t + 1 == HORIZON)
                going.append(not terminated)
            fallen += len(live) - sum(going)
            live = live[going]
            if not len(live):
                break
    assert fallen > 0


def test_the_bare_gymnasium_robot_has_the_same_rewards():
    plain, ours = gymnasium.make("Hopper-v5"), robot_env("hopper")
    plain.reset(seed=4)
    ours.reset(seed=4)
    action = np.array([0.3, -0.8, 0.5], np.float32)
    for _ in range(5):
        obs, reward, *_ = plain.step(action)
        again, same, *_, info = ours.step(action)
        np.testing.assert_array_equal(obs, again)
        assert reward == same
        assert info["cost"] == pytest.approx(0.98)
    assert ours.step(9 * action)[-1]["cost"] == 3.0  # what is executed is clipped


def test_a_robot_does_not_know_its_neighbors():
    alone, many = Robots("Walker2d", 1), Robots("Walker2d", 5)
    action = np.linspace(-1, 1, 6)[None]
    alone.reset([7])
    many.reset([1, 2, 3], [0, 1, 4])
    many.step(np.zeros((2, 6)), [0, 4])
    many.reset([7], [3])
    for _ in range(10):
        expected = alone.step(action)
        got = many.step(np.repeat(action, 2, axis=0), [3, 0])
        np.testing.assert_array_equal(got.obs[0], expected.obs[0])
        assert got.reward[0] == expected.reward[0]


def test_robots_refuse():
    with pytest.raises(InputError, match="got 'Dog', expected one of Ant"):
        Robots("Dog")
    with pytest.raises(InputError, match="whole number of robots"):
        Robots("Hopper", 0)
    fleet = Robots("hopper", 2)
    assert fleet.robot == "Hopper"
    with pytest.raises(InputError, match="seeds: got 1"):
        fleet.reset([1])
    with pytest.raises(InputError, match=r"expected \(2, 3\)"):
        fleet.step(np.zeros((2, 4)))


# -- Gaussian policies ---------------------------------------------------------------------------


def test_a_gaussian_policy_offers_samples_and_scores():
    policy = GaussianPolicy(
        lambda obs, t: obs * (1 + np.asarray(t)), [0.0, -1.0], low=[-1, -2], high=[1, 2], draws=7
    )
    assert isinstance(policy, ContinuousPolicy)
    assert not isinstance(policy, Policy)
    assert as_policy(policy) is policy
    assert scopeval.GaussianPolicy is GaussianPolicy
    obs = np.array([[0.1, 0.2], [-3.0, 0.5], [0.0, 0.0]])
    offered = policy.candidates(obs, 2, np.random.default_rng(5))
    assert offered.actions.shape == (3, 7, 2)
    np.testing.assert_array_equal(offered.probs, np.full((3, 7), 1 / 7))
    noise = np.random.default_rng(5).standard_normal((3, *policy.noise_shape))
    np.testing.assert_array_equal(policy.from_noise(obs, 2, noise).actions, offered.actions)
    assert (np.abs(offered.actions) <= [1, 2]).all()
    assert (offered.actions[1, :, 0] == -1).all()  # the mean is -9
    many = policy.candidates(np.tile(obs[:1], (3000, 1)), 0, np.random.default_rng(6)).actions
    for k in (0, 6):  # each candidate has the policy's distribution
        for j, (low, high, mean, std) in enumerate([(-1, 1, 0.1, 1.0), (-2, 2, 0.2, np.exp(-1))]):
            law, values = stats.norm(mean, std), many[:, k, j]
            assert abs((values == high).mean() - law.sf(high)) < 5 * np.sqrt(0.25 / 3000)
            inside = values[(values > low) & (values < high)]
            cut = stats.truncnorm((low - mean) / std, (high - mean) / std, mean, std)
            assert stats.kstest(inside, cut.cdf).pvalue > 1e-6
    drawn = policy.sample(obs, 0, np.random.default_rng(1), 4000)
    assert drawn.shape == (3, 4000, 2)
    assert policy.sample(obs, 0, np.random.default_rng(1)).shape == (3, 2)
    assert drawn[0, :, 1].std() == pytest.approx(np.exp(-1), rel=0.05)
    actions = np.array([[0.4, 0.1], [-2.0, 0.0], [9.0, 1.0]])
    truth = stats.norm(obs * 2, np.exp([0.0, -1.0])).logpdf(actions).sum(axis=1)
    np.testing.assert_allclose(policy.log_prob(obs, actions, 1), truth)
    both = policy.log_prob(obs, np.stack([actions, obs], axis=1), 1)
    np.testing.assert_allclose(both[:, 0], truth)
    assert both.shape == (3, 2)


def test_candidates_are_a_latin_hypercube_and_each_is_distributed_as_the_policy():
    wide = {"low": [-9, -9], "high": [9, 9]}
    policy = GaussianPolicy(lambda obs, t: obs, [0.0, -1.0], draws=10, **wide)
    obs = np.tile([0.3, -0.2], (4000, 1))
    actions = policy.candidates(obs, 0, np.random.default_rng(3)).actions
    place = stats.norm([0.3, -0.2], np.exp([0.0, -1.0])).cdf(actions)
    slices = np.sort((place * 10).astype(int), axis=1)
    np.testing.assert_array_equal(slices, np.broadcast_to(np.arange(10)[:, None], slices.shape))
    # each candidate alone is uniform in the policy's own scale, and dimensions are independent:
    # 21 tests at 1e-6 each, a false alarm in 50,000 runs
    for k in range(10):
        for dimension in range(2):
            assert stats.kstest(place[:, k, dimension], "uniform").pvalue > 1e-6
    assert stats.pearsonr(place[:, 0, 0], place[:, 0, 1]).pvalue > 1e-6
    # the mean of a function that is a sum over dimensions hardly varies from offer to offer
    free = np.random.default_rng(4).standard_normal((4000, 10)).mean(axis=1).var()
    assert actions[..., 0].mean(axis=1).var() < 0.05 * free


def test_a_gaussian_policy_of_a_torch_module_and_of_functions():
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 2)
    obs = np.random.default_rng(0).standard_normal((4, 3))
    policy = GaussianPolicy(module, lambda obs, t: obs[:, :2], low=[-1, -1], high=[1, 1])
    expected = module(torch.tensor(obs, dtype=torch.float32)).detach().numpy()
    np.testing.assert_array_equal(policy.mean(obs, 0), expected)
    np.testing.assert_allclose(policy.std(obs, 0), np.exp(obs[:, :2]))
    with pytest.raises(InputError, match="expected a function"):
        GaussianPolicy([1.0], 0.0, low=[-1], high=[1])
    with pytest.raises(InputError, match="low <= high"):
        GaussianPolicy(module, 0.0, low=[1], high=[-1])
    with pytest.raises(InputError, match="log_std: got shape"):
        GaussianPolicy(module, [0.0] * 3, low=[-1, -1], high=[1, 1])
    with pytest.raises(InputError, match=r"mean has shape \(4, 2\)"):
        GaussianPolicy(module, 0.0, low=[-1], high=[1]).mean(obs, 0)
    broken = GaussianPolicy(lambda obs, t: obs * np.nan, 0.0, low=[-1] * 3, high=[1] * 3)
    with pytest.raises(InputError, match="NaN"):
        broken.sample(obs, 0, np.random.default_rng(0))


# -- bins ----------------------------------------------------------------------------------------


@given(
    mean=st.floats(-12, 12),
    log_std=st.floats(-5, 2),
    limit=st.sampled_from([1.0, 3.0, 0.4]),
    others=st.integers(0, 3),
)
@settings(max_examples=100, deadline=None)
def test_bins_are_the_normals_between_their_edges(mean, log_std, limit, others):
    k = 1 + others
    policy = GaussianPolicy(
        lambda obs, t: np.full((len(obs), k), mean), log_std, low=[-limit] * k, high=[limit] * k
    )
    binned = BinnedPolicy(policy)
    probs = binned.probs(np.zeros((2, 5 + others)), 3)
    edges = np.linspace(-limit, limit, BINS + 1)
    edges[0], edges[-1] = -np.inf, np.inf
    cdf = stats.norm(mean, np.exp(log_std)).cdf(edges)
    np.testing.assert_allclose(probs, np.tile(np.diff(cdf), (2, 1)), atol=1e-12)
    np.testing.assert_allclose(probs.sum(axis=1), 1.0)
    assert (probs >= 0).all()
    step = 2 * limit / BINS
    np.testing.assert_allclose(binned.embedding[:, 0], np.arange(BINS) * step - limit + step / 2)
    assert isinstance(binned, Policy)


@pytest.mark.parametrize("robot", ROBOTS)
def test_gymnasium_approves_of_binned_robots(robot):
    env = BinnedRobot(robot, linear(robot))
    one = Robots(robot)
    assert env.observation_space.shape == (one.width + len(one.low) - 1,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*not having a spec.*")
        check_env(env, skip_render_check=True)


def test_a_registered_binned_robot():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("scopeval/BinnedRobot-v0", policy="invertedpendulum-07").unwrapped)


@pytest.mark.parametrize("robot", ["Hopper", "InvertedPendulum"])
def test_a_binned_episode_is_its_seed(robot):
    policy = linear(robot)
    binned = BinnedPolicy(policy)
    env, fleet, plain = BinnedRobot(robot, policy), BinnedRobots(robot, policy, 4), Robots(robot)
    rng = np.random.default_rng(2)
    first, _ = env.reset(seed=11)
    np.testing.assert_array_equal(fleet.reset([5, 11], [0, 2])[1], first)
    others = len(plain.low) - 1
    obs, drawn = first, []
    for _ in range(20):
        bins = rng.integers(BINS, size=2)
        moves = fleet.step(bins, [0, 2])
        following, reward, terminated, truncated, info = env.step(bins[1])
        np.testing.assert_array_equal(moves.obs[1], following)
        assert (moves.reward[1], moves.cost[1]) == (reward, info["cost"])
        executed = binned.actions(obs[None], bins[1:])
        assert executed[0, 0] == binned.midpoints[bins[1]]
        np.testing.assert_array_equal(executed[0, 1:], obs[len(obs) - others :])
        assert info["cost"] == pytest.approx((executed**2).sum(), rel=1e-6)
        obs = following
        drawn.append(obs[len(obs) - others :])
        if terminated:
            break
        assert not truncated
    if others:
        assert np.unique(np.array(drawn)[:, 0]).size > 3
    start, _ = env.reset()
    assert not np.array_equal(start, first)
    again = [BinnedRobot(robot, policy).reset(seed=s)[0] for s in (11, 12)]
    np.testing.assert_array_equal(again[0], first)
    assert not np.array_equal(again[1], first)
    with pytest.raises(InputError, match=r"numbers in 0\.\.9"):
        fleet.step([10, 0], [0, 2])
    with pytest.raises(InputError, match="action dimensions"):
        BinnedRobots("Ant", policy)
    with pytest.raises(InputError, match="expected a GaussianPolicy"):
        BinnedPolicy(np.eye(3))


def test_redrawn_dimensions_are_the_targets():
    policy = linear("Walker2d", scale=0.3)
    binned = BinnedPolicy(policy)
    own = np.random.default_rng(0).standard_normal(17)
    logged = np.concatenate([np.tile(own, (20_000, 1)), np.full((20_000, 5), 0.99)], axis=1)
    fresh = binned.redraw(logged, 4, np.random.default_rng(3))
    np.testing.assert_array_equal(fresh[:, :17], logged[:, :17])
    mean, std = policy.mean(own[None], 4)[0, 1:], policy.std(own[None], 4)[0, 1:]
    for k in range(5):
        law, values = stats.norm(mean[k], std[k]), fresh[:, 17 + k]
        for limit in (-1.0, 1.0):
            mass = law.cdf(-1) if limit < 0 else law.sf(1)
            assert abs((values == limit).mean() - mass) < 5 * np.sqrt(0.25 / 20_000)
        inside = values[np.abs(values) < 1]
        cut = stats.truncnorm((-1 - mean[k]) / std[k], (1 - mean[k]) / std[k], mean[k], std[k])
        assert stats.kstest(inside, cut.cdf).pvalue > 1e-6
    np.testing.assert_array_equal(binned.redraw(logged, 4, np.random.default_rng(3)), fresh)
    single = BinnedPolicy(linear("InvertedPendulum"))
    np.testing.assert_array_equal(single.redraw(np.ones((3, 4)), 0, _rng()), np.ones((3, 4)))


def _rng():
    return np.random.default_rng(0)


# -- collection ----------------------------------------------------------------------------------


class Tilted:
    """Prefers large first dimensions, with a control variate."""

    def weigh(self, offered, obs, t, state):
        weight = offered.probs * np.exp(0.5 * offered.actions[..., 0])
        return Weighing(weight / weight.sum(axis=1, keepdims=True), offered.actions[..., 0])


def same(a, b):
    for f in fields(Episodes):
        if f.name == "provenance":  # who collected the episodes may differ
            continue
        x, y = getattr(a, f.name), getattr(b, f.name)
        np.testing.assert_array_equal(x, y, err_msg=f.name) if x is not None else None


@pytest.mark.parametrize("robot", ["InvertedPendulum", "Hopper"])
def test_a_fleet_gives_the_episodes_of_gymnasium(robot):
    trained = robot == "InvertedPendulum"
    policy = robot_policies(robot)[12] if trained else linear(robot)
    kw = {"horizon": 40, "episodes": 9, "seed": 3}
    slow = collect(Plant(lambda: robot_env(robot), side_by_side=1), policy, Tilted(), **kw)
    for n in (1, 2, 16):
        same(collect(Robots(robot, n), policy, Tilted(), **kw), slow)
    assert slow.control is not None
    binned = BinnedPolicy(policy)
    slow = collect(Plant(lambda: BinnedRobot(robot, policy), side_by_side=3), binned, **kw)
    same(collect(BinnedRobots(robot, policy, 5), binned, **kw), slow)


# -- shipped policies ----------------------------------------------------------------------------


@pytest.mark.parametrize("robot", SHIPPED)
def test_shipped_policies_load_and_return_what_is_recorded(robot):
    record = robot_record(robot)
    entries = {entry["name"]: entry for entry in record["policies"]}
    reported, validation = robot_policies(robot), robot_policies(robot, "validation")
    assert (len(reported), len(validation)) == (30, 6)
    assert [p.name for p in (*reported, *validation)] == list(entries)
    returns = [entries[p.name]["return"] for p in reported]
    assert returns == sorted(returns)
    assert np.diff(returns).max() < 0.25 * (returns[-1] - returns[0])
    fleet = Robots(robot, 40)
    for policy in (reported[0], reported[15], validation[-1]):
        runs = run_episodes(policy, fleet, episodes=40, seed=77)
        entry = entries[policy.name]
        for name, values in (("return", runs.returns), ("cost", runs.costs)):
            error = np.hypot(entry[f"{name}_error"], values.std(ddof=1) / np.sqrt(40))
            # about 1e-5 for one, were it normal; the seeds are fixed
            assert abs(values.mean() - entry[name]) <= 4.5 * error + 1e-9, (policy, name)


@pytest.mark.parametrize("robot", SHIPPED)
def test_a_shipped_policy_is_its_torch_module_and_row_by_row(robot):
    policy = robot_policies(robot, draws=3)[20]
    width = policy.weights["center"].size
    rng = np.random.default_rng(0)
    obs = policy.weights["center"] + policy.weights["scale"] * rng.standard_normal((50, width)) * 3
    mean = policy.mean(obs, 0)
    module = policy.torch_module()
    np.testing.assert_allclose(
        module(torch.tensor(obs)).detach().numpy(), mean, rtol=1e-4, atol=1e-5
    )
    names = {name for name, _ in module.named_parameters()}
    assert names == set(WEIGHTS) - {"center", "scale"}
    for rows in (slice(0, 1), slice(7, 9), slice(3, 40)):
        np.testing.assert_array_equal(policy.mean(obs[rows], 0), mean[rows])
    assert policy.candidates(obs, 0, rng).actions.shape[1] == 3
    assert robot_policy(policy.name).name == policy.name


def test_shipped_policies_refuse(tmp_path):
    with pytest.raises(InputError, match="expected one of reported, validation"):
        robot_policies("InvertedPendulum", "best")
    with pytest.raises(DataError, match="--robots InvertedPendulum"):
        robot_policies("InvertedPendulum", folder=tmp_path)
    with pytest.raises(InputError, match="try invertedpendulum-00"):
        robot_policy("invertedpendulum-99")
    (tmp_path / "InvertedPendulum.json").write_text((FOLDER / "InvertedPendulum.json").read_text())
    (tmp_path / "InvertedPendulum.npz").write_bytes(b"no weights")
    with pytest.raises(DataError, match="expected policies' weights"):
        robot_policies("InvertedPendulum", folder=tmp_path)
    assert repr(robot_policies("InvertedPendulum")[3]) == "RobotPolicy('invertedpendulum-03')"


# -- logs ----------------------------------------------------------------------------------------


def test_logs_round_trip_and_are_their_seed(tmp_path):
    some = robot_policies("InvertedPendulum", draws=1)[::7]
    for protocol in ("candidates", "bins"):
        kw = {"episodes": 40, "policies": some}
        log = robot_logs("InvertedPendulum", protocol, seed=5, **kw)
        assert (log.t == 0).sum() == 40
        path = write_robot_logs(tmp_path, "InvertedPendulum", protocol, seed=5, **kw)
        read = scopeval.read_logs(path, horizon=HORIZON)
        for name in ("t", "obs", "action", "reward", "cost", "next_obs", "terminated"):
            np.testing.assert_array_equal(getattr(read, name), getattr(log, name))
        other = robot_logs("InvertedPendulum", protocol, seed=6, **kw)
        assert len(other) != len(log) or not np.array_equal(other.obs, log.obs)
        if protocol == "bins":
            assert log.action.dtype == np.int64
            assert set(np.unique(log.action)) == set(range(BINS))
            np.testing.assert_allclose(log.cost, ((log.action + 0.5) * 0.6 - 3) ** 2, rtol=1e-6)
        else:
            np.testing.assert_allclose(log.cost, log.action[:, 0] ** 2, rtol=1e-6)
            assert np.abs(log.action).max() == 3.0
    with pytest.raises(InputError, match="protocol: got 'x'"):
        robot_logs("InvertedPendulum", "x")


def test_logs_hold_other_dimensions_in_bins():
    policies = [
        RobotPolicy(
            f"p{seed}",
            {
                "center": np.zeros(11),
                "scale": np.ones(11),
                "w1": np.zeros((11, 4)),
                "b1": np.zeros(4),
                "w2": np.zeros((4, 4)),
                "b2": np.zeros(4),
                "w3": np.zeros((4, 3)),
                "b3": np.array([0.0, 0.5 * seed, -0.5 * seed]),
                "log_std": np.full(3, -3.0),
            },
            low=np.full(3, -1.0),
            high=np.full(3, 1.0),
        )
        for seed in range(3)
    ]
    log = robot_logs("Hopper", "bins", episodes=7, policies=policies)
    assert log.obs.shape[1] == 13
    assert (log.t == 0).sum() == 7
    for part in (log.obs, log.next_obs):
        assert set(np.round(part[:, 11] * 2)) == {0, 1, 2}
        np.testing.assert_array_equal(np.sign(part[part[:, 11] > 0.3, 12]), -1)
    executed = np.concatenate([(log.action[:, None] + 0.5) * 0.2 - 1, log.obs[:, 11:]], axis=1)
    np.testing.assert_allclose(log.cost, (executed**2).sum(axis=1), rtol=1e-5)


# -- put into a state ----------------------------------------------------------------------------


@pytest.mark.parametrize("robot", ROBOTS)
def test_a_robot_put_where_another_is_goes_on_as_that_one(robot):
    """From the observation alone; velocities that observations clip are lost, so not those."""
    first, second = Robots(robot, 20), Robots(robot, 20)
    rng = np.random.default_rng(3)
    obs = first.reset(range(20))
    alike = 0
    for _ in range(12):
        actions = rng.uniform(first.low, first.high, (20, len(first.low)))
        second.put(obs)
        one, other = first.step(actions), second.step(actions)
        plain = (np.abs(obs) < 9.999).all(axis=1)
        alike += int(plain.sum())
        np.testing.assert_allclose(other.obs[plain], one.obs[plain], rtol=0, atol=1e-9)
        # the simulator's view of an ant's body lags a little behind its joints
        off = 0.3 if robot == "Ant" else 1e-9
        np.testing.assert_allclose(other.reward[plain], one.reward[plain], rtol=0, atol=off)
        np.testing.assert_array_equal(other.cost, one.cost)
        np.testing.assert_array_equal(other.terminated[plain], one.terminated[plain])
        obs = one.obs
    assert alike >= 50  # of 240; a walker with random actions is mostly too quick


def test_robots_are_put_by_number_and_observations_must_fit():
    robots = Robots("Hopper", 3)
    robots.reset(range(3))
    told = Robots("Hopper", 1)
    there = told.reset([9])
    robots.put(there, [1])
    action = np.zeros((1, 3))
    np.testing.assert_allclose(robots.step(action, [1]).obs, told.step(action).obs, atol=1e-12)
    with pytest.raises(InputError, match=r"obs: got shape \(1, 4\), expected \(1, 11\)"):
        robots.put(np.zeros((1, 4)), [1])


@pytest.mark.parametrize("binned", [False, True])
def test_a_robots_own_simulator_as_a_known_world(binned):
    """In both protocols the step of the world is the step of the robots."""
    policy = robot_policies("Hopper")[9]
    pi = BinnedPolicy(policy) if binned else policy
    robots = BinnedRobots("Hopper", pi, 300) if binned else Robots("Hopper", 300)
    world = robot_world("Hopper", pi if binned else None)
    rng = np.random.default_rng(0)
    obs = robots.reset(range(300))
    for t in range(3):
        actions = rng.integers(10, size=300) if binned else policy.sample(obs, t, rng)
        ahead, reward, cost, over = world.step(obs, actions, t)
        moves = robots.step(actions)
        own = pi.own(moves.obs) if binned else moves.obs
        np.testing.assert_allclose(ahead, own, rtol=0, atol=1e-9)
        np.testing.assert_allclose(reward, moves.reward, rtol=0, atol=1e-9)
        np.testing.assert_array_equal(cost, moves.cost)
        np.testing.assert_array_equal(over, moves.terminated)
        obs = moves.obs

"""ROS by automatic differentiation for many runs at once, against loops and closed forms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.stats import norm

from experiments.baselines.ros import RosSampler
from experiments.baselines.ros_autograd import FiniteFamily, GaussianFamily, RosMany, ros_fleet
from scopeval import TorchPolicy
from scopeval.errors import InputError

STATES, ACTIONS = 4, 3


class Table(torch.nn.Module):
    """A softmax table: logits are the parameters."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits, dtype=torch.float64))

    def forward(self, obs):
        return self.logits[obs]


class Net(torch.nn.Module):
    """A small network with a log_std of its own."""

    def __init__(self, inputs=3, outputs=2):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(inputs, 5), torch.nn.Tanh(), torch.nn.Linear(5, outputs)
        ).double()
        self.log_std = torch.nn.Parameter(torch.tensor([-0.5, 0.3], dtype=torch.float64)[:outputs])

    def forward(self, obs):
        return self.layers(obs.to(self.log_std.dtype))


@dataclass
class Moves:
    obs: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    terminated: np.ndarray


class Chains:
    """A fleet over a few states: action a leads to (s + a) modulo `STATES`; some steps end it."""

    def __init__(self, n):
        self.state = np.zeros(n, np.int64)
        self.rngs = [np.random.default_rng(0)] * n
        self.seen: list[tuple[int, int, int]] = []

    def __len__(self):
        return len(self.state)

    def reset(self, seeds, which):
        for row, seed in zip(which, seeds, strict=True):
            self.rngs[row] = np.random.default_rng(seed)
            self.state[row] = self.rngs[row].integers(STATES)
        return self.state[which]

    def step(self, actions, which):
        before = self.state[which].copy()
        self.seen += list(zip(which.tolist(), before.tolist(), actions.tolist(), strict=True))
        self.state[which] = (before + actions) % STATES
        over = np.array([self.rngs[row].random() < 0.2 for row in which])
        return Moves(self.state[which], 1.0 * before + actions, 0.5 + actions, over)


class Points:
    """A fleet of points that actions push around."""

    def __init__(self, n, width=3):
        self.at = np.zeros((n, width))

    def __len__(self):
        return len(self.at)

    def reset(self, seeds, which):
        self.at[which] = [np.random.default_rng(s).standard_normal(self.at.shape[1]) for s in seeds]
        return self.at[which]

    def step(self, actions, which):
        self.at[which] = 0.9 * self.at[which] + 0.1 * actions.sum(axis=1, keepdims=True)
        reward = -np.square(self.at[which]).sum(axis=1)
        cost = np.square(actions).sum(axis=1)
        return Moves(self.at[which], reward, cost, self.at[which][:, 0] > 1.2)


def logits():
    return np.random.default_rng(1).standard_normal((STATES, ACTIONS))


# -- gradients -----------------------------------------------------------------------------------


def test_batched_gradients_are_those_of_a_loop():
    module = Net()
    family = GaussianFamily(module, [-1, -1], [1, 1])
    many = RosMany(family, 4)
    rng = np.random.default_rng(2)
    obs, actions = rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    total = {name: torch.zeros_like(value) for name, value in module.named_parameters()}
    for k in range(3):
        many.observe(obs + k, torch.from_numpy(actions), np.arange(4))
    for k in range(3):  # of the run in row 2, one by one
        mean = module(torch.from_numpy(obs[2] + k)[None])[0]
        density = torch.distributions.Normal(mean, module.log_std.exp())
        loss = density.log_prob(torch.from_numpy(actions[2])).sum()
        slopes = torch.autograd.grad(loss, list(module.parameters()))
        for name, slope in zip(total, slopes, strict=True):
            total[name] += slope / 3
    assert set(many.mean) == set(total)
    assert "log_std" in total
    for name, value in total.items():
        torch.testing.assert_close(many.mean[name][2], value.double())
    assert (many.steps == 3).all()


def test_runs_have_means_of_their_own():
    family = GaussianFamily(Net(), [-1, -1], [1, 1])
    many = RosMany(family, 3)
    obs, actions = np.ones((2, 3)), torch.ones(2, 2, dtype=torch.float64)
    many.observe(obs, actions, np.array([0, 2]))
    assert many.steps.tolist() == [1, 0, 1]
    for value in many.mean.values():
        torch.testing.assert_close(value[0], value[2])
        assert not value[1].any()
        assert value[0].any()


def test_one_run_is_the_sampler_for_one_run():
    module = Table(logits())
    many, single = RosMany(FiniteFamily(module), 2, 10.0), RosSampler(TorchPolicy(module), 10.0)
    rng = np.random.default_rng(3)
    everywhere = np.arange(STATES)
    for _ in range(12):
        obs, action = rng.integers(STATES, size=1), rng.integers(ACTIONS, size=1)
        single.observe(obs, action, 0)
        many.observe(obs, torch.from_numpy(action), np.array([1]))
        theta = {name: value[0] for name, value in many.moved(np.array([1])).items()}
        ours = [many.family.log_probs(theta, torch.tensor(s)).exp().numpy() for s in everywhere]
        np.testing.assert_allclose(ours, single.probs(everywhere, 0), rtol=1e-10)


# -- the closed form -----------------------------------------------------------------------------


def test_it_is_the_tabular_closed_form_step_by_step():
    module, alpha = Table(logits()), 7.0
    family = FiniteFamily(module)
    pi = torch.softmax(module.logits.detach(), dim=1).numpy()
    fleet = Chains(3)
    many = RosMany(family, 3, alpha)
    ran = ros_fleet(fleet, family, horizon=6, runs=3, episodes=4, alpha=alpha, seed=5)
    count = np.zeros((3, STATES, ACTIONS))
    for row, state, action in fleet.seen:  # what was done, in order; every step asked before
        N = count[row].sum()
        n = count[row].sum(axis=1, keepdims=True)
        shift = alpha * (count[row] - n * pi) / N if N else 0.0 * pi
        expected = np.log(pi) - shift
        theta = {name: value[0] for name, value in many.moved(np.array([row])).items()}
        ours = family.log_probs(theta, torch.tensor(state)).numpy()
        want = expected[state] - np.logaddexp.reduce(expected[state])
        np.testing.assert_allclose(ours, want, atol=1e-10)
        many.observe(np.array([state]), torch.tensor([action]), np.array([row]))
        count[row, state, action] += 1
    assert count.sum() == len(fleet.seen)
    assert ran.returns.shape == ran.costs.shape == (3, 4)
    np.testing.assert_allclose(
        ran.returns.sum(), sum(state + action for _, state, action in fleet.seen)
    )


def test_it_keeps_the_visits_close_to_the_target():
    family = FiniteFamily(Table(np.zeros((STATES, ACTIONS))))
    spreads = []
    for alpha in (0.0, 200.0):
        fleet = Chains(8)
        ros_fleet(fleet, family, horizon=6, runs=8, episodes=40, alpha=alpha, seed=1)
        count = np.zeros((8, STATES, ACTIONS))
        for step in fleet.seen:
            count[step] += 1
        spreads.append(count.std(axis=2).mean())
    assert spreads[1] < 0.4 * spreads[0]


# -- runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["finite", "gaussian"])
def test_without_a_step_it_is_on_policy(kind):
    if kind == "finite":
        module = Table(logits())
        family, fleet = FiniteFamily(module), Chains(5)
    else:
        module = Net()
        family, fleet = GaussianFamily(module, [-1, -1], [1, 1]), Points(5)
    ran = ros_fleet(fleet, family, horizon=7, runs=5, episodes=3, alpha=0.0, seed=4)
    for run in range(5):  # the same random numbers by hand
        for episode in range(3):
            plant, choices = np.random.SeedSequence(4, spawn_key=(run, episode)).spawn(2)
            noise = family.noise(np.random.default_rng(choices), 7)
            alone = type(fleet)(1)
            one = np.zeros(1, np.int64)
            obs = alone.reset([int(plant.generate_state(1)[0]) >> 1], one)
            earned = spent = 0.0
            for t in range(7):
                with torch.no_grad():
                    out = module(torch.from_numpy(np.array(obs)))[0]
                if kind == "finite":
                    upto = np.cumsum(torch.softmax(out, 0).numpy())
                    action = np.array([(noise[t] >= upto[:-1]).sum()])
                else:
                    free = out.numpy() + np.exp(module.log_std.detach().numpy()) * noise[t]
                    action = np.clip(free, -1, 1)[None]
                moved = alone.step(action, one)
                obs, earned, spent = moved.obs, earned + moved.reward[0], spent + moved.cost[0]
                if moved.terminated[0]:
                    break
            assert math.isclose(ran.returns[run, episode], earned, rel_tol=1e-9)
            assert math.isclose(ran.costs[run, episode], spent, rel_tol=1e-9)


def test_a_run_does_not_depend_on_the_others_and_the_module_stays_as_it_is():
    module = Net()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    family = GaussianFamily(module, [-1, -1], [1, 1])
    few, more = (
        ros_fleet(Points(n), family, horizon=7, runs=n, episodes=3, seed=4) for n in (2, 5)
    )
    np.testing.assert_allclose(few.returns, more.returns[:2], rtol=1e-9)
    assert all((before[name] == value).all() for name, value in module.state_dict().items())


def test_mistakes_are_told():
    family = GaussianFamily(Net(), [-1, -1], [1, 1])
    with pytest.raises(InputError, match=r"fleet: got 2 environments, expected one for each of 3"):
        ros_fleet(Points(2), family, horizon=5, runs=3, episodes=1)
    with pytest.raises(InputError, match=r"alpha: got -1, expected a finite number >= 0"):
        RosMany(family, 2, -1)
    with pytest.raises(InputError, match=r"log_std: got None for a module without"):
        GaussianFamily(torch.nn.Linear(3, 2), [-1, -1], [1, 1])


@pytest.mark.parametrize("kind", ["finite", "gaussian"])
def test_steps_after_an_overflow_are_the_targets(kind):
    """All but the first step of a run, which nothing has moved yet."""
    if kind == "finite":
        family, fleets = FiniteFamily(Net(1, 2).float()), [Points(2, 1), Points(2, 1)]
        for fleet in fleets:
            fleet.step = lambda actions, which, step=fleet.step: step(actions[:, None], which)
    else:
        family = GaussianFamily(Net().float(), [-1, -1], [1, 1])
        fleets = [Points(2), Points(2)]
    lost, plain = (
        ros_fleet(fleet, family, horizon=9, runs=2, episodes=2, alpha=alpha)
        for fleet, alpha in zip(fleets, (1e300, 0.0), strict=True)
    )
    np.testing.assert_array_equal(lost.returns, plain.returns)
    assert plain.fallbacks == 0
    assert lost.fallbacks > 20


# -- the robots ----------------------------------------------------------------------------------


def test_bins_are_a_function_of_the_networks_parameters():
    from experiments.robots.bins import BinnedPolicy
    from experiments.robots.policies import robot_policies
    from experiments.robots.ros import family_of
    from scopeval.policies.protocols import Redraws

    policy = robot_policies("Hopper")[4]
    binned = BinnedPolicy(policy)
    assert isinstance(binned, Redraws)  # designs redraw the other dimensions
    assert binned.drawn == 2
    family = family_of(binned)
    assert family.alpha == 10.0
    assert family_of(policy).alpha == 0.1
    obs = np.random.default_rng(0).standard_normal((20, 11 + 2))
    obs[-1] *= 50
    ours = torch.func.vmap(family.log_probs, in_dims=(None, 0))(
        family.parameters, torch.from_numpy(obs)
    )
    np.testing.assert_allclose(ours.exp().numpy(), binned.probs(obs, 0), rtol=1e-4, atol=1e-9)
    many = RosMany(family, 20)
    many.observe(obs, torch.full((20,), 3), np.arange(20))
    assert all(torch.isfinite(value).all() for value in many.mean.values())
    # the slope of the mean's last bias, against differences of scipy's normal distribution
    mean, std = policy.mean(obs[:, :11], 0)[0, 0], policy.std(obs[:1, :11], 0)[0, 0]
    edges = np.linspace(policy.low[0], policy.high[0], 11)[3:5]

    def log(shift):
        return np.log(np.diff(norm.cdf((edges - mean - shift) / std))[0])

    slope = (log(1e-5) - log(-1e-5)) / 2e-5
    np.testing.assert_allclose(many.mean["b3"][0, 0], slope, rtol=1e-3)

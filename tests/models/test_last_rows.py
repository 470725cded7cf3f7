"""Rows whose successor nobody recorded: what they say, and what must not be made of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from scopeval import Networks, Question, Table, Transitions, design, read_logs
from scopeval.models.dynamics import Encoder
from scopeval.models.protocols import logged_sweep_data
from scopeval.models.rows import Rows, those_that_lead_on
from scopeval.models.training import Training, learn_network

S, A, T = 3, 2, 3


def every_episode(seed, *, timed):
    """All episodes of a small MDP, each as likely as any other: a log without chance.

    Every pair leads to two states with probability 1/2 each, and the actions are uniform.
    Rewards depend on the time if `timed`.
    """
    rng = np.random.default_rng(seed)
    leads = np.array([[rng.permutation(S)[:2] for _ in range(A)] for _ in range(S)])  # [S, A, 2]
    reward = rng.normal(size=(T if timed else 1, S, A))
    cost = rng.random((S, A))
    rows = []
    choices = itertools.product(*[range(A), range(2)] * T)
    for number, (start, choice) in enumerate(itertools.product(range(S), choices)):
        s = start
        for t in range(T):
            a, branch = choice[2 * t : 2 * t + 2]
            rows.append((number, t, s, a, reward[t % len(reward), s, a], cost[s, a]))
            s = leads[s, a, branch]
    names = ("episode", "t", "obs", "action", "reward", "cost")
    table = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    return table, leads, np.broadcast_to(reward, (T, S, A)), cost


def values(leads, outcome, pi):
    """v of all steps by dynamic programming, [T + 1, S]."""
    v = np.zeros((T + 1, S))
    for t in reversed(range(T)):
        q = outcome[t] + v[t + 1][leads].mean(axis=2)
        v[t] = (pi * q).sum(axis=1)
    return v


@pytest.mark.parametrize("timed", [False, True])
def test_values_from_logs_without_next_obs_are_exact(timed):
    """As many steps as rows: where the last row of an episode led is not needed."""
    table, leads, reward, cost = every_episode(1, timed=timed)
    log = read_logs(table, horizon=T)
    assert (~log.has_next).sum() == len(log) / T
    pi = np.random.default_rng(2).dirichlet(np.ones(A), S)
    behavior = design(log, pi, horizon=T, method="scope-dr", learn=Table(time_varying=timed))
    truth = values(leads, reward, pi)
    np.testing.assert_allclose(behavior.start_values(np.arange(S)), truth[0], atol=1e-12)
    costs = np.array([behavior.cost_to_go(np.arange(S), t) for t in range(T)])
    following = values(leads, np.broadcast_to(cost, (T, S, A)), pi)[1:]
    exact = cost + following[:, leads].mean(axis=3)
    np.testing.assert_allclose(costs, exact, atol=1e-12)


def test_values_of_logs_with_next_obs_are_the_same():
    table, *_ = every_episode(3, timed=False)
    cut = read_logs(table, horizon=T)
    pi = np.full((S, A), 1.0 / A)
    some = {"horizon": T, "method": "scope-dr", "learn": Table()}
    values = design(cut, pi, **some).start_values(np.arange(S))
    whole = Transitions(cut.t, cut.obs, cut.action, cut.reward, cut.cost, cut.next_obs)
    # taken for successors, the stand-ins of the last rows give other values
    assert np.abs(design(whole, pi, **some).start_values(np.arange(S)) - values).max() > 0.01


def log_of(has_next):
    n = len(has_next)
    reward = np.array([1.0, 2.0, 6.0, 5.0, 7.0])
    return Transitions(
        np.zeros(n, int), np.array([0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 1]), reward, reward,
        np.array([1, 0, 0, 0, 1]), has_next=has_next,
    )  # fmt: skip


def test_means_of_rewards_take_every_row():
    """(0, 0): rewards 1, 2, 6 and successors 1, 0; (1, 1): one of two leads on."""
    rows = those_that_lead_on(Rows.of(log_of([True, True, False, True, False])))
    np.testing.assert_allclose(rows.reward, [2.5, 3.5, 6.0])
    np.testing.assert_allclose(rows.cost, rows.reward)
    assert rows.has_next.all()


def test_the_last_step_takes_every_row():
    rows = Rows.of(log_of([True, True, False, True, False]))
    starts = rows.select(rows.t == 0)
    asked = Question(np.ones((2, 2)) / 2, 1)
    data = logged_sweep_data(rows, starts, Table(), asked, actions=2, steps=1)
    assert data.rows[0].weight.sum() == 3
    assert data.last.weight.sum() == 5
    whole = logged_sweep_data(
        rows.select(rows.has_next), starts, Table(), asked, actions=2, steps=1
    )
    assert whole.last is None


def test_networks_learn_where_rows_lead_from_those_that_show_it():
    """Half of the rows show no successor: it is no step of length zero."""
    rng = np.random.default_rng(0)
    n = 2000
    obs = rng.normal(size=(n, 2))
    action = rng.normal(size=(n, 1))
    following = obs + 0.5 + 0.1 * action
    shown = rng.random(n) < 0.5
    reward = np.where(shown, 1.0, 3.0) + obs[:, 0]
    log = Transitions(
        np.zeros(n, int), obs, action, reward, np.ones(n),
        np.where(shown[:, None], following, obs), has_next=shown,
    )  # fmt: skip
    rows = Rows.of(log)
    encoder = Encoder(np.empty((0, 1)), np.ones(2, bool))
    network = learn_network(rows, rows, encoder, Training(hidden=16, steps=600), 0)
    ahead = network.predict(obs, action[:, None], 0)
    error = np.abs(ahead.next_obs[:, 0] - following)[np.abs(obs).max(axis=1) < 1.5]
    assert error.mean() < 0.05  # a mean with steps of zero would be off by 0.25
    assert abs(ahead.reward.mean() - reward.mean()) < 0.1  # of all rows, not of half of them


def test_a_design_for_vectors_from_logs_without_next_obs():
    rng = np.random.default_rng(1)
    episode = np.repeat(np.arange(60), 4)
    table = {
        "episode": episode, "obs": rng.normal(size=(240, 2)), "action": rng.integers(2, size=240),
        "reward": rng.normal(size=240), "cost": np.ones(240),
    }  # fmt: skip
    log = read_logs(table, horizon=4)
    assert len(log) == 240
    learn = Networks(training=Training(hidden=8, steps=40), paths=20, first_look=False)
    policy = lambda obs, t: np.full((len(obs), 2), 0.5)  # noqa: E731
    behavior = design(log, policy, horizon=4, learn=learn)
    assert np.isfinite(behavior.predicted.variance)

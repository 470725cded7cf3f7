"""One observation at a time is the same policy as a batch of them."""

from __future__ import annotations

import os
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from behaviors import RECIPE, REPORT, anything
from behaviors import vector_target as three_ways
from logged_worlds import rows_of
from random_mdps import random_case
from scopeval import (
    BehaviorPolicy,
    Check,
    GaussianPolicy,
    Networks,
    Promise,
    TabularPolicy,
    Transitions,
    design,
)
from scopeval.behavior.methods import METHODS, method_named
from scopeval.behavior.step import weigh_rows
from scopeval.models.model_critic import ModelCritic, Study
from scopeval.models.protocols import Estimates
from scopeval.models.table import TableCritic
from scopeval.models.training import Training
from scopeval.policies.protocols import Candidates, Counts, Why, offer


def vector_target(obs, t):
    return three_ways(obs[:, :2], t)


class Fixed:
    """A generator that gives one number."""

    def __init__(self, u):
        self.u = u

    def random(self):
        return self.u


def expected(policy, batch, pi, t):
    """Mu, b and counts as `weigh_rows` makes them of what the critic says."""
    counts = Counts()
    if not 0 <= t < len(policy.critics):
        counts.asked = counts.unseen = len(pi)
        return pi, np.zeros_like(pi), counts
    e = policy.critics[t].at(batch)
    mu, b, why = weigh_rows(policy.recipe, pi, e)
    counts.add_rows(why)
    return mu, b, counts


def same(policy, obs, t, rtol):
    """`act` and `weigh` at one observation, for every action, and what they count."""
    batch = np.asarray(obs)[None]
    offered = offer(policy.target, batch, t, np.random.default_rng(0))
    (mu,), (b,), told = expected(policy, batch, offered.probs, t)
    pi = offered.probs[0]
    policy.counts = Counts()
    weighing = policy.weigh(offered, batch, t)
    assert policy.counts.asked == 0  # to ask is no decision
    policy.counts.add_rows(weighing.why)
    assert policy.counts == told
    np.testing.assert_allclose(weighing.probs[0], mu, rtol=rtol, atol=1e-15)
    if weighing.control is not None:
        np.testing.assert_allclose(weighing.control[0], b, rtol=rtol, atol=rtol)
    upto = np.cumsum(mu)
    for k in np.flatnonzero(mu > 1e-12):
        policy.counts = Counts()
        drawn = policy.act(obs, t, Fixed(min(upto[k] - 0.5 * mu[k], 1 - 2**-53)))
        assert drawn.action == k
        assert drawn.probability == pytest.approx(mu[k], rel=rtol, abs=0)
        assert drawn.probability == weighing.probs[0, k]
        assert drawn.target_probability == pi[k]
        assert drawn.control == pytest.approx(b[k], rel=rtol, abs=1e-300 + rtol)
        assert drawn.baseline == pytest.approx(pi @ b, rel=max(rtol, 1e-12), abs=1e-12 + rtol)
        assert policy.counts == told


@given(anything())
@settings(max_examples=400, deadline=None)
def test_a_table_for_any_numbers(case):
    """Not finite, unknown, infeasible, tiny and huge: the same probabilities, the same doubts."""
    e, pi, recipe = case
    critic = TableCritic(**{field.name: getattr(e, field.name) for field in fields(Estimates)})
    policy = BehaviorPolicy(TabularPolicy(pi), [critic], recipe, REPORT)
    for state in range(2):
        with np.errstate(all="ignore"):
            same(policy, state, 0, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"constraint": "target"},
        {"promise": Promise(limit=1.0, per="state")},
        {"check": Check(floor=0.0)},
    ],
)
def test_a_learned_table(method, change):
    case = random_case(3, states=6, actions=4, horizon=3, time_varying=False, noisy=True)
    log = rows_of(case, 200, seed=0)  # too few to see every pair
    method = replace(method_named(method), constraint=change.get("constraint", "behavior"))
    policy = design(
        log,
        TabularPolicy(case.target),
        horizon=3,
        method=method,
        promise=change.get("promise", Promise(at_most=1.1)),
        check=change.get("check"),
    )
    for t in range(3):
        for state in range(6):
            same(policy, state, t, rtol=1e-13)


# -- a model of the world ----------------------------------------------------------------------


def model_of(target, action, *, varying=False):
    """A design by a model, from rows of which some end an episode."""
    rng = np.random.default_rng(0)
    n = 600
    x = rng.normal(size=(n, 3))
    push = action.reshape(n, -1).sum(axis=1)
    ended = x[:, 2] > 1.2
    log = Transitions(
        np.arange(n)[::-1] % 3,
        x,
        action,
        np.abs(x[:, 0]) * push + rng.normal(size=n),
        x[:, 1] ** 2 + push**2,
        0.9 * x + 0.1 * push[:, None],
        ended,
    )
    how = Networks(
        training=Training(hidden=16, steps=60, batch=128),
        paths=40,
        study=Study(paths=40, hidden=16, steps=60, batch=128),
    )
    return design(
        log, target, horizon=3, method="scope-dr", learn=replace(how, time_varying=varying)
    )


def finite_model(varying=False):
    action = np.random.default_rng(1).integers(3, size=600)
    return model_of(vector_target, action, varying=varying)


def continuous_model():
    target = GaussianPolicy(
        lambda obs, t: 0.3 * obs[:, :2], [-1.0, -1.0], low=[-1, -1], high=[1, 1]
    )
    return model_of(target, np.random.default_rng(1).uniform(-1, 1, (600, 2)))


def test_where_a_model_knows_nothing():
    """Far outside of the logs, and where an observation is no number: the target policy."""
    policy = finite_model(varying=True)
    for critic in policy.critics:
        assert type(critic) is ModelCritic
    for obs in (np.array([[9.0, 0.0, 0.0]]), np.full((1, 3), np.nan)):
        for t in range(3):
            assert not policy.critics[t].at(obs).known.any()
            offered = offer(policy.target, np.zeros((1, 3)), t, np.random.default_rng(0))
            weighing = policy.weigh(offered, obs, t)
            np.testing.assert_array_equal(weighing.probs, offered.probs)
            assert weighing.why[0] & (Why.UNSEEN | Why.NOT_FINITE)


def test_acting_by_a_model():
    policy = finite_model()
    policy = BehaviorPolicy(
        policy.target,
        policy.critics,
        replace(policy.recipe, method=METHODS["scope"], floor=0.02),
        REPORT,
    )
    for obs in np.random.default_rng(4).normal(size=(10, 3)):
        for t in range(3):
            same(policy, obs, t, rtol=1e-3)
    policy = continuous_model()
    drawn = policy.act(np.zeros(3), 0, np.random.default_rng(0))
    assert drawn.action.shape == (2,)
    assert drawn.target_probability == pytest.approx(0.1)
    assert policy.counts.asked == 1


@pytest.mark.parametrize(
    "make",
    [finite_model, lambda: finite_model(varying=True), continuous_model],
    ids=["finite", "depending on time", "continuous"],
)
def test_many_rows_are_the_rows_one_by_one(make, monkeypatch):
    """Whatever the number of threads, bit for bit."""
    policy = make()
    rng = np.random.default_rng(5)
    obs = rng.normal(size=(100, 3))
    offered = offer(policy.target, obs, 1, rng)
    wanted = [
        policy.weigh(Candidates(offered.actions[[i]], offered.probs[[i]]), obs[[i]], 1)
        for i in range(100)
    ]
    for threads in (1, 2, 3):
        monkeypatch.setattr(os, "cpu_count", lambda threads=threads: threads)
        found = policy.weigh(offered, obs, 1)
        assert found.probs.tobytes() == np.concatenate([w.probs for w in wanted]).tobytes()


def test_float32_observations_and_lists():
    network = finite_model()
    rng = np.random.default_rng(2)
    obs = rng.normal(size=3).astype(np.float32)
    drawn = [network.act(x, 1, Fixed(0.4)) for x in (obs, obs.astype(float), list(obs))]
    assert drawn[0].action == drawn[1].action == drawn[2].action
    np.testing.assert_allclose([d.probability for d in drawn], drawn[0].probability, rtol=1e-5)


def test_other_critics():
    network = finite_model()

    class Other:
        """Someone's own critic."""

        def __init__(self, inner):
            self.inner = inner

        def at(self, obs, actions=None):
            return self.inner.at(obs, actions)

    others = [Other(critic) for critic in network.critics]
    policy = BehaviorPolicy(network.target, others, network.recipe, REPORT)
    obs = np.array([0.3, -0.2, 0.1])
    same(policy, obs, 0, rtol=0)
    same(policy, obs, 7, rtol=0)  # beyond the horizon


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_draws_consume_one_number(seed):
    """The same generator gives the same actions as before there was a quick way."""
    rng = np.random.default_rng(seed)
    pi = np.full(4, 0.25)
    e = np.ones((1, 4))
    critic = TableCritic(e, e, e[..., None], e[..., None], e, e, e > 0)
    policy = BehaviorPolicy(TabularPolicy(pi[None]), [critic], RECIPE, REPORT)
    drawn = policy.act(0, 0, rng)
    assert drawn.action == int(np.random.default_rng(seed).random() * 4)
    assert rng.random() == np.random.default_rng(seed).random(2)[1]

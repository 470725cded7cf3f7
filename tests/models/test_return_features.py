"""Return features: networks that learn from whole episodes; the share of q that b takes over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopeval import Question, Transitions, solve
from scopeval.behavior.candidates import compare
from scopeval.behavior.evidence import evidence_of
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe, weigh_rows
from scopeval.behavior.sweep import Kind
from scopeval.models.model_critic import (
    ReturnNetworks,
    ReturnSamples,
    Study,
    learn_returns,
)
from scopeval.models.protocols import Estimates

QUICK = Study(hidden=32, steps=1200, batch=256)
HORIZON = 10
NOTHING = ReturnSamples(np.empty((0, 2)), np.empty(0, np.int64), np.empty((0, 2)))


def lessons(n, seed=0):
    """An edge at x = y that moves nothing but what is still earned; the cost falls with time."""
    rng = np.random.default_rng(seed)
    where, when = rng.standard_normal((n, 2)), rng.integers(HORIZON, size=n)
    earned = np.where(where[:, 0] > where[:, 1], 5.0, -5.0) + rng.standard_normal(n)
    return ReturnSamples(where, when, np.stack([earned, 3.0 * (HORIZON - when)], axis=1))


def test_an_edge_is_learned_through_noise():
    seen = learn_returns(lessons(20_000), HORIZON, QUICK, 0)
    where, when, _ = lessons(2000, seed=1)
    for t in (0, 5, 9):
        said = seen.at(where[when == t], t)
        earned = np.where(where[when == t, 0] > where[when == t, 1], 5.0, -5.0)
        assert np.corrcoef(said[:, 0], earned)[0, 1] > 0.95  # a plane comes to 0.80
    # what depends on time alone is left to the critics, which have a constant for every step
    cost = np.concatenate([seen.at(where, t)[:, 1] for t in range(HORIZON)])
    assert np.abs(cost).max() < 0.1


def test_a_trend_in_time_does_not_hide_small_differences():
    """The edge moves a hundredth of what time does, and is found all the same."""
    where, when, returns = lessons(20_000)
    trend = 1000.0 * (HORIZON - when)
    hidden = ReturnSamples(where, when, returns + trend[:, None])
    seen = learn_returns(hidden, HORIZON, QUICK, 0)
    points, _, _ = lessons(2000, seed=1)
    for t in (0, 5, 9):
        above = points[:, 0] > points[:, 1]
        assert np.corrcoef(seen.at(points, t)[:, 0], above)[0, 1] > 0.95


def test_one_seed_one_network_and_files_bring_it_back():
    some = lessons(2000)
    few = replace(QUICK, steps=50)
    one, same, other = (learn_returns(some, HORIZON, few, seed) for seed in (3, 3, 4))
    points = some[0][:100]
    np.testing.assert_array_equal(one.at(points, 2), same.at(points, 2))
    assert np.abs(one.at(points, 2) - other.at(points, 2)).max() > 1e-3
    both = ReturnNetworks.join([one, other])
    mean = (one.at(points, 2) + other.at(points, 2)) / 2
    np.testing.assert_allclose(both.at(points, 2), mean, rtol=1e-6, atol=1e-6)
    arrays = both.arrays() | {"another": np.zeros(1)}
    back = ReturnNetworks.restored(arrays)
    assert set(arrays) == {"another"}
    np.testing.assert_array_equal(back.at(points, 7), both.at(points, 7))


def test_points_of_any_shape():
    seen = learn_returns(lessons(500), HORIZON, replace(QUICK, steps=20), 0)
    points = np.random.default_rng(5).standard_normal((4, 3, 2))
    said = seen.at(points, 2)
    assert said.shape == (4, 3, 2)
    np.testing.assert_array_equal(said.reshape(12, 2), seen.at(points.reshape(12, 2), 2))
    assert np.abs(seen.at(points, 3) - said).max() > 1e-3  # time matters


def test_without_samples_or_with_training_that_diverges_the_features_are_zero():
    nothing = learn_returns(NOTHING, 5, QUICK, 0)
    np.testing.assert_array_equal(nothing.at(np.ones((3, 2)), 1), 0.0)
    wild = replace(QUICK, steps=20, rate=1e30)
    np.testing.assert_array_equal(
        learn_returns(lessons(500), 5, wild, 0).at(np.ones((3, 2)), 1), 0.0
    )


def test_torch_has_its_threads_back_afterwards():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        few = replace(QUICK, steps=20)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda k: learn_returns(lessons(300 * k), 5, few, k), range(1, 9)))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


# -- the share that a control variate takes over -------------------------------------------------


def recipe(method: str, share: float) -> Recipe:
    return Recipe(METHODS[method], 1, floor=0.0, share=share)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.0, 1.0), st.integers(2, 6))
def test_b_is_the_mean_and_a_share_of_the_differences(seed, share, actions):
    rng = np.random.default_rng(seed)
    pi = rng.dirichlet(np.ones(actions), 5)
    q, noise, carried, cost = rng.standard_normal((4, 5, actions)) * 3
    noise, carried, cost = noise**2, carried**2, np.abs(cost)
    e = Estimates(
        q, cost, np.stack([cost, cost], -1), np.stack([carried, carried], -1), noise,
        np.zeros_like(q), np.ones(q.shape, np.bool_),
    )  # fmt: skip
    for name in ("scope-dr", "dopt"):
        mu, b, _ = weigh_rows(recipe(name, share), pi, e)
        v = (pi * q).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(b, v + share * (q - v), atol=1e-9)
        second = (q - b) ** 2 + noise + carried
        budget = (pi * cost).sum(axis=1)
        weight = pi * np.sqrt(second)
        expected = weight / weight.sum(axis=1, keepdims=True)
        if name == "scope-dr":
            expected = solve(weight, cost, budget).mu
        np.testing.assert_allclose(mu, expected, atol=1e-6)
    _, whole, _ = weigh_rows(recipe("dopt", 1.0), pi, e)
    np.testing.assert_array_equal(whole, q)
    _, none, _ = weigh_rows(recipe("scope", share), pi, e)
    np.testing.assert_array_equal(none, 0.0)


def test_shares_checked_together_are_as_checked_alone():
    """One sweep follows every share and floor; each must come out as if it were alone."""
    rng = np.random.default_rng(0)
    n, states = 4000, 6
    s, a = rng.integers(states, size=n), rng.integers(3, size=n)
    log = Transitions(
        np.arange(n)[::-1] % 4, s, a, rng.standard_normal(n) + s * a, 1.0 + a, (s + a) % states
    )
    pi = rng.dirichlet(np.ones(3), states)
    evidence, asked = evidence_of(log, Question(pi, 4)), Recipe(METHODS["scope-dr"], 4)
    floors = (0.02, 0.5, 1.0)
    kinds = [Kind(replace(asked, share=share), floors) for share in (0.3, 1.0)]
    together = compare(evidence, kinds)
    for k, kind in enumerate(kinds):
        alone = compare(evidence, [kind])
        some = slice(3 * k, 3 * k + 3)
        np.testing.assert_allclose(together.checked[some], alone.checked, rtol=1e-10)
        np.testing.assert_allclose(together.expected[some], alone.expected, rtol=1e-10)
        np.testing.assert_allclose(together.cost[:, some], alone.cost, rtol=1e-10)
    assert not np.allclose(together.checked[:3], together.checked[3:], rtol=1e-3)


def test_what_is_followed_can_be_looked_at_alone():
    q = np.zeros((2, 3))
    many = np.arange(24.0).reshape(2, 3, 4)
    e = Estimates(q, q, many, many + 100, q, q, q == 0)
    one = e.following(2)
    np.testing.assert_array_equal(one.carried, many[..., [0, 2]] + 100)
    np.testing.assert_array_equal(one.cost_behavior, many[..., [0, 2]])
    assert one.following(1) is one
    with pytest.raises(IndexError):
        e.following(9)

"""A known MDP as a model for Algorithm 1, against the sum over all trajectories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from random_mdps import cases, estimates, every_path, mean_and_variance, total_cost
from scopeval import exact
from scopeval.behavior.methods import METHODS
from scopeval.errors import InputError


@settings(max_examples=60, deadline=None)
@given(cases(), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_any_behavior_by_every_trajectory(case, controlled, skips, seed):
    """Mean, variance and cost of the estimate, also where the behavior leaves actions out.

    Discount, termination, rewards that are random, depend on time and on the next state: `cases`.
    """
    mu, b = case.behavior, case.control if controlled else None
    if skips:
        mu = mu * (np.random.default_rng(seed).random(mu.shape) < 0.7)
        mu[..., 0] += mu.sum(axis=-1) == 0.0
        mu = mu / mu.sum(axis=-1, keepdims=True)
    paths = every_path(case, mu)
    mean, variance = mean_and_variance(paths.chance, estimates(case, paths, mu, b))
    own = every_path(case, case.target)
    value = float(own.chance @ (own.rewards @ case.gamma ** np.arange(case.horizon)))
    assessed = exact.assess(case.mdp, case.target, mu, b)
    scale = 1.0 + abs(mean) + np.sqrt(variance)
    assert assessed.value == pytest.approx(value, abs=1e-9 * scale)
    assert assessed.expectation == pytest.approx(mean, abs=1e-9 * scale)
    assert assessed.variance == pytest.approx(variance, rel=1e-9, abs=1e-9 * scale**2)
    assert assessed.cost == pytest.approx(float(paths.chance @ total_cost(case, paths)), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(cases(next_state=True), st.sampled_from(["scope", "scope-dr", "odi", "dopt"]))
def test_designs_by_every_trajectory(case, method):
    """A design's estimate is unbiased; with a budget it costs no more than the target policy."""
    made = exact.design(case.mdp, case.target, method)
    mu = made.table(case.horizon)
    paths = every_path(case, mu)
    mean, variance = mean_and_variance(paths.chance, estimates(case, paths, mu, made.control))
    own = every_path(case, case.target)
    value, plain = mean_and_variance(
        own.chance, own.rewards @ case.gamma ** np.arange(case.horizon)
    )
    scale = 1.0 + abs(value) + np.sqrt(plain)
    assert mean == pytest.approx(value, abs=1e-8 * scale)
    if METHODS[method].constrained:
        allowed = float(own.chance @ total_cost(case, own))
        assert float(paths.chance @ total_cost(case, paths)) <= allowed + 1e-9
        assert variance <= plain * (1 + 1e-9) + 1e-9 * scale**2


def test_numbers_that_would_overflow():
    mdp = exact.TabularMDP([1.0], np.ones((1, 2, 1)), [[0.0, 1e160]], [[0.0, 1.0]], 2)
    with pytest.raises(InputError, match=r"^mdp: values, costs or variances of 1e\+160, expected"):
        exact.values(mdp, [[0.5, 0.5]])

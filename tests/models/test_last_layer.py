"""Reward, cost and ends fitted to the last layer: as by another solver, and by a sample."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from scopeval.models import layers as fitting
from scopeval.models.layers import fit_ends, fit_means, fresh_layers

HIDDEN, INPUTS = 6, 3


def problem(n, seed):
    """Rows whose probability of an end is logistic in the last layer, about 3 % on average."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n, HIDDEN)).astype(np.float32)
    x = rng.normal(size=(n, INPUTS)).astype(np.float32)
    logit = hidden @ rng.normal(size=HIDDEN) * 1.5 + x @ rng.normal(size=INPUTS) - 6.0
    end = rng.random(n) < 1.0 / (1.0 + np.exp(-logit))
    return hidden, x, end


def layers(seed):
    weights = fresh_layers(INPUTS, HIDDEN, 4, np.random.default_rng(seed))
    weights["w3"] *= np.float32(0.1)
    return weights


def coefficients(weights):
    return np.concatenate([weights["b3"][-1:], weights["w3"][:, -1], weights["skip"][:, -1]])


def test_ends_are_the_solution_of_the_penalized_regression():
    """SciPy minimizes the same loss; both to single precision."""
    hidden, x, end = problem(3000, 0)
    weights, start = layers(1), coefficients(layers(1)).astype(np.float64)
    fit_ends(weights, hidden, x, end, np.random.default_rng(0))
    inputs = np.column_stack([np.ones(len(x)), hidden, x]).astype(np.float64)
    size = np.append(1.0, inputs[:, 1:].std(axis=0))

    def loss(at):
        logit = inputs @ at
        away = ((at - start) * size)[1:]
        return np.mean(np.logaddexp(0.0, logit) - end * logit) + 0.5 * 3e-4 * away @ away

    found = minimize(loss, start, method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(coefficients(weights), found.x, rtol=2e-3, atol=2e-3)


def test_a_sample_of_a_long_log_says_the_same(monkeypatch):
    """30,000 rows, of which some 4,000 are drawn twice.

    The coefficients of the sample have standard errors of about .05; all of them are within .3,
    and the cross-entropy of other rows is at most 2 % larger.
    """
    hidden, x, end = problem(30_000, 0)
    every, some = layers(1), layers(1)
    fit_ends(every, hidden, x, end, np.random.default_rng(0))
    monkeypatch.setattr(fitting, "ALL_ROWS", 10_000)
    monkeypatch.setattr(fitting, "END_ROWS", 4_000)
    asked = []
    fit = fitting._fitted_to
    monkeypatch.setattr(
        fitting, "_fitted_to", lambda *given: asked.append(len(given[1])) or fit(*given)
    )
    fit_ends(some, hidden, x, end, np.random.default_rng(0))
    assert len(asked) == 2
    assert max(asked) < 4_400
    np.testing.assert_allclose(coefficients(some), coefficients(every), atol=0.3)

    hidden, x, end = (part[20_000:] for part in problem(50_000, 0))
    one, other = (
        np.mean(np.logaddexp(0.0, logit) - end * logit)
        for logit in (
            hidden @ w["w3"][:, -1] + x @ w["skip"][:, -1] + w["b3"][-1] for w in (every, some)
        )
    )
    assert other < 1.02 * one


@pytest.mark.parametrize("block", [700, 10**6])
def test_means_are_least_squares(monkeypatch, block):
    """All rows together, or in parts."""
    monkeypatch.setattr(fitting, "ALL_ROWS", block)
    monkeypatch.setattr(fitting, "MEAN_BLOCK", block)
    hidden, x, _ = problem(2000, 3)
    rng = np.random.default_rng(4)
    y = (hidden[:, :2] + x[:, :1] + rng.normal(size=(2000, 2))).astype(np.float32)
    weights = layers(5)
    kept = coefficients(weights)
    fit_means(weights, hidden, x, y)
    inputs = np.column_stack([np.ones(2000), hidden, x]).astype(np.float64)
    ridge = np.sqrt(1e-3 * 2000) * np.eye(inputs.shape[1])
    both = np.vstack([inputs, ridge]), np.vstack([y, np.zeros((inputs.shape[1], 2))])
    found = np.linalg.lstsq(*both, rcond=None)[0]
    told = np.vstack([weights["b3"][1:3], weights["w3"][:, 1:3], weights["skip"][:, 1:3]])
    np.testing.assert_allclose(told, found, atol=1e-5)
    np.testing.assert_array_equal(coefficients(weights), kept)


@pytest.mark.parametrize(("horizon", "paths"), [(1, 4000), (100, 4000), (200, 2560)])
def test_no_more_episodes_are_simulated_than_training_uses(horizon, paths):
    from scopeval.models.model_critic import Study

    assert Study().paths_of(horizon) == paths

"""The compiled networks say what the formulas say, whatever the batch and the threads."""

from __future__ import annotations

import os

import numpy as np
import pytest

from experiments.mlp import _kernel as kernel
from experiments.mlp.critic import MLPCritic, unpack
from scopeval.errors import InputError


def critic(d: int, hidden: int, A: int, k: int, seed: int = 0) -> MLPCritic:
    """Weights at random, with two networks switched off."""
    rng = np.random.default_rng(seed)
    H = 3 + 2 * k

    def some(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    net = some(2, H, d * hidden + hidden + A * hidden + A + A * d)
    unpack(net, d, hidden, A)[2][[0, 1], [1, 2]] = 0.0
    pairs = np.ones((1, A), np.bool_)
    pairs[0, -1] = False
    return MLPCritic(
        net=net,
        intercept=some(H, A),
        slope=some(H, A, d),
        shape=np.array([d, hidden, A]),
        centre=rng.normal(size=H),
        spread=rng.uniform(0.5, 2.0, H),
        mean=some(d),
        scale=rng.uniform(0.5, 2.0, d).astype(np.float32),
        low=np.full(d, -1.5),
        high=np.full(d, 1.5),
        pairs=pairs,
        followed=np.int64(k),
    )


@pytest.mark.parametrize(
    ("d", "hidden", "A", "k", "B"), [(11, 64, 10, 2, 300), (5, 7, 3, 1, 128), (1, 2, 2, 3, 1)]
)
def test_answers_are_the_networks(d, hidden, A, k, B):
    c = critic(d, hidden, A, k)
    obs = np.random.default_rng(1).normal(size=(B, d))
    w1, b1, w2, b2, w3 = (part.astype(np.float64) for part in unpack(c.net, d, hidden, A))
    x = (obs - c.mean) / c.scale
    folds = np.maximum(x @ w1 + b1[:, :, None], 0.0) @ np.swapaxes(w2, 2, 3)  # [2, H, B, A]
    out = folds.mean(axis=0) + x @ np.swapaxes(c.slope, 1, 2) + c.intercept[:, None]
    out = out * c.spread[:, None, None] + c.centre[:, None, None]
    own = folds[:, 0] + x @ np.swapaxes(w3[:, 0], 1, 2) + b2[:, 0, None]
    noise = np.maximum(out[-1], 0.05 * c.spread[-1])
    error = np.minimum(((own[0] - own[1]) * 0.5 * c.spread[0]) ** 2, noise)
    e = c.at(obs)
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(e.q, out[0], **close)
    np.testing.assert_allclose(e.cost_target, np.maximum(out[1], 0.0), **close)
    for j in range(k):
        beyond = np.maximum(out[1] + out[2 + j], 0.0)
        np.testing.assert_allclose(e.cost_behavior[..., j], beyond, **close)
        np.testing.assert_allclose(e.carried[..., j], np.maximum(out[2 + k + j], 0.0), **close)
    np.testing.assert_allclose(e.noise, noise + error, **close)
    np.testing.assert_allclose(e.error, error, **close)
    inside = (np.abs(obs) <= 1.5).all(axis=1)
    assert (e.known == inside[:, None] & c.pairs[0]).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_answers_do_not_depend_on_batch_or_threads(monkeypatch, threads):
    c, obs = critic(4, 9, 3, 2), np.random.default_rng(2).normal(size=(1000, 4))
    expected = c.at(obs)
    monkeypatch.setattr(os, "cpu_count", lambda: threads)
    again, part = c.at(obs), c.at(obs[317:640])
    for name in expected.__dataclass_fields__:
        assert (getattr(again, name) == getattr(expected, name)).all(), name
        assert (getattr(part, name) == getattr(expected, name)[317:640]).all(), name


def test_numbers_that_are_none_stay():
    c, obs = critic(3, 5, 2, 1), np.zeros((2, 3))
    obs[1, 1] = np.nan
    e = c.at(obs)
    assert np.isfinite(e.q[0]).all()
    assert np.isnan(e.q[1]).all()
    assert not e.known[1].any()


def test_vectors_of_another_width_are_refused():
    with pytest.raises(InputError, match="obs: got vectors of shape"):
        critic(3, 5, 2, 1).at(np.zeros((2, 4)))


@pytest.mark.parametrize("even", [True, False])
def test_rows_are_drawn_by_their_weight(even):
    rng = np.random.default_rng(3)
    upto = np.cumsum(np.ones(1000) if even else rng.exponential(size=1000) ** 4)
    for u in np.concatenate([rng.uniform(0.0, upto[-1], 1000), upto[:-1], [0.0]]):
        assert kernel._drawn(upto, u, even) == np.searchsorted(upto, u, side="right")
    assert kernel._drawn(upto, upto[-1], even) == 999  # by rounding only

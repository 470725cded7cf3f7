"""The model's networks on a device are trained like those of the compiled loop.

The device is torch's CPU here: the same code as on CUDA, which no test can count on.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scopeval.behavior.designer import design
from scopeval.critics import devices
from scopeval.critics.model.fitting import Examples, Schedule, fit_layers
from scopeval.critics.model.layers import fresh_layers
from scopeval.critics.model.regression import ModelRegression
from scopeval.critics.model.return_features import Study
from scopeval.critics.model.training import Training
from scopeval.data.transitions import Transitions
from scopeval.errors import InputError


@pytest.fixture
def device(monkeypatch):
    """ "cuda" is torch's CPU."""
    monkeypatch.setattr(devices, "find_device", lambda name: torch.device("cpu"))
    return "cuda"


def examples_of(seed: int, robust: bool, ends: bool) -> Examples:
    rng = np.random.default_rng(seed)
    n, inputs, outputs = 300, 3, 2
    x = rng.normal(size=(n, inputs))
    y = np.column_stack([np.abs(x[:, 0]) + x[:, 1], np.sin(x[:, 2])])
    counts = (rng.random((n, outputs)) < 0.9) if robust else np.empty((0, 0))
    end = (x[:, 0] > 1) if ends and robust else np.empty(0)
    return Examples(*(part.astype(np.float32) for part in (x, y, counts, end)))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@given(seed=st.integers(0, 1000), robust=st.booleans(), ends=st.booleans())
@settings(max_examples=6, deadline=None)
def test_the_same_layers(dropout, seed, robust, ends):
    given_rows = examples_of(seed, robust, ends)
    outputs = 2 + robust
    fresh = fresh_layers(3, 8, outputs, np.random.default_rng(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "find_device", lambda name: torch.device("cpu"))
        here, there = (
            fit_layers(
                fresh,
                given_rows,
                Schedule(120, 16, 1e-2, dropout, where),
                np.random.default_rng(5),
                held_out=given_rows,
            )
            for where in ("cpu", "cuda")
        )
    moved = max(np.abs(here[name] - fresh[name]).max() for name in fresh)
    assert moved > 0.05  # so that a step that is left out is noticed
    for name in here:
        assert np.abs(here[name] - there[name]).max() < 0.01 * moved, name


def leaning(obs: np.ndarray, t: int) -> np.ndarray:
    lean = 1.0 / (1.0 + np.exp(-obs[:, 0]))
    return np.column_stack([lean, 1.0 - lean]) * 0.8 + 0.1


def test_a_design_is_nearly_the_same(device):
    rng = np.random.default_rng(1)
    n = 1500
    x, a = rng.normal(size=(n, 2)), rng.integers(2, size=n)
    reward = np.abs(x[:, 0]) * (1 + 3 * a) + rng.normal(size=n) * (0.1 + a)
    following = 0.8 * x + 0.3 * rng.normal(size=(n, 2))
    log = Transitions(rng.integers(3, size=n), x, a, reward, 1.0 + x[:, 1] ** 2, following)
    how = ModelRegression(
        training=Training(hidden=8, steps=150),
        paths=60,
        study=Study(paths=60, hidden=8, steps=60),
        first_look=False,
    )
    here, there = (
        design(log, leaning, horizon=3, epsilon=1.0, regression=how, device=name)
        for name in (None, device)
    )
    a, b = here.predicted, there.predicted
    assert a.variance < 0.95
    assert a.variance == pytest.approx(b.variance, rel=0.02)
    assert a.cost == pytest.approx(b.cost, rel=0.02)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
@pytest.mark.parametrize("settings_of", [Training, Study])
def test_no_cuda(settings_of):
    with pytest.raises(InputError, match=r"device: got 'cuda', but .* no CUDA .*try device='cpu'"):
        settings_of(device="cuda")

"""Networks trained on a device are those of the compiled loop, to the rounding of float32.

The device is torch's CPU here: the same code as on CUDA, which no test can count on.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import scopeval
from scopeval.behavior.designer import design
from scopeval.critics import devices
from scopeval.critics.mlp import _kernel as kernel
from scopeval.critics.mlp import critic as mlp_critic
from scopeval.critics.mlp import torch_networks
from scopeval.critics.mlp.regression import MLPRegression
from scopeval.critics.model import device_training
from scopeval.critics.protocols import Rows, Targets
from scopeval.data.transitions import Transitions
from scopeval.errors import InputError
from scopeval.paper.benchmarks import gpu

SMALL = {"hidden": 8, "batch": 32, "first_steps": 90, "steps": 50}
#: In units of a head's spread. Rounding grows with the steps, and may decide when to stop.
CLOSE = 1e-4


@pytest.fixture
def device(monkeypatch):
    """ "cuda" is torch's CPU, and answers are always worth the way there."""
    monkeypatch.setattr(torch_networks, "find_device", lambda name: torch.device("cpu"))
    monkeypatch.setattr(mlp_critic, "DEVICE_ROWS", 1)
    return "cuda"


def rows_and_targets(n: int, seed: int = 0) -> tuple[Rows, Targets]:
    rng = np.random.default_rng(seed)
    x, a = rng.normal(size=(n, 3)), rng.integers(4, size=n)
    bent = np.abs(x[:, 0]) * (1 + a) + np.sin(2 * x[:, 1]) + 0.1 * rng.normal(size=n)
    rows = Rows(
        t=np.zeros(n, np.int64),
        obs=x,
        action=a,
        reward=bent,
        reward_noise=np.zeros(n),
        cost=x[:, 2] ** 2,
        next_obs=x,
        alive=np.ones(n),
        weight=rng.uniform(0.5, 2.0, n),
        borrowed=np.zeros(n, np.bool_),
    )
    noise = rng.normal(size=n)  # nothing to learn: this network is switched off
    carried = np.column_stack([x[:, 0] ** 2, noise])
    behind = np.column_stack([x[:, 2] ** 2 + x[:, 1], np.abs(x[:, 2])])
    return rows, Targets(bent, x[:, 2] ** 2, behind, carried, np.zeros(n))


@pytest.mark.parametrize("n", [400, 401])
@pytest.mark.parametrize("patience", [1, 3])
def test_the_same_networks(device, n, patience):
    rows, targets = rows_and_targets(n)
    here, there = (
        MLPRegression(**SMALL, patience=patience, device=name).learner(rows, 4, seed=7)
        for name in ("cpu", device)
    )
    for _ in range(3):  # each step starts from the one before
        a, b = here.fit(targets), there.fit(targets)
        on = [c.net[..., 4 * 8 : 4 * 8 + 4 * 8].any(axis=2) for c in (a, b)]
        assert (on[0] == on[1]).all()
        assert 0 < on[0].mean() < 1, "expected networks of both kinds"
        assert np.abs(a.net - b.net).max() < CLOSE
        p, q = a.at(rows.obs), b.at(rows.obs)
        for name in ("q", "cost_target", "cost_behavior", "carried", "noise", "error"):
            one, other = getattr(p, name), getattr(q, name)
            assert np.abs(one - other).max() < CLOSE * one.std(), name
        assert (p.known == q.known).all()
    assert a.arrays().keys() == b.arrays().keys()
    assert "device" not in a.arrays()


def test_the_same_rows_are_drawn():
    state, expected = np.uint64(3_000_000_000), []
    with np.errstate(over="ignore"):
        for _ in range(50):
            z, state = kernel.next_random.py_func(state)
            expected.append(float(z >> np.uint64(11)) / 2**53)
    drawn = devices.uniform(torch.tensor([1, 3_000_000_000]), 10, 40)
    assert drawn[1].tolist() == expected[10:]


def test_the_same_constants():
    assert torch_networks.WORTH == kernel.WORTH


def test_few_observations_stay_here(device, monkeypatch):
    monkeypatch.setattr(mlp_critic, "DEVICE_ROWS", 100)
    rows, targets = rows_and_targets(100)
    critic = MLPRegression(**SMALL, device=device).learner(rows, 4, seed=0).fit(targets)
    monkeypatch.setattr(torch_networks, "answers", lambda *_: pytest.fail("asked the device"))
    critic.at(rows.obs[:99])
    with pytest.raises(pytest.fail.Exception):
        critic.at(rows.obs)


def test_state_numbers_stay_here(device):
    n = 100
    rng = np.random.default_rng(0)
    rows, targets = rows_and_targets(n)
    s = rng.integers(5, size=n)
    rows = Rows(**{**rows.__dict__, "obs": s, "next_obs": s})
    a, b = (
        MLPRegression(states=5, **SMALL, device=name).learner(rows, 4, seed=0).fit(targets)
        for name in ("cpu", device)
    )
    assert (a.net == b.net).all()
    assert (a.at(s).q == b.at(s).q).all()


def leaning(obs: np.ndarray, t: int) -> np.ndarray:
    lean = 1.0 / (1.0 + np.exp(-obs[:, 0]))
    return np.column_stack([lean, 1.0 - lean]) * 0.8 + 0.1


def log_of_vectors(n: int = 1500) -> Transitions:
    rng = np.random.default_rng(1)
    x, a = rng.normal(size=(n, 2)), rng.integers(2, size=n)
    reward = np.abs(x[:, 0]) * (1 + 3 * a) + rng.normal(size=n) * (0.1 + a)
    following = 0.8 * x + 0.3 * rng.normal(size=(n, 2))
    return Transitions(rng.integers(3, size=n), x, a, reward, 1.0 + x[:, 1] ** 2, following)


def test_the_same_design(device):
    log = log_of_vectors()
    how = MLPRegression(**SMALL)
    here, there = (
        design(log, leaning, horizon=3, epsilon=1.0, regression=how, device=name)
        for name in (None, device)
    )
    a, b = here.report.prediction, there.report.prediction
    assert a.variance < 0.95
    for name in ("variance", "cost", "checked_variance", "checked_cost"):
        assert getattr(a, name) == pytest.approx(getattr(b, name), rel=1e-4), name
    assert [c.device for c in there.critics] == ["cuda"] * 3


def test_a_saved_design_forgets_the_device(device, tmp_path):
    log = log_of_vectors(300)
    tiny = MLPRegression(hidden=2, batch=8, first_steps=20, steps=20, device=device)
    policy = design(log, leaning, horizon=3, regression=tiny)
    policy.save(tmp_path / "policy.npz")
    back = scopeval.load(tmp_path / "policy.npz", target=leaning)
    assert [c.device for c in back.critics] == ["cpu"] * 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_no_cuda():
    with pytest.raises(InputError, match=r"device: got 'cuda', but .* no CUDA .*try device='cpu'"):
        MLPRegression(device="cuda")
    with pytest.raises(InputError, match="finds no CUDA devices; try device='cpu'"):
        design(log_of_vectors(50), leaning, horizon=3, regression="mlp", device="cuda")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "mps", "", 0])
def test_no_such_device(name):
    with pytest.raises(InputError, match="expected 'cpu', 'cuda' or 'cuda:' and a number"):
        MLPRegression(device=name)


def test_tables_have_no_device():
    log = Transitions([0, 1], [0, 1], [0, 1], [1.0, 0.0], [0.0, 1.0], [1, 0])
    with pytest.raises(InputError, match=r"device: got 'cuda', .* 'table' .*try regression="):
        design(log, np.full((2, 2), 0.5), horizon=2, device="cuda")


def test_torch_and_numpy_are_enough():
    """A machine with a GPU may have nothing else."""
    ours = set()
    for module in (torch_networks, device_training, devices):
        tree = ast.parse(Path(module.__file__).read_text())
        modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        ours |= {name for name in modules if name.startswith("scopeval")}
    assert ours == {"scopeval.errors", "scopeval.critics.devices"}


def test_the_benchmark_without_a_gpu(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu, "training", list)
    result = gpu.main(["--out", f"{tmp_path / 'gpu.json'}"])
    assert json.loads((tmp_path / "gpu.json").read_text()) == result
    told = capsys.readouterr().out
    assert "finds no CUDA device" in told
    assert "a sweep of T=100" in told

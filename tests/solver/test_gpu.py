"""The solver in torch gives the compiled solver's answers; on a GPU too, where there is one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scopeval.errors import InputError
from scopeval.solver import Status, solve
from scopeval.solver.gpu import solve_tensors

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def problems(seed: int, actions: int, rows: int = 64):
    """Weights over many orders of magnitude, zeros, equal costs, budgets from none to plenty."""
    rng = np.random.default_rng(seed)
    w = np.exp(rng.normal(size=(rows, actions)) * rng.choice([0.3, 2.0, 9.0], (rows, 1)))
    w *= rng.random((rows, actions)) < rng.choice([0.5, 1.0], (rows, 1))
    q = rng.normal(size=(rows, actions)) * 10.0 ** rng.integers(-3, 4, (rows, 1))
    q[: rows // 4] = np.round(q[: rows // 4])
    spread = q.mean(axis=1) - q.min(axis=1)
    return w, q, q.min(axis=1) + rng.uniform(-0.05, 1.5, rows) * spread


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), actions=st.integers(1, 30))
@example(seed=337, actions=27)  # the root is at y = 1e-21: steps cancel, and land beyond it
@example(seed=81, actions=22)
def test_the_same_answers(device, seed, actions):
    w, q, budget = problems(seed, actions)
    ours = solve(w, q, budget)
    there = solve(w, q, budget, device=device)
    np.testing.assert_array_equal(there.status, ours.status)
    solved = ours.status == Status.SOLVED
    # the constraint holds to rounding, as for the compiled solver
    scale = np.maximum(np.abs(q).max(axis=1), np.abs(budget))
    assert (((there.mu * q).sum(axis=1) - budget)[solved] <= 1e-12 * scale[solved]).all()
    np.testing.assert_allclose(there.mu[solved].sum(axis=1), 1.0, rtol=1e-12)
    # and so does the objective: the probabilities may be ill-determined, what they achieve is not
    good = solved & (w > 0).all(axis=1)
    each = [(w[good] ** 2 / s.mu[good]).sum(axis=1) for s in (ours, there)]
    np.testing.assert_allclose(each[1], each[0], rtol=1e-7)
    np.testing.assert_allclose(there.mu[solved], ours.mu[solved], atol=1e-6)
    np.testing.assert_array_equal(there.binding[solved], ours.binding[solved])


def test_rows_without_an_answer_and_bad_numbers():
    w, q = np.ones((3, 2)), np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    w[1] = 0.0
    budget = np.array([0.5, 1.5, 1.2])
    pi = np.full((3, 2), 0.5)
    found = solve(w, q, budget, fallback=pi, device="cpu")
    assert found.status.tolist() == [Status.INFEASIBLE, Status.INDIFFERENT, Status.SOLVED]
    np.testing.assert_array_equal(found.mu[:2], pi[:2])
    w[2, 1] = np.nan
    with pytest.raises(InputError, match="weight: got nan at row 2, action 1"):
        solve(w, q, budget, device="cpu")
    with pytest.raises(InputError, match="device: got 'abacus'"):
        solve(pi, q, budget, device="abacus")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_said():
    with pytest.raises(InputError, match="finds no CUDA devices; try device='cpu'"):
        solve(np.ones((1, 2)), np.ones((1, 2)), 1.0, device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(("seed", "actions", "rows"), [(0, 10, 5000), (337, 27, 60), (81, 22, 60)])
def test_fused_and_whole_agree(seed, actions, rows):
    tensors = [torch.tensor(x, device="cuda") for x in problems(seed, actions, rows)]
    one, two = (solve_tensors(*tensors, fused=f) for f in (True, False))
    assert torch.equal(one[2], two[2])
    torch.testing.assert_close(one[0], two[0], atol=1e-9, rtol=0, equal_nan=True)

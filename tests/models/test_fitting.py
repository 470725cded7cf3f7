"""Compiled training against torch: the same losses, gradients and steps of Adam."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scopeval._parallel import fan_out
from scopeval.models.layers import (
    PIECE,
    Examples,
    Schedule,
    fit_layers,
    forward,
    fresh_layers,
    hidden_layers,
)
from scopeval.models.training import MOST_STEPS, Training

NONE = np.empty((0, 0), np.float32)
NEVER = np.empty(0, np.float32)


def examples(seed: int, *, ends: bool, squared: bool = False, rows: int = 300) -> Examples:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 4)).astype(np.float32)
    y = np.column_stack([np.tanh(x[:, 0] * x[:, 1]), x[:, 2] ** 2, x[:, 3]]).astype(np.float32)
    if squared:
        return Examples(x, y, NONE, NEVER)
    counts = np.ones_like(y)
    counts[::7, :2] = 0.0
    return Examples(x, y, counts, (x[:, 0] > 1.0).astype(np.float32) if ends else NEVER)


def by_torch(layers, given: Examples, how: Schedule, batches) -> dict[str, np.ndarray]:
    """The same training by autograd and torch's own Adam, in double precision."""
    p = {name: torch.tensor(value, dtype=torch.float64) for name, value in layers.items()}
    p = {name: value.requires_grad_() for name, value in p.items()}
    x, y, counts, end = (torch.tensor(part, dtype=torch.float64) for part in given)
    adam = torch.optim.Adam(p.values(), lr=how.rate)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, how.steps)
    usual = torch.ones(y.shape[1], dtype=torch.float64)

    def swish(z):
        return 0.5 * z * (1.0 + z / (1.0 + z.abs()))

    for pick in batches:
        hidden = swish(swish(x[pick] @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"])
        out = hidden @ p["w3"] + x[pick] @ p["skip"] + p["b3"]
        if len(counts):
            wrong = counts[pick] * (out[:, :-1] - y[pick])
            usual = 0.99 * usual + 0.01 * wrong.detach().abs().mean(dim=0)
            loss = 0.1 * (torch.sqrt(1.0 + (wrong / (usual + 1e-4)) ** 2) - 1.0).mean()
            if len(end):
                logits = torch.nn.functional.binary_cross_entropy_with_logits
                loss = loss + 0.1 * logits(out[:, -1], end[pick])
        else:
            loss = ((out - y[pick]) ** 2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        falling.step()
    return {name: value.detach().numpy() for name, value in p.items()}


def drawn(rows: int, how: Schedule, seed: int) -> list[np.ndarray]:
    """The batches that `fit_layers` draws: whole permutations, one after the other."""
    rng, left, found = np.random.default_rng(seed), np.empty(0, np.int64), []
    for start in range(0, how.steps, PIECE):
        need = min(PIECE, how.steps - start) * how.batch
        while len(left) < need:
            left = np.concatenate([left, rng.permutation(rows)])
        found += list(left[:need].reshape(-1, how.batch))
        left = left[need:]
        rng.integers(2**62)  # the seed of the dropout
    return found


@pytest.mark.parametrize(
    ("ends", "squared"), [(True, False), (False, False), (False, True)], ids=str
)
def test_training_is_what_torch_computes(ends, squared):
    """60 steps, more than one compiled call; float32 against double precision."""
    given_, how = examples(1, ends=ends, squared=squared), Schedule(60, 32, 1e-3)
    outputs = given_.y.shape[1] + (0 if squared else 1)
    layers = fresh_layers(4, 24, outputs, np.random.default_rng(2))
    found = fit_layers(layers, given_, how, np.random.default_rng(3))
    expected = by_torch(layers, given_, how, drawn(300, how, 3))
    for name, value in expected.items():
        if ends or squared or name not in ("w3", "skip", "b3"):
            np.testing.assert_allclose(found[name], value, atol=2e-4, err_msg=name)
        else:  # the last output is not learned
            np.testing.assert_allclose(found[name][..., :-1], value[..., :-1], atol=2e-4)
    moved = np.abs(found["w2"] - layers["w2"]).max()
    assert moved > 20 * 2e-4  # the comparison can fail


def test_the_logit_of_an_end_moves_only_where_it_is_learned():
    layers = fresh_layers(4, 8, 4, np.random.default_rng(2))
    for ends in (True, False):
        given_ = examples(1, ends=ends)
        found = fit_layers(layers, given_, Schedule(20, 32, 1e-2), np.random.default_rng(3))
        assert (found["b3"][-1] != 0.0) == ends


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 70), st.integers(1, 40), st.integers(1, 5), st.integers(0, 99))
def test_a_forward_pass_is_the_formula(rows, hidden, outputs, seed):
    rng = np.random.default_rng(seed)
    p = fresh_layers(3, hidden, outputs, rng)
    p["skip"] = rng.standard_normal((3, outputs)).astype(np.float32)
    x = rng.standard_normal((rows, 3)).astype(np.float32)

    def swish(z):
        return 0.5 * z * (1.0 + z / (1.0 + np.abs(z)))

    last = swish(swish(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"])
    np.testing.assert_allclose(hidden_layers(p, x), last, atol=1e-5)
    expected = last @ p["w3"] + x @ p["skip"] + p["b3"]
    np.testing.assert_allclose(forward(p, x), expected, atol=1e-4)


def test_many_rows_have_the_same_bits_for_any_number_of_threads(monkeypatch):
    rng = np.random.default_rng(0)
    p, x = fresh_layers(6, 32, 3, rng), rng.standard_normal((9001, 6)).astype(np.float32)
    found = []
    for cores in (1, 3):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        found.append(forward(p, x))
    np.testing.assert_array_equal(found[0], found[1])


def test_a_row_that_is_not_finite_does_not_touch_the_others():
    rng = np.random.default_rng(0)
    p, x = fresh_layers(2, 16, 2, rng), rng.standard_normal((40, 2)).astype(np.float32)
    good = forward(p, x)
    x[7, 1] = np.nan
    found = forward(p, x)
    assert np.isnan(found[7]).all()
    np.testing.assert_array_equal(np.delete(found, 7, 0), np.delete(good, 7, 0))


def test_training_has_the_same_bits_in_several_threads():
    given_, how = examples(1, ends=True), Schedule(70, 64, 1e-2, dropout=0.1)
    layers = fresh_layers(4, 16, 4, np.random.default_rng(2))

    def learn(seed: int) -> np.ndarray:
        return fit_layers(layers, given_, how, np.random.default_rng(seed))["w2"]

    alone = [learn(seed) for seed in range(4)]
    together = fan_out(learn, range(4), threads=4)
    np.testing.assert_array_equal(alone, together)
    assert not np.array_equal(alone[0], alone[1])


def test_short_logs_take_fewer_steps_and_long_ones_no_more_than_a_bound():
    steps = [Training().schedule(rows).steps for rows in (10, 1_000, 10_000, 10**7)]
    assert steps == sorted(steps)
    assert steps[0] == 189
    assert steps[-1] == MOST_STEPS
    assert Training(steps=3).schedule(10**7).steps == 3


def test_progress_counts_every_step():
    counted: list[int] = []
    layers = fresh_layers(4, 8, 4, np.random.default_rng(2))
    how = Schedule(130, 16, 1e-2)
    fit_layers(layers, examples(1, ends=True), how, np.random.default_rng(3), counted.append)
    assert sum(counted) == 130
    assert max(counted) <= PIECE

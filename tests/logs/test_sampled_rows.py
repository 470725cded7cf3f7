"""Random samples of logs on disk."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from scopeval import Transitions, sample_logs, stream_logs, write_logs
from scopeval.errors import DataError, InputError

SIZES = (50, 7, 130, 13)


@pytest.fixture
def folder(tmp_path):
    """200 rows of vectors in four files; the reward is the number of the row."""
    rows = sum(SIZES)
    obs = np.random.default_rng(0).standard_normal((rows + 1, 3))
    log = Transitions(
        t=np.arange(rows) % 10,
        obs=obs[:-1],
        action=np.arange(rows) % 4,
        reward=np.arange(rows, dtype=float),
        cost=np.ones(rows),
        next_obs=obs[1:],
    )
    edges = np.cumsum((0, *SIZES))
    for k in range(len(SIZES)):
        write_logs(log.select(slice(edges[k], edges[k + 1])), tmp_path / f"{k}.parquet")
    return tmp_path


def test_a_sample_holds_rows_of_the_log_once_and_in_order(folder):
    stream = stream_logs(folder, batch_rows=16)
    found = sample_logs(stream, 60, seed=3)
    assert len(found) == 60
    assert (np.diff(found.reward) > 0).all()
    whole = Transitions.concat(list(stream))
    picked = whole.select(found.reward.astype(int))
    for name in ("t", "obs", "action", "cost", "next_obs", "terminated"):
        np.testing.assert_array_equal(getattr(found, name), getattr(picked, name))
    assert "a random sample of 60 of 200 rows" in found.notes
    again = sample_logs(stream_logs(folder, batch_rows=16), 60, seed=3)
    assert again.reward.tobytes() == found.reward.tobytes()
    assert sample_logs(stream, 60, seed=4).reward.tobytes() != found.reward.tobytes()


def test_a_sample_of_all_rows_is_the_log(folder):
    found = sample_logs(stream_logs(folder), 10_000)
    np.testing.assert_array_equal(found.reward, np.arange(200.0))
    assert not any("random sample" in note for note in found.notes)


def test_every_row_is_equally_likely(folder):
    """The statistic is chi-square by the central limit theorem; wrong with probability 1e-6."""
    stream, times = stream_logs(folder, batch_rows=32), 400
    counts = np.zeros(200)
    for seed in range(times):
        counts[sample_logs(stream, 20, seed).reward.astype(int)] += 1
    expected = times * 20 / 200
    # rows of a sample exclude each other: the counts vary less than independent ones
    statistic = ((counts - expected) ** 2).sum() / (expected * (1 - 20 / 200)) * 199 / 200
    assert chi2.ppf(5e-7, 199) < statistic < chi2.ppf(1 - 5e-7, 199)


def test_workers_draw_the_same_sample(folder):
    alone = sample_logs(stream_logs(folder, batch_rows=16), 60, seed=3)
    shared = sample_logs(stream_logs(folder, batch_rows=16, workers=2), 60, seed=3)
    for name in ("t", "obs", "action", "reward", "cost", "next_obs", "terminated"):
        assert getattr(alone, name).tobytes() == getattr(shared, name).tobytes()
    assert alone.notes == shared.notes


def test_what_is_refused(folder):
    with pytest.raises(InputError, match="rows: got 0"):
        sample_logs(stream_logs(folder), 0)
    with pytest.raises(InputError, match="logged: got list, expected what stream_logs opens"):
        sample_logs([], 10)
    other = Transitions(
        t=[0, 1], obs=[[0.0], [1.0]], action=[0, 1], reward=[0.0, 1.0], cost=[1.0, 1.0],
        next_obs=[[1.0], [2.0]],
    )  # fmt: skip
    write_logs(other, folder / "4.parquet")
    with pytest.raises(DataError, match="all parts of a log must have the same kind"):
        sample_logs(stream_logs(folder), 10)

"""Logs larger than memory: a design from batches is the design from the whole log."""

from __future__ import annotations

import numpy as np
import pytest

from logged_worlds import gridworld_logs, rows_of
from random_mdps import random_case
from scopeval import (
    Table,
    TabularPolicy,
    Transitions,
    design,
    exact,
    read_logs,
    stream_logs,
    write_logs,
)
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.errors import DataError, InputError


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A Gridworld, a target and 200,000 logged rows in a folder of four files."""
    mdp = Gridworld(10, seed=1).mdp()
    folder = tmp_path_factory.mktemp("logs")
    log = gridworld_logs(mdp, 20_000, seed=5)
    log = log.select(np.random.default_rng(0).permutation(len(log)))
    for k in range(4):
        write_logs(log.select(slice(k * 50_000, (k + 1) * 50_000)), folder / f"{k}.parquet")
    return mdp, target_policies(2, 10)[1], folder


def test_a_single_batch_is_the_whole_log(world):
    _, target, folder = world
    whole = read_logs(folder / "0.parquet")
    batches = stream_logs(folder / "0.parquet")
    one = design(whole, target, horizon=10, method="scope-dr")
    two = design(batches, target, horizon=10, method="scope-dr")
    assert one.recipe == two.recipe
    assert one.predicted == two.predicted
    for mine, theirs in zip(one.table(100), two.table(100), strict=True):
        assert mine.tobytes() == theirs.tobytes()
    assert two.report.rows == 50_000


@pytest.mark.parametrize("batch_rows", [7_000, 50_000])
@pytest.mark.parametrize("varying", [False, True])
def test_batches_are_as_good_as_the_whole_log(world, batch_rows, varying):
    """The folds differ, so the check may; the critics of all rows agree to rounding."""
    mdp, target, folder = world
    whole = design(
        read_logs(folder), target, horizon=10, method="scope", learn=Table(time_varying=varying)
    )
    batches = stream_logs(folder, batch_rows=batch_rows, horizon=10, actions=4)
    parts = design(batches, target, horizon=10, method="scope", learn=Table(time_varying=varying))
    assert parts.report.rows == whole.report.rows == 200_000
    for a, b in zip(whole.critics, parts.critics, strict=True):
        np.testing.assert_allclose(a.q, b.q, rtol=1e-9)
        np.testing.assert_allclose(a.cost_target, b.cost_target, rtol=1e-9)
        np.testing.assert_array_equal(a.known, b.known)
    one, two = (exact.assess(mdp, target, x.table(100)[0]) for x in (whole, parts))
    assert two.variance == pytest.approx(one.variance, rel=0.05)
    assert two.cost == pytest.approx(one.cost, rel=0.005)
    assert parts.predicted.variance == pytest.approx(whole.predicted.variance, rel=0.05)


def test_random_rewards_survive_the_merging():
    """Means and variances of merged batches are those of all rows."""
    case = random_case(5, states=4, actions=3, horizon=3, noisy=True, time_varying=False)
    log = rows_of(case, 3000, seed=1)
    whole = design(log, case.target, horizon=3, method="dopt")
    pieces = [log.select(slice(k, k + 100)) for k in range(0, 3000, 100)]
    parts = design(pieces, case.target, horizon=3, method="dopt")
    last = whole.critics[-1], parts.critics[-1]  # of the reward alone
    np.testing.assert_allclose(last[0].q, last[1].q, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(last[0].noise, last[1].noise, rtol=1e-9)


def test_batches_of_any_size():
    """One row at a time, and batches in which no episode starts."""
    case = random_case(6, states=4, actions=2, horizon=3, time_varying=False)
    log = rows_of(case, 60, seed=2)
    log = log.select(np.argsort(log.t, kind="stable"))
    single = design((log.select([i]) for i in range(60)), case.target, horizon=3, method="scope")
    whole = design(log, case.target, horizon=3, method="scope")
    np.testing.assert_allclose(single.critics[0].q, whole.critics[0].q, rtol=1e-9)
    assert single.report.rows == 60
    assert single.report.notes == whole.report.notes
    backwards = [log.select(slice(30, 60)), log.select(slice(0, 30))]
    again = design(backwards, case.target, horizon=3, method="scope")
    np.testing.assert_allclose(again.critics[0].q, whole.critics[0].q, rtol=1e-9)


def test_episodes_start_where_time_starts():
    """A batch without t = 0 adds nothing to the distribution of first states."""
    from scopeval.models.rows import gather

    late = Transitions([1, 2, 1], [2, 2, 1], [0, 1, 1], [1.0] * 3, [1.0] * 3, [0, 0, 1])
    early = Transitions([0, 0, 1], [0, 1, 2], [0, 1, 1], [1.0] * 3, [1.0] * 3, [0, 0, 1])
    target = TabularPolicy(np.full((3, 2), 0.5))
    for batches in ([late, early], [early, late]):
        log = gather(batches, target, 3, 0, True)
        assert sorted(log.starts.obs) == [0, 1]
        assert log.starts.weight.sum() == 2
        assert not log.notes
    assert "start at t = 1" in gather([late], target, 3, 0, True).notes[0]


def test_bad_batches_are_named(world, tmp_path):
    _, target, folder = world
    with pytest.raises(DataError, match="horizon=5"):
        design(stream_logs(folder), target, horizon=5, method="scope")
    good = Transitions([0, 1], [0, 1], [0, 1], [1.0, 1.0], [1.0, 1.0], [1, 2])
    far = Transitions([0, 1], [0, 1], [0, 9], [1.0, 1.0], [1.0, 1.0], [1, 2])
    with pytest.raises(DataError, match="actions=4"):
        design([good, far], target, horizon=10, method="scope")
    with pytest.raises(DataError, match=r"holds state 100, the target policy knows 0 to 99"):
        design(
            [good, Transitions([0], [100], [0], [1.0], [1.0], [1])],
            target,
            horizon=10,
            method="scope",
        )
    with pytest.raises(InputError, match="got list, expected Transitions"):
        design([good, [1, 2]], target, horizon=10, method="scope")
    write_logs(good, tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-50])
    with pytest.raises(DataError, match=r"b\.parquet"):
        design(stream_logs(tmp_path), target, horizon=10, method="scope")

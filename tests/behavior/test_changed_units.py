"""Logs whose units change half-way: both halves of the cross-check believe the mixture."""

from __future__ import annotations

import numpy as np
import pytest

from scopeval import Transitions, design, frontier, simulate, stream_logs, write_logs
from small_worlds import random_mdp, random_rows

HORIZON = 6


@pytest.fixture(scope="module")
def world():
    """Logs of one controller in a random world, and the target policy."""
    rng = np.random.default_rng(3)
    mdp = random_mdp(rng, states=5, actions=3, horizon=HORIZON, noise=True)
    target = random_rows(rng, 5, 3)
    run = simulate.trajectories(mdp, np.full((5, 3), 1 / 3), episodes=800, seed=0)
    t = np.broadcast_to(np.arange(HORIZON), run.actions.shape)
    states = run.states
    columns = (t, states[:, :-1], run.actions, run.rewards, run.costs, states[:, 1:])
    return Transitions(*(column.ravel() for column in columns)), target


def with_units(log, factor, column="reward"):
    values = getattr(log, column).copy()
    values[len(log) // 2 :] *= factor
    names = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated")
    return Transitions(**({name: getattr(log, name) for name in names} | {column: values}))


def test_the_clean_log_gives_a_design(world):
    log, target = world
    made = design(log, target, horizon=HORIZON, method="scope-dr")
    assert made.report.fallback is None
    assert made.report.notes == ()


@pytest.mark.parametrize("column", ["reward", "cost"])
@pytest.mark.parametrize("factor", [100.0, 10.0])
def test_no_design_rests_on_two_units(world, factor, column):
    """The variance was predicted as 0.6 of the target's where it is 700 times as large."""
    log, target = world
    made = design(with_units(log, factor, column), target, horizon=HORIZON, method="scope-dr")
    assert made.predicted.variance == 1.0
    assert "; bring all rows to the same units" in (made.report.fallback)
    assert f"the {column} of the same observation and action is another" in made.report.fallback


def test_a_smaller_change_is_a_note(world):
    log, target = world
    made = design(with_units(log, 1.5), target, horizon=HORIZON, method="scope-dr")
    assert made.report.fallback is None
    assert any("check the units before and after" in note for note in made.report.notes)


def test_a_frontier_has_no_points(world):
    log, target = world
    found = frontier(with_units(log, 100.0), target, horizon=HORIZON)
    assert found.points == ()
    assert any("bring all rows to the same units" in text for text in found.warnings)


def test_streams_and_batches_too(world, tmp_path):
    log, target = world
    wrong = with_units(log, 100.0)
    write_logs(wrong, tmp_path / "log.parquet")
    batches = [wrong.select(slice(i, i + 700)) for i in range(0, len(wrong), 700)]
    for logged in (stream_logs(tmp_path / "log.parquet", batch_rows=500), batches):
        made = design(logged, target, horizon=HORIZON, method="scope")
        assert "bring all rows to the same units" in made.report.fallback

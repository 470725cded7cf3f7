"""Evaluations in stages, measured: worlds, bad logs, and the tables."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from scopeval import design, exact
from scopeval.cli.app import app
from scopeval.errors import InputError
from scopeval.paper.experiments import adaptive
from scopeval.paper.experiments.adaptive_worlds import problem, survival_chain
from scopeval.paper.robots.logs import robot_logs

SMALL = adaptive.Config(
    ("gridworld-4",), ("none", "100"), ("adaptive", "fixed", "ros", "bps"),
    targets=2, runs=2, episodes=100, seed=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> adaptive.AdaptiveResult:
    return adaptive.run(SMALL, folder=tmp_path_factory.mktemp("shards"), backend="serial")


def test_rows_are_what_was_asked(result):
    asked = [(row.method, row.logs) for row in result.rows]
    assert asked == [
        ("adaptive", "none"), ("adaptive", "100"), ("fixed", "100"), ("ros", "none"),
        ("bps", "none"),
    ]  # fmt: skip
    for row in result.rows:
        assert row.square.values.shape == (2,)
        assert (row.cost.values > 0.5).all()
    assert result.rows[0].covered is not None
    assert result.rows[2].covered is None


def test_the_fixed_design_is_assessed_exactly(result):
    given = problem("gridworld-4", 1, "100", 1)
    own = exact.assess(given.env, given.target, given.target)
    made = design(
        given.logs, given.target, horizon=4, method="scope-dr", features=given.features, seed=2
    )
    found = exact.assess(given.env, given.target, made)
    row = result.rows[2]
    assert row.square.values[1] == pytest.approx(found.variance / own.variance)
    assert row.cost.values[1] == pytest.approx(found.cost / own.cost)


def test_bad_logs_are_bad():
    usual = problem("gridworld-6", 0, "1000", 0).logs
    one = problem("gridworld-6", 0, "one controller", 0).logs
    pairs = {(int(t), int(s)): set() for t, s in zip(one.t, one.obs, strict=True)}
    for t, s, a in zip(one.t, one.obs, one.action, strict=True):
        pairs[int(t), int(s)].add(int(a))
    assert all(len(actions) == 1 for actions in pairs.values())
    hidden = problem("gridworld-6", 0, "hidden states", 0).logs
    assert hidden.obs.min() >= 18
    corrupted = problem("gridworld-6", 0, "corrupted", 0).logs
    assert np.mean(corrupted.reward != usual.reward) == pytest.approx(0.1, abs=0.02)
    assert np.array_equal(corrupted.obs, usual.obs)


def test_worlds_of_other_kinds():
    given = problem("survival", 2, "50", 0)
    assert given.own.value == pytest.approx(95, abs=0.5)  # as in the tests of the paper
    assert given.logs.terminated.any()
    assert given.logs.obs.max() < survival_chain().states - 1
    assert problem("Blackjack", 0, "none", 0).logs is None
    assert len(problem("Blackjack", 0, "corrupted", 0).logs) > 100
    cart = problem("CartPole", 0, "20", 0)
    assert cart.own.value == pytest.approx(150, abs=5)
    assert len(cart.logs) > 100
    with pytest.raises(InputError, match=r"^logs"):
        problem("Hopper", 0, "corrupted", 0)


def test_robots_have_the_logs_of_the_paper():
    given = problem("InvertedPendulum", 3, "30", 0)
    assert given.logs == robot_logs("InvertedPendulum", episodes=30, seed=0)


@pytest.mark.parametrize(
    "wrong",
    [{"worlds": ("Moon",)}, {"logs": ("some",)}, {"methods": ("best",)}, {"runs": 0},
     {"epsilon": -1.0}],
)  # fmt: skip
def test_config_is_checked(wrong):
    with pytest.raises(InputError):
        adaptive.Config(**wrong)


def test_the_command_saves_and_prints(tmp_path):
    words = [
        "reproduce", "adaptive", "--world", "gridworld-4", "--logs", "none", "--methods",
        "adaptive,ros", "--targets", "1", "--runs", "2", "--episodes", "60", "--backend", "serial",
        "--out", str(tmp_path),
    ]  # fmt: skip
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "Evaluations in stages, gridworld-4" in done.output
    content = json.loads((tmp_path / "adaptive.json").read_text())
    assert [row["method"] for row in content["rows"]] == ["adaptive", "ros"]
    table = pq.read_table(tmp_path / "targets.parquet")
    assert table.num_rows == 2

"""The experiment of the learned frontier: its numbers, tables, figures, and the command."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from scopeval import exact, frontier
from scopeval.cli.app import app
from scopeval.envs.gridworld import Gridworld, cells, gridworld_logs, target_policies
from scopeval.errors import InputError
from scopeval.paper.experiments import frontier_learned as experiment
from scopeval.paper.figures.drawing import svg
from scopeval.paper.figures.frontier_learned import learned_frontiers
from scopeval.paper.tables.frontier_learned import show_learned_frontier

SMALL = experiment.LearnedConfig(
    sizes=(4,), targets=2, environments=("Blackjack",), asked=(0.8, 0.02), logged=200
)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return experiment.run(SMALL, folder=tmp_path_factory.mktemp("shards"), backend="serial")


def test_numbers_are_those_of_the_library(result):
    assert [block.title for block in result.blocks] == ["Gridworld 4 x 4, same-tilt", "Blackjack"]
    found = result.blocks[0].found
    mdp, target = Gridworld(4, "same-tilt", 1).mdp(), target_policies(2, 4)[1]
    curve = frontier(
        gridworld_logs(mdp, 200, seed=1),
        target,
        horizon=4,
        features=cells(4),
        regression="table",
        seed=1,
    )
    design = curve.at(cost=0.8)
    true = exact.tabulate(mdp, target, design, points=experiment.POINTS).predicted
    assert found["variance"][1, 0] == true.relative_variance
    assert found["cost"][1, 0] == true.relative_cost
    assert found["predicted_variance"][1, 0] == design.predicted.variance
    limit = exact.frontier(mdp, target).at(cost=0.8).predicted
    assert found["exact_variance"][1, 0] == limit.relative_variance


def test_what_the_logs_do_not_bear_out_is_left_empty(result):
    block = result.blocks[0]
    assert np.isnan(block.found["variance"][:, 1]).all()
    assert np.isnan(block.overspent(1))
    told = block.as_dict()["points"]
    assert told[1]["targets"] == 0
    assert told[1]["variance"] is None
    assert told[0]["targets"] == 2
    assert block.overspent(0) == block.found["cost"][:, 0].max() / 0.8
    json.dumps(block.as_dict())


def test_tables_and_figures(result):
    tables = show_learned_frontier(result)
    assert [table.caption.split(":")[0] for table in tables[:-1]] == [
        block.title for block in result.blocks
    ]
    text = " ".join(" ".join(row) for table in tables[:-1] for row in table.rows)
    assert "mild, 0.80" in text
    assert " - " in text
    assert "learned from logs" in svg(learned_frontiers(result.as_dict())["frontier-learned"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": 0}, r"^targets: got 0, expected a whole number >= 1"),
        ({"logged": 0}, r"^logged: got 0, expected a whole number >= 1"),
        ({"environments": ("Chess",)}, r"^environments: got 'Chess', expected some of FrozenLake"),
        ({"asked": (-1.0,)}, r"^asked: got -1.0, expected relative costs > 0"),
    ],
)
def test_bad_configurations(changes, message):
    with pytest.raises(InputError, match=message):
        experiment.LearnedConfig(**changes)


def test_the_command(tmp_path):
    words = ["reproduce", "frontier", "--critics", "table", "--size", "4", "--targets", "1"]
    words += ["--environment", "none", "--backend", "serial", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "Gridworld 4 x 4, same-tilt" in done.output
    assert json.loads((tmp_path / "frontier-learned.json").read_text())["blocks"]
    assert pq.read_table(tmp_path / "frontier-learned.parquet").num_rows == 4
    wrong = CliRunner().invoke(app, ["reproduce", "frontier", "--critics", "mlp"])
    assert wrong.exit_code != 0

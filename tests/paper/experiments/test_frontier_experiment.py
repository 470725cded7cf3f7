"""The experiment of the exact frontier: its numbers, tables, figures, and the command."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from scopeval import exact
from scopeval.cli.app import app
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.errors import InputError
from scopeval.paper.experiments import frontier_exact as experiment
from scopeval.paper.experiments.foreign_worlds import finite_world
from scopeval.paper.experiments.frontier_worlds import ENVIRONMENTS, softmax_target
from scopeval.paper.figures.drawing import svg
from scopeval.paper.figures.frontier_exact import frontiers_by_cost
from scopeval.paper.tables.frontier_exact import show_frontier

SMALL = experiment.Config(
    sizes=(4,), cost_laws=("same-tilt", "reward"), targets=2, environments=("Blackjack",),
    asked=(1.0, 0.7, 0.5, 0.05),
)  # fmt: skip


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return experiment.run(SMALL, folder=tmp_path_factory.mktemp("shards"), backend="serial")


def test_numbers_are_those_of_the_library(result):
    assert [block.title for block in result.blocks] == [
        "Gridworld 4 x 4, same-tilt", "Gridworld 4 x 4, reward", "Blackjack"
    ]  # fmt: skip
    block = result.blocks[1]
    mdp, target = Gridworld(4, "reward", 1).mdp(), target_policies(2, 4)[1]
    curve = exact.frontier(mdp, target)
    found = curve.at(cost=0.7).predicted
    assert block.variance["weight-aware"][1, 1] == found.relative_variance
    assert block.cost["weight-aware"][1, 1] == found.relative_cost
    best = curve.best().predicted
    assert block.product[1] == best.relative_variance * best.relative_cost
    assert block.even[1] == curve.at(variance=1.0).predicted.relative_cost


def test_costs_are_at_most_the_asked_ones_and_less_cost_is_more_variance(result):
    for block in result.blocks:
        for family in experiment.FAMILIES:
            variance, cost = block.variance[family], block.cost[family]
            assert (np.isnan(variance) == np.isnan(cost)).all()
            assert (np.nan_to_num(cost) <= np.array(block.asked) * (1 + 1e-9)).all()
            for row in variance:
                known = row[np.isfinite(row)]
                assert (np.diff(known) >= -1e-3 * known[1:]).all()


def test_knowing_the_weight_and_a_control_variate_both_help(result):
    """To 1 %: the cap costs something, and curves are read between their points."""
    for block in result.blocks:
        ours = block.variance["weight-aware"]
        for family in ("weight-blind", "b = 0"):
            both = np.isfinite(ours) & np.isfinite(block.variance[family])
            assert both.any()
            assert (ours[both] <= block.variance[family][both] * 1.01).all()


def test_what_is_too_cheap_has_no_design(result):
    grid = result.blocks[0]
    assert np.isnan(grid.variance["weight-aware"][:, 3]).all()
    assert grid.as_dict()["families"]["weight-aware"][3]["targets"] == 0
    assert np.isfinite(result.blocks[2].variance["weight-aware"][0, 3])


def test_targets_of_environments_go_from_good_to_random():
    for name, about in ENVIRONMENTS.items():
        mdp = finite_world(name).mdp.shortened(about.horizon)
        worth = [
            exact.assess(mdp, pi, pi).value
            for pi in (softmax_target(mdp, beta) for beta in about.betas)
        ]
        assert worth == sorted(worth, reverse=True)


def test_a_curve_is_read_between_its_points():
    prices = np.geomspace(1e-2, 1e2, 20)
    cost = 1.0 / (1.0 + prices)
    variance = 1.0 + 0.1 * prices
    found = experiment._read(prices, variance, cost, 0.5)  # price 1
    assert found == (pytest.approx(1.1, rel=1e-2), pytest.approx(0.5, rel=1e-2))
    assert experiment._read(prices, variance, cost, 0.001) == (None, None)
    assert experiment._read(prices, variance, cost, 3.0)[0] == pytest.approx(variance[0])


def test_tables_and_figures(result):
    tables = show_frontier(result)
    assert [table.caption.split(":")[0] for table in tables[:-1]] == [
        block.title for block in result.blocks
    ]
    assert "at most 30" in tables[-1]
    text = " ".join(" ".join(row) for table in tables[:-1] for row in table.rows)
    assert "mild, weight-aware" in text
    assert " - " in text
    figures = frontiers_by_cost(result.as_dict())
    assert set(figures) == {"frontier-4", "frontier-environments"}
    assert "weight-blind" in svg(figures["frontier-4"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": 0}, r"^targets: got 0, expected a whole number >= 1"),
        ({"environments": ("Chess",)}, r"^environments: got 'Chess', expected some of FrozenLake"),
        ({"asked": (0.0,)}, r"^asked: got 0.0, expected relative costs > 0"),
        ({"cost_laws": ("none",)}, r"^cost_law: got 'none'"),
    ],
)
def test_bad_configurations(changes, message):
    with pytest.raises(InputError, match=message):
        experiment.Config(**changes)


def test_the_command(tmp_path):
    words = ["reproduce", "frontier", "--size", "4", "--targets", "2", "--cost-law", "uniform"]
    words += ["--environment", "none", "--backend", "serial", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "Gridworld 4 x 4, uniform" in done.output
    told = json.loads((tmp_path / "frontier.json").read_text())
    assert told["experiment"] == "frontier"
    assert len(told["blocks"]) == 1
    rows = pq.read_table(tmp_path / "frontier.parquet")
    assert rows.num_rows == 2 * 3 * 8
    assert (tmp_path / "frontier-4.svg").exists()


def test_the_gridworld_command_has_the_same_numbers(tmp_path):
    words = ["--size", "3", "--targets", "1", "--cost-law", "uniform", "--backend", "serial"]
    told = []
    for command in (["frontier", "--environment", "none"], ["gridworld", "--frontier"]):
        folder = tmp_path / command[0]
        done = CliRunner().invoke(app, ["reproduce", *command, *words, "--out", str(folder)])
        assert done.exit_code == 0, done.output
        told.append(json.loads((folder / "frontier.json").read_text()))
    assert told[0]["blocks"] == told[1]["blocks"]
    again = "scopeval reproduce gridworld --critics exact --frontier --size 3 --targets 1"
    assert told[1]["command"] == again + " --cost-law uniform --seed 0"


def test_the_gridworld_command_refuses_what_a_frontier_has_not(tmp_path):
    words = ["reproduce", "gridworld", "--frontier", "--runs", "3", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0
    assert "got --runs too" in done.output

"""``scopeval reproduce mujoco --frontier``, in small: numbers, files, and going on."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from scopeval.cli.app import app
from scopeval.errors import InputError
from scopeval.paper.experiments import mujoco_frontier
from scopeval.paper.experiments.mujoco import QUICK
from scopeval.paper.experiments.mujoco_frontier import ASKED, FIELDS, FrontierConfig, RobotFrontier
from scopeval.paper.results import Result
from scopeval.paper.tables.mujoco_frontier import show_robot_frontiers


def invoke(folder, *more):
    words = [
        "reproduce",
        "mujoco",
        "--frontier",
        "--quick",
        "--targets",
        "1",
        "--runs",
        "6",
        "--episodes",
        "5",
    ]
    return CliRunner().invoke(app, [*words, "--backend", "serial", "--out", str(folder), *more])


def test_the_command_end_to_end_and_again(tmp_path, monkeypatch):
    done = invoke(tmp_path)
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "mujoco-frontier.json").read_text())
    assert told["command"] == (
        "scopeval reproduce mujoco --robots InvertedPendulum --role reported --targets 1 --runs 6 "
        "--episodes 5 --dynamics learned --networks usual --frontier --seed 0 --quick"
    )
    [block] = told["blocks"]
    assert block["robot"] == "InvertedPendulum"
    assert [point["asked"] for point in block["points"]] == list(ASKED)
    rows = pq.read_table(tmp_path / "mujoco-frontier.parquet").to_pylist()
    assert len(rows) == len(ASKED)
    offered = [row for row in rows if np.isfinite(row["cost"])]
    for row in offered:
        assert 0.0 < row["cost"] < 3.0
        assert row["predicted_cost"] <= row["asked"] * 1.002
        assert row["verdict"] in ("safe", "refuted", "not refuted", "not enough evidence")
    assert all(row["verdict"] == "" for row in rows if row not in offered)
    # what is finished is read
    monkeypatch.setattr(mujoco_frontier, "frontier", None)
    assert invoke(tmp_path).exit_code == 0
    again = json.loads((tmp_path / "mujoco-frontier.json").read_text())
    assert again["blocks"] == told["blocks"]


@pytest.mark.parametrize("more", [("--methods", "scope"), ("--protocols", "bins")])
def test_what_a_frontier_has_not_is_refused(tmp_path, more):
    done = invoke(tmp_path, *more)
    assert done.exit_code != 0
    assert "expected none of them" in done.output


def test_the_table_counts_designs_and_verdicts():
    found = {name: np.array([[0.5, np.nan], [0.7, 0.4]]) for name in FIELDS}
    block = RobotFrontier(
        "Hopper", ("a", "b"), (1.0, 0.5), found, (("safe", ""), ("safe", "refuted"))
    )
    config = FrontierConfig(QUICK(), (1.0, 0.5))
    [table, text] = show_robot_frontiers(Result("mujoco-frontier", config, (block,)))
    assert table.rows[0] == (
        "1.00", "2 of 2", "0.600 ± 0.100", "0.600 ± 0.100", "0.700", "0.600 ± 0.100",
        "0.600 ± 0.100", "2, 0",
    )  # fmt: skip
    assert table.rows[1] == ("0.50", "1 of 2", "0.400", "0.400", "0.800", "0.400", "0.400", "0, 1")
    assert "50 episodes" in text


def test_asked_costs_are_checked():
    with pytest.raises(InputError, match=r"^asked: got 0.0, expected relative costs > 0"):
        FrontierConfig(QUICK(), (0.0,))

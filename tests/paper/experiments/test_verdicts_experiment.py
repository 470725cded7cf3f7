"""The experiment about wrong verdicts: its worlds, numbers, table, and the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from scopeval.cli.app import app
from scopeval.errors import InputError
from scopeval.paper.experiments import verdicts as experiment
from scopeval.paper.experiments.verdict_worlds import WORLDS
from scopeval.paper.tables.verdicts import show_verdicts


@pytest.mark.parametrize("name", list(WORLDS))
def test_worlds_are_what_they_say(name: str) -> None:
    """The ratio and the mean weight to six standard errors of 400,000 episodes; the bound holds."""
    world = WORLDS[name]()
    costs = world.draw(np.random.default_rng(0), 400_000)
    assert world.bound.violation(costs) is None
    gap = costs.cost - world.ratio * costs.weighted_cost
    assert abs(gap.mean()) < 6 * gap.std() / np.sqrt(400_000)
    assert costs.weight is not None
    assert abs(costs.weight.mean() - 1) < 6 * costs.weight.std() / np.sqrt(400_000)


def test_the_old_rule_is_wrong_and_the_new_ones_are_not(tmp_path) -> None:
    """40 runs: the t interval says "safe" in .93 of them; 20 or fewer have probability 1e-14."""
    config = experiment.Config(worlds=("rare disaster",), episodes=(100,), runs=40)
    block = experiment.run(config, folder=tmp_path, backend="serial").blocks[0]
    assert block.wrong == "safe"
    assert block.share(0, "t interval", "safe") > 0.5
    for rule in ("as far as seen", "stated bound"):
        assert block.share(0, rule, "safe") == 0
    table, words = show_verdicts(experiment.run(config, folder=tmp_path, backend="serial"))
    assert "true ratio 1.114" in table.caption
    assert "40 runs" in words


def test_the_command(tmp_path) -> None:
    words = ["reproduce", "verdicts", "--world", "ordinary", "--episodes", "50", "--runs", "3"]
    done = CliRunner().invoke(app, [*words, "--backend", "serial", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "verdicts.json").read_text())
    assert [row["rule"] for row in told["blocks"][0]["rows"]] == list(experiment.RULES)
    assert "--world ordinary --episodes 50 --runs 3" in told["command"]


def test_unknown_worlds() -> None:
    with pytest.raises(InputError, match="worlds: got 'flat'"):
        experiment.Config(worlds=("flat",))

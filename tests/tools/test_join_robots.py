"""Runs of single robots become one result, if they have the same settings."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("join_robots", TOOLS / "join_robots.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(robot: str, seconds: float, runs: int = 30) -> dict:
    return {
        "command": f"scopeval reproduce mujoco --robots {robot} --protocols bins --runs {runs}",
        "date": f"2026-01-0{seconds:.0f}",
        "seconds": seconds,
        "config": {"robots": [robot], "protocols": ["bins"], "runs": runs},
        "blocks": [{"robot": robot}],
    }


def test_robots_are_joined_in_order(tool, tmp_path, capsys):
    for robot, seconds in (("Hopper", 2.0), ("Ant", 3.0)):
        (tmp_path / robot).mkdir()
        (tmp_path / robot / "mujoco.json").write_text(json.dumps(run(robot, seconds)))
    folders = [str(tmp_path / robot) for robot in ("Hopper", "Ant")]
    assert tool.main([*folders, "--out", str(tmp_path / "all")]) == 0
    assert "2 robots" in capsys.readouterr().out
    found = json.loads((tmp_path / "all" / "mujoco.json").read_text())
    assert found == {
        "command": "scopeval reproduce mujoco --robots Ant --robots Hopper --protocols bins "
        "--runs 30",
        "date": "2026-01-03",
        "seconds": 5.0,
        "config": {"robots": ["Ant", "Hopper"], "protocols": ["bins"], "runs": 30},
        "blocks": [{"robot": "Ant"}, {"robot": "Hopper"}],
    }


def test_other_settings_and_robots_that_come_twice_are_refused(tool):
    with pytest.raises(ValueError, match="Hopper: other settings \\(runs\\) than the first run"):
        tool.joined([run("Ant", 1.0), run("Hopper", 1.0, runs=20)])
    with pytest.raises(ValueError, match="got Ant, Ant, expected each once"):
        tool.joined([run("Ant", 1.0), run("Ant", 2.0)])


def test_work_of_earlier_sittings_is_not_timed(tool):
    assert tool.joined([{**run("Ant", 1.0), "kept": 3}, run("Hopper", 1.0)])["kept"]

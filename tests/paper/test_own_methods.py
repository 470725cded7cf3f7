"""Methods of one's own in the experiments: tables, figures and files take them."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from scopeval.behavior.methods import METHODS, Method, register
from scopeval.cli.app import app
from scopeval.cli.sources import method_from
from scopeval.errors import InputError
from scopeval.paper.experiments import gridworld, gridworld_exact, log_quality, mujoco
from scopeval.paper.experiments.mujoco_prepare import Preparation
from scopeval.paper.experiments.mujoco_target import DEFAULT_METHODS, Shard, TargetRun
from scopeval.paper.figures.drawing import looks_of, svg
from scopeval.paper.figures.gridworld import draw_gridworld
from scopeval.paper.figures.log_quality import draw_logs
from scopeval.paper.methods import check_methods, constrained, digest_of, names_of
from scopeval.paper.tables.gridworld import show_exact, show_learned, show_logs

MODULE = """
from scopeval.behavior.methods import Method

half = Method("half-way", step=lambda pi, x, cost, budget: (pi + 1 / pi.shape[1]) / 2)
number = 3
"""


def half_way(pi, second_moment, cost, budget):
    """Half of the target policy, half of the uniform policy."""
    return (pi + 1 / pi.shape[1]) / 2


@pytest.fixture
def own():
    """A method of one's own, registered for one test."""
    yield register(Method("half", step=half_way)).name
    del METHODS["half"]


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_methods.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_methods", raising=False)
    yield "my_methods:half"
    METHODS.pop("half-way", None)


def test_the_gridworld_takes_it(own, tmp_path):
    config = gridworld.Config(
        (4,), targets=2, runs=2, episodes=20, logged=200, methods=("on-policy", own, "scope")
    )
    result = gridworld.run(config, folder=tmp_path, backend="serial")
    [block] = result.blocks
    assert list(block.methods) == ["on-policy", "half", "scope"]
    assert [line.method for line in block.frontier] == ["scope"]
    row = block.methods["half"]
    assert row.exact
    assert row.cost.mean != 1.0
    learned, measured, _, _ = show_learned(result)
    names = [row[0].strip() for row in learned.rows]
    assert names == ["on-policy", "half", "limit", "scope", "limit"]
    assert [row[0] for row in measured.rows] == ["on-policy", "half", "scope", "direct"]
    for figure in draw_gridworld(result.as_dict()).values():
        assert svg(figure)
    usual = gridworld.Config((4,), targets=2, runs=2, episodes=20, logged=200)
    whole = gridworld.run(usual, folder=tmp_path, backend="serial").blocks[0]
    np.testing.assert_array_equal(block.direct_error.values, whole.direct_error.values)
    np.testing.assert_array_equal(block.methods["scope"].errors, whole.methods["scope"].errors)


def test_without_constrained_methods_there_is_no_frontier(own, tmp_path):
    config = gridworld.Config(
        (3,), targets=1, runs=2, episodes=10, logged=60, methods=("on-policy", own, "ros")
    )
    result = gridworld.run(config, folder=tmp_path, backend="serial")
    assert set(result.tables()) == {"targets", "curves"}
    assert set(draw_gridworld(result.as_dict())) == {
        "error-episodes",
        "error-cost",
        "cost-by-target",
    }
    assert json.dumps(result.as_dict(), allow_nan=False)


def test_exact_values_and_log_quality_take_it(own, tmp_path):
    exact = gridworld_exact.run(gridworld_exact.Config((4,), targets=2, methods=("scope", own)))
    assert list(exact.blocks[0].methods) == ["scope", "half"]
    assert "half" in [row[0] for row in show_exact(exact)[0].rows]
    config = log_quality.Config((4,), targets=1, episodes=(60,), bad_episodes=60, methods=(own,))
    logs = log_quality.run(config, folder=tmp_path, backend="serial")
    assert list(logs.blocks[0].limits) == ["half"]
    assert show_logs(logs)[0].caption.startswith("half, 4 x 4, with the cells' coordinates")
    assert "half, with coordinates" in svg(draw_logs(logs)["log-quality"])


def test_the_command_takes_a_method_from_a_module_in_other_processes_too(module, tmp_path):
    words = ["reproduce", "gridworld", "--size", "4", "--targets", "2", "--runs", "2"]
    words += ["--episodes", "20", "--methods", f"scope,{module}", "--workers", "1"]
    done = CliRunner().invoke(app, [*words, "--out", "here"], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert "\nhalf-way " in done.output
    content = json.loads((tmp_path / "here" / "gridworld.json").read_text())
    assert content["config"]["methods"] == ["on-policy", "scope", module]
    names = [row["method"] for row in content["blocks"][0]["methods"]]
    assert names == ["on-policy", "scope", "half-way"]
    assert f"--methods scope --methods {module}" in content["command"]


def test_methods_by_name_or_module(module):
    assert method_from("scope") is METHODS["scope"]
    assert method_from(module).name == "half-way"
    assert method_from(module) is METHODS["half-way"]  # registered on the way
    assert names_of(["on-policy", module, "ros"], ("ros",)) == ("on-policy", "half-way", "ros")
    assert constrained(["on-policy", "scope", "scope-dr", "odi", "ros"]) == ("scope", "scope-dr")


def test_answers_of_a_method_that_was_changed_are_not_reused(module, tmp_path):
    before = digest_of(["on-policy", module, "ros"], ("ros",))
    assert before == digest_of(["on-policy", module, "ros"], ("ros",))
    assert before != digest_of(["on-policy", "scope", "ros"], ("ros",))
    config = gridworld.Config((3,), targets=1, methods=("on-policy", module))
    (tmp_path / "my_methods.py").write_text(MODULE + "# changed\n")
    assert before != digest_of(["on-policy", module, "ros"], ("ros",))
    assert config.shards[0].digest == digest_of(config.methods)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (("on-policy", "guess"), "got 'guess', expected some of scope, .* or module:attribute"),
        (("scope",), "expected on-policy as well"),
        (("on-policy", "scope", "scope"), "expected each once"),
        (("on-policy", "my_methods:number"), "is int, expected a Method"),
        (("on-policy", "no_such_module:x"), "cannot import 'no_such_module'"),
    ],
)
def test_what_is_refused(methods, message, module):
    with pytest.raises(InputError, match=message):
        check_methods(methods, ("ros",))


def test_unknown_methods_get_colors_of_their_own():
    looks = looks_of(["scope", "mine", "yours"])
    assert looks["scope"] == looks_of(["scope"])["scope"]
    assert len({look.color for look in looks.values()}) == 3
    many = looks_of([f"m{k}" for k in range(9)])
    assert len(many) == 9


def test_random_numbers_of_a_robots_method_do_not_depend_on_the_others(own, tmp_path):
    assert mujoco.Config().methods == DEFAULT_METHODS
    what = Preparation("InvertedPendulum", "candidates", seed=0, logged=2, training=())
    shards = [
        Shard(what, ("", ""), "reported", 3, 2, 2, 1, mujoco.Study(), 0, 0.0, "state", methods, "")
        for methods in (DEFAULT_METHODS, ("on-policy", own, "dopt"))
    ]
    usual, other = (TargetRun(shard, tmp_path) for shard in shards)
    assert usual.seed("dopt") == other.seed("dopt")
    seeds = [other.seed(name) for name in (*DEFAULT_METHODS, own)]
    assert len(set(seeds)) == len(seeds)

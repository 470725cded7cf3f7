"""``scopeval frontier``: the table, the picture, the file, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from scopeval import Inference, evaluate, load, write_logs
from scopeval.behavior.frontier_point import Curve, Point, draw_curve
from scopeval.cli.app import app
from scopeval.envs.gridworld import Gridworld, cells, gridworld_logs, target_policies
from scopeval.report import page_of_evaluation, render


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frontier")
    mdp, pi = Gridworld(5, seed=3).mdp(), target_policies(1, 5, seed=3)[0]
    write_logs(gridworld_logs(mdp, 1500, seed=3), folder / "log.parquet")
    np.save(folder / "policy.npy", pi.table(1)[0])
    np.save(folder / "cells.npy", cells(5))
    return folder, mdp, pi


def run(folder, *more):
    words = ["frontier", "--data", str(folder / "log.parquet"), "--horizon", "5"]
    words += ["--features", str(folder / "cells.npy")]
    return CliRunner().invoke(app, [*words, "--policy", str(folder / "policy.npy"), *more])


def test_table_picture_and_file(files):
    folder, mdp, pi = files
    made = {name: str(folder / name) for name in ("cheap.scope", "curve.svg")}
    done = run(
        folder, "--cost", "0.7", "--out", made["cheap.scope"], "--picture", made["curve.svg"]
    )
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert max(len(line) for line in lines if str(folder) not in line) <= 80
    assert "What precision costs" in lines
    assert any(line.split()[:1] == ["0.800"] for line in lines)
    assert "of the variance at 0.7" in done.output or "of the variance at 0.69" in done.output
    assert "chosen: " in (folder / "curve.svg").read_text()
    behavior = load(made["cheap.scope"], pi)
    assert behavior.weighted
    assert behavior.report.curve is not None
    assert len(behavior.report.curve.points) > 10
    found = evaluate(mdp, pi, behavior, episodes=300, inference=Inference(keep=True))
    page = render(page_of_evaluation(found, behavior=behavior))
    assert "Which precision costs what" in page
    assert "No weight exceeds 30" in page


def test_without_a_choice_only_the_table(files):
    done = run(files[0])
    assert done.exit_code == 0, done.output
    assert "Chosen" not in done.output
    best = run(files[0], "--best")
    assert "Chosen" in best.output


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--cost", "0.7", "--best"], "expected at most one"),
        (["--out", "x.scope"], "needs one of --cost, --variance and --best"),
        (["--cost", "0.01"], "the least that the logs bear out"),
        (["--picture", "curve.txt"], "expected .svg, .png, .pdf"),
    ],
)
def test_what_is_refused(files, more, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(files[0], *more)
    assert done.exit_code == 2
    assert message in done.output


def test_the_drawing_has_the_target_odi_the_choice_and_the_doubt():
    points = tuple(
        Point(k, 0.2 * k, 1.1 - 0.1 * k, 0.3 * k, 1.1 - 0.09 * k, 0.0) for k in (1, 2, 3)
    )
    ax = draw_curve(Curve(points, (0.15, 1.02)), chosen=(0.3, 0.9))
    labels = ax.get_legend_handles_labels()[1]
    assert labels[:2] == ["doubt: predicted to cross-checked", "frontier"]
    assert labels[-1] == "chosen: variance 0.30, cost 0.90"
    assert {"the target policy itself", "ODI, no budget"} <= set(labels)
    x, y = ax.get_lines()[0].get_data()
    np.testing.assert_allclose(x, [p.safe_cost for p in points])
    np.testing.assert_allclose(y, [p.safe_variance for p in points])
    assert len(draw_curve(Curve()).get_lines()) == 3  # no curve: two limits, the target

"""Examples run as they are, in seconds, and show what they say."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scopeval.models.rows import Rows

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_own_regression(capsys):
    module = example("own_regression")
    behavior = module.main()
    assert "supervised" in capsys.readouterr().out
    assert behavior.recipe.method.name == "scope-dr"
    assert behavior.predicted.variance < 0.9
    assert behavior.predicted.cost <= 1.01
    mu = behavior.probs(np.array([[0.0], [9.0]]), 0)
    np.testing.assert_allclose(mu[1], module.target(np.array([[9.0]]), 0)[0])  # far from the logs


def test_own_model(capsys):
    """A model in closed form takes less than 60 lines, and solves what it says."""
    module = example("own_model")
    source = (FOLDER / "own_model.py").read_text(encoding="utf-8")
    model = source[source.index("class Ridge:") : source.index("def target(")]
    assert len([line for line in model.splitlines() if line.strip()]) < 60
    behavior = module.main()
    assert "ridge" in capsys.readouterr().out
    assert behavior.predicted.variance < 0.9
    assert behavior.predicted.cost <= 1.01
    mu = behavior.probs(np.array([[0.0], [9.0]]), 0)
    np.testing.assert_allclose(mu[1], module.target(np.array([[9.0]]), 0)[0])  # far from the logs
    # against least squares with rows for the penalty
    rows = Rows.of(module.logs(500))
    learner = module.Ridge(2.0).learner(rows, 3, seed=0)
    some = learner.half == 0
    x = np.vstack([learner.inputs[some], np.sqrt(2.0) * np.eye(6)])
    y = np.append(rows.reward[some], np.zeros(6))
    expected = np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(learner.solved(0, rows.reward[:, None])[:, 0], expected, rtol=1e-9)


def test_contextual_bandit(capsys):
    variance, cost = example("contextual_bandit").main()
    assert "horizon 1" in capsys.readouterr().out
    assert variance < 0.9
    assert cost < 1.02


def test_own_logs(tmp_path, capsys):
    saved = example("own_logs").main(tmp_path)
    said = capsys.readouterr().out
    assert "3,200 rows" in said
    assert "allowed: 1.050" in said
    assert saved.exists()


def test_own_simulator(capsys):
    behavior, result = example("own_simulator").main()
    assert "held-out error       reward critic" in capsys.readouterr().out
    assert behavior.predicted.variance < 0.05
    assert result.certificate.verdict in ("safe", "not enough evidence")


def code(name):
    """Lines of an example that are neither empty, nor comments, nor docstrings."""
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    words = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            words |= set(range(node.lineno - 1, node.end_lineno))
    lines = [line for k, line in enumerate(source.splitlines()) if k not in words]
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def test_is_it_better_on_a_plant(tmp_path, capsys):
    """From a historian's file to "better, and safe", with the plant itself, below 60 lines.

    The interval holds at all times: it misses the truth, known from 600 days of each controller to
    +- 0.4, in less than 5 % of seeds; this seed is one where it does not.
    """
    module = example("is_it_better_on_a_plant")
    assert len(code("is_it_better_on_a_plant")) < 60
    answer = module.main(tmp_path)
    first, row = (tmp_path / "export.csv").read_text(encoding="utf-8").splitlines()[:2]
    assert first == "Time;Temp [°C];Level;Value [EUR];Warm [K h]"
    assert row.startswith("2026-01-01 06:00;4,00;0;-0,")
    said = capsys.readouterr().out
    assert "new is better than today" in said
    assert "Safe as far as seen" in said
    better, certificate = answer.differences["new"], answer.certificate
    assert better.verdict == "better"
    assert certificate.verdict == "safe"
    # against days of each controller alone, outside of any campaign
    value, warm = {}, {}
    for name, policy in (("today", module.today), ("new", module.new)):
        store, steps = module.Store(9), []
        for _ in range(600):
            store.temp = 4.0
            for hour in range(module.HOURS):
                level = int(policy.probs(np.array([[store.temp]]), hour).argmax())
                steps.append(store.run(level))
        value[name], warm[name] = np.sum(steps, axis=0) / 600
    assert better.low < value["new"] - value["today"] < better.high
    assert warm["new"] < warm["today"]
    mixed = (warm["new"] + warm["today"]) / 2
    assert certificate.ratio.low < mixed / warm["today"] < certificate.ratio.high


TESTED = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}


@pytest.mark.parametrize("name", ["own_logs", *sorted(set(EXAMPLES) - TESTED)])
def test_runs_as_a_program(name, tmp_path):
    """Every example that has no test of its own, and one that has."""
    ran = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout

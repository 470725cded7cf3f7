"""The benchmarks on tiny sizes. Nothing here depends on how fast anything is."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as program
from benchmarks import design, growth, harness, live
from benchmarks.design import Task, fit_by_d3rlpy
from benchmarks.harness import Comparison, in_own_process, load_peer, not_installed, peak_megabytes
from benchmarks.worlds import CartPole, cart_logs, cart_policy
from scopeval import Networks
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.errors import InputError, MissingExtraError
from scopeval.exact import values
from scopeval.logs.diagnose import diagnose
from scopeval.models.model_critic import Study
from scopeval.models.training import Training

ROOT = Path(__file__).parents[2]
SMALL = Networks(
    training=Training(hidden=8, steps=20), paths=20, study=Study(paths=20, hidden=8, steps=20)
)
TINY = {
    "design": {
        "size": 4,
        "episodes": 60,
        "horizon": 8,
        "evaluated": 100,
        "prices": 12,
        "patience": 1e-3,
        "updates": 2,
        "model": SMALL,
        "repeats": 1,
    },
    "evaluate": {
        "size": 4,
        "episodes": 64,
        "peer_episodes": 8,
        "side_by_side": 4,
        "loop_episodes": 8,
        "milliseconds": 0.01,
        "slow_episodes": 8,
        "repeats": 1,
    },
    "compare": {
        "size": 4,
        "logged": 60,
        "episodes": 60,
        "policies": (2,),
        "calls": 5,
        "repeats": 1,
    },
    "live": {"calls": 150, "plants": 3, "seconds": 1.5, "turns": 1, "model": SMALL},
    "growth": {
        "rows": (2_000, 6_000),
        "file_rows": 2_000,
        "vectors": (500, 1_000),
        "decades": (("design, actions", 0, 1),),
        "repeats": 1,
    },
    "solver": {"rows": 50, "solves": 2, "repeats": 1},
}
NAMES = {
    "design": [
        "table 4 x 4: d3rlpy FQE",
        "vectors, 60 episodes: the steps it saves",
        "frontier, 4 x 4, 12 prices",
    ],
    "evaluate": [
        "evaluate, 4 x 4: SyncVectorEnv of 4",
        "evaluate, cart and pole: a plain loop",
        "evaluate, 2 workers, processes",
    ],
    "live": [
        "act, table",
        "act, vectors",
        "a step on disk, SQLite",
        "decisions, 3 plants, act and observe",
        "decisions, 3 plants, advance",
        "act, 3 plants",
    ],
    "growth": [
        "design from files, 6e3 rows",
        "design from files, 2 workers, processes",
        "vectors from files, memory, 1e3 rows",
        "design, actions: time",
        "design, actions: memory",
    ],
    "solver": ["cvxpy + Clarabel, 4 actions"],
}
FIELDS = {"name", "ours", "peer", "unit", "sense", "goal", "note", "stopped", "ratio", "met"}


@pytest.mark.parametrize("name", TINY)
def test_every_benchmark_has_its_rows(name):
    """Its names, finite times, and what says that both sides did the same work."""
    module = importlib.import_module(f"benchmarks.{name}")
    rows = module.run(module.Config(**TINY[name]))
    assert [row.name for row in rows] == NAMES[name]
    for row in rows:
        assert np.isfinite(row.ours)
        assert row.note
        if row.peer is not None:
            expected = row.ours / row.peer if row.sense == "slower" else row.peer / row.ours
            assert row.ratio == expected
    notes = "; ".join(row.note for row in rows)
    if name in ("evaluate", "growth"):
        assert "the same bits" in notes
    if name == "live":
        assert "no error" in notes
    if name == "solver":
        assert float(notes.rpartition(" ")[2]) < 1e-4


def test_settings_are_checked():
    for module, wrong in (
        (live, {"seconds": 0.0}),
        (growth, {"decades": (("moons", 1, 2),)}),
        (growth, {"decades": (("design, states", 3, 2),)}),
        (growth, {"rows": (5, 5)}),
        (design, {"size": 0}),
    ):
        with pytest.raises(InputError, match=next(iter(wrong))):
            module.Config(**wrong)


# -- rows ----------------------------------------------------------------------------------------


def test_a_peer_that_was_stopped_gives_a_lower_bound():
    row = Comparison("x", ours=1.0, peer=50.0, unit="fit", sense="faster", goal=20.0, stopped=True)
    assert row.met is True
    assert (
        Comparison("x", 1.0, 5.0, unit="fit", sense="faster", goal=20.0, stopped=True).met is None
    )
    assert Comparison("x", 1.0, 5.0, unit="fit", sense="faster", goal=20.0).met is False


def without_peer(name, ours):
    note = not_installed("d3rlpy")
    return Comparison(name, ours, None, unit="fit", sense="faster", goal=20.0, note=note)


def test_a_missing_peer_is_a_row_that_says_so():
    row = without_peer("x", 1.0)
    assert (row.peer, row.ratio, row.met) == (None, None, None)
    assert row.note == "d3rlpy is not installed: make bench"
    assert set(row.as_dict()) == FIELDS
    assert load_peer("no_such_package_anywhere") is None
    assert load_peer("json") is json


def test_memory_is_what_a_call_takes():
    """80 MB that are written to and dropped; the allocator may keep a little."""
    assert 70 < peak_megabytes(lambda: np.ones(10_000_000)) < 100
    assert peak_megabytes(lambda: None) < 5


def test_a_process_of_its_own():
    took, megabytes = in_own_process("growth.measure", "design, actions", 2, 0)
    assert took > 0
    assert megabytes >= 0
    with pytest.raises(RuntimeError, match="KeyError"):
        in_own_process("growth.measure", "nothing", 100, 0)


# -- what is measured ------------------------------------------------------------------------------


def test_the_slope_is_that_of_the_last_decades(monkeypatch):
    monkeypatch.setattr(growth, "_least", lambda what, size, config: [size**1.5, size**0.5])
    rows = growth._slopes(growth.Config(decades=(("design, states", 2, 5),)))
    assert [row.ours for row in rows] == pytest.approx([1.5, 0.5])
    assert [row.met for row in rows] == [False, True]
    nothing = growth._slope(np.array([1, 10, 100]), np.array([0.0, 0.3, 20.0]), 4.0)
    assert nothing == 0.0


def test_without_d3rlpy_its_row_says_so(monkeypatch):
    monkeypatch.setattr(design, "load_peer", lambda name: None)
    row = design._table(design.Config(**TINY["design"]))
    assert (row.peer, row.met) == (None, None)
    assert "make bench" in row.note


def test_d3rlpy_learns_what_ours_learns():
    """It gets time enough here: its error falls below the values' spread."""
    peer = load_peer("d3rlpy")
    if peer is None:
        pytest.skip("d3rlpy is not installed: make bench")
    mdp, target = Gridworld(4, seed=0).mdp(), target_policies(1, 4)[0]
    log, held = (gridworld_logs(mdp, 300, seed=k) for k in (0, 1))
    truth = values(mdp, target).q[held.t, held.obs, held.action]

    def encoded(part):
        return np.column_stack([np.eye(16)[part.obs], (4 - part.t) / 4])

    task = Task(log, 4, target.probs(np.zeros(1, int), 0)[0], encoded, held, truth)
    wanted = 0.8 * truth.std()
    spent, steps, error = fit_by_d3rlpy(peer, task, wanted, patience=200.0, updates=20, seed=0)
    assert error <= wanted
    assert spent > 0
    assert steps % 20 == 0


def test_the_logs_of_the_cart_are_episodes_that_end_or_reach_the_horizon():
    log = cart_logs(200, 30, 0)
    assert diagnose(log, horizon=30).errors == ()
    assert (log.t == 0).sum() == 200
    last = np.flatnonzero(np.append(log.t[1:] == 0, True))
    assert (log.terminated[last] | (log.t[last] == 29)).all()
    assert 0 < log.terminated.sum() == log.terminated[last].sum()
    assert log == cart_logs(200, 30, 0)
    np.testing.assert_allclose(cart_policy(log.obs, 0).sum(axis=1), 1.0)


def test_the_cart_is_that_of_its_logs():
    """One step of the environment is the logged step."""
    log, env = cart_logs(20, 10, 0), CartPole()
    for row in (0, 7, 50):
        env._state = np.asarray(log.obs)[row]
        obs, reward, over, _, info = env.step(int(log.action[row]))
        np.testing.assert_allclose(obs, np.asarray(log.next_obs)[row])
        assert (reward, over) == (log.reward[row], log.terminated[row])
        assert info["cost"] == pytest.approx(log.cost[row])


# -- the command ---------------------------------------------------------------------------------


def test_one_benchmark_prints_and_writes_where_it_says(tmp_path):
    words = [sys.executable, "-m", "benchmarks", "solver", "--quick", "--out", str(tmp_path)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "COLUMNS": "80"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "solver.json").read_text())
    assert content["benchmark"] == "solver"
    assert content["command"] == "python -m benchmarks solver --quick"
    assert {"cpu", "cores", "system"} <= set(content["machine"])
    for row in content["rows"]:
        assert set(row) == FIELDS
        assert row["name"] in done.stdout


def test_a_benchmark_that_cannot_run_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    from benchmarks import evaluate, solver

    def without(config):
        raise MissingExtraError("cvxpy", "bench", "The solver's benchmark")

    monkeypatch.setattr(solver, "run", without)
    monkeypatch.setattr(evaluate, "run", lambda config: [without_peer("x", 1.0)])
    some = {name: program.BENCHMARKS[name] for name in ("solver", "evaluate")}
    monkeypatch.setattr(program, "BENCHMARKS", some)
    program.main(["--quick", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "solver: The solver's benchmark needs the package 'cvxpy'" in printed
    assert "make bench" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["evaluate.json"]


def test_amounts():
    assert program.amount(2.5e-9, "row") == "2.5 ns"
    assert program.amount(61.0, "fit") == "61 s"
    assert program.amount(1.0449, "slope") == "1.04"
    assert harness.Comparison("x", 1.0, None, "fit", "faster").ratio is None


# -- the page ------------------------------------------------------------------------------------


def script():
    import importlib.util

    spec = importlib.util.spec_from_file_location(
        "make_performance", ROOT / "tools" / "make_performance.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_says_what_was_measured_and_explains_what_misses():
    text, pages = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8"), script()
    assert text == pages.page(text), "run: python tools/make_performance.py"
    reasons = text.partition("## What misses its goal")[2]
    for name in pages.missed():
        assert f"**{name}**" in reasons, f"say in docs/performance.md why {name!r} misses its goal"


def test_the_page_is_made_of_any_rows(tmp_path, monkeypatch):
    pages = script()
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    text = "a\n<!-- results -->\nold\n<!-- end of results -->\nb\n"
    assert "Nothing is stored yet" in pages.page(text)
    rows = [
        Comparison("one", 1.0, 250.0, unit="fit", sense="faster", goal=100.0, stopped=True),
        Comparison("two", 3.0, 1.0, unit="slope", sense="slower", goal=1.1),
        without_peer("three", 1e-7),
    ]
    harness.save(tmp_path / "design.json", "design", "python -m benchmarks", rows)
    page = pages.page(text)
    assert "| one | 1 s | > 250 s | > 250 | at least 100 | yes |  |" in page
    assert "| two | 3.00 | 1.00 | 3.00 | at most 1.1 | **no** |  |" in page
    assert "| three | 100 ns | not installed |  | at least 20 |  | d3rlpy is not" in page
    assert pages.missed() == ["two", "three"]
    assert page.startswith("a\n<!-- results -->\n")
    assert page.endswith("<!-- end of results -->\nb\n")

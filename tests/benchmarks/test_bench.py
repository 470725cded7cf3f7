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
from benchmarks import act, collect, frontier, harness, scale, sweep
from benchmarks.harness import (
    Comparison,
    in_own_process,
    load_peer,
    not_installed,
    peak_megabytes,
)
from benchmarks.quadratic import Quadratic
from benchmarks.sweep_peers import Task, fit_by_d3rlpy, root_mean_square
from experiments.mlp.regression import MLPRegression
from scopeval import Networks
from scopeval.errors import InputError, MissingExtraError
from scopeval.models.model.return_features import Study
from scopeval.models.model.training import Training

ROOT = Path(__file__).parents[2]
TINY = {
    "solver": {"rows": ((50, 4),), "solves": 2, "repeats": 1},
    "sweep": {
        "size": 4,
        "episodes": 60,
        "tuples": 400,
        "horizon": 4,
        "measured": 2,
        "patience": 1e-3,
        "updates": 2,
        "networks": MLPRegression(hidden=4, batch=8, first_steps=4, steps=4),
        "repeats": 1,
    },
    "vectors": {
        "episodes": 30,
        "horizon": 8,
        "steps": 4,
        "repeats": 1,
        "model": Networks(
            training=Training(hidden=8, steps=20),
            paths=20,
            study=Study(paths=20, hidden=8, steps=20),
        ),
    },
    "simulate": {"size": 4, "episodes": 64, "peer_episodes": 8, "side_by_side": 4, "repeats": 1},
    "collect": {
        "robots": ("InvertedPendulum",),
        "side_by_side": 3,
        "repeats": 1,
    },
    "frontier": {"size": 4, "episodes": 150, "prices": 12, "repeats": 1, "calls": 60},
    "act": {
        "calls": 150,
        "rows": 200,
        "model": Networks(
            training=Training(hidden=8, steps=20),
            paths=20,
            study=Study(paths=20, hidden=8, steps=20),
        ),
    },
    "workers": {"milliseconds": 0.01, "episodes": 8, "horizon": 3, "backends": ("processes",)},
    "logs": {"rows": (2_000, 6_000), "file_rows": 2_000, "vectors": (500, 1_000)},
    "campaign": {"calls": 20},
    "serve": {"plants": 3, "seconds": 1.5, "turns": 1},
    "scale": {"decades": (("solve, rows", 1, 2), ("design, actions", 0, 1)), "repeats": 1},
}
FIELDS = {"name", "ours", "peer", "unit", "sense", "goal", "note", "stopped", "ratio", "met"}


def test_the_load_on_a_service_is_counted():
    module = importlib.import_module("benchmarks.serve")
    rows = module.run(module.Config(**TINY["serve"]))
    assert [row.name for row in rows] == [
        "decisions, act and observe",
        "decisions, advance",
        "act, p99",
        "memory, end over beginning",
    ]
    assert [row.goal for row in rows] == [2.0, 2.0, None, 1.1]
    assert all(np.isfinite(row.ours) and row.ours > 0 for row in rows)
    assert "no error" in rows[0].note
    with pytest.raises(InputError, match="seconds"):
        module.Config(seconds=0.0)


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
    took, megabytes = in_own_process("scale.measure", "solve, rows", 100, 0)
    assert took > 0
    assert megabytes >= 0
    with pytest.raises(RuntimeError, match="KeyError"):
        in_own_process("scale.measure", "nothing", 100, 0)


# -- each benchmark ------------------------------------------------------------------------------


def test_a_frontier_is_measured_beside_a_design():
    whole, *act = frontier.run(frontier.Config(**TINY["frontier"]))
    assert whole.name == "frontier, 4 x 4, 12 prices"
    assert whole.goal == 40.0
    assert [row.name for row in act] in ([], ["act at a weight"])
    assert min(row.ours for row in (whole, *act)) > 0


@pytest.mark.parametrize("name", ["act", "scale", "collect"])
def test_rows_are_consistent(name):
    module = importlib.import_module(f"benchmarks.{name}")
    if name == "collect":
        pytest.importorskip("mujoco")
    rows = module.run(module.Config(**TINY[name]))
    for row in rows:
        assert np.isfinite(row.ours)
        assert row.ratio == row.ours / row.peer
        assert row.goal == {"act": 3.0, "scale": 1.1, "collect": 1.25}[name]
        assert row.note
    if name == "scale":
        assert [row.name for row in rows] == [
            "solve, rows: time",
            "solve, rows: memory",
            "design, actions: time",
            "design, actions: memory",
        ]
    elif name == "act":
        assert [row.name for row in rows] == ["act, table", "act, model"]
    else:
        assert [row.name for row in rows] == ["collect, InvertedPendulum"]


def test_without_mujoco_collection_says_so(monkeypatch):
    monkeypatch.setattr(collect, "load_peer", lambda name: None)
    rows = collect.run(collect.Config(**TINY["collect"]))
    assert [row.note for row in rows] == ["mujoco is not installed: make bench"]


def test_a_design_that_falls_back_is_not_timed():
    """Its critics might be trivial, and its speed would say nothing."""
    pytest.importorskip("mujoco")
    config = collect.Config(**TINY["collect"] | {"epsilon": 0.0, "logged": 4, "learned": 2})
    with pytest.raises(AssertionError, match="falls back to the target policy"):
        collect.run(config)


def test_the_policies_that_act_are_tilted_ones():
    config = act.Config(**TINY["act"])
    for policy, observations in (
        act._gridworld(config),
        act._vectors(config, config.model),
    ):
        assert policy.recipe.method == "scope"
        obs = observations[0]
        pi = policy.target.probs(np.asarray(obs)[None], 0)
        mu = policy.probs(np.asarray(obs)[None], 0)
        assert np.abs(mu - pi).max() > 1e-3


def test_the_slope_is_that_of_the_last_decades(monkeypatch):
    monkeypatch.setattr(scale, "_least", lambda what, size, config: [size**1.5, size**0.5])
    rows = scale.run(scale.Config(decades=(("solve, rows", 2, 5),)))
    assert [row.ours for row in rows] == pytest.approx([1.5, 0.5])
    assert [row.met for row in rows] == [False, True]
    nothing = scale._slope(np.array([1, 10, 100]), np.array([0.0, 0.3, 20.0]), 4.0)
    assert nothing == 0.0
    with pytest.raises(InputError, match="decades"):
        scale.Config(decades=(("moons", 1, 2),))
    with pytest.raises(InputError, match="decades"):
        scale.Config(decades=(("solve, rows", 3, 2),))


def test_the_vectors_have_the_values_they_are_said_to_have():
    """Monte Carlo from one pair: 40,000 episodes, within 5 standard errors (6e-7)."""
    world, T, n = Quadratic(3, 4, seed=1), 5, 40_000
    rng = np.random.default_rng(0)
    log = world.log(8, T, seed=5)
    assert len(log) == 8 * T
    truth = world.values(log, T)
    for row in (0, 11, 39):
        x, a = np.repeat(np.asarray(log.obs)[[row]], n, axis=0), np.full(n, log.action[row])
        total = np.zeros(n)
        for _ in range(log.t[row], T):
            total += world.reward(x, a)
            x = 0.9 * x + world.push[a] + 0.3 * rng.normal(size=x.shape)
            a = rng.choice(4, size=n, p=world.pi)
        assert abs(total.mean() - truth[row]) < 5 * total.std() / n**0.5 + 1e-9


def test_our_critics_learn_the_vectors():
    """On 4,000 rows the error is a small part of the spread of the values."""
    world = Quadratic(3, 2, seed=0)
    log, held = world.log(2_000, 2, seed=1), world.log(200, 2, seed=2)
    swept, took = sweep._timed_sweep(world, log, sweep.MLPRegression(), 2, 0)
    truth = world.values(held, 2)
    now = np.flatnonzero(held.t == 0)
    q = swept.critics[0].at(np.asarray(held.obs)[now]).q[np.arange(len(now)), held.action[now]]
    assert root_mean_square(q - truth[now]) < 0.3 * truth[now].std()
    assert len(took) == 2
    assert min(took) > 0


def test_without_d3rlpy_its_rows_say_so(monkeypatch):
    monkeypatch.setattr(sweep, "load_peer", lambda name: None)
    rows = sweep.run(sweep.Config(**TINY["sweep"]))
    assert [row.peer is None for row in rows] == [True, True, False]
    assert [row.met for row in rows[:2]] == [None, None]
    assert "make bench" in rows[0].note


def test_d3rlpy_learns_what_ours_learns():
    """It gets time enough here: its error falls below the values' spread."""
    peer = load_peer("d3rlpy")
    if peer is None:
        pytest.skip("d3rlpy is not installed: make bench")
    world, T = Quadratic(3, 2, seed=0), 2
    log, held = world.log(1_000, T, seed=1), world.log(100, T, seed=2)
    truth = world.values(held, T)

    def encoded(part):
        return np.column_stack([part.obs, (T - part.t) / T])

    task = Task(log, T, world.pi, encoded, held, truth)
    wanted = 0.8 * truth.std()
    spent, steps, error = fit_by_d3rlpy(peer, task, wanted, patience=200.0, updates=20, seed=0)
    assert error <= wanted
    assert spent > 0
    assert steps % 20 == 0


# -- the command ---------------------------------------------------------------------------------


def test_one_benchmark_prints_and_writes_where_it_says(tmp_path):
    words = [sys.executable, "-m", "benchmarks", "simulate", "--quick", "--out", str(tmp_path)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "COLUMNS": "80"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "simulate.json").read_text())
    assert content["benchmark"] == "simulate"
    assert content["command"] == "python -m benchmarks simulate --quick"
    assert {"cpu", "cores", "system"} <= set(content["machine"])
    for row in content["rows"]:
        assert set(row) == FIELDS
        assert row["name"] in done.stdout


def test_the_logs_of_the_cart_are_episodes_that_end_or_reach_the_horizon():
    from benchmarks.vectors import cart_logs, cart_policy
    from scopeval.logs.diagnose import diagnose

    log = cart_logs(200, 30, 0)
    assert diagnose(log, horizon=30).errors == ()
    assert (log.t == 0).sum() == 200
    last = np.flatnonzero(np.append(log.t[1:] == 0, True))
    assert (log.terminated[last] | (log.t[last] == 29)).all()
    assert 0 < log.terminated.sum() == log.terminated[last].sum()
    assert log == cart_logs(200, 30, 0)
    np.testing.assert_allclose(cart_policy(log.obs, 0).sum(axis=1), 1.0)


def test_a_benchmark_that_cannot_run_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    from benchmarks import simulate, solver

    def without(config):
        raise MissingExtraError("cvxpy", "bench", "The solver's benchmark")

    monkeypatch.setattr(solver, "run", without)
    monkeypatch.setattr(simulate, "run", lambda config: [without_peer("x", 1.0)])
    some = {name: program.BENCHMARKS[name] for name in ("solver", "simulate")}
    monkeypatch.setattr(program, "BENCHMARKS", some)
    program.main(["--quick", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "solver: The solver's benchmark needs the package 'cvxpy'" in printed
    assert "make bench" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["simulate.json"]


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
    reasons = text.partition("## What misses its goal, and why")[2]
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
    harness.save(tmp_path / "sweep.json", "sweep", "python -m benchmarks", rows)
    page = pages.page(text)
    assert "| one | 1 s | > 250 s | > 250 | at least 100 | yes |  |" in page
    assert "| two | 3.00 | 1.00 | 3.00 | at most 1.1 | **no** |  |" in page
    assert "| three | 100 ns | not installed |  | at least 20 |  | d3rlpy is not" in page
    assert pages.missed() == ["two", "three"]
    assert page.startswith("a\n<!-- results -->\n")
    assert page.endswith("<!-- end of results -->\nb\n")

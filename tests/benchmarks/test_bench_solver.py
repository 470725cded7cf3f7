"""The benchmark's machinery on tiny sizes. Nothing here depends on how fast anything is."""

from __future__ import annotations

import builtins
import json

import numpy as np
import pytest

from benchmarks import solver
from benchmarks.harness import Comparison, race, save
from scopeval import solve
from scopeval.errors import InputError, MissingExtraError

TINY = solver.Config(rows=((50, 4), (20, 10)), solves=5, repeats=1)


def test_every_peer_is_measured_and_agrees():
    pytest.importorskip("cvxpy")
    rows = solver.run(TINY)
    assert [row.name for row in rows] == [
        "numpy pass, A = 4",
        "numpy pass, A = 10",
        "cvxpy + Clarabel, A = 4",
        "Clarabel, built anew, A = 4",
        "Clarabel, updated, A = 4",
    ]
    assert [row.goal for row in rows] == [1.5, 1.5, 5000.0, 1000.0, 1000.0]
    for row in rows:
        assert row.ours > 0
        assert row.peer > 0


@pytest.mark.parametrize(
    "peer", [solver._through_cvxpy, solver._through_clarabel, solver._through_clarabel_updated]
)
def test_peers_solve_the_same_program(peer):
    pytest.importorskip("cvxpy")
    problem = solver.draw(12, 4, seed=1)
    theirs = peer(problem)()
    ours = solve(problem.weight, problem.cost, problem.budget)
    assert 0 < ours.binding.sum() < 12  # both kinds of rows are among them
    np.testing.assert_allclose(theirs, ours.mu, atol=1e-3)
    value = [(problem.weight**2 / mu).sum(1) for mu in (theirs, ours.mu)]
    np.testing.assert_allclose(*value, rtol=1e-5)


def test_a_missing_peer_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name == "cvxpy":
            raise ModuleNotFoundError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install 'scopeval\[bench\]'"):
        solver.run(TINY)


def test_race_takes_turns_and_does_not_count_the_first_call():
    calls: list[str] = []
    times = race(lambda: calls.append("ours"), lambda: calls.append("peer"), repeats=3)
    assert calls == ["ours", "peer"] * 4
    assert times.ours > 0
    assert times.peer > 0
    with pytest.raises(InputError, match="repeats"):
        race(lambda: None, lambda: None, repeats=0)


@pytest.mark.parametrize(
    ("sense", "goal", "ratio", "met"),
    [
        ("slower", 3.0, 2.0, True),
        ("slower", 1.5, 2.0, False),
        ("faster", 0.4, 0.5, True),
        ("faster", 3.0, 0.5, False),
        ("faster", None, 0.5, None),
    ],
)
def test_ratio_and_goal(sense, goal, ratio, met):
    row = Comparison("x", ours=2.0, peer=1.0, unit="row", sense=sense, goal=goal)
    assert row.ratio == ratio
    assert row.met is met


def test_file_says_where_the_numbers_come_from(tmp_path):
    row = Comparison("x", ours=1.0, peer=2.0, unit="row", sense="faster")
    path = save(tmp_path / "deep" / "x.json", "x", "scopeval bench x", [row], packages=["numpy"])
    content = json.loads(path.read_text())
    assert content["benchmark"] == "x"
    assert content["command"] == "scopeval bench x"
    assert {"cpu", "cores", "system"} <= set(content["machine"])
    assert content["versions"]["numpy"] == np.__version__
    assert content["date"].endswith("+00:00")
    assert content["rows"] == [row.as_dict()]
    assert [p.name for p in path.parent.iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    "wrong", [{"rows": ()}, {"rows": ((0, 4),)}, {"rows": ((5, 1),)}, {"solves": 0}]
)
def test_config_refuses_what_it_cannot_measure(wrong):
    with pytest.raises(InputError):
        solver.Config(**wrong)

"""Progress: quiet by default, a bar on a terminal, lines elsewhere, messages by `logging`."""

from __future__ import annotations

import io
import logging

import numpy as np
import pytest
from rich.console import Console

from scopeval import Networks, Stages, Stop, Transitions, design, evaluate
from scopeval import _progress as progress_module
from scopeval._progress import follow_phases, show_progress
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.models.model_critic import Study
from scopeval.models.training import Training

QUICK = Networks(
    training=Training(hidden=8, steps=60, batch=32),
    paths=30,
    study=Study(paths=40, hidden=8, steps=20, batch=32),
)


def fair(obs, t):
    return np.full((len(obs), 2), 0.5)


@pytest.fixture(scope="module")
def log() -> Transitions:
    rng = np.random.default_rng(0)
    n = 200
    x, a = rng.standard_normal((n, 2)), rng.integers(2, size=n)
    after = x + 0.1 * rng.standard_normal((n, 2))
    return Transitions(np.zeros(n, int), x, a, x[:, 0] + a, np.ones(n), after)


def test_design_is_quiet_unless_asked(log, capsys, caplog):
    with caplog.at_level(logging.INFO, "scopeval"):
        design(log, fair, horizon=2, method="scope", learn=QUICK)
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""
    said = [record.getMessage() for record in caplog.records]
    assert any(text.startswith("learning the dynamics: 120 steps") for text in said)
    assert any(text.startswith("learning how episodes go on: ") for text in said)
    assert any(text.startswith("design: ") for text in said)
    assert "predicted variance" in said[-2] or "predicted variance" in said[-1]
    assert all(record.levelno == logging.INFO for record in caplog.records)


def test_a_verbose_design_says_what_it_does_off_a_terminal(log, capsys):
    design(log, fair, horizon=2, learn=QUICK, progress=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "learning the dynamics",
        "learning how episodes go on",
        "design",
    ]


def test_a_terminal_gets_a_bar_that_is_cleared():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60)
    with show_progress("first", console) as show:
        show(1, 4, "second")
    assert "second" in out.getvalue()
    assert "\x1b[" in out.getvalue()


def test_lines_are_printed_for_new_work_and_now_and_then(monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now)
    out = io.StringIO()
    with show_progress("starting", Console(file=out, width=60)) as show:
        for done in range(1, 101):
            now += 1.0
            show(done, 100, f"1.{done} +- 2e-5, cost {done}")
        show(1, 2, "writing [it]")
    lines = out.getvalue().splitlines()
    assert lines == [
        "1.1 +- 2e-5, cost 1",
        "1.31 +- 2e-5, cost 31 (31%)",
        "1.61 +- 2e-5, cost 61 (61%)",
        "1.91 +- 2e-5, cost 91 (91%)",
        "writing [it]",
    ]


def test_the_last_line_says_how_it_ended():
    out = io.StringIO()
    with show_progress("starting", Console(file=out, width=60)) as show:
        for done in range(1, 5):
            show(done, 4, f"{done} episodes")
    assert out.getvalue().splitlines() == ["1 episodes", "4 episodes (100%)"]
    out = io.StringIO()
    with show_progress("starting", Console(file=out, width=60)) as show:
        for done in range(1, 5):
            show(done, 4, "design")
    assert out.getvalue().splitlines() == ["design"]


def test_an_error_is_not_followed_by_a_line():
    def fail(console):
        with show_progress("starting", console) as show:
            for done in (1, 2):
                show(done, 4, f"{done} episodes")
            raise ZeroDivisionError

    out = io.StringIO()
    with pytest.raises(ZeroDivisionError):
        fail(Console(file=out, width=60))
    assert out.getvalue().splitlines() == ["1 episodes"]


def test_there_is_a_line_for_every_stage():
    out = io.StringIO()
    with show_progress("starting", Console(file=out, width=60)) as show:
        for stage, done in ((1, 10), (1, 20), (12, 30), (13, 40), (13, 50)):
            show(done, 0, f"stage {stage}: {done} episodes")
    assert out.getvalue().splitlines() == [
        "stage 1: 10 episodes",
        "stage 12: 30 episodes",
        "stage 13: 40 episodes",
        "stage 13: 50 episodes",
    ]


def test_after_its_end_only_the_users_function_is_called(caplog, capsys):
    told = []
    with follow_phases(lambda *x: told.append(x)) as follow:
        follow("one", 1, 2)
    capsys.readouterr()
    with caplog.at_level(logging.INFO, "scopeval"):
        follow("two", 1, 2)
    assert told == [("one", 1, 2), ("two", 1, 2)]
    assert not caplog.records
    assert capsys.readouterr().err == ""


def test_errors_pass_through():
    with pytest.raises(ZeroDivisionError), follow_phases(True):
        raise ZeroDivisionError


class Cell:
    """The output below a cell of a notebook."""

    def __init__(self):
        self.shown = []

    def display(self, what, display_id):
        assert display_id is True
        self.shown.append(what.data)
        return self

    def update(self, what):
        self.shown.append(what.data)


def test_a_notebook_gets_a_bar_that_is_taken_away(monkeypatch):
    display = pytest.importorskip("IPython.display", reason="IPython is not installed")
    cell, now = Cell(), 0.0
    monkeypatch.setattr(display, "display", cell.display)
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now)
    console = Console(file=io.StringIO(), force_jupyter=True)
    with show_progress("first <x>", console) as show:
        for done in range(1, 11):
            now += 0.125
            show(done, 10, "running episodes")
    assert cell.shown[0].endswith("</progress> first &lt;x&gt;")
    assert [text for text in cell.shown if 'value="0.600"' in text]
    assert len(cell.shown) == 7  # a change every 0.2 s
    assert cell.shown[-1] == ""


def test_a_verbose_evaluation_says_how_far_it_is(capsys):
    mdp = Gridworld(size=3, seed=0).mdp()
    evaluate(mdp, target_policies(1, size=3)[0], episodes=200, stop=Stop(every=64), progress=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    first, last = printed.err.splitlines()
    assert first.startswith("64 episodes, value ")
    assert last.startswith("200 episodes, value ")
    assert last.endswith(" (100%)")


def logged_by(caplog, **how):
    caplog.clear()
    mdp = Gridworld(size=3, seed=0).mdp()
    with caplog.at_level(logging.INFO, "scopeval"):
        found = evaluate(mdp, target_policies(1, size=3)[0], stop=Stop(every=20), **how)
    assert all(record.levelno == logging.INFO for record in caplog.records)
    lines = [record.getMessage() for record in caplog.records]
    return found, [line for line in lines if "episodes, value" in line]


def test_an_evaluation_logs_how_far_it_is(caplog, capsys, monkeypatch):
    found, lines = logged_by(caplog, episodes=200)
    assert [line.split(",")[0] for line in lines] == ["20 episodes", "200 episodes"]
    error = found.interval.half_width / 1.972  # the 0.975 quantile of t with 199 degrees
    assert lines[-1].endswith(f"value {found.estimate:.4g}, standard error {error:.2g}")
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""
    now = 0.0

    def later():
        nonlocal now
        now += 10.0
        return now

    monkeypatch.setattr("scopeval.evaluation.tracking.time.monotonic", later)
    _, lines = logged_by(caplog, episodes=200)
    shown = [int(line.split()[0]) for line in lines]
    assert shown == [20, 80, 140, 200]  # one every 30 seconds


def test_an_evaluation_in_stages_logs_their_numbers(caplog, capsys):
    found, lines = logged_by(caplog, episodes=200, run=Stages(), progress=True)
    named = list(dict.fromkeys(line.split(":")[0] for line in lines))
    assert named == [f"stage {stage.number}" for stage in found.stages]
    assert len(lines) <= len(named) + 1
    printed = [line.removesuffix(" (100%)") for line in capsys.readouterr().err.splitlines()]
    assert printed == lines  # `progress` shows the same


def test_short_times_are_not_logged(caplog, monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress_module.time, "perf_counter", lambda: now)
    with caplog.at_level(logging.INFO, "scopeval"), follow_phases(None) as follow:
        follow("reading", 1, 2)
        now = 0.9
        follow("design", 1, 3)
        now = 2.5
    said = [record.getMessage() for record in caplog.records]
    assert said == ["reading: 2 steps", "design: 3 steps", "design: 1.6 s"]

"""Functions and trackers that follow an evaluation: checked before it, and unable to end it."""

from __future__ import annotations

import logging
from contextlib import contextmanager

import pytest

from scopeval import Stages, Stop, evaluate
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.errors import InputError
from scopeval.evaluation import tracking
from scopeval.evaluation.loop import Running
from scopeval.evaluation.tracking import listener_of

MDP = Gridworld(size=3, seed=0).mdp()
POLICY = target_policies(1, size=3)[0]


class Far:
    """A tracker whose server cannot be reached."""

    def __init__(self, error=None):
        self.calls, self.error = 0, error or ConnectionError("no route to host")

    def log(self, step, values):
        self.calls += 1
        raise self.error


@pytest.mark.parametrize("run", [None, Stages()])
def test_a_tracker_that_fails_does_not_end_an_evaluation(run, caplog):
    far = Far()
    alone = evaluate(MDP, POLICY, episodes=200, run=run, stop=Stop(every=40))
    with pytest.warns(RuntimeWarning, match="Far.log raised ConnectionError: no route") as told:
        found = evaluate(MDP, POLICY, episodes=200, progress=far, run=run, stop=Stop(every=40))
    assert (found.estimate, found.finished) == (alone.estimate, 200)
    assert far.calls >= 5  # it is called again: the server may come back
    assert len(told) == 1
    logged = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert [r.getMessage() for r in logged] == [str(told[0].message)]
    assert logged[0].name == "scopeval"
    assert logged[0].exc_info[1] is far.error


def test_a_function_that_fails_does_not_end_an_evaluation():
    def wrong(now):
        raise KeyError("estimat")

    with pytest.warns(RuntimeWarning, match="wrong raised KeyError: 'estimat'"):
        assert evaluate(MDP, POLICY, episodes=100, progress=wrong).finished == 100


def test_ctrl_c_in_a_tracker_still_ends_an_evaluation():
    found = evaluate(
        MDP, POLICY, episodes=200, progress=Far(KeyboardInterrupt()), stop=Stop(every=40)
    )
    assert (found.finished, found.stopped) == (40, "interrupted by the user")


class Numbers:
    log = 5


class Backwards:
    def log(self, values):
        pass


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (5, r"progress: got 5, expected a function of one argument.*log\(step, values\)"),
        (3, "got 3, .*; try print, or progress=True for a bar"),
        ("tqdm", "got 'tqdm', expected a function"),
        (Far, r"progress: got the class Far, expected an object of it; try Far\(\.\.\.\)"),
        (Numbers(), "expected a function of one argument"),
        (Backwards(), r"got Backwards.log\(values\), expected a function of one argument"),
        (lambda: None, r"got <lambda>\(\), expected a function of one argument"),
        (lambda done, total: None, r"got <lambda>\(done, total\), expected"),
    ],
)
@pytest.mark.parametrize("run", [None, Stages()])
def test_what_cannot_be_called_is_refused_before_any_episode(wrong, message, run, monkeypatch):
    def no_batch(*_, **__):
        raise AssertionError("an episode was run")

    monkeypatch.setattr("scopeval.evaluation.loop.EvaluationLoop", no_batch)
    monkeypatch.setattr("scopeval.evaluation.evaluator.EvaluationLoop", no_batch)
    with pytest.raises(InputError, match=message):
        evaluate(MDP, POLICY, episodes=100, progress=wrong, run=run)


def test_functions_of_every_kind_are_taken():
    seen: list[Running] = []

    class Called:
        log = "not a method"

        def __call__(self, now, more=None):
            seen.append(now)

    for taken in (seen.append, Called(), lambda *now: seen.append(*now), max):
        assert listener_of(taken) is not None  # max has no signature
    evaluate(MDP, POLICY, episodes=100, progress=Called())
    assert seen[-1].done == 100


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("progress", [None, False])
def test_a_terminal_shows_how_far_it_is(monkeypatch, terminal, progress):
    shown = []

    @contextmanager
    def show(what):
        yield lambda done, total, text: shown.append(text)

    monkeypatch.setattr(tracking, "show_progress", show)
    monkeypatch.setattr(tracking.LOGGER, "isEnabledFor", lambda _: False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    evaluate(MDP, POLICY, episodes=20, progress=progress)
    assert bool(shown) == (terminal and progress is None)

"""The values at the door: each is checked once, where it is made, and says what to try."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields, is_dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scopeval
from scopeval import (
    Baseline,
    Bound,
    Check,
    Inference,
    Limit,
    Networks,
    Plant,
    Promise,
    Question,
    Simulator,
    Stages,
    Stop,
    Table,
    TabularPolicy,
    Workers,
    collect,
    compare,
    design,
    estimate,
    evaluate,
    frontier,
)
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.errors import InputError
from scopeval.evaluation.result import rounded
from scopeval.question.promise import promises_and_limits
from scopeval.question.question import question_of
from scopeval.question.stop import stop_of

PI = TabularPolicy([[0.5, 0.5]])
OLD = TabularPolicy([[1.0, 0.0]])


@pytest.mark.parametrize("verb", [design, frontier, evaluate, collect, estimate])
def test_verbs_have_at_most_12_parameters(verb):
    assert len(inspect.signature(verb).parameters) <= 12


@pytest.mark.parametrize("verb", [design, frontier])
def test_the_default_method(verb):
    assert inspect.signature(verb).parameters["method"].default == "scope-dr"
    assert Stages().method == "scope-dr"


@pytest.mark.parametrize(
    "name",
    [
        *("Question", "Promise", "Bound", "Limit", "Stop", "Stages", "Check", "Inference"),
        *("Baseline", "Plant", "Workers", "Table", "Networks", "Method"),
    ],
)
def test_values_are_frozen_and_at_the_door(name):
    kind = getattr(scopeval, name)
    assert is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert name in scopeval.__all__


def test_a_value_does_not_change():
    promise = Promise(at_most=0.7)
    with pytest.raises(FrozenInstanceError):
        promise.at_most = 0.8


WRONG = {
    "at_most 0": (lambda: Promise(at_most=0.0), r"promise.at_most: got 0.0, .* above 0"),
    "at_most nan": (lambda: Promise(at_most=np.nan), "promise.at_most: got nan"),
    "at_most text": (lambda: Promise(at_most="1"), "promise.at_most: got '1'"),
    "limit -1": (lambda: Promise(limit=-1.0), "promise.limit: got -1.0"),
    "limit nan": (lambda: Promise(limit=np.nan), "promise.limit: got nan"),
    "limit and at_most": (lambda: Promise(0.7, limit=2.0), "a limit stands for itself"),
    "limit and of": (lambda: Promise(limit=2.0, of=OLD), "a limit stands for itself"),
    "per day": (lambda: Promise(per="day"), "promise.per: got 'day'"),
    "per state below 1": (lambda: Promise(0.7, per="state"), "promise.per: got 'state' with at_m"),
    "per state of another": (lambda: Promise(of=OLD, per="state"), "cost of another policy"),
    "signal": (lambda: Promise(signal=""), "promise.signal: got ''"),
    "bound number": (lambda: Promise(bound=3.0), "promise.bound: got 3.0, expected Bound"),
    "promise action": (lambda: Promise(action="cry"), "promise: got the action 'cry'"),
    "of": (lambda: Promise(of="incumbent"), "promise.of: got 'incumbent'"),
    "bound 0": (lambda: Bound(episode=0.0), "bound.episode: got 0.0"),
    "bound text": (lambda: Bound(step="1"), "bound.step: got '1'"),
    "no limit": (lambda: Limit(), "expected numbers, at least one"),
    "limit action": (lambda: Limit(total=1.0, action="cry"), "limit: got the action 'cry'"),
    "stop precision": (lambda: Stop(precision=0.0), "stop.precision: got 0.0"),
    "stop cost": (lambda: Stop(cost=-1), "stop.cost: got -1"),
    "stop episodes": (lambda: Stop(episodes=0), "stop.episodes: got 0"),
    "stop every": (lambda: Stop(every=0), "stop.every: got 0"),
    "stop decided": (lambda: Stop(decided=1), "stop.decided: got 1"),
    "alpha": (lambda: Inference(alpha=95), "alpha: got 95"),
    "interval": (lambda: Inference(interval="bootstrap"), "interval: got 'bootstrap'"),
    "floor -1": (lambda: Check(floor=-1), "floor: got -1"),
    "floor nan": (lambda: Check(floor=np.nan), "floor: got nan"),
    "least_gain": (lambda: Check(least_gain=2), "least_gain: got 2"),
    "unconfirmed": (lambda: Baseline(OLD, "stop"), "baseline.unconfirmed: got 'stop'"),
    "baseline": (lambda: Baseline(3), "baseline: got int"),
    "workers 0": (lambda: Workers(0), "workers: got 0"),
    "backend": (lambda: Workers(backend="threads"), "backend: got 'threads'"),
    "plant workers": (lambda: Plant("env", workers="ray"), "workers: got 'ray'"),
    "plant in plant": (lambda: Plant(Plant("env")), "got a Plant in a Plant"),
    "side by side": (lambda: Plant("env", side_by_side=0), "side_by_side: got 0"),
    "horizon": (lambda: Question(PI, 2.5), "horizon: got 2.5"),
    "gamma": (lambda: Question(PI, 2, gamma=0), r"gamma: got 0, expected a number in \(0, 1\]"),
    "goal": (lambda: Question(PI, goal=3), "goal: got 3"),
    "no policy": (lambda: Question({}, 2), "got 0 with the names"),
    "baseline number": (lambda: Question([PI, OLD], 2, baseline=2), r"0\.\.1"),
    "contrast": (lambda: Question([PI, OLD], 2, contrasts=[(0, 2)]), r"0\.\.1"),
    "promise_of": (lambda: Stages(promise_of="day"), "promise_of: got 'day'"),
    "growth": (lambda: Stages(growth=1.0), "growth: got 1.0"),
    "learn": (lambda: Stages(learn="tree"), "learn: got 'tree', expected Table"),
    "step": (lambda: Simulator(3), "step: got int, expected a function"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_refused_where_they_are_made(name):
    make, message = WRONG[name]
    with pytest.raises(InputError, match=message):
        make()


@given(st.floats(0.01, 10.0))
def test_a_promise_is_the_multiple_that_was_asked_for(at_most):
    assert abs(1.0 + Promise(at_most=at_most).epsilon - at_most) < 1e-12 * max(1.0, at_most)


@pytest.mark.parametrize("percent", range(-90, 100))
def test_a_promise_in_percent_is_read_back_exactly(percent):
    """0.07 and not 0.07000000000000006: what is printed is what was typed."""
    assert Promise(at_most=1 + percent / 100).epsilon == percent / 100


def test_promises_are_always_a_list_inside():
    one, limit = Promise(0.7), Limit(episode=2.0)
    assert promises_and_limits(None) == ((), ())
    assert promises_and_limits(one) == ((one,), ())
    assert promises_and_limits([limit, one], limits=True) == ((one,), (limit,))
    with pytest.raises(InputError, match="got 2 about 'cost', expected one"):
        promises_and_limits([one, Promise()])
    with pytest.raises(InputError, match=r"got 0.7, expected Promise.*try Promise\(at_most=0.7\)"):
        promises_and_limits(0.7)
    with pytest.raises(InputError, match="got the signal 'noise', expected 'cost'"):
        promises_and_limits(Promise(signal="noise"))
    with pytest.raises(InputError, match="expected Promise"):
        promises_and_limits(limit)


def test_a_question_of_several_policies():
    question = Question({"today": OLD, "new": PI}, 24, baseline=0, contrasts=[(1, 0)])
    assert question.names == ("today", "new")
    assert question.contrasts == ((1, 0),)
    with pytest.raises(InputError, match="got 2, expected one; several are compared by"):
        _ = question.policy


def test_a_table_is_one_policy():
    assert Question([[0.5, 0.5]]).policy.probs(np.array([0]), 0).tolist() == [[0.5, 0.5]]


def test_a_question_stands_for_keywords():
    asked = question_of(Question(PI, 24, 0.9))
    assert (asked.policy, asked.horizon, asked.gamma) == (PI, 24, 0.9)
    assert question_of(Question(PI, gamma=0.9), horizon=5).horizon == 5
    for wrong in ({"horizon": 5}, {"gamma": 1.0}):
        with pytest.raises(InputError, match=r"the question has .*; leave it out"):
            question_of(Question(PI, 24, 0.9), **wrong)


def test_one_number_of_episodes():
    assert stop_of(5, None) == Stop(5)
    assert stop_of(5, Stop(precision=0.1)) == Stop(5, 0.1)
    assert stop_of(None, Stop(cost=3.0)).cost == 3.0
    with pytest.raises(InputError, match=r"got 5, and stop=Stop\(episodes=6\), expected one"):
        stop_of(5, Stop(6))
    with pytest.raises(InputError, match="try episodes=1000"):
        stop_of(None, Stop(every=3))
    with pytest.raises(InputError, match=r"stop: got 5, expected Stop\(\.\.\.\), or try"):
        stop_of(None, 5)


@pytest.mark.parametrize(
    "stages",
    [
        Stages(),
        Stages(first=50, growth=2.0, learn=Networks(), check=Check(floor=0.1)),
        Stages(method="scope", promise_of="total", learn=Table(time_varying=True)),
    ],
)
def test_stages_are_saved_as_they_are(stages):
    assert Stages.from_json(stages.to_json()) == stages


def test_stages_with_features_are_saved():
    stages = Stages(learn=Table(features=np.arange(6.0).reshape(3, 2)))
    again = Stages.from_json(stages.to_json())
    np.testing.assert_array_equal(again.learn.features, stages.learn.features)
    assert {field.name for field in fields(Stages)} - set(stages.to_json()) == {"logs", "design"}


def test_what_no_file_can_hold_is_refused():
    with pytest.raises(InputError, match="which no database can hold"):
        Stages(learn=Networks(paths=3)).to_json()


def test_whole_numbers_may_be_floats():
    """What was checked is what is kept: 5.0 is 5 wherever a number of something is asked for."""
    stop = Stop(episodes=10.0, every=5.0)
    assert Question(PI, horizon=5.0).horizon.__class__ is int
    assert (stop.episodes.__class__, stop.every.__class__) == (int, int)
    assert stop_of(10.0, stop).episodes.__class__ is int
    plant = Plant(lambda: None, side_by_side=2.0)
    assert plant.side_by_side.__class__ is int


def test_verbs_take_whole_numbers_that_are_floats():
    mdp = Gridworld(4).mdp()
    target = target_policies(1, 4)[0]
    logs = gridworld_logs(mdp, 100.0, seed=1)
    curve = frontier(logs, target, horizon=4.0, points=4, seed=0.0)
    assert curve.at(cost=1.0).recipe.horizon == 4
    assert design(logs, target, horizon=4.0).recipe == design(logs, target, horizon=4).recipe
    assert evaluate(mdp, target, episodes=20.0, seed=3.0).finished == 20
    assert len(collect(mdp, target, episodes=3.0, seed=1.0)) == 3


@pytest.mark.parametrize("percent", [70, 60.0])
def test_percent_is_refused_where_it_is_said(percent):
    words = f"got {percent}, expected a number above 0, and at most 10 "
    with pytest.raises(InputError, match=f"^promise.at_most: {words}.*for an absolute number try"):
        Promise(at_most=percent)
    mdp, target = Gridworld(4).mdp(), target_policies(1, 4)[0]
    learned = frontier(gridworld_logs(mdp, 50, seed=1), target, horizon=4, points=4)
    for curve in (learned, frontier(mdp, target)):
        with pytest.raises(InputError, match=f"^cost: {words}"):
            curve.at(cost=percent)


def test_columns_are_not_a_log():
    columns = collect(Gridworld(4).mdp(), target_policies(1, 4)[0], episodes=3).transitions()
    words = r"^logs: got dict, expected Transitions; try Transitions\(\*\*columns\)"
    with pytest.raises(InputError, match=words):
        design(columns, target_policies(1, 4)[0], horizon=4)


@pytest.mark.parametrize("module", ["sqlalchemy", "none"])
def test_everything_can_be_imported_without_the_extras(module):
    code = f"import sys; sys.modules[{module!r}] = None; from scopeval import *; print(len(dir()))"
    code += "; print('Campaign' in dir())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == str(module == "none")


def test_no_number_is_a_negative_zero_and_no_name_is_changed():
    assert rounded(0.5, -0.001, -0.4, 0.3) == ["0.00", "-0.40", "0.30"]
    mdp, target = Gridworld(4).mdp(), target_policies(1, 4)[0]
    found = compare(mdp, {"pi_B": target, "today": target}, baseline="today", episodes=40)
    assert found.sentence.startswith("pi_B and today cannot be told apart")

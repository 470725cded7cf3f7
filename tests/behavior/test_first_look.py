"""A first look ends designs on vectors early where nothing is to gain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scopeval import Networks, Question, Transitions, World, design
from scopeval.behavior import first_look
from scopeval.behavior.decision import Decision
from scopeval.behavior.evidence import evidence_of
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe
from scopeval.models import networks
from scopeval.models.model_critic import Study
from scopeval.models.training import Training

T = 4
SMALL = Networks(
    training=Training(hidden=24, steps=2000),
    paths=200,
    study=Study(paths=200, hidden=12, steps=200, batch=128),
)


def fair(obs, t):
    return np.full((len(obs), 2), 0.5)


def logs(gain, episodes=600):
    """The reward is noise, and `gain` times what the action adds; places do not depend on it."""
    rng = np.random.default_rng(0)
    n = episodes * T
    t, k, x = np.tile(np.arange(T), episodes), rng.integers(2, size=n), rng.standard_normal(n)
    after = np.append(x[1:], 0.0)
    reward = gain * (k - 0.5) * (1.0 + x**2) + rng.standard_normal(n)
    return Transitions(t, x[:, None], k, reward, 1.0 + 0.1 * k, after[:, None])


@pytest.fixture
def trained(monkeypatch):
    """The steps of every training of dynamics."""
    seen, learn = [], networks.learn_halves

    def count(halves, encoder, tried, *rest):
        seen.extend(how.steps for how in tried)
        return learn(halves, encoder, tried, *rest)

    monkeypatch.setattr(networks, "learn_halves", count)
    return seen


@pytest.mark.parametrize("method", ["scope", "scope-dr"])
def test_nothing_to_gain_is_seen_at_once(trained, method):
    found = design(logs(0.0), fair, horizon=T, method=method, learn=SMALL)
    assert trained == [first_look.STEPS]
    assert found.falls_back
    assert "A first look showed this" in found.report.fallback
    assert found.report.fallback in found.report.warnings
    patient = design(
        logs(0.0), fair, horizon=T, method=method, learn=replace(SMALL, first_look=False)
    )
    assert patient.falls_back
    assert trained == [first_look.STEPS, 2000]


def test_where_there_is_something_to_gain_the_design_is_the_same(trained):
    log = logs(8.0)
    one, other = (
        design(log, fair, horizon=T, method="scope-dr", learn=replace(SMALL, first_look=flag))
        for flag in (True, False)
    )
    assert trained == [first_look.STEPS, 2000, 2000]
    assert not one.falls_back
    assert one.recipe == other.recipe
    assert one.predicted == other.predicted


def test_only_clear_cases_end_here():
    class Seen:
        support = 0.4
        least_gain = 0.03

    some = Decision(None, None, {}, (), "why")  # type: ignore[arg-type]
    clear = first_look._is_clear
    assert not clear(Seen(), some)  # the support decided, and is not that low
    assert not clear(Seen(), replace(some, promised=0.9))
    assert clear(Seen(), replace(some, promised=0.97))
    Seen.support = 0.2
    assert clear(Seen(), some)


def test_no_look_where_it_saves_nothing(trained):
    """Dynamics that are learned already, short trainings, the target policy itself."""
    log = logs(0.0)
    world = World.learn(log, actions=2, training=SMALL.training)
    for given, how, methods in (
        (world, replace(SMALL, training=Training()), ["scope"]),
        (log, replace(SMALL, training=Training(steps=300)), ["scope"]),
        (log, SMALL, ["on-policy"]),
    ):
        gathered = evidence_of(given, Question(fair, T), learn=how)
        assert (
            first_look.first_look(gathered, [Recipe(METHODS[name], T) for name in methods]) is None
        )
    assert not trained

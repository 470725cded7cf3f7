"""Worlds that rows show: many at once are each one alone, and what the design's sweep learns."""

from __future__ import annotations

import numpy as np
import pytest

from scopeval import Question, Table, TabularPolicy, Transitions
from scopeval.behavior.sweep import followed_target, sweep
from scopeval.comparison.counted_model import CountedParts, learned_model
from scopeval.comparison.estimators import TableControls, TableLearner
from scopeval.comparison.policy_set import PolicySet
from scopeval.models.protocols import logged_sweep_data
from scopeval.models.rows import Rows

S, A, T = 7, 3, 4


def some_rows(count: int, seed: int) -> Transitions:
    """Random steps; state 5 is entered and never left, state 6 is left and never entered."""
    rng = np.random.default_rng(seed)
    return Transitions(
        t=np.zeros(count, np.int64),
        obs=rng.choice([0, 1, 2, 3, 4, 6], count),
        action=rng.integers(A, size=count),
        reward=rng.normal(size=count) - 3.0,
        cost=rng.random(count),
        next_obs=rng.integers(6, size=count),
        terminated=rng.random(count) < 0.1,
    )


def swept(log: Transitions, pi: np.ndarray) -> np.ndarray:
    """Q [T, S, A] by Algorithm 1 over the table of these rows."""
    rows = Rows.of(log)
    asked = Question(TabularPolicy(pi), T, 0.9)
    data = logged_sweep_data(rows, rows, Table(states=S), asked, actions=A, steps=1, states=S)
    found = sweep(data, lambda t, points, pi, e: [followed_target(pi, e)], 1)
    return np.stack([critic.at(np.arange(S)).q for critic in found.critics])


def test_many_worlds_at_once_are_what_a_sweep_learns_of_each():
    """Few rows, so that pairs and whole states are missing; 1e-9."""
    rng = np.random.default_rng(0)
    parts = [some_rows(count, seed) for seed, count in enumerate((6, 9, 40))]
    pis = rng.dirichlet(np.ones(A), (2, T, S))
    policies = PolicySet({"old": TabularPolicy(pis[0]), "new": TabularPolicy(pis[1])})
    fits = [[0], [1, 2], [0, 1], [0, 1, 2]]
    made = TableLearner(policies, T, 0.9, A).learn(parts, fits)
    for fit, controls in zip(fits, made, strict=True):
        assert isinstance(controls, TableControls)
        log = Transitions.concat([parts[i] for i in fit])
        for k, pi in enumerate(pis):
            q = swept(log, pi)
            np.testing.assert_allclose(controls.q[k], q, atol=1e-9)
            np.testing.assert_allclose(controls.v[k], (pi * q).sum(axis=2), atol=1e-9)


def test_a_state_that_was_never_left_is_like_those_that_lead_to_it():
    rows = Rows.of(
        Transitions(
            t=np.zeros(3, np.int64),
            obs=np.array([0, 0, 1]),
            action=np.array([0, 1, 0]),
            reward=np.array([1.0, 3.0, 8.0]),
            cost=np.array([0.0, 0.5, 0.25]),
            next_obs=np.array([2, 1, 2]),
            terminated=np.zeros(3, bool),
        )
    )
    model = learned_model(rows, 3, 2, 2, 1.0)
    # state 2: half of the time from state 0, with its two actions, half from state 1
    assert model.reward[2].tolist() == [5.0, 5.0]
    assert model.cost[2].tolist() == [0.25, 0.25]
    assert model.transition.toarray().reshape(4, 2, 4)[2, 0].tolist() == [0.0, 0.25, 0.75, 0.0]


def test_equal_rows_of_several_parts_are_counted_once_for_each_world():
    parts = [some_rows(30, seed) for seed in (5, 6)]
    rows = CountedParts.of(parts, S).worlds([[0, 1], [1]])
    assert rows.weight.sum() == 30 + 30 + 30
    second = rows.select(rows.obs >= S)
    assert second.weight.sum() == 30
    assert (second.next_obs >= S).all()
    assert second.reward @ second.weight == pytest.approx(parts[1].reward.sum())

"""The parts of a step before and after the solver, each alone: few lines to compile."""

from __future__ import annotations

import numpy as np
import pytest

from scopeval.behavior._step_kernel import (
    INFEASIBLE,
    SOLVED,
    Program,
    Rule,
    allowance,
    programs,
    settle,
)
from scopeval.policies.protocols import Why

PI = np.array([0.5, 0.3, 0.2])
ANSWER = np.array([0.25, 0.75, 0.0])
ALL = np.ones(3, bool)


def settled(answer, known, *, status=SOLVED, finite=True, floor=0.0):
    """Mu, and whether the one row is unseen, infeasible, not finite."""
    mu, none = np.array([answer], np.float64), np.zeros((1, 3))
    mass = np.array([PI[known].sum()])
    program = Program(none, none, none, mass, mass, known[None], np.array([finite]))
    (why,) = settle(mu, np.array([status], np.int8), np.zeros(1), program, PI[None], floor)
    fallbacks = (Why.UNSEEN, Why.INFEASIBLE, Why.NOT_FINITE)
    return mu[0], tuple(int((why & one) > 0) for one in fallbacks)


@pytest.mark.parametrize("floor", [0.0, 0.1, 1.0])
def test_the_floor_is_mixed_in(floor):
    mu, counts = settled(ANSWER, ALL, floor=floor)
    np.testing.assert_allclose(mu, (1 - floor) * ANSWER + floor * PI, rtol=1e-15)
    assert counts == (0, 0, 0)


def test_known_actions_share_their_mass_and_others_keep_theirs():
    known = np.array([True, True, False])
    mu, counts = settled(ANSWER, known, floor=0.25)
    np.testing.assert_allclose(mu, 0.75 * np.array([0.2, 0.6, 0.2]) + 0.25 * PI, rtol=1e-15)
    assert counts == (1, 0, 0)


@pytest.mark.parametrize("answer", [[0.5, 0.75, 0.0], [-0.5, 1.5, 0.0], [np.nan, 0.5, 0.5]])
def test_an_answer_that_is_no_distribution_ends_in_the_target(answer):
    mu, counts = settled(answer, ALL)
    np.testing.assert_array_equal(mu, PI)
    assert counts == (0, 0, 1)


def test_doubts_end_in_the_target_and_are_counted():
    mu, counts = settled(ANSWER, ALL, finite=False)
    np.testing.assert_array_equal(mu, PI)
    assert counts == (0, 0, 1)
    mu, counts = settled(ANSWER, ALL, status=INFEASIBLE)
    np.testing.assert_array_equal(mu, PI)
    assert counts == (0, 1, 0)


def test_a_budget_is_a_share_of_the_target_policys_own_cost():
    own, behavior = np.array([1.0, 2.0, 4.0]), np.array([8.0, 1.0, 3.0])
    budget, mass = allowance(PI, own, behavior, ALL, Rule(1.1, np.nan, 1e100))
    np.testing.assert_allclose([budget, mass], [1.1 * PI @ own, 1.0], rtol=1e-15)
    known = np.array([True, True, False])  # an absolute limit is less what others cost
    budget, mass = allowance(PI, own, behavior, known, Rule(1.1, 2.0, 1e100))
    np.testing.assert_allclose([budget, mass], [(2.0 - 0.2 * 3.0) / 0.8, 0.8], rtol=1e-15)


def test_a_program_weighs_all_that_makes_an_outcome_vary():
    q, noise, carried = np.array([[1.0, -2.0, 0.5], [3.0, 1.0, 2.0], [0.25, 4.0, 1.0]])
    e = np.stack([q, noise, carried, np.ones(3), np.ones(3)])[:, None]
    found = programs(e, ALL[None].copy(), PI[None], -1.0, Rule(1.0, np.nan, 1e100), False)
    moments = q**2 + noise + carried
    np.testing.assert_allclose(found.second_moment[0], moments, rtol=1e-15)
    np.testing.assert_allclose(found.weight[0], PI * np.sqrt(moments), rtol=1e-15)

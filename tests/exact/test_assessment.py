"""What can be assessed: tables, designs, learned behaviors, and policies that are functions."""

from __future__ import annotations

import numpy as np
import pytest

from random_mdps import random_case
from scopeval import CallablePolicy, design, exact
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.errors import InputError
from scopeval.policies.protocols import Weighing

CASE = random_case(3, states=3, actions=3, horizon=4, zero_probabilities=False)


def test_a_learned_behavior_is_assessed_with_its_own_control_variate():
    mdp, target = Gridworld(5).mdp(), target_policies(1, 5)[0]
    behavior = design(gridworld_logs(mdp, 300), target, horizon=5, method="scope-dr")
    mu, b = behavior.table(mdp.states)
    assert b is not None
    found, want = exact.assess(mdp, target, behavior), exact.assess(mdp, target, mu, b)
    assert found.variance == pytest.approx(want.variance, rel=1e-12)
    assert found.cost == pytest.approx(want.cost, rel=1e-12)
    plain = exact.assess(mdp, target, behavior, None)
    without = exact.assess(mdp, target, mu, None)
    assert plain.variance == pytest.approx(without.variance, rel=1e-12)
    assert plain.variance > found.variance
    assert behavior.counts.asked == 0  # these were no decisions in operation


def test_a_behavior_designed_for_fewer_steps_is_refused():
    mdp, target = Gridworld(5).mdp(), target_policies(1, 5)[0]
    logs = gridworld_logs(mdp.shortened(4), 300)
    behavior = design(logs, target, horizon=4, method="scope")
    with pytest.raises(InputError, match=r"^behavior: designed for horizon 4, expected at least 5"):
        exact.assess(mdp, target, behavior)


def test_a_design_is_assessed_with_its_own_control_variate():
    found = exact.design(CASE.mdp, CASE.target, "scope-dr")
    own = exact.assess(CASE.mdp, CASE.target, found)
    want = exact.assess(CASE.mdp, CASE.target, found.table(4), found.control)
    assert (own.variance, own.cost) == pytest.approx((want.variance, want.cost), rel=1e-12)
    assert own.variance < exact.assess(CASE.mdp, CASE.target, found, None).variance


def test_any_object_that_weighs():
    class Halfway:
        """Halfway from the target to another table, with a control variate."""

        def weigh(self, offered, obs, t, state):
            mu = 0.5 * offered.probs + 0.5 * CASE.behavior[t, obs]
            return Weighing(mu, CASE.control[t, obs])

    class Broken:
        def weigh(self, offered, obs, t, state):
            return Weighing(offered.probs * 1.1)

    with pytest.raises(InputError, match=r"^behavior: probabilities sum to 1.1 at t=0, s=0"):
        exact.assess(CASE.mdp, CASE.target, Broken())
    found = exact.assess(CASE.mdp, CASE.target, Halfway())
    want = exact.assess(
        CASE.mdp, CASE.target, 0.5 * CASE.target + 0.5 * CASE.behavior, CASE.control
    )
    assert found.variance == pytest.approx(want.variance, rel=1e-12)
    assert found.cost == pytest.approx(want.cost, rel=1e-12)


def test_policies_that_are_functions():
    target = CallablePolicy(lambda obs, t: CASE.target[t, obs])
    behavior = CallablePolicy(lambda obs, t: CASE.behavior[t, obs])
    found = exact.assess(CASE.mdp, target, behavior)
    want = exact.assess(CASE.mdp, CASE.target, CASE.behavior)
    assert found.variance == pytest.approx(want.variance, rel=1e-12)
    np.testing.assert_allclose(
        exact.values(CASE.mdp, target).q, exact.values(CASE.mdp, CASE.target).q
    )
    short = CallablePolicy(lambda obs, t: CASE.target[t, obs, :2] + CASE.target[t, obs, 2:] / 2)
    with pytest.raises(InputError, match=r"^target: got a policy over 3 states and 2 actions"):
        exact.assess(CASE.mdp, short, behavior)

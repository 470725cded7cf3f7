"""What lost episodes have cost counts for the guard's limit on the total."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from scopeval import Guard, Limit, evaluate


class Breaking(gymnasium.Env):
    """Every second episode pays 5 and breaks; the others pay 1 in their only step."""

    observation_space = gymnasium.spaces.Discrete(1)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.begun = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.begun += 1
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        if self.begun % 2 == 0:
            if self.steps == 2:
                raise RuntimeError("broken")
            return 0, 0.0, False, False, {"cost": 5.0}
        return 0, float(action), True, False, {"cost": 1.0}


def run(limit, episodes=40):
    found = evaluate(
        Breaking(),
        [[0.5, 0.5]],
        np.array([[0.4, 0.6]]),
        episodes=episodes,
        horizon=3,
        promise=Limit(total=limit),
    )
    return found, found.guard.state


def test_costs_of_lost_episodes_count_for_the_total():
    found, state = run(1000.0)
    assert found.diagnostics.lost == 20
    assert found.cost.total == pytest.approx(20 * 1.0 + 20 * 5.0)
    assert state.total_cost == pytest.approx(found.cost.total)
    assert not state.tripped


def test_lost_episodes_alone_exceed_the_limit():
    """The finished ones cost 20 together, far less than the limit."""
    found, state = run(60.0)
    assert state.tripped
    assert "above the limit of 60" in state.reason
    assert found.guard.switched_after is not None


def test_update_takes_what_lost_episodes_cost():
    guard = Guard(total_cost_limit=10.0)
    assert not guard.update([1.0, 2.0], [1.0, 2.0], lost=6.5).tripped
    assert guard.state.total_cost == 9.5
    assert guard.steps_exceeded(np.array([0.6])).all()
    assert not guard.steps_exceeded(np.array([0.4])).any()
    state = guard.update([], [], lost=0.6)
    assert state.tripped
    assert not state.refuted
    assert state.total_cost == pytest.approx(10.1)

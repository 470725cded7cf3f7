"""Older data are a guest: kept while they agree with new episodes, and dropped when they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scopeval import Stages, Table, Transitions, evaluate, exact
from scopeval.collection.simulated import simulated_episodes
from scopeval.envs.gridworld import Gridworld, cells, gridworld_logs, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.evaluation.agreement import drift_test

GRID = Gridworld(5, seed=1).mdp()
PI = target_policies(1, 5, seed=1)[0]
LOGS = gridworld_logs(GRID, 300)


def changed(mdp, *, reward=1.0, cost=1.0, noise=0.0, turned=0.0):
    """The same world with other rewards, costs or dynamics."""
    p = mdp.transition.toarray().reshape(mdp.states, mdp.actions, mdp.states)
    p = (1 - turned) * p + turned * p[:, [1, 2, 3, 0]]
    spread = np.full((mdp.states, mdp.actions), noise)
    return exact.TabularMDP(
        mdp.initial, p, mdp.reward * reward, mdp.cost * cost, mdp.horizon, reward_variance=spread
    )


def rows(mdp, episodes, seed):
    columns: dict[str, Any] = simulated_episodes(
        mdp, PI, None, episodes=episodes, seed=seed, first=0
    ).transitions()
    return Transitions(**columns)


def with_column(log, **new):
    names = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated")
    return Transitions(**({name: getattr(log, name) for name in names} | new))


# -- state numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_the_same_world_is_rarely_said_to_have_changed(noise):
    """100 comparisons at 1 %: more than 6 alarms have probability 1e-4 if the level holds."""
    mdp = changed(GRID, noise=noise)
    p = [
        drift_test(rows(mdp, 150, 1000 + k), rows(mdp, 40, k), time_varying=False, seed=k).p_value
        for k in range(100)
    ]
    assert np.sum(np.array(p) < 0.01) <= 6
    assert np.median(p) > 0.2


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"reward": 1.1}, "reward"),
        ({"cost": 0.9}, "cost"),
        ({"turned": 0.5}, "next observation"),
        ({"noise": 0.05}, "reward"),
    ],
)
def test_another_world_is_noticed(change, column):
    found = drift_test(
        gridworld_logs(changed(GRID, **change), 300), rows(GRID, 60, 1), time_varying=False, seed=0
    )
    assert found.p_value < 1e-4
    assert found.column == column


def test_corrupted_rewards_are_noticed():
    rng = np.random.default_rng(0)
    bad = rng.random(len(LOGS)) < 0.1
    corrupted = with_column(LOGS, reward=np.where(bad, rng.random(len(LOGS)), LOGS.reward))
    found = drift_test(corrupted, rows(GRID, 120, 1), time_varying=False, seed=0)
    assert found.p_value < 1e-3
    assert found.column == "reward"


def test_data_without_common_pairs_are_not_judged():
    elsewhere = with_column(LOGS, obs=LOGS.obs + 1000)
    found = drift_test(elsewhere, rows(GRID, 30, 1), time_varying=False, seed=0)
    assert (found.p_value, found.rows) == (1.0, 0)


# -- vectors ---------------------------------------------------------------------------------------


def driven(episodes, seed, *, gain=1.0, shift=0.0, narrow=1.0):
    """Episodes of a small linear system with continuous actions."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("t", "obs", "action", "reward", "cost", "next_obs")
    }
    for _ in range(episodes):
        x = narrow * rng.normal(size=2)
        for t in range(8):
            a = rng.normal(size=1)
            after = 0.9 * x + gain * 0.3 * a + 0.05 * rng.normal(size=2)
            for name, value in zip(
                columns, (t, x, a, float(x[0] - a[0] ** 2) + shift, a[0] ** 2, after), strict=True
            ):
                columns[name].append(value)
            x = after
    return Transitions(**columns)


def test_vectors_that_agree_also_where_the_logs_are_wider():
    for seed in range(5):
        found = drift_test(
            driven(150, 100 + seed), driven(40, seed, narrow=0.5), time_varying=False, seed=seed
        )
        assert found.p_value > 0.01
        assert found.rows > 0


def test_a_constant_column_agrees_with_itself():
    old, new = driven(150, 7), driven(40, 8)
    same, nothing = np.ones(len(old)), np.zeros(len(new))
    found = drift_test(
        with_column(old, reward=same, cost=0.0 * same),
        with_column(new, reward=nothing + 1.0, cost=nothing),
        time_varying=False,
        seed=0,
    )
    assert found.p_value > 0.01
    other = drift_test(
        with_column(old, reward=same),
        with_column(new, reward=nothing + 1.5),
        time_varying=False,
        seed=0,
    )
    assert other.p_value < 1e-3
    assert other.column == "reward"


@pytest.mark.parametrize(
    ("change", "column"), [({"gain": 2.0}, "next observation"), ({"shift": 1.0}, "reward")]
)
def test_vectors_that_disagree(change, column):
    found = drift_test(driven(150, 7, **change), driven(40, 8), time_varying=False, seed=0)
    assert found.p_value < 1e-3
    assert found.column == column


# -- in an evaluation ------------------------------------------------------------------------------


def test_logs_of_another_world_are_dropped_and_reported():
    logs = gridworld_logs(changed(GRID, reward=1.5), 300)
    found = evaluate(
        GRID, PI, episodes=240, seed=1, run=Stages(logs=logs, learn=Table(features=cells(5)))
    )
    (said,) = found.learning.changed
    assert (said.what, said.stage, said.column) == ("the logs", 1, "reward")
    assert "the logs were dropped" in found.summary()
    assert found.stages[1].rows == 30 * 5  # designed from the first stage alone
    kept = evaluate(
        GRID, PI, episodes=240, seed=1, run=Stages(logs=LOGS, learn=Table(features=cells(5)))
    )
    assert not kept.learning.changed
    assert kept.stages[1].rows == len(LOGS) + 30 * 5
    assert "agree" in kept.summary()


class WearingOut(TabularEnv):
    """Costs half as much again after some episodes."""

    def __init__(self, mdp, worn, after):
        super().__init__(mdp)
        self._new, self._worn, self._left = mdp, worn, after

    def reset(self, *, seed=None, options=None):
        self._left -= 1
        self.mdp = self._new if self._left >= 0 else self._worn
        return super().reset(seed=seed, options=options)


def test_a_change_between_stages_is_noticed_and_told():
    env = WearingOut(GRID, changed(GRID, cost=1.5), after=60)
    settings = Stages(growth=2.0, learn=Table(features=cells(5)))  # a stage ends there
    found = evaluate(env, PI, horizon=5, episodes=240, seed=1, run=settings)
    (said,) = found.learning.changed
    assert (said.what, said.stage, said.column) == ("earlier stages", 3, "cost")
    assert "seems to have changed before stage 3" in " ".join(found.summary().split())
    assert found.stages[3].rows == 60 * 5  # of the third stage alone

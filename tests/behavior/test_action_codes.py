"""Logs of the target policy itself whose action codes are not the target's."""

from __future__ import annotations

import numpy as np
import pytest

from logged_worlds import gridworld_logs
from scopeval import Transitions, as_policy, design, simulate
from scopeval.behavior.support import exchanged_codes
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.models.rows import Rows
from small_worlds import random_mdp, random_rows

HORIZON = 8


def logs_of(policy, mdp, episodes, seed):
    run = simulate.trajectories(mdp, policy, episodes=episodes, seed=seed)
    t = np.broadcast_to(np.arange(mdp.horizon), run.actions.shape)
    columns = (t, run.states[:, :-1], run.actions, run.rewards, run.costs, run.states[:, 1:])
    return Transitions(*(column.ravel() for column in columns))


def recoded(log, codes):
    names = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated")
    columns = {name: getattr(log, name) for name in names}
    return Transitions(**(columns | {"action": np.asarray(codes)[log.action]}))


def world(seed, changing=False, zeros=False):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, states=6, actions=4, horizon=HORIZON)
    pi = random_rows(rng, *([HORIZON] if changing else []), 6, 4)
    if zeros:
        pi = np.where(pi < 0.1, 0.0, pi)
        pi /= pi.sum(axis=-1, keepdims=True)
    return mdp, pi, rng


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("codes", [[3, 2, 1, 0], [1, 2, 3, 0], [0, 2, 1, 3]])
def test_the_targets_own_episodes_with_other_codes(codes, zeros, changing):
    """Of the target's own logs, 3 in 100,000 do not fit by chance: 12 logs fail with 4e-4."""
    mdp, pi, _ = world(1, changing, zeros)
    log = logs_of(as_policy(pi), mdp, 300, 0)
    target = as_policy(pi)
    assert exchanged_codes(Rows.of(log), target) is None
    text = exchanged_codes(Rows.of(recoded(log, codes)), target)
    swaps = [f"{a} as {b}" for b, a in enumerate(codes) if a != b]
    assert all(swap in text for swap in swaps)


def test_other_controllers_are_not_suspected():
    """The target, mixtures of it, greedy, uniform and random controllers, in 40 worlds."""
    for seed in range(40):
        mdp, pi, rng = world(seed, zeros=bool(seed % 2))
        other = random_rows(rng, 6, 4)
        greedy = np.eye(4)[pi.argmax(axis=1)]
        for policy in (pi, other, 0.5 * pi + 0.5 * other, np.full((6, 4), 0.25), greedy):
            log = logs_of(as_policy(policy), mdp, 150, seed)
            assert exchanged_codes(Rows.of(log), as_policy(pi)) is None
        both = Transitions.concat([logs_of(as_policy(x), mdp, 75, seed) for x in (pi, other)])
        assert exchanged_codes(Rows.of(both), as_policy(pi)) is None


def test_gridworld_logs_are_not_suspected():
    mdp = Gridworld(6, "uniform", seed=0).mdp()
    log = gridworld_logs(mdp, 600, seed=0)
    for target in target_policies(5, 6):
        assert exchanged_codes(Rows.of(log), as_policy(target)) is None


def test_the_design_says_so():
    mdp, pi, _ = world(1)
    log = recoded(logs_of(as_policy(pi), mdp, 300, 0), [3, 2, 1, 0])
    made = design(log, pi, horizon=HORIZON, method="scope")
    assert any("with other action codes" in note for note in made.report.notes)

"""Logs of small worlds: rows that cover everything, and the Gridworld logs of the paper."""

from __future__ import annotations

import numpy as np

from random_mdps import Case
from scopeval import Transitions, simulate
from scopeval.envs.gridworld import logging_policies
from scopeval.exact import TabularMDP


def rows_of(case: Case, rows: int, *, seed: int, absorbing: bool = False) -> Transitions:
    """Rows at every (t, s, a), uniformly; at t = 0 the states follow the initial distribution.

    With `absorbing`, the last state ends the episode: it is never left, entering it terminates, and
    the next observation of such a row is garbage (which nobody may look at).
    """
    rng = np.random.default_rng(seed)
    S = case.states
    t = rng.integers(case.horizon, size=rows)
    s = rng.integers(S - 1 if absorbing else S, size=rows)
    first = case.initial.copy()
    if absorbing:
        first[-1] = 0.0
    s[t == 0] = rng.choice(S, size=int((t == 0).sum()), p=first / first.sum())
    a = rng.integers(case.actions, size=rows)
    upto = case.transition.cumsum(axis=2)[s, a]
    following = np.minimum((rng.random(rows)[:, None] > upto).sum(axis=1), S - 1)
    following = np.where(case.transition[s, a, following] > 0, following, 0)
    sign = rng.choice([-1.0, 1.0], size=rows)
    ended = (following == S - 1) & absorbing
    return Transitions(
        t=t,
        obs=s,
        action=a,
        reward=case.reward[t, s, a] + sign * case.spread[t, s, a],
        cost=case.cost[t, s, a],
        next_obs=np.where(ended, rng.integers(S, size=rows), following),
        terminated=ended,
    )


def gridworld_logs(mdp: TabularMDP, episodes: int, *, seed: int) -> Transitions:
    """Episodes shared out among 30 controllers of every quality."""
    parts, T = [], mdp.horizon
    for k, policy in enumerate(logging_policies(30, mdp)):
        count = len(range(k, episodes, 30))
        if count:
            run = simulate.trajectories(mdp, policy, episodes=count, seed=seed * 1000 + k)
            t = np.broadcast_to(np.arange(T), (count, T))
            states = run.states
            columns = (t, states[:, :-1], run.actions, run.rewards, run.costs, states[:, 1:])
            parts.append([column.ravel() for column in columns])
    return Transitions(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def cells(n: int) -> np.ndarray:
    """Coordinates of an n x n grid's states."""
    return np.stack(np.divmod(np.arange(n * n), n), axis=1).astype(float)

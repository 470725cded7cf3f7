"""Tiny random MDPs, and all of their trajectories with their probabilities."""

from __future__ import annotations

import numpy as np

from scopeval import Episodes
from scopeval.exact import TabularMDP


def random_rows(rng, *shape):
    rows = rng.gamma(0.7, size=shape) + 1e-3
    return rows / rows.sum(axis=-1, keepdims=True)


def random_mdp(
    rng, *, states=3, actions=2, horizon=3, gamma=1.0, noise=False, ends=False, fixed=False
):
    """`ends`: the last state is absorbing, with nothing to earn or pay.

    `fixed`: one start, and every transition is certain.
    """
    transition = random_rows(rng, states, actions, states)
    initial = random_rows(rng, states)
    if fixed:
        transition = np.eye(states)[rng.integers(states, size=(states, actions))]
        initial = np.eye(states)[0]
    shape = (horizon, states, actions) if rng.random() < 0.5 else (states, actions)
    reward, cost = rng.normal(size=shape), rng.random(shape)
    variance = rng.random(shape) if noise else np.zeros(shape)
    if ends:
        initial[-1] = 0.0
        initial /= initial.sum()
        transition[-1] = np.eye(states)[-1]
        for table in (reward, cost, variance):
            table[..., -1, :] = 0.0
    return TabularMDP(
        initial, transition, reward, cost, horizon, gamma=gamma, reward_variance=variance
    )


def every_trajectory(mdp, target, behavior, b=None, *, ends=False):
    """All episodes of positive probability under `behavior`, and those probabilities.

    A reward of variance v is mean +- sqrt(v), each with probability one half. With `ends`, entering
    the last state terminates the episode: ragged, as a real environment is.
    """
    S, A, T = mdp.states, mdp.actions, mdp.horizon
    p = mdp.transition.toarray().reshape(S, A, S)
    pi, mu = target.table(T), behavior.table(T)
    b = None if b is None else np.broadcast_to(b, (T, S, A))
    rows = []

    def grow(steps, s, t, chance):
        if t == T or (ends and s == S - 1):
            rows.append((steps, s, t, chance))
            return
        for a in np.flatnonzero(mu[t, s]):
            r, sd = mdp.at("reward", t)[s, a], np.sqrt(mdp.at("reward_variance", t)[s, a])
            for outcome in {r - sd, r + sd}:
                odds = mu[t, s, a] / (2 if sd > 0 else 1)
                for following in np.flatnonzero(p[s, a]):
                    step = (s, a, outcome, mdp.at("cost", t)[s, a], t)
                    grow([*steps, step], following, t + 1, chance * odds * p[s, a, following])

    for s in np.flatnonzero(mdp.initial):
        grow([], s, 0, mdp.initial[s])
    N = len(rows)
    zeros, ones = (lambda: np.zeros((N, T))), (lambda: np.ones((N, T)))
    obs, action = np.zeros((N, T), int), np.zeros((N, T), int)
    reward, cost, pi_taken, mu_taken = zeros(), zeros(), ones(), ones()
    control, baseline = zeros(), zeros()
    for i, (steps, _, _, _) in enumerate(rows):
        for s, a, r, c, t in steps:
            obs[i, t], action[i, t], reward[i, t], cost[i, t] = s, a, r, c
            pi_taken[i, t], mu_taken[i, t] = pi[t, s, a], mu[t, s, a]
            if b is not None:
                control[i, t], baseline[i, t] = b[t, s, a], pi[t, s] @ b[t, s]
    length = np.array([row[2] for row in rows])
    episodes = Episodes(
        obs=obs,
        action=action,
        reward=reward,
        cost=cost,
        behavior_prob=mu_taken,
        target_prob=pi_taken,
        length=length,
        last_obs=np.array([row[1] for row in rows]),
        terminated=np.array([ends and row[1] == S - 1 for row in rows]),
        control=None if b is None else control,
        baseline=None if b is None else baseline,
    )
    return episodes, np.array([row[3] for row in rows])

"""A small machine to run campaigns on: its outcomes are a function of episode, step and action."""

from __future__ import annotations

import numpy as np

HORIZON, STATES, ACTIONS = 5, 4, 3


def tables(seed=0):
    """A target and a behavior policy, as tables [S, A]."""
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.ones(ACTIONS), STATES)
    behavior = 0.7 * target + 0.3 * rng.dirichlet(np.ones(ACTIONS), STATES)
    return target, behavior


class Machine:
    """Ends early in state 0 with some probability; cost grows with the action."""

    def __init__(self, seed=0):
        self.seed = seed

    def first(self, episode):
        return int(np.random.default_rng((self.seed, episode)).integers(STATES))

    def step(self, episode, t, state, action):
        """Reward, cost, next state, terminated."""
        rng = np.random.default_rng((self.seed, episode, t, state, action))
        following = int(rng.integers(STATES))
        reward = float(state - action + rng.normal())
        return reward, float(action) + rng.random(), following, bool(rng.random() < 0.1)


def run_episode(campaign, plant="plant", machine=None, **settings):
    """One whole episode; returns its number."""
    machine = machine or Machine()
    episode = campaign.start(plant, **settings)
    obs = machine.first(episode.number)
    while not episode.over:
        action = episode.act(obs)
        reward, cost, obs, ended = machine.step(episode.number, episode.step, obs, action)
        episode.observe(reward, cost, obs, terminated=ended)
    episode.end()
    return episode.number

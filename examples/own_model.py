"""A model of your own, in closed form: ridge regression on the observation, for every action.

A model gives conditional means of one time step: of whatever targets the backward sweep brings, at
any observation and action. Here one solve does for all of them.

    python examples/own_model.py
"""

from __future__ import annotations

import numpy as np

from scopeval import Transitions, design
from scopeval.models.protocols import Estimates

HORIZON, ACTIONS = 5, 3


class Ridge:
    """The model: what `design` takes as ``learn=``."""

    name = "ridge"

    def __init__(self, penalty=1.0):
        self.penalty = penalty

    def prepare(self, rows, actions):
        """Rows to learn from: as they are."""
        return rows

    def learner(self, rows, actions, seed):
        """Holds the rows while the sweep goes through the time steps."""
        return RidgeLearner(rows, actions, seed, self.penalty)


class RidgeLearner:
    """Two halves of the rows: each judges the other, their mean is the answer."""

    def __init__(self, rows, actions, seed, penalty):
        self.actions, self.penalty = actions, penalty
        self.low, self.high = rows.obs.min(axis=0), rows.obs.max(axis=0)
        self.logged = np.bincount(rows.action, minlength=actions) > 0
        self.half = np.random.default_rng(seed).permutation(len(rows)) % 2
        self.inputs = self.features(rows.obs)[np.arange(len(rows)), rows.action]

    def features(self, obs):
        """[B, A, features]: the observation and 1, in the place of the action."""
        x = np.column_stack([np.ones(len(obs)), obs])
        return np.einsum("bx,ac->bacx", x, np.eye(self.actions)).reshape(len(x), self.actions, -1)

    def solved(self, k, y):
        """Coefficients by the rows of one half."""
        x = self.inputs[self.half == k]
        gram = x.T @ x + self.penalty * np.eye(x.shape[1])
        return np.linalg.solve(gram, x.T @ y[self.half == k])

    def fit(self, targets):
        """The critic of one time step."""
        means = [self.solved(k, targets.columns) for k in range(2)]
        missed = [targets.reward - self.inputs @ mean[:, 0] for mean in means]
        squares = np.where(self.half == 0, *missed[::-1]) ** 2 + targets.reward_noise
        return RidgeCritic(self, means, self.solved(0, squares) / 2 + self.solved(1, squares) / 2)


class RidgeCritic:
    """Answers at any observation."""

    def __init__(self, learner, means, noise):
        self.learner, self.means, self.noise = learner, means, noise

    def at(self, obs, actions=None):
        """Estimates for every action; unknown where nothing like it was logged."""
        x = self.learner.features(obs)
        one, other = (x @ mean for mean in self.means)
        inside = ((obs >= self.learner.low) & (obs <= self.learner.high)).all(axis=1)
        known = inside[:, None] & self.learner.logged
        error = ((one - other)[..., 0] / 2) ** 2
        return Estimates.of((one + other) / 2, np.maximum(x @ self.noise, 0.0), error, known)


def target(obs, t):
    """Mostly the first action, the more so the larger the observation is."""
    weight = np.exp(np.stack([1.0 + obs[:, 0], 0 * obs[:, 0], -obs[:, 0]], axis=1))
    return weight / weight.sum(axis=1, keepdims=True)


def logs(rows, seed=0):
    """A drifting number; the third action pays and costs the most."""
    rng = np.random.default_rng(seed)
    t, action = rng.integers(HORIZON, size=rows), rng.integers(ACTIONS, size=rows)
    x = rng.normal(size=rows)
    reward = x * (action - 1) + 2.0 * (action == 2) + rng.normal(size=rows)
    following = 0.8 * x + 0.3 * (action - 1) + 0.3 * rng.normal(size=rows)
    return Transitions(t, x[:, None], action, reward, 0.5 + 0.5 * action, following[:, None])


def main():
    behavior = design(logs(5000), target, horizon=HORIZON, learn=Ridge())
    print(behavior.summary())
    return behavior


if __name__ == "__main__":
    main()

"""A regressor of your own: anything with ``fit(X, y)`` and ``predict(X)``, as scikit-learn's.

Here: least squares on the observation, its squares, and both per action. With scikit-learn it would
be ``SupervisedRegression(GradientBoostingRegressor)``.

    python examples/own_regression.py
"""

from __future__ import annotations

import numpy as np

from scopeval import Transitions, design
from scopeval.models.supervised import SupervisedRegression

HORIZON, ACTIONS = 5, 3


class Quadratic:
    """Ridge regression on x, x^2 and their products with the action."""

    def fit(self, X, y):
        """Least squares."""
        features = self._features(X)
        gram = features.T @ features + 1e-3 * np.eye(features.shape[1])
        self.weights = np.linalg.solve(gram, features.T @ y)
        return self

    def predict(self, X):
        """One number per row."""
        return self._features(X) @ self.weights

    def _features(self, X):  # X: the observation (1 number here) beside the action, one-hot
        x, action = X[:, :1], X[:, 1:]
        return np.hstack([action, action * x, action * x**2])


def target(obs, t):
    """Mostly the first action, the more so the larger the observation is."""
    logits = np.stack([1.0 + obs[:, 0], 0 * obs[:, 0], -obs[:, 0]], axis=1)
    weight = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)


def logs(rows, seed=0):
    """A drifting number; the third action pays and costs the most."""
    rng = np.random.default_rng(seed)
    t, action = rng.integers(HORIZON, size=rows), rng.integers(ACTIONS, size=rows)
    x = rng.normal(size=rows)
    reward = x * (action - 1) + 2.0 * (action == 2) + rng.normal(size=rows)
    cost = 0.5 + 0.5 * action
    following = 0.8 * x + 0.3 * (action - 1) + 0.3 * rng.normal(size=rows)
    return Transitions(t, x[:, None], action, reward, cost, following[:, None])


def main():
    behavior = design(
        logs(5000),
        target,
        horizon=HORIZON,
        method="scope-dr",
        learn=SupervisedRegression(Quadratic),
    )
    print(behavior.summary())
    here = np.array([[0.0], [1.0]])
    print("target   ", target(here, 0).round(3).tolist())
    print("behavior", behavior.probs(here, 0).round(3).tolist())
    return behavior


if __name__ == "__main__":
    main()

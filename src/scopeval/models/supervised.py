"""Critics from any regressor with ``fit(X, y)`` and ``predict(X)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.errors import InputError
from scopeval.models.protocols import Critic, Estimates, Learner, Targets
from scopeval.models.rows import Rows
from scopeval.policies.protocols import Observations

__all__ = ["SupervisedRegression"]


class SupervisedRegression:
    """Critics from anything with ``fit(X, y)`` and ``predict(X)``, as scikit-learn's regressors.

    X is the observation (state numbers one-hot) beside the action one-hot. Two folds: a regressor
    answers for the rows of the other fold when the noise is fitted; their mean is the estimate.

    Args:
        make: called for every head, fold and time step, returns a fresh regressor.
        states: number of states when observations are state numbers; None: as the logs show.

    Pairs of state and action that were never logged are unknown. For vectors these are actions that
    were never logged, and observations outside the logged range.
    """

    name = "supervised"

    def __init__(self, make: Callable[[], Any], *, states: int | None = None) -> None:
        self.make = make
        self.states = states

    def prepare(self, rows: Rows, actions: int) -> Rows:
        """The rows as they are."""
        return rows

    def learner(self, rows: Rows, actions: int, seed: int) -> Learner:
        """Two folds over the rows."""
        return _SupervisedLearner(self, rows, actions, seed)


class _SupervisedLearner:
    def __init__(self, settings: SupervisedRegression, rows: Rows, actions: int, seed: int) -> None:
        if len(rows) < 4:
            raise InputError(f"logs: got {len(rows)} rows, expected at least 4 for two folds")
        self.settings, self.actions, self.states = settings, actions, settings.states
        if rows.obs.ndim == 1 and self.states is None:
            self.states = int(max(rows.obs.max(), rows.next_obs.max())) + 1
        both = np.concatenate([rows.obs, rows.next_obs])
        self.low, self.high = both.min(axis=0), both.max(axis=0)
        self.pairs = np.zeros((self.states or 1, actions), np.bool_)
        self.pairs[rows.obs if rows.obs.ndim == 1 else 0, rows.action] = True
        self.inputs = self.encode(rows.obs, rows.action)
        order = np.random.default_rng(seed).permutation(len(rows))
        self.folds = [np.sort(order[k::2]) for k in range(2)]

    def encode(self, obs: Observations, action: Ints) -> Floats:
        one_hot = np.eye(self.actions)[action]
        if obs.ndim > 1:
            return np.concatenate([obs, one_hot], axis=1)
        states = np.zeros((len(obs), self.states or 1))
        inside = np.flatnonzero((obs >= 0) & (obs < states.shape[1]))
        states[inside, obs[inside]] = 1.0
        return np.concatenate([states, one_hot], axis=1)

    def known(self, obs: Observations) -> Bools:
        """State numbers: pairs in the logs. Vectors: actions in the logs, within their range."""
        if obs.ndim > 1:
            room = 0.1 * (self.high - self.low) + 1e-9
            inside = ((obs >= self.low - room) & (obs <= self.high + room)).all(axis=1)
            return np.asarray(inside[:, None] & self.pairs[0])
        inside = (obs >= 0) & (obs < len(self.pairs))
        return np.asarray(self.pairs[np.where(inside, obs, 0)] & inside[:, None])

    def fitted(self, inputs: Floats, target: Floats) -> Any:
        model = self.settings.make()
        model.fit(inputs, target)
        return model

    def answers(self, model: Any, inputs: Floats) -> Floats:
        answers = np.asarray(model.predict(inputs), dtype=np.float64)
        if answers.size != len(inputs):
            raise InputError(
                f"regression: {type(model).__name__}.predict returned shape {answers.shape} for "
                f"{len(inputs)} rows, expected ({len(inputs)},)"
            )
        return answers.reshape(len(inputs))

    def fit(self, targets: Targets) -> Critic:
        heads = targets.columns
        models: list[list[Any]] = []
        noise = np.empty(len(heads))
        for fold in range(2):
            mine, other = self.folds[fold], self.folds[1 - fold]
            fitted = [self.fitted(self.inputs[mine], heads[mine, h]) for h in range(heads.shape[1])]
            models.append(fitted)
            noise[other] = (heads[other, 0] - self.answers(fitted[0], self.inputs[other])) ** 2
        noise += targets.reward_noise
        for fold in range(2):
            mine = self.folds[fold]
            models[fold].append(self.fitted(self.inputs[mine], noise[mine]))
        return _SupervisedCritic(self, models)


class _SupervisedCritic:
    def __init__(self, learner: _SupervisedLearner, models: list[list[Any]]) -> None:
        self.learner, self.models = learner, models

    def at(self, obs: Observations, actions: NDArray[Any] | None = None) -> Estimates:
        B, A = len(obs), self.learner.actions
        inputs = self.learner.encode(np.repeat(obs, A, axis=0), np.tile(np.arange(A), B))
        answers = np.stack(
            [[self.learner.answers(model, inputs) for model in fold] for fold in self.models]
        ).reshape(2, -1, B, A)
        mean = np.moveaxis(answers.mean(axis=0), 0, -1)
        error = ((answers[0, 0] - answers[1, 0]) / 2.0) ** 2
        noise = np.maximum(mean[..., -1], 0.0)
        return Estimates.of(mean[..., :-1], noise, error, self.learner.known(obs))

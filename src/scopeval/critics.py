r"""Critics: what the logs say about every (observation, action) at one time step.

The backward sweep of `scopeval.design` hands a learner one regression target per logged row and
asks for the conditional means at any observation. The targets at time t, with v, v^c, V of time t+1
taken at the row's next observation:

    reward           y_q = r + gamma v(s')                         -> q
    cost, target     y_c = c + gamma v^c_pi(s')                    -> q^c under pi
    cost, behaviour  y_j = c + gamma v^c_j(s')                     -> q^c under mu_j, for each j
    carried          u_j = gamma^2 V_j(s')                         -> E[gamma^2 V_j(S')], for each j
    noise            (y_q - q)^2, with a q that has not seen y_q   -> outcome noise + error of q

A q that has seen y_q understates the noise, most where it knows least, and a behaviour policy built
on that is bold in the wrong places. Hence "has not seen": a table divides by n - 1 and not n, the
others fit the noise to residuals of the other fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.data import Transitions
from scopeval.errors import InputError
from scopeval.policies import Observations

__all__ = [
    "Critic",
    "Estimates",
    "Learner",
    "Regression",
    "Rows",
    "SupervisedRegression",
    "Targets",
]


@dataclass(frozen=True)
class Rows:
    """Logged rows as the learners see them; equal rows of a table problem are merged.

    Attributes:
        t: [n] time steps.
        obs: [n] state numbers or [n, d].
        action: [n] action numbers, or [n, k] continuous actions.
        reward: [n] reward (mean of the merged rows).
        reward_noise: [n] variance of the reward within the merged rows.
        cost: [n].
        next_obs: like obs.
        alive: [n] 1.0 where the episode goes on, 0.0 where it terminated.
        weight: [n] how many logged rows this one stands for.
        borrowed: [n] True for rows that a table took from neighbours of a pair that was never
            logged; they are no evidence, only a guess.
    """

    t: Ints
    obs: Observations
    action: NDArray[Any]
    reward: Floats
    reward_noise: Floats
    cost: Floats
    next_obs: Observations
    alive: Floats
    weight: Floats
    borrowed: Bools

    @classmethod
    def of(cls, log: Transitions) -> Rows:
        """Every row of a log as it is: nothing is merged."""
        n = len(log)
        return cls(
            t=log.t,
            obs=log.obs,
            action=log.action,
            reward=log.reward,
            reward_noise=np.zeros(n),
            cost=log.cost,
            next_obs=log.next_obs,
            alive=(~log.terminated).astype(np.float64),
            weight=np.ones(n),
            borrowed=np.zeros(n, np.bool_),
        )

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of all parts, one part after the other."""
        names = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.t)

    def select(self, which: NDArray[Any] | slice) -> Rows:
        """Some of the rows."""
        return Rows(
            self.t[which],
            self.obs[which],
            self.action[which],
            self.reward[which],
            self.reward_noise[which],
            self.cost[which],
            self.next_obs[which],
            self.alive[which],
            self.weight[which],
            self.borrowed[which],
        )


@dataclass(frozen=True)
class Targets:
    """Regression targets of one time step for n rows and k behaviours that are followed."""

    reward: Floats  # [n]
    cost_target: Floats  # [n]
    cost_behavior: Floats  # [n, k]
    carried: Floats  # [n, k]
    reward_noise: Floats  # [n] variance within merged rows


@dataclass(frozen=True)
class Estimates:
    """A critic's answer at B observations for A actions (or K offered candidates).

    Attributes:
        q: [B, A] action values of the target.
        cost_target: [B, A] q^c under the target.
        cost_behavior: [B, A, k] q^c under each followed behaviour.
        carried: [B, A, k] E[gamma^2 V_j(S')].
        noise: [B, A] variance of the outcome plus squared error of q.
        error: [B, A] the squared error of q alone.
        known: [B, A] False where the critic knows that it does not know.
    """

    q: Floats
    cost_target: Floats
    cost_behavior: Floats
    carried: Floats
    noise: Floats
    error: Floats
    known: Bools

    def select(self, which: NDArray[Any] | slice) -> Estimates:
        """The answer at some of the observations."""
        return Estimates(
            self.q[which],
            self.cost_target[which],
            self.cost_behavior[which],
            self.carried[which],
            self.noise[which],
            self.error[which],
            self.known[which],
        )

    def following(self, behavior: int) -> Estimates:
        """The same for the target and one of the followed behaviours alone."""
        if behavior == self.carried.shape[-1] - 1 == 1:
            return self
        both = [0, behavior]
        carried, cost = self.carried[..., both], self.cost_behavior[..., both]
        return replace(self, carried=carried, cost_behavior=cost)


class Critic(Protocol):
    """The critics of one time step, ready to answer."""

    def at(self, obs: Observations, actions: NDArray[Any] | None = None) -> Estimates:
        """Estimates for every action, or for the given candidates [B, K, d]."""
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `save` must keep to bring this critic back."""
        ...


class Learner(Protocol):
    """Holds the inputs of a set of rows and fits targets to them, step after step."""

    def fit(self, targets: Targets) -> Critic:
        """Fit one time step."""
        ...


@dataclass(frozen=True)
class Caution:
    """How far critics are trusted; a regression may have a `caution` of its own.

    Attributes:
        shares: of the critics' differences between actions that a control variate may take over
            (see `behavior.Recipe`); the check chooses one.
        trust: checked relative variance below which a control variate is used whatever was
            predicted.
        least: checked relative variance from which on the target is kept.
    """

    shares: tuple[float, ...] = (1.0,)
    trust: float = 0.75
    least: float = 1.0

    def __post_init__(self) -> None:
        if not self.shares or not all(0.0 <= share <= 1.0 for share in self.shares):
            raise InputError(
                f"caution: got shares {self.shares!r}, expected at least one, each between 0 and 1"
            )


class Regression(Protocol):
    """A way to learn critics."""

    @property
    def name(self) -> str:
        """What summaries call it."""
        ...

    def prepare(self, rows: Rows, actions: int) -> Rows:
        """Rows to learn from: merged, filled in, or as they are."""
        ...

    def learner(self, rows: Rows, actions: int, seed: int) -> Learner:
        """Take in the prepared rows once; `fit` is then called for every time step."""
        ...


class SupervisedRegression:
    """Critics from anything with ``fit(X, y)`` and ``predict(X)``, as scikit-learn's regressors.

    X is the observation (state numbers one-hot) beside the action one-hot. Two folds: a regressor
    answers for the rows of the other fold when the noise is fitted; their mean is the estimate.

    Args:
        make: called for every head, fold and time step, returns a fresh regressor.
        states: number of states when observations are state numbers; None: as the logs show.

    Unknown are pairs of state and action that were never logged; for vectors, actions never logged
    and observations outside the logged range.
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
    def __init__(self, how: SupervisedRegression, rows: Rows, actions: int, seed: int) -> None:
        if len(rows) < 4:
            raise InputError(f"logged: got {len(rows)} rows, expected at least 4 for two folds")
        self.how, self.actions, self.states = how, actions, how.states
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
        model = self.how.make()
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
        k = targets.cost_behavior.shape[1]
        heads = np.column_stack(
            [targets.reward, targets.cost_target, targets.cost_behavior, targets.carried]
        )
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
        return _SupervisedCritic(self, models, k)


class _SupervisedCritic:
    def __init__(self, learner: _SupervisedLearner, models: list[list[Any]], k: int) -> None:
        self.learner, self.models, self.k = learner, models, k

    def at(self, obs: Observations, actions: NDArray[Any] | None = None) -> Estimates:
        B, A = len(obs), self.learner.actions
        inputs = self.learner.encode(np.repeat(obs, A, axis=0), np.tile(np.arange(A), B))
        answers = np.stack(
            [[self.learner.answers(model, inputs) for model in fold] for fold in self.models]
        ).reshape(2, -1, B, A)
        mean, k = answers.mean(axis=0), self.k
        error = ((answers[0, 0] - answers[1, 0]) / 2.0) ** 2
        return Estimates(
            q=mean[0],
            cost_target=np.maximum(mean[1], 0.0),
            cost_behavior=np.maximum(np.moveaxis(mean[2 : 2 + k], 0, -1), 0.0),
            carried=np.maximum(np.moveaxis(mean[2 + k : 2 + 2 * k], 0, -1), 0.0),
            noise=np.maximum(mean[-1], 0.0) + error,
            error=error,
            known=self.learner.known(obs),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        raise InputError(
            "save: a behaviour policy learned by your own regressors cannot be saved (scopeval "
            "never pickles); try regression='mlp' or 'table'"
        )

"""The critics of a model of the world, fitted on simulated episodes of the target policy.

    q_t(s, a) = r(s, a) + (1 - end(s, a)) g_t(m(s, a)),      m(s, a) = mean next observation,

with g_t a ridge regression on m, its squares and products, and the return features of m. How q
differs between the actions of a state is all that a design can use, and it comes from the dynamics;
g only has to be right where the target policy goes. Cost and carried variance are read in the same
way. The noise is what g leaves unexplained (chance, later actions, disagreement of the networks)
and the chance of an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from scopeval.arrays import Bools, Floats
from scopeval.errors import InputError
from scopeval.models.model.network import Dynamics, stack, unstack
from scopeval.models.model.return_features import ReturnNetworks
from scopeval.models.model.simulator import SimulatorModel
from scopeval.models.model.step_model import StepPrediction, Weights
from scopeval.models.protocols import Critic, Estimates, Learner, Targets
from scopeval.models.rows import Rows
from scopeval.policies.protocols import Observations

__all__ = ["LearnedModel", "ModelCritic", "RolloutRegression", "features"]

#: Most squares and products; with more inputs the products are left out.
MOST_FEATURES = 200
#: Return features: still to be earned and spent, their squares and product. They are penalized
#: less, for there are few of them and they are already in units of what is predicted.
RETURN_FEATURES, LIGHTER = 5, 0.01
#: Standard deviations beyond which an input is taken to be no further away.
REACH = 4.0
#: How far outside the logged range an observation is still known, in ranges.
SLACK = 0.1
#: What no value or variance exceeds: its square is still a number.
LARGEST = 1e100
#: Rows whose features are computed together: they stay in the processor's cache.
BLOCK = 2048


@dataclass(frozen=True)
class LearnedModel:
    """A model of the world, and the range of the logs that it was learned from.

    Attributes:
        number: 0 and 1 for the halves of the logs, 2 for both together; points of a sweep store
            predictions of a model under its number.
        dynamics: where actions lead.
        returns: the return features.
        low: [d] least logged observation, less some room, and
        high: [d] largest, plus some room; beyond, nothing is known.
        logged: [A] which actions of a finite set were logged at all; [0]: actions are vectors.
    """

    number: int
    dynamics: Dynamics
    returns: ReturnNetworks
    low: Floats
    high: Floats
    logged: Bools

    @classmethod
    def of(
        cls, number: int, dynamics: Dynamics, returns: ReturnNetworks, rows: Rows
    ) -> LearnedModel:
        """A model for observations and actions as in these rows."""
        both = np.concatenate([np.asarray(rows.obs), np.asarray(rows.next_obs)])
        low, high = both.min(axis=0), both.max(axis=0)
        room = SLACK * (high - low) + 1e-9
        logged = np.empty(0, np.bool_)
        if dynamics.encoder.finite:
            logged = np.bincount(rows.action, minlength=len(dynamics.encoder.embedding)) > 0
        return cls(number, dynamics, returns, low - room, high + room, logged)


@dataclass(frozen=True)
class RolloutRegression:
    """Learns critics on simulated episodes; a `Regression`.

    Attributes:
        model: in which they were simulated.
        ridge: penalty, relative to the number of rows.
        taken: what the model predicts for the rows of each time step: mean next observation
            [n, w], return features there [n, 2].
    """

    model: LearnedModel
    ridge: float
    taken: Sequence[tuple[Floats, Weights]]
    name: str = "model"

    def prepare(self, rows: Rows, actions: int) -> Rows:
        """The rows as they are."""
        return rows

    def learner(self, rows: Rows, actions: int, seed: int) -> Learner:
        """Factorize the normal equations for the rows of one time step."""
        return _ModelLearner(self.model, self.ridge, rows, *self.taken[int(rows.t[0])])


class _ModelLearner:
    """The features of one time step's rows; fits any number of targets to them."""

    def __init__(
        self, model: LearnedModel, ridge: float, rows: Rows, ahead: Floats, returns: Weights
    ) -> None:
        self.model, self.rows = model, rows
        self.t = int(rows.t[0])
        self.goes_on = np.flatnonzero(rows.alive > 0)
        if len(self.goes_on):  # else every episode ended here, and nothing will be fitted
            ahead, returns = ahead[self.goes_on], returns[self.goes_on]
        self.mean, self.scale = ahead.mean(axis=0), ahead.std(axis=0)
        self.scale = np.where(self.scale > 1e-9, self.scale, 1.0)
        self.x = features(ahead, self.mean, self.scale, returns)
        penalty = np.full(self.x.shape[1], ridge * len(ahead))
        penalty[0] = 0.0
        penalty[-RETURN_FEATURES:] *= LIGHTER
        self.factor = cho_factor(self.x.T @ self.x + np.diag(penalty + 1e-9))

    def fit(self, targets: Targets) -> Critic:
        rows, on = self.rows, self.goes_on
        k = targets.cost_behavior.shape[1]
        # what follows the step; the step's own reward and cost come from the dynamics
        value = targets.reward - rows.reward
        cost = targets.cost_target - rows.cost
        beyond = targets.cost_behavior - targets.cost_target[:, None]
        y = np.column_stack([value, cost, beyond, targets.carried])[on]
        y = np.nan_to_num(y, nan=LARGEST).clip(-LARGEST, LARGEST)  # a variance may diverge
        if len(on):
            heads = cho_solve(self.factor, self.x.T @ y)
            noise = (y[:, 0] - self.x @ heads[:, 0]) ** 2
            y = np.column_stack([y, noise])
            heads = np.column_stack([heads, cho_solve(self.factor, self.x.T @ noise)])
            least, most = y.min(axis=0), y.max(axis=0)
        else:
            heads = np.zeros((self.x.shape[1], 3 + 2 * k))
            least = most = np.zeros(3 + 2 * k)
        return ModelCritic(
            model=self.model,
            t=self.t,
            heads=np.ascontiguousarray(heads, np.float64),
            mean=self.mean,
            scale=self.scale,
            least=least,
            most=most,
            reward_noise=float(np.mean(rows.reward_noise)),
            followed=k,
        )


@dataclass(frozen=True)
class ModelCritic:
    """The critics of one time step: the model, and `heads` [features, 3 + 2 k].

    In order: value, cost under the target, cost of each followed behavior beyond that, carried
    variance of each, noise. Answers stay between `least` and `most`, the range seen in the fit.
    """

    model: LearnedModel
    t: int
    heads: Floats
    mean: Floats
    scale: Floats
    least: Floats
    most: Floats
    reward_noise: float
    followed: int

    def at(self, obs: Observations, actions: NDArray[Any] | None = None) -> Estimates:
        """One step by the dynamics, the rest by the heads."""
        step = self.model.dynamics.predict(obs, actions, self.t)
        return self.given(obs, step, self.model.returns.at(step.next_obs, self.t))

    def given(self, obs: Observations, step: StepPrediction, returns: Weights) -> Estimates:
        """The estimates at [B, d], given what the model predicts there.

        Args:
            obs: [B, d].
            step: where K actions lead.
            returns: [B, K, 2] return features there.
        """
        from scopeval.models.model._forward_kernel import products

        k, model = self.followed, self.model
        ahead = step.next_obs.reshape(-1, step.next_obs.shape[-1])
        returns = returns.reshape(len(ahead), -1)
        heads, size = self._scaled
        then = np.empty((len(ahead), heads.shape[1]), np.float32)
        for some in (slice(i, i + BLOCK) for i in range(0, len(ahead), BLOCK)):
            x = features(ahead[some], self.mean, self.scale, returns[some], np.float32)
            products(x, heads, then[some])
        then = np.clip(then * size, self.least, self.most)
        then = then.reshape(*step.end.shape, -1)
        goes_on = 1.0 - step.end
        value = then[..., 0]
        rest = goes_on[..., None] * then[..., 1:-1]
        cost_target = np.maximum(step.cost + rest[..., 0], 0.0)
        noise = goes_on * (np.maximum(then[..., -1], 0.0) + step.end * value**2)
        known = np.all((obs >= model.low) & (obs <= model.high), axis=1, keepdims=True)
        if len(model.logged):
            known = known & model.logged
        return Estimates(
            q=step.reward + goes_on * value,
            cost_target=cost_target,
            cost_behavior=np.maximum(cost_target[..., None] + rest[..., 1 : 1 + k], 0.0),
            carried=np.maximum(rest[..., 1 + k :], 0.0),
            noise=noise + self.reward_noise,
            error=np.zeros_like(noise),
            known=np.broadcast_to(known, noise.shape),
        )

    @property
    def dynamics(self) -> Dynamics:
        """Those of the model."""
        return self.model.dynamics

    @property
    def trouble(self) -> str | None:
        """The last error of a simulator, if one is used."""
        return next(
            (n.trouble for n in self.dynamics.networks if isinstance(n, SimulatorModel)), None
        )

    @cached_property
    def _scaled(self) -> tuple[Weights, Floats]:
        """The heads in float32, and the factors that keep diverging ones within its range."""
        size = np.maximum(np.abs(self.heads).max(axis=0) / 1e30, 1.0)
        return (self.heads / size).astype(np.float32), size

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What differs from step to step."""
        return {
            "heads": self.heads,
            "mean": self.mean,
            "scale": self.scale,
            "least": self.least,
            "most": self.most,
            "low": self.model.low,
            "high": self.model.high,
            "logged": self.model.logged,
            "reward_noise": np.asarray(self.reward_noise),
            "step": np.asarray(self.t),
            "followed": np.asarray(self.followed),
        }

    def shared(self) -> dict[str, NDArray[Any]]:
        """What is the same at every step.

        Raises:
            InputError: the dynamics are a simulator of yours, which no file can hold.
        """
        if not self.dynamics.learned:
            raise InputError(
                "save: the dynamics of this design are a simulator, which no file can hold; "
                "expected dynamics learned from logs, try regression='auto', or design again"
            )
        return stack(self.dynamics.learned) | self.model.returns.arrays()

    @classmethod
    def restored(
        cls, shared: dict[str, NDArray[Any]], steps: list[dict[str, NDArray[Any]]]
    ) -> list[ModelCritic]:
        """The critics that `arrays` and `shared` took apart."""
        returns = ReturnNetworks.restored(shared)
        dynamics = unstack(shared)
        critics = []
        for arrays in steps:
            low, high, logged = (arrays.pop(name) for name in ("low", "high", "logged"))
            t, noise, k = (arrays.pop(name) for name in ("step", "reward_noise", "followed"))
            model = LearnedModel(2, dynamics, returns, low, high, logged)
            rest: dict[str, Any] = {**arrays, "reward_noise": float(noise), "followed": int(k)}
            critics.append(cls(model, int(t), **rest))
        return critics


def features(
    points: Floats, mean: Floats, scale: Floats, returns: NDArray[Any], kind: type = np.float64
) -> NDArray[Any]:
    """1, standardized inputs, squares, products (if not too many), and return features."""
    from scopeval.models.model._forward_kernel import fill

    d = points.shape[1]
    products = with_products(d)
    width = 1 + d + (d * (d + 1) // 2 if products else d) + RETURN_FEATURES
    out = np.empty((len(points), width), kind)
    fill(np.ascontiguousarray(points), mean, scale, REACH, products, returns, out)
    return out


def with_products(d: int) -> bool:
    """Whether there are features for products of d inputs."""
    return 1 + d + d * (d + 1) // 2 <= MOST_FEATURES

"""The critics of a model of the world, fitted on simulated episodes of the target policy.

    q_t(s, a) = r(s, a) + (1 - end(s, a)) g_t(m(s, a)),      m(s, a) = mean next observation,

with g_t a ridge regression on m, its squares and products, and the return features of m. How q
differs between the actions of a state is all that a design can use, and it comes from the dynamics;
g only has to be right where the target policy goes. Cost and carried variance are read in the same
way. The noise is what g leaves unexplained (chance, later actions, disagreement of the networks)
and the chance of an end.

**Return features**: what is still earned and spent from an observation on. A small network over
(next observation, time) is fitted to whole simulated episodes of the target policy, all time steps
at once. A ridge regression on a few hundred rows per step could not find, for example, the angle
beyond which a pendulum falls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.errors import InputError
from scopeval.models.dynamics import Dynamics, StepPrediction, stack, unstack
from scopeval.models.layers import (
    GAIN,
    NETWORK,
    Examples,
    Schedule,
    Weights,
    fit_layers,
    forward,
    fresh_layers,
)
from scopeval.models.protocols import Critic, Estimates, Learner, Targets
from scopeval.models.rows import Rows
from scopeval.models.simulator import SimulatorModel
from scopeval.policies.protocols import Observations

__all__ = [
    "LearnedModel",
    "ModelCritic",
    "ReturnNetworks",
    "ReturnSamples",
    "RolloutRegression",
    "Study",
    "features",
    "learn_returns",
]

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
        from scipy.linalg import cho_factor

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
        from scipy.linalg import cho_solve

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
        from scopeval.models._layers_kernel import products

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
    from scopeval.models._layers_kernel import fill

    d = points.shape[1]
    products = with_products(d)
    width = 1 + d + (d * (d + 1) // 2 if products else d) + RETURN_FEATURES
    out = np.empty((len(points), width), kind)
    fill(np.ascontiguousarray(points), mean, scale, REACH, products, returns, out)
    return out


def with_products(d: int) -> bool:
    """Whether there are features for products of d inputs."""
    return 1 + d + d * (d + 1) // 2 <= MOST_FEATURES


# -- return features ------------------------------------------------------------------------------


#: Standard deviations beyond which an input is taken to be no further away.
RETURN_REACH = 6.0
#: Outputs: still to be earned, still to be spent.
OUTPUTS = 2
#: Names of the layers in saved files.
PREFIX = "fore_"


@dataclass(frozen=True)
class Study:
    """How the return features are learned.

    Attributes:
        paths: simulated episodes to learn from; fewer, if their steps are more than training uses.
        hidden: width of each of the two hidden layers.
        steps: steps of Adam, its rate falling along a cosine.
        batch: rows per step.
        rate: Adam's first learning rate.
        gain: how sharply the units of the first layer bend before training; see `fresh_layers`.
    """

    paths: int = 4000
    hidden: int = 64
    steps: int = 2000
    batch: int = 256
    rate: float = 2e-2
    gain: float = GAIN

    def paths_of(self, horizon: int) -> int:
        """Episodes of so many steps whose rows are all used once, but not more than `paths`."""
        return min(self.paths, -(-self.steps * self.batch // horizon))


class ReturnSamples(NamedTuple):
    """Where steps of simulated episodes led, and what followed; n steps."""

    next_obs: Weights  # [n, w]
    t: Ints  # [n]
    returns: Floats  # [n, 2] earned and spent from there on


@dataclass(frozen=True)
class ReturnNetworks:
    """One or several networks; the features are their mean, relative to others of the time step.

    Attributes:
        networks: the layers of each, and mean and scale of its inputs.
        horizon: T.
    """

    networks: tuple[dict[str, Weights], ...]
    horizon: int

    def time_input(self, t: int | Ints) -> Any:
        """Time as an input, float32."""
        half = self.horizon / 2.0
        return ((np.asarray(t, np.float64) - half) / (half / 2.0)).astype(np.float32)

    def at(self, next_obs: Floats, t: int) -> Weights:
        """The features [..., 2] of next observations [..., w]."""
        flat = next_obs.reshape(-1, next_obs.shape[-1])
        total = np.zeros((len(flat), OUTPUTS), np.float32)
        for p in self.networks:
            z = (flat.astype(np.float32) - p["mean"]) / p["scale"]
            z = np.clip(z, np.float32(-RETURN_REACH), np.float32(RETURN_REACH))
            total += forward(p, np.column_stack([z, np.full(len(z), self.time_input(t))]))
        return (total / np.float32(len(self.networks))).reshape(*next_obs.shape[:-1], OUTPUTS)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that `restored` needs."""
        saved = {f"{PREFIX}{name}": np.stack([p[name] for p in self.networks]) for name in NETWORK}
        return saved | {f"{PREFIX}horizon": np.asarray(self.horizon)}

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]]) -> ReturnNetworks:
        """From `arrays`, which is emptied of them."""
        layers = [arrays.pop(f"{PREFIX}{name}") for name in NETWORK]
        networks = (dict(zip(NETWORK, some, strict=True)) for some in zip(*layers, strict=True))
        return cls(tuple(networks), int(arrays.pop(f"{PREFIX}horizon")))

    @classmethod
    def join(cls, parts: Sequence[ReturnNetworks]) -> ReturnNetworks:
        """The mean of several."""
        networks = [network for part in parts for network in part.networks]
        return cls(tuple(networks), parts[0].horizon)


def learn_returns(
    samples: ReturnSamples,
    horizon: int,
    settings: Study,
    seed: int,
    tick: Callable[[int], None] = lambda steps: None,
) -> ReturnNetworks:
    """Train a network on what followed in simulated episodes.

    Args:
        samples: from `rollouts.sample_returns`.
        horizon: T.
        settings: width, steps and rate.
        seed: of the first weights and the batches.
        tick: called with the number of steps just taken.
    """
    rng = np.random.default_rng((seed, 41))
    where, returns = samples.next_obs, samples.returns
    blank = _without_features(where.shape[1], horizon, settings.hidden)
    if not len(where):
        return blank
    mean, scale = where.mean(axis=0, dtype=np.float64), where.std(axis=0, dtype=np.float64)
    scale = np.where(scale > 1e-9, scale, 1.0)
    z = np.clip(
        (where - mean.astype(np.float32)) / scale.astype(np.float32), -RETURN_REACH, RETURN_REACH
    )
    x = np.column_stack([z, blank.time_input(samples.t)]).astype(np.float32)
    y = _by_time(returns, samples.t, horizon)
    squared = np.empty((0, 0), np.float32)
    examples = Examples(x, y, squared, np.empty(0, np.float32))
    fresh = fresh_layers(x.shape[1], settings.hidden, OUTPUTS, rng, settings.gain)
    schedule = Schedule(settings.steps, settings.batch, settings.rate)
    weights = fit_layers(fresh, examples, schedule, rng, tick)
    weights |= {"mean": mean.astype(np.float32), "scale": scale.astype(np.float32)}
    if not all(np.isfinite(value).all() for value in weights.values()):
        return blank  # training diverged; the critics have their other features
    return ReturnNetworks((weights,), horizon)


def _by_time(returns: Floats, t: Ints, horizon: int) -> Weights:
    """Returns [n, 2] relative to those of the same time step, as they are learned.

    Critics of each step see the features beside a constant, so the mean of a step need not be
    learned. Steps with little spread count a little more than by their size.
    """
    count = np.maximum(np.bincount(t, minlength=horizon), 1)

    def mean(values: Floats) -> Floats:
        return np.stack([np.bincount(t, one, horizon) / count for one in values.T], axis=1)

    away = returns - mean(returns)[t]
    usual = np.sqrt((away**2).mean(axis=0))
    usual = np.where(usual > 1e-12, usual, 1.0)
    spread = np.sqrt(np.maximum(np.sqrt(mean(away**2)), 1e-12 * usual) * usual)
    return np.asarray(away / spread[t], np.float32)


def _without_features(width: int, horizon: int, hidden: int) -> ReturnNetworks:
    """A network whose features are zero everywhere."""
    weights = fresh_layers(width + 1, hidden, OUTPUTS, np.random.default_rng(0))
    weights["w3"][:] = 0.0
    inputs = {"mean": np.zeros(width, np.float32), "scale": np.ones(width, np.float32)}
    return ReturnNetworks((weights | inputs,), horizon)

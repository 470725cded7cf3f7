"""Where a step leads: what a model of the world predicts, learned by networks.

One network for each half of the logs, over (observation, action), predicts the change of the
observation, reward, cost, and the probability that the episode ends there. The networks of the
halves never share a row. So each can be judged by the rows of the other, and so can designs that
are based on it. The errors of a network on held-out rows are kept. Simulated steps add errors that
are drawn from rows where the network was about as wrong: a world that is random, or known badly, is
uncertain in the simulation too, and only there. `training` learns the networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.models.identities import NO_IDENTITIES, Identities
from scopeval.models.layers import Weights, forward

__all__ = ["Dynamics", "Encoder", "Network", "StepModel", "StepPrediction", "stack", "unstack"]


@dataclass(frozen=True)
class Encoder:
    """Observations and actions as a network's inputs.

    Attributes:
        embedding: [A, m] a vector for every action number; [0, m]: actions are vectors already.
        predicted: [d] True for the entries of an observation that a model predicts; False for
            those that the target policy draws itself (see `policies.Redraws`).
        horizon: T where the dynamics depend on time, else 0.
    """

    embedding: Floats
    predicted: Bools
    horizon: int = 0

    @property
    def finite(self) -> bool:
        """Whether actions are numbers."""
        return len(self.embedding) > 0

    def same(self, other: Encoder) -> bool:
        """Whether two encoders have the same inputs."""
        return (
            np.array_equal(self.embedding, other.embedding)
            and np.array_equal(self.predicted, other.predicted)
            and self.horizon == other.horizon
        )

    def vectors(self, actions: NDArray[Any]) -> Floats:
        """Actions [...] or [..., m] as vectors [..., m]."""
        return self.embedding[actions] if self.finite else np.asarray(actions, np.float64)

    def candidates(self, obs: Floats, actions: NDArray[Any] | None) -> NDArray[Any]:
        """The given actions [B, K, m], or (None) all action numbers [B, A] for every observation.

        Args:
            obs: [B, d].
            actions: [B, K, m], or None.
        """
        if actions is not None:
            return actions
        every = np.arange(len(self.embedding))
        return np.broadcast_to(every, (len(obs), len(every)))

    def inputs(self, obs: Floats, actions: NDArray[Any], t: int | Ints) -> Weights:
        """[..., inputs] for observations [..., d] and actions [...] or [..., m]."""
        parts = [obs, self.vectors(actions)]
        if self.horizon:
            time = np.asarray(t, np.float64) / self.horizon
            parts.append(np.broadcast_to(time[..., None], (*obs.shape[:-1], 1)))
        return np.concatenate(parts, axis=-1).astype(np.float32)


@dataclass(frozen=True)
class StepPrediction:
    """Where K actions at B observations are expected to lead.

    Attributes:
        next_obs: [B, K, w] mean of the predicted entries of the next observation.
        reward: [B, K] mean.
        cost: [B, K] mean.
        end: [B, K] probability that the episode ends.
    """

    next_obs: Floats
    reward: Floats
    cost: Floats
    end: Floats

    @classmethod
    def join(cls, parts: Sequence[StepPrediction]) -> StepPrediction:
        """Predictions for several batches as one."""
        return cls(
            np.concatenate([part.next_obs for part in parts]),
            np.concatenate([part.reward for part in parts]),
            np.concatenate([part.cost for part in parts]),
            np.concatenate([part.end for part in parts]),
        )

    @classmethod
    def mean(cls, parts: Sequence[StepPrediction]) -> StepPrediction:
        """The mean of what several models predict for the same batch."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.asarray(sum(part.next_obs for part in parts) / len(parts)),
            np.asarray(sum(part.reward for part in parts) / len(parts)),
            np.asarray(sum(part.cost for part in parts) / len(parts)),
            np.asarray(sum(part.end for part in parts) / len(parts)),
        )


class StepModel(Protocol):
    """A model in which episodes can be simulated: a learned `Network`, or a user's simulator.

    Attributes:
        encoder: of its inputs.
        low: [w] simulated observations are kept above this, and
        high: [w] below this.
        reward_noise: mean squared error of the reward on held-out rows.
        loss: mean squared error of the next observation on held-out rows, in units of the spread
            of its change.
    """

    encoder: Encoder
    low: Floats
    high: Floats
    reward_noise: float
    loss: float

    def predict(self, obs: Floats, actions: NDArray[Any] | None, t: int) -> StepPrediction:
        """Where all actions (None), or the given ones [B, K, m], are expected to lead."""
        ...

    def draw_errors(
        self, obs: Floats, action: NDArray[Any], t: int, rng: np.random.Generator
    ) -> Floats:
        """Random errors [B, w] of the next observation, as on held-out rows."""
        ...

    def settle(self, next_obs: Floats) -> Floats:
        """Simulated observations [B, w] as they can be; those that can be stay as they are."""
        ...


#: An error is drawn from this many kept ones on either side, in the order of expected size.
NEIGHBORS = 64


@dataclass
class Network:
    """A trained network, and its errors on held-out rows; a `StepModel`.

    Attributes:
        encoder: of its inputs.
        weights: the layers, mean and scale of the inputs, centre and spread of the outputs.
        low: [w] least logged observation, less some room, and
        high: [w] largest, plus some room; predictions stay within.
        errors: [E, w] held-out errors of the next observation, ordered by
        expected_sizes: [E] the expected size of the error at the row of each.
        size_weights: give the expected size for inputs; see `expected_size`.
        identities: that the logged observations obey, and simulated ones are made to.
        reward_noise: mean squared held-out error of the reward.
        loss: held-out mean squared error, in units of the spread of what was predicted.
    """

    encoder: Encoder
    weights: dict[str, Weights]
    low: Floats
    high: Floats
    errors: Floats
    reward_noise: float
    loss: float
    expected_sizes: Floats = field(default_factory=lambda: np.zeros(1))
    size_weights: Floats = field(default_factory=lambda: np.zeros(1))
    identities: Identities = NO_IDENTITIES

    def predict(self, obs: Floats, actions: NDArray[Any] | None, t: int) -> StepPrediction:
        """Where all actions (None), or the given ones [B, K, m], are expected to lead."""
        given = self.encoder.candidates(obs, actions)
        before = np.broadcast_to(obs[:, None], (*given.shape[:2], obs.shape[1]))
        out = self.outputs(self.encoder.inputs(before, given, t))
        now = before[..., self.encoder.predicted]
        w = now.shape[-1]
        return StepPrediction(
            next_obs=np.clip(now + out[..., :w], self.low, self.high),
            reward=out[..., w],
            cost=np.maximum(out[..., w + 1], 0.0),
            end=1.0 / (1.0 + np.exp(-np.clip(out[..., w + 2], -30.0, 30.0))),
        )

    def draw_errors(
        self, obs: Floats, action: NDArray[Any], t: int, rng: np.random.Generator
    ) -> Floats:
        """Errors [B, w] of held-out rows where about as large ones are expected as here."""
        expected = self.expected_size(self.encoder.inputs(obs, action, t))
        last = len(self.errors) - 1
        around = min(NEIGHBORS, last // 2)
        place = np.clip(np.searchsorted(self.expected_sizes, expected), around, last - around)
        return np.asarray(self.errors[place + rng.integers(-around, around + 1, len(obs))])

    def settle(self, next_obs: Floats) -> Floats:
        """Simulated observations [B, w] as the identities of the logs have it."""
        return self.identities.keep(next_obs)

    def expected_size(self, x: Weights) -> Floats:
        """Expected size of the errors for inputs [B, i], on a logarithmic scale."""
        about = self.size_features(x)[:, : len(self.size_weights)]
        return np.asarray(about @ self.size_weights)

    def size_features(self, x: Weights) -> Floats:
        """1, the inputs, their magnitudes and squares."""
        z = np.clip((x - self.weights["mean"]) / self.weights["scale"], -4.0, 4.0)
        return np.concatenate([np.ones((len(z), 1)), z, np.abs(z), z * z], axis=1)

    def outputs(self, x: Weights) -> Floats:
        """Change of the observation, reward, cost, logit of an end: [..., w + 3]."""
        p = self.weights
        flat = (x.reshape(-1, x.shape[-1]) - p["mean"]) / p["scale"]
        out = forward(p, flat).astype(np.float64) * p["spread"] + p["centre"]
        return out.reshape(*x.shape[:-1], -1)


@dataclass(frozen=True)
class Dynamics:
    """One or several step models; what they predict is their mean."""

    networks: tuple[StepModel, ...]

    @property
    def encoder(self) -> Encoder:
        """The networks' common encoder."""
        return self.networks[0].encoder

    @cached_property
    def learned(self) -> tuple[Network, ...]:
        """The networks that were learned: all, or none where a simulator is used."""
        return tuple(n for n in self.networks if isinstance(n, Network))

    def predict(self, obs: Floats, actions: NDArray[Any] | None, t: int) -> StepPrediction:
        """The mean of what the networks predict."""
        return StepPrediction.mean([n.predict(obs, actions, t) for n in self.networks])


def stack(networks: Sequence[Network]) -> dict[str, NDArray[Any]]:
    """All that `unstack` needs to restore networks."""
    arrays: dict[str, NDArray[Any]] = {}
    for i, network in enumerate(networks):
        arrays |= {f"net{i}_{name}": value for name, value in network.weights.items()}
        arrays |= {f"net{i}_low": network.low, f"net{i}_high": network.high}
    encoder = networks[0].encoder
    arrays |= {"embedding": encoder.embedding, "world": encoder.predicted}
    arrays["timed"] = np.array([encoder.horizon])
    return arrays


def unstack(arrays: dict[str, NDArray[Any]]) -> Dynamics:
    """The networks that `stack` saved; they predict, but have no errors to draw from."""
    encoder = Encoder(arrays["embedding"], arrays["world"], int(arrays["timed"][0]))
    count = len({name.split("_")[0] for name in arrays if name.startswith("net")})
    networks = []
    for i in range(count):
        start = f"net{i}_"
        weights = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
        low, high = weights.pop("low"), weights.pop("high")
        nothing = np.zeros((1, len(low)))
        networks.append(Network(encoder, weights, low, high, nothing, 0.0, float("nan")))
    return Dynamics(tuple(networks))

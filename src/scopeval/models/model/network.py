"""The small networks of a model of the world: their layers, and the dynamics that they predict.

    hidden = swish(swish(x w1 + b1) w2 + b2)
    output = hidden w3 + x skip + b3

The linear path `skip` lets the hidden layers learn only what is not linear. One such network for
each half of the logs, over (observation, action), predicts the change of the observation, reward,
cost, and the probability that the episode ends there. The networks of the halves never share a row.
So each can be judged by the rows of the other, and so can designs that are based on it. The errors
of a network on held-out rows are kept. Simulated steps add errors that are drawn from rows where
the network was about as wrong: a world that is random, or known badly, is uncertain in the
simulation too, and only there. `fitting` trains layers, `training` learns the networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import fan_out_rows
from scopeval.arrays import Floats
from scopeval.models.model.identities import NO_IDENTITIES, Identities
from scopeval.models.model.step_model import Encoder, StepModel, StepPrediction, Weights

__all__ = [
    "GAIN",
    "LAYERS",
    "NETWORK",
    "Dynamics",
    "Network",
    "forward",
    "fresh_layers",
    "hidden_layers",
    "stack",
    "unstack",
]

#: Blocks of rows that are worth a thread of their own.
BLOCKS_PER_THREAD = 128

#: How sharply fresh units bend. Edges (a pole that falls, a foot that lands) are found in a
#: fraction of the steps that units need which start soft and at the origin.
GAIN = 3.0

#: The layers in the order in which compiled code takes them.
LAYERS = ("w1", "b1", "w2", "b2", "w3", "skip", "b3")
#: All of a network: the layers, mean and scale of its inputs.
NETWORK = (*LAYERS, "mean", "scale")


def fresh_layers(
    inputs: int, hidden: int, outputs: int, rng: np.random.Generator, gain: float = GAIN
) -> dict[str, Weights]:
    """Layers before training; the linear path starts at zero.

    Args:
        inputs: number of them, in standard units.
        hidden: width of both hidden layers.
        outputs: number of them.
        rng: draws the weights.
        gain: how sharply the units of the first layer bend. 1: softly, and all at the origin.
    """

    def uniform(*shape: int) -> Weights:
        bound = 1.0 / np.sqrt(shape[0])
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    first = np.float32(gain) * uniform(inputs, hidden)
    away = np.float32(gain - 1.0)
    return {
        "w1": first,
        "b1": away * rng.uniform(-1.0, 1.0, hidden).astype(np.float32),
        "w2": uniform(hidden, hidden),
        "b2": np.zeros(hidden, np.float32),
        "w3": uniform(hidden, outputs),
        "skip": np.zeros((inputs, outputs), np.float32),
        "b3": np.zeros(outputs, np.float32),
    }


def hidden_layers(p: dict[str, Weights], x: Weights) -> Weights:
    """The second hidden layer [n, h] for inputs [n, i]: the outputs, were they these units."""
    units, inputs = len(p["b2"]), len(p["w1"])
    shown = {
        "w3": np.eye(units, dtype=np.float32),
        "skip": np.zeros((inputs, units), np.float32),
        "b3": np.zeros(units, np.float32),
    }
    return forward(p | shown, x)


def forward(p: dict[str, Weights], x: Weights) -> Weights:
    """The outputs [n, o] for any number of inputs [n, i]."""
    from scopeval.models.model import _forward_kernel as kernel

    layers = [np.ascontiguousarray(p[name], np.float32) for name in LAYERS]
    given = np.ascontiguousarray(x, np.float32)
    out = np.empty((len(x), len(p["b3"])), np.float32)
    fan_out_rows(
        lambda start, stop: kernel.forward(given, *layers, start, stop, out),
        len(x),
        block=kernel.BLOCK,
        least=BLOCKS_PER_THREAD,
    )
    return out


# -- the dynamics ----------------------------------------------------------------------------------


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

"""What the logs teach about the world itself: where an action leads, what it earns and costs.

One small network per half of the logs, over (observation, action):

    change of the observation, reward, cost, and the chance that the episode ends there.

The networks of the halves never share a row, so each can be judged, and its designs checked, by the
other. Large errors of the next observation count by their size, not its square: a contact now and
then that nobody can predict must not spoil the smooth rest. Rewards and costs are read from the
last layer by least squares, for there the mean is wanted, rare large ones and all. What a network
gets wrong on rows that it has not seen is kept, and drawn from when episodes are imagined, errors
of rows where it is about as wrong: a world that is random, or badly known, stays as uncertain as
it is, and only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats
from scopeval.critics.model.answer_cache import Encoder, Outlook, Remembering, Weights

__all__ = ["Dynamics", "Network", "World"]

#: among how many on either side, in the order of their expected size, one is drawn.
ALIKE = 64

LAYERS = ("w1", "b1", "w2", "b2", "w3", "skip", "b3", "mean", "scale", "centre", "spread")


class World(Protocol):
    """Somewhere to imagine episodes: a `Network` that was learned, or `known.KnownWorld`."""

    encoder: Encoder
    low: Floats
    high: Floats
    reward_noise: float
    loss: float

    def outlook(self, obs: Floats, actions: NDArray[Any] | None, t: int) -> Outlook:
        """Where every action (None), or the given ones [B, K, m], are expected to lead."""
        ...

    def stray(self, obs: Floats, action: NDArray[Any], t: int, rng: np.random.Generator) -> Floats:
        """Draws [B, w] of how far off that may be."""
        ...

    def remember(self, obs: Floats, actions: NDArray[Any] | None, t: int, said: Outlook) -> None:
        """Keep an answer for these very arrays."""
        ...

    def forget(self) -> None:
        """Drop all answers that were kept."""
        ...


@dataclass
class Network(Remembering):
    """One trained network, and what it got wrong on rows that it had not seen.

    Attributes:
        encoder: of its inputs.
        weights: of the layers, in the order of `_layers`.
        low: [w] least of what was logged, less some room; imagined observations stay within.
        high: [w] likewise.
        errors: [E, w] held-out errors of the next observation, by increasing
        sizes: [E] expected size, on a scale of its own, of the errors at their rows, which
        size: gives for inputs: see `_size`.
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
    sizes: Floats = field(default_factory=lambda: np.zeros(1))
    size: Floats = field(default_factory=lambda: np.zeros(1))

    def outlook(self, obs: Floats, actions: NDArray[Any] | None, t: int) -> Outlook:
        """The outlook of every action (None), or of the given ones [B, K, m]."""
        kept = self.recalled(obs, actions, t)
        if kept is not None:
            return kept
        given = np.arange(len(self.encoder.embedding)) if actions is None else actions
        K = given.shape[0] if actions is None else given.shape[1]
        if actions is None:
            given = np.broadcast_to(given, (len(obs), K))
        before = np.broadcast_to(obs[:, None], (len(obs), K, obs.shape[1]))
        out = self._forward(self.encoder.inputs(before, given, t))
        now = before[..., self.encoder.world]
        w = now.shape[-1]
        return Outlook(
            ahead=np.clip(now + out[..., :w], self.low, self.high),
            reward=out[..., w],
            cost=np.maximum(out[..., w + 1], 0.0),
            end=1.0 / (1.0 + np.exp(-np.clip(out[..., w + 2], -30.0, 30.0))),
        )

    def stray(self, obs: Floats, action: NDArray[Any], t: int, rng: np.random.Generator) -> Floats:
        """Errors [B, w] as the network makes them at observations and actions like these."""
        expected = self._size(self.encoder.inputs(obs, action, t))
        last = len(self.errors) - 1
        around = min(ALIKE, last // 2)
        place = np.clip(np.searchsorted(self.sizes, expected), around, last - around)
        return np.asarray(self.errors[place + rng.integers(-around, around + 1, len(obs))])

    def _size(self, x: Weights) -> Floats:
        """Expected size of the errors for inputs [B, i]."""
        return np.asarray(self._about(x)[:, : len(self.size)] @ self.size)

    def _about(self, x: Weights) -> Floats:
        """1, the inputs, their sizes and squares."""
        z = np.clip((x - self.weights["mean"]) / self.weights["scale"], -4.0, 4.0)
        return np.concatenate([np.ones((len(z), 1)), z, np.abs(z), z * z], axis=1)

    def _forward(self, x: Weights) -> Floats:
        """Outputs in their own units [..., w + 3]."""
        p = self.weights
        flat = (x.reshape(-1, x.shape[-1]) - p["mean"]) / p["scale"]
        parts = []
        for i in range(0, len(flat), 8192):  # blocks that stay in the cache
            part = flat[i : i + 8192]
            hidden = _swish(np.asarray(part @ p["w1"] + p["b1"]))
            hidden = _swish(np.asarray(hidden @ p["w2"] + p["b2"]))
            parts.append(hidden @ p["w3"] + part @ p["skip"] + p["b3"])
        out = np.concatenate(parts) if parts else np.empty((0, len(p["b3"])), np.float32)
        out = out.astype(np.float64) * p["spread"] + p["centre"]
        return out.reshape(*x.shape[:-1], -1)


@dataclass(frozen=True)
class Dynamics:
    """One or several worlds, learned or known; what they say is their mean."""

    networks: tuple[World, ...]

    @property
    def encoder(self) -> Encoder:
        """The networks' common encoder."""
        return self.networks[0].encoder

    @cached_property
    def learned(self) -> tuple[Network, ...]:
        """The networks that were learned: all, or none where the dynamics are known."""
        return tuple(n for n in self.networks if isinstance(n, Network))

    @cached_property
    def stacked(self) -> tuple[NDArray[Any], ...]:
        """All networks' layers [networks, ...], in the order of `LAYERS`, and their limits.

        The last layers, w3 and skip, are transposed: they have few outputs.
        """
        networks = self.learned
        parts: list[list[NDArray[Any]]] = [[n.weights[name] for n in networks] for name in LAYERS]
        parts[4], parts[5] = [w3.T for w3 in parts[4]], [skip.T for skip in parts[5]]
        parts += [[n.low for n in networks], [n.high for n in networks]]
        return tuple(np.ascontiguousarray(np.stack(each)) for each in parts)

    def outlook(self, obs: Floats, actions: NDArray[Any] | None, t: int) -> Outlook:
        """Mean of the networks' outlooks."""
        each = [network.outlook(obs, actions, t) for network in self.networks]
        if len(each) == 1:
            return each[0]
        return Outlook(
            *(
                sum(getattr(one, name) for one in each) / len(each)
                for name in ("ahead", "reward", "cost", "end")
            )
        )


def _swish(z: NDArray[Any]) -> NDArray[Any]:
    """Multiply by a soft step: smooth, and far cheaper than an exponential."""
    gate = np.abs(z)
    gate += 1.0
    np.divide(z, gate, out=gate)
    gate += 1.0
    gate *= z
    gate *= np.float32(0.5)
    return np.asarray(gate)


def stack(networks: Sequence[Network]) -> dict[str, NDArray[Any]]:
    """All that `unstack` needs to bring networks back."""
    arrays: dict[str, NDArray[Any]] = {}
    for i, network in enumerate(networks):
        arrays |= {f"net{i}_{name}": value for name, value in network.weights.items()}
        arrays |= {f"net{i}_low": network.low, f"net{i}_high": network.high}
    encoder = networks[0].encoder
    arrays |= {"embedding": encoder.embedding, "world": encoder.world}
    arrays["timed"] = np.array([encoder.horizon])
    return arrays


def unstack(arrays: dict[str, NDArray[Any]]) -> Dynamics:
    """The networks that `stack` took apart; they can answer, but no longer imagine."""
    encoder = Encoder(arrays["embedding"], arrays["world"], int(arrays["timed"][0]))
    count = len({name.split("_")[0] for name in arrays if name.startswith("net")})
    networks = []
    for i in range(count):
        start = f"net{i}_"
        own = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
        low, high = own.pop("low"), own.pop("high")
        nothing = np.zeros((1, len(low)))
        networks.append(Network(encoder, own, low, high, nothing, 0.0, float("nan")))
    return Dynamics(tuple(networks))

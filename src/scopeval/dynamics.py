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

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints, check_whole
from scopeval.critics import Rows
from scopeval.errors import InputError

__all__ = [
    "WIDE",
    "Dynamics",
    "Encoder",
    "Network",
    "Outlook",
    "Remembering",
    "Training",
    "World",
    "fresh",
    "learn_network",
    "one_thread",
    "swish",
]

#: Held-out errors that a network keeps to draw from, and
ERRORS = 4096
#: among how many on either side, in the order of their expected size, one is drawn.
ALIKE = 64
#: How far beyond the logged range an imagined observation may go, in ranges.
SLACK = 0.05

Weights = NDArray[np.float32]
LAYERS = ("w1", "b1", "w2", "b2", "w3", "skip", "b3", "mean", "scale", "centre", "spread")


@dataclass(frozen=True)
class Training:
    """How a network of the dynamics is trained.

    Attributes:
        hidden: width of each of the two hidden layers.
        steps: of Adam, its rate falling along a cosine.
        batch: rows per step.
        rate: Adam's first learning rate.
        dropout: share of the hidden units that is left out, others at every step; see `WIDE`.
    """

    hidden: int = 128
    steps: int = 8000
    batch: int = 1024
    rate: float = 1e-2
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("hidden", "steps", "batch"):
            check_whole(name, getattr(self, name), 1)
        if not self.rate > 0.0:
            raise InputError(f"rate: got {self.rate!r}, expected a number > 0")
        if not 0.0 <= self.dropout < 1.0:
            raise InputError(f"dropout: got {self.dropout!r}, expected a number in [0, 1)")


#: Where errors stay large (contacts), this learns more from the same logs, in some five times the
#: time; smooth worlds lose by it. Held-out errors tell: `Report.holdout`, "dynamics".
WIDE = Training(hidden=256, steps=20_000, rate=5e-3, dropout=0.05)


@dataclass(frozen=True)
class Encoder:
    """Observations and actions as a network's inputs.

    Attributes:
        embedding: [A, m] a vector for every action number; [0, m]: actions are vectors already.
        world: [d] True for what the world decides of an observation; False for what the target
            policy itself draws there (see `policies.Redraws`), which nothing has to predict.
        horizon: T where the dynamics depend on time, else 0.
    """

    embedding: Floats
    world: NDArray[np.bool_]
    horizon: int = 0

    @property
    def finite(self) -> bool:
        """Whether actions are numbers."""
        return len(self.embedding) > 0

    def vectors(self, actions: NDArray[Any]) -> Floats:
        """Actions [...] or [..., m] as vectors [..., m]."""
        return self.embedding[actions] if self.finite else np.asarray(actions, np.float64)

    def inputs(self, obs: Floats, actions: NDArray[Any], t: int | Ints) -> Weights:
        """[..., inputs] for observations [..., d] and actions [...] or [..., m]."""
        parts = [obs, self.vectors(actions)]
        if self.horizon:
            time = np.asarray(t, np.float64) / self.horizon
            parts.append(np.broadcast_to(time[..., None], (*obs.shape[:-1], 1)))
        return np.concatenate(parts, axis=-1).astype(np.float32)


@dataclass(frozen=True)
class Outlook:
    """Where actions are expected to lead, [B, K] each.

    Attributes:
        ahead: [B, K, w] mean of what the world decides of the next observation.
        reward: mean reward.
        cost: mean cost.
        end: chance that the episode ends.
    """

    ahead: Floats
    reward: Floats
    cost: Floats
    end: Floats

    @classmethod
    def join(cls, parts: Sequence[Outlook]) -> Outlook:
        """Outlooks of several batches as one."""
        names = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class Remembering:
    """Keeps answers about arrays: a design asks about the same ones again and again."""

    encoder: Encoder
    _memory: dict[tuple[int, int, int], tuple[Any, Any, Outlook]] | None = None

    def remember(self, obs: Floats, actions: NDArray[Any] | None, t: int, said: Outlook) -> None:
        """Keep an answer; the arrays are kept with it, so that they stay these very ones."""
        if self._memory is None:
            self._memory = {}
        self._memory[self._key(obs, actions, t)] = (obs, actions, said)

    def recalled(self, obs: Floats, actions: NDArray[Any] | None, t: int) -> Outlook | None:
        """The answer that was kept, if one was."""
        kept = (self._memory or {}).get(self._key(obs, actions, t))
        return None if kept is None else kept[2]

    def forget(self) -> None:
        """Drop all answers that were kept: the design is done."""
        self._memory = None

    def _key(self, obs: Floats, actions: NDArray[Any] | None, t: int) -> tuple[int, int, int]:
        return id(obs), id(actions), t if self.encoder.horizon else 0


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


_LOCK, _INSIDE = Lock(), [0, 0]  # how many are inside, torch's threads before the first of them


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch by one thread: the same bits on every machine. Several callers may be inside."""
    import torch

    with _LOCK:
        if _INSIDE[0] == 0:
            _INSIDE[1] = torch.get_num_threads()
        torch.set_num_threads(1)  # every caller: torch counts threads for each thread anew
        _INSIDE[0] += 1
    try:
        yield
    finally:
        with _LOCK:
            _INSIDE[0] -= 1
            if _INSIDE[0] == 0:
                torch.set_num_threads(_INSIDE[1])


def learn_network(
    rows: Rows,
    held_out: Rows,
    encoder: Encoder,
    how: Training,
    seed: int,
    tick: Callable[[], None] = lambda: None,
) -> Network:
    """Train a network on some rows; the others tell how wrong it is.

    Training that runs away is begun anew with a quarter of the rate. `tick` is called after every
    step.
    """
    with one_thread():
        for _ in range(4):
            network = _trained(rows, held_out, encoder, how, seed, tick)
            if all(np.isfinite(value).all() for value in network.weights.values()):
                return network
            how = replace(how, rate=how.rate / 4.0)
    raise InputError(
        "logged: the dynamics cannot be learned, training runs away; expected observations and "
        "actions of moderate size, try scaling them, or a smaller Training(rate=...)"
    )


def _trained(
    rows: Rows,
    held_out: Rows,
    encoder: Encoder,
    how: Training,
    seed: int,
    tick: Callable[[], None],
) -> Network:
    import torch

    rng = np.random.default_rng((seed, 21))
    x = encoder.inputs(np.asarray(rows.obs), rows.action, rows.t)
    y, end = _answers(rows, encoder)
    goes_on = rows.alive > 0
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 1e-6, scale, 1.0).astype(np.float32)
    some = goes_on if goes_on.any() else np.ones(len(x), np.bool_)
    w = y.shape[1] - 2
    centre, spread = y.mean(axis=0), y.std(axis=0)
    centre[:w], spread[:w] = y[some, :w].mean(axis=0), y[some, :w].std(axis=0)
    spread = np.where(spread > 1e-9, spread, 1.0)
    # after the end of an episode the next observation means nothing: no loss there
    counts = np.ones_like(y, dtype=np.float32)
    counts[~goes_on, :w] = 0.0
    X = torch.from_numpy((x - mean) / scale)
    Y = torch.from_numpy(((y - centre) / spread).astype(np.float32))
    C, D = torch.from_numpy(counts), torch.from_numpy(end.astype(np.float32))
    layers = {
        name: torch.from_numpy(value).requires_grad_()
        for name, value in fresh(X.shape[1], how.hidden, y.shape[1] + 1, rng).items()
    }
    ever_ends = bool(0 < end.mean() < 1)
    usual: Any = torch.ones(y.shape[1])  # size of the errors of each output, as training goes on
    adam = torch.optim.Adam(layers.values(), lr=how.rate)
    fade = torch.optim.lr_scheduler.CosineAnnealingLR(adam, how.steps)
    every = min(how.batch, len(X))
    draws = torch.Generator().manual_seed(int(rng.integers(2**62))) if how.dropout else None

    def thin(hidden: Any) -> Any:
        if draws is None:
            return hidden
        stay = torch.rand(hidden.shape, generator=draws) >= how.dropout
        return hidden * stay / (1.0 - how.dropout)

    for _ in range(how.steps):
        pick = torch.from_numpy(rng.integers(len(X), size=every))
        inputs = X[pick]
        hidden = thin(swish(inputs @ layers["w1"] + layers["b1"]))
        hidden = thin(swish(hidden @ layers["w2"] + layers["b2"]))
        out = hidden @ layers["w3"] + inputs @ layers["skip"] + layers["b3"]
        wrong = C[pick] * (out[:, :-1] - Y[pick])
        usual = 0.99 * usual + 0.01 * wrong.detach().abs().mean(dim=0)
        loss: Any = 0.1 * (torch.sqrt(1.0 + (wrong / (usual + 1e-4)) ** 2) - 1.0).mean()
        if ever_ends:
            loss = loss + 0.1 * torch.nn.functional.binary_cross_entropy_with_logits(
                out[:, -1], D[pick]
            )
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        fade.step()
        tick()
    with torch.no_grad():
        hidden = swish(X @ layers["w1"] + layers["b1"])
        hidden = swish(hidden @ layers["w2"] + layers["b2"])
    weights = {name: value.detach().numpy() for name, value in layers.items()}
    _read_means(weights, hidden.numpy(), X.numpy(), Y.numpy()[:, w:])
    if not ever_ends:  # nothing to tell apart: as in the logs, always or never
        weights["w3"][:, -1], weights["skip"][:, -1] = 0.0, 0.0
        weights["b3"][-1] = 30.0 if end.all() else -30.0
    weights |= {"mean": mean.astype(np.float32), "scale": scale}
    weights["centre"] = np.append(centre, 0.0).astype(np.float32)
    weights["spread"] = np.append(spread, 1.0).astype(np.float32)
    both = np.concatenate([np.asarray(rows.obs), np.asarray(rows.next_obs)])[:, encoder.world]
    low, high = both.min(axis=0), both.max(axis=0)
    room = SLACK * (high - low) + 1e-9
    network = Network(
        encoder, weights, low - room, high + room, np.zeros((1, w)), 0.0, float("nan")
    )
    return _judged(network, held_out, spread, rng)


def _read_means(weights: dict[str, Weights], hidden: Weights, x: Weights, y: Weights) -> None:
    """Reward and cost anew from the last hidden layer, by least squares: their means are wanted."""
    inputs = np.column_stack([np.ones(len(x)), hidden, x])
    if not np.isfinite(inputs).all():
        return  # training ran away, which is seen elsewhere
    gram = inputs.T @ inputs
    gram[np.diag_indices_from(gram)] += 1e-3 * len(x)
    found = np.linalg.solve(gram, inputs.T @ y)
    at = slice(weights["b3"].size - 3, weights["b3"].size - 1)
    h = hidden.shape[1]
    weights["b3"][at], weights["w3"][:, at] = found[0], found[1 : 1 + h]
    weights["skip"][:, at] = found[1 + h :]


def _judged(network: Network, rows: Rows, spread: Floats, rng: np.random.Generator) -> Network:
    """Write down what the network gets wrong on rows that it has not seen."""
    encoder = network.encoder
    x = encoder.inputs(np.asarray(rows.obs), rows.action, rows.t)
    out = network._forward(x)
    y, _ = _answers(rows, encoder)
    wrong = y - out[:, :-1]
    goes_on = np.flatnonzero(rows.alive > 0)
    w = wrong.shape[1] - 2
    network.reward_noise = float(np.mean(wrong[:, w] ** 2))
    if len(goes_on) and w:
        network.loss = float(np.mean((wrong[goes_on, :w] / spread[:w]) ** 2))
        _sort_errors(network, x[goes_on], wrong[goes_on, :w], spread[:w], rng)
    return network


def _sort_errors(
    network: Network, x: Weights, wrong: Floats, spread: Floats, rng: np.random.Generator
) -> None:
    """Learn where errors are large, and keep some in that order."""
    some = rng.choice(len(x), min(len(x), 5 * ERRORS), replace=False)
    each = network._about(x[some])
    large = np.nan_to_num(np.log(np.abs(wrong[some] / spread).mean(axis=1) + 1e-6))
    gram = each.T @ each + 1e-3 * len(some) * np.eye(each.shape[1])
    network.size = np.linalg.solve(gram, each.T @ large)
    kept = some[rng.integers(len(some), size=ERRORS)]
    expected = network._size(x[kept])
    order = np.argsort(expected, kind="stable")
    network.sizes, network.errors = expected[order], wrong[kept[order]]


def _answers(rows: Rows, encoder: Encoder) -> tuple[Floats, NDArray[np.bool_]]:
    """What is to be predicted: change of the observation, reward, cost [n, w + 2]; the end [n]."""
    change = (np.asarray(rows.next_obs) - np.asarray(rows.obs))[:, encoder.world]
    return np.column_stack([change, rows.reward, rows.cost]), rows.alive == 0


def fresh(inputs: int, hidden: int, outputs: int, rng: np.random.Generator) -> dict[str, Weights]:
    """Layers that have learned nothing: two hidden ones, and a linear path beside them."""

    def uniform(*shape: int) -> Weights:
        bound = 1.0 / np.sqrt(shape[0])
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    return {
        "w1": uniform(inputs, hidden),
        "b1": np.zeros(hidden, np.float32),
        "w2": uniform(hidden, hidden),
        "b2": np.zeros(hidden, np.float32),
        "w3": uniform(hidden, outputs),
        "skip": np.zeros((inputs, outputs), np.float32),
        "b3": np.zeros(outputs, np.float32),
    }


def _swish(z: NDArray[Any]) -> NDArray[Any]:
    """Multiply by a soft step: smooth, and far cheaper than an exponential."""
    gate = np.abs(z)
    gate += 1.0
    np.divide(z, gate, out=gate)
    gate += 1.0
    gate *= z
    gate *= np.float32(0.5)
    return np.asarray(gate)


def swish(z: Any) -> Any:
    """The same for tensors (and arrays, more slowly)."""
    return 0.5 * z * (1.0 + z / (1.0 + abs(z)))


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

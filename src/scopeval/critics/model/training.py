"""Train the dynamics networks on logged transitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import one_torch_thread
from scopeval.arrays import Floats, check_whole
from scopeval.critics.model.answer_cache import Encoder, Weights
from scopeval.critics.model.network import Network
from scopeval.critics.protocols import Rows
from scopeval.errors import InputError

__all__ = ["WIDE", "Training", "fresh", "learn_network", "swish"]

#: Held-out errors that a network keeps to draw from, and
ERRORS = 4096

#: How far beyond the logged range an imagined observation may go, in ranges.
SLACK = 0.05


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
    with one_torch_thread():
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


def swish(z: Any) -> Any:
    """The same for tensors (and arrays, more slowly)."""
    return 0.5 * z * (1.0 + z / (1.0 + abs(z)))

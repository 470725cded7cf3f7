"""How an episode goes on from a state, learned from imagined episodes of the target.

A small network over (where a step leads, time) for what is then still earned and still spent. It is
fitted to whole imagined episodes, all time steps at once, and serves the critics of `critic_model`
as features: a ridge of few hundred rows a step could not find, say, the edge beyond which a
pendulum falls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import one_torch_thread
from scopeval.arrays import Floats, Ints
from scopeval.critics.model.training import fresh, swish

__all__ = ["Foresight", "Study", "foresee"]

#: Standard deviations beyond which an input is taken to be no further away.
REACH = 6.0
LAYERS = ("w1", "b1", "w2", "b2", "w3", "skip", "b3", "mean", "scale")
#: What it says: still to be earned, still to be spent.
OUTPUTS = 2

Weights = NDArray[np.float32]


@dataclass(frozen=True)
class Study:
    """How a network is trained.

    Attributes:
        paths: imagined episodes to learn from.
        hidden: width of each of the two hidden layers.
        steps: of Adam, its rate falling along a cosine.
        batch: rows per step.
        rate: Adam's first learning rate.
    """

    paths: int = 4000
    hidden: int = 64
    steps: int = 3000
    batch: int = 1024
    rate: float = 1e-2


@dataclass(frozen=True)
class Foresight:
    """One or several networks; what they say is their mean, in units of the spread they learned.

    Attributes:
        networks: weights of each, by the names of `LAYERS`.
        horizon: T.
    """

    networks: tuple[dict[str, Weights], ...]
    horizon: int
    _memory: dict[tuple[int, int], tuple[Floats, Weights]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @cached_property
    def stacked(self) -> tuple[Weights, ...]:
        """All networks' layers [networks, ...], in the order of `LAYERS`."""
        each = ([network[name] for network in self.networks] for name in LAYERS)
        return tuple(np.ascontiguousarray(np.stack(some)) for some in each)

    def when(self, t: int | Ints) -> Any:
        """Time as an input, float32."""
        half = self.horizon / 2.0
        return ((np.asarray(t, np.float64) - half) / (half / 2.0)).astype(np.float32)

    def at(self, points: Floats, t: int) -> Weights:
        """[..., 2] for where steps lead [..., w]."""
        if (id(points), t) in self._memory:
            return self._memory[id(points), t][1]
        flat = points.reshape(-1, points.shape[-1])
        total = np.zeros((len(flat), OUTPUTS), np.float32)
        for p in self.networks:
            z = (flat.astype(np.float32) - p["mean"]) / p["scale"]
            z = np.clip(z, np.float32(-REACH), np.float32(REACH))
            x = np.column_stack([z, np.full(len(z), self.when(t))])
            for i in range(0, len(x), 8192):  # blocks that stay in the cache
                total[i : i + 8192] += _said(p, x[i : i + 8192])
        return (total / np.float32(len(self.networks))).reshape(*points.shape[:-1], OUTPUTS)

    def remember(self, points: Floats, t: int) -> None:
        """Keep the answer for this very array: a design asks about it again and again."""
        self._memory[id(points), t] = points, self.at(points, t)

    def forget(self) -> None:
        """Drop all answers that were kept."""
        self._memory.clear()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that `restored` needs."""
        stacked = dict(zip((f"fore_{name}" for name in LAYERS), self.stacked, strict=True))
        return stacked | {"fore_horizon": np.asarray(self.horizon)}

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]]) -> Foresight:
        """From `arrays`, which is emptied of them."""
        layers = [arrays.pop(f"fore_{name}") for name in LAYERS]
        networks = (dict(zip(LAYERS, some, strict=True)) for some in zip(*layers, strict=True))
        return cls(tuple(networks), int(arrays.pop("fore_horizon")))

    @classmethod
    def join(cls, parts: Sequence[Foresight]) -> Foresight:
        """The mean of several."""
        networks = [network for part in parts for network in part.networks]
        return cls(tuple(networks), parts[0].horizon)


def foresee(
    where: NDArray[Any],
    when: Ints,
    what: Floats,
    horizon: int,
    how: Study,
    seed: int,
    tick: Callable[[], None] = lambda: None,
) -> Foresight:
    """Train a network on what followed in imagined episodes: see `ground.prospects`.

    `tick` is called after every step.
    """
    import torch

    rng = np.random.default_rng((seed, 41))
    if not len(where):
        return _blank(where.shape[1], horizon, how.hidden)
    mean, scale = where.mean(axis=0, dtype=np.float64), where.std(axis=0, dtype=np.float64)
    scale = np.where(scale > 1e-9, scale, 1.0)
    centre, spread = what.mean(axis=0), what.std(axis=0)
    spread = np.where(spread > 1e-12, spread, 1.0)
    z = np.clip((where - mean.astype(np.float32)) / scale.astype(np.float32), -REACH, REACH)
    blank = _blank(where.shape[1], horizon, how.hidden)
    x = torch.from_numpy(np.column_stack([z, blank.when(when)]).astype(np.float32))
    y = torch.from_numpy(((what - centre) / spread).astype(np.float32))
    layers = {
        name: torch.from_numpy(value).requires_grad_()
        for name, value in fresh(x.shape[1], how.hidden, OUTPUTS, rng).items()
    }
    with one_torch_thread():
        adam = torch.optim.Adam(layers.values(), lr=how.rate)
        fade = torch.optim.lr_scheduler.CosineAnnealingLR(adam, how.steps)
        for _ in range(how.steps):
            pick = torch.from_numpy(rng.integers(len(x), size=min(how.batch, len(x))))
            loss = ((_said(layers, x[pick]) - y[pick]) ** 2).mean()
            adam.zero_grad(set_to_none=True)
            loss.backward()
            adam.step()
            fade.step()
            tick()
    weights = {name: value.detach().numpy() for name, value in layers.items()}
    weights |= {"mean": mean.astype(np.float32), "scale": scale.astype(np.float32)}
    if not all(np.isfinite(value).all() for value in weights.values()):
        return blank  # training ran away; the critics do without
    return Foresight((weights,), horizon)


def _said(p: dict[str, Any], x: Any) -> Any:
    """What a network's layers make of inputs [n, w + 1], arrays or tensors."""
    hidden = swish(x @ p["w1"] + p["b1"])
    hidden = swish(hidden @ p["w2"] + p["b2"])
    return hidden @ p["w3"] + x @ p["skip"] + p["b3"]


def _blank(width: int, horizon: int, hidden: int) -> Foresight:
    """Says nothing: zero everywhere."""
    weights = fresh(width + 1, hidden, OUTPUTS, np.random.default_rng(0))
    weights["w3"][:] = 0.0
    nothing = {"mean": np.zeros(width, np.float32), "scale": np.ones(width, np.float32)}
    return Foresight((weights | nothing,), horizon)

"""Return features: what is still earned and spent from an observation on, learned in simulation.

A small network over (next observation, time) is fitted to whole simulated episodes of the target
policy, all time steps at once. Its two outputs serve the critics of `models.model` as features. A
ridge regression on a few hundred rows per step could not find, for example, the angle beyond which
a pendulum falls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints
from scopeval.models.model.fitting import Examples, Schedule, fit_layers
from scopeval.models.model.network import GAIN, NETWORK, forward, fresh_layers
from scopeval.models.model.step_model import Weights

__all__ = ["ReturnNetworks", "ReturnSamples", "Study", "learn_returns"]

#: Standard deviations beyond which an input is taken to be no further away.
REACH = 6.0
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
            z = np.clip(z, np.float32(-REACH), np.float32(REACH))
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
    z = np.clip((where - mean.astype(np.float32)) / scale.astype(np.float32), -REACH, REACH)
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

"""Designs on vectors: training of the dynamics, a whole design, a refit; in processor time.

Threads share the work, so seconds of all processors together are counted. The peer of the training
is torch with autograd and its own Adam, which trained these networks before; the limit is what
numpy takes for the matrix products alone. The logs are of a pole that is balanced on a cart by
controllers of different skill.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, quiet
from benchmarks.torch_training import torch_step_seconds
from scopeval._parallel import one_blas_thread
from scopeval.arrays import Floats, check_whole
from scopeval.behavior.designer import design
from scopeval.logs.transitions import Transitions
from scopeval.models.model.fitting import Examples, Schedule, fit_layers
from scopeval.models.model.network import fresh_layers
from scopeval.models.model.regression import Networks
from scopeval.models.model.training import Training
from scopeval.models.model.world import World

__all__ = ["Config", "run"]

#: Training before: steps of each half, and rows of a step, by torch.
BEFORE_STEPS, BEFORE_BATCH = 8000, 1024


@dataclass(frozen=True)
class Config:
    """What to measure."""

    episodes: int = 1000
    """Logged episodes."""
    horizon: int = 100
    """Steps of an episode, at most."""
    steps: int = 300
    """Steps of training that are measured."""
    repeats: int = 3
    """How often the training is measured; the best counts."""
    model: Networks = field(default_factory=Networks)
    """Settings of the design and of the world that is refitted."""
    seed: int = 0
    """Seed of the logs, the networks and the design."""

    def __post_init__(self) -> None:
        for name in ("episodes", "horizon", "steps", "repeats"):
            check_whole(name, getattr(self, name), 1)


def run(config: Config) -> list[Comparison]:
    """Training, a whole design, and a refit."""
    log = cart_logs(config.episodes, config.horizon, config.seed)
    rows = _training(config, log)
    whole = _cpu_seconds(lambda: _designed(config, log))
    before = 2 * BEFORE_STEPS * _torch_step(config, log, BEFORE_BATCH)
    rows.append(
        Comparison(
            "design, cart and pole",
            whole,
            before,
            unit="design",
            sense="faster",
            goal=8.0,
            note=f"{len(log):,} rows of {config.episodes:,} episodes; the peer is the training "
            f"alone, as it was: {2 * BEFORE_STEPS:,} steps of {BEFORE_BATCH:,} rows by torch, of "
            "which some are measured",
        )
    )
    rows.append(_refit(config, log))
    return rows


def _designed(config: Config, log: Transitions) -> object:
    return design(
        log,
        cart_policy,
        horizon=config.horizon,
        method="scope-dr",
        seed=config.seed,
        learn=config.model,
    )


def _training(config: Config, log: Transitions) -> list[Comparison]:
    """The same steps by compiled code, by torch, and the products alone."""
    given, how = _examples(log), Training()
    layers = fresh_layers(given.x.shape[1], how.hidden, given.y.shape[1] + 1, _rng(config))
    schedule = Schedule(config.steps, how.batch, how.rate)

    def ours() -> object:
        return fit_layers(layers, given, schedule, _rng(config))

    ours()  # compiles, if need be
    took = min(_cpu_seconds(ours) for _ in range(config.repeats)) / config.steps
    note = f"{config.steps} steps of {how.batch} rows, width {how.hidden}"
    return [
        Comparison(
            "training: torch",
            took,
            _torch_step(config, log, how.batch),
            unit="step",
            sense="faster",
            goal=3.0,
            note=note,
        ),
        Comparison(
            "training: matrix products",
            took,
            _products(config, given.x.shape[1], how.hidden, given.y.shape[1] + 1, how.batch),
            unit="step",
            sense="slower",
            goal=2.5,
            note=f"{note}; the products of a step by numpy alone, one thread",
        ),
    ]


def _products(config: Config, inputs: int, hidden: int, outputs: int, batch: int) -> float:
    """Seconds that numpy takes for the matrix products of one step."""
    rng = _rng(config)

    def some(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    x, h, out = some(batch, inputs), some(batch, hidden), some(batch, outputs)
    w1, w2, w3, skip = (
        some(inputs, hidden),
        some(hidden, hidden),
        some(hidden, outputs),
        some(inputs, outputs),
    )
    pairs = [(x, w1), (h, w2), (h, w3), (x, skip)]  # forwards
    pairs += [(h.T, out), (x.T, out), (out, w3.T), (h.T, h), (h, w2.T), (x.T, h)]  # backwards

    def products() -> None:
        for _ in range(config.steps):
            for a, b in pairs:
                np.dot(a, b)

    with one_blas_thread():
        products()
        return min(_cpu_seconds(products) for _ in range(config.repeats)) / config.steps


def _torch_step(config: Config, log: Transitions, batch: int) -> float:
    """Seconds of one step of the same training by torch."""
    steps = max(config.steps * Training().batch // batch, 20)
    return torch_step_seconds(
        _examples(log), Training().hidden, batch, steps, config.repeats, _rng(config)
    )


def _refit(config: Config, log: Transitions) -> Comparison:
    """A world that gets a third more logs, against learning it anew."""
    starts = np.flatnonzero(log.t == 0)
    middle = int(starts[3 * len(starts) // 4])
    first, more = (log.select(np.arange(*part)) for part in ((0, middle), (middle, len(log))))
    how = config.model.trainings
    world = World.learn(first, actions=2, training=how, seed=config.seed)
    warm: list[World] = []
    took = _cpu_seconds(lambda: warm.append(world.refit(more)))
    anew: list[World] = []
    peer = _cpu_seconds(
        lambda: anew.append(World.learn(log, actions=2, training=how, seed=config.seed))
    )
    return Comparison(
        "World.refit",
        took,
        peer,
        unit="world",
        sense="slower",
        goal=0.5,
        note=f"a third more logs, against learning anew; held-out errors {warm[0].error:.2g} and "
        f"{anew[0].error:.2g}",
    )


def _examples(log: Transitions) -> Examples:
    """Logged steps as the training sees them: inputs, changes, reward and cost, and ends."""
    obs, after = np.asarray(log.obs), np.asarray(log.next_obs)
    x = np.column_stack([obs, np.eye(2)[log.action]])
    y = np.column_stack([after - obs, log.reward, log.cost])
    x, y = ((part - part.mean(axis=0)) / (part.std(axis=0) + 1e-6) for part in (x, y))
    counts = np.ones_like(y)
    counts[log.terminated, :4] = 0.0
    return Examples(
        *(np.ascontiguousarray(part, np.float32) for part in (x, y, counts, log.terminated))
    )


def _rng(config: Config) -> np.random.Generator:
    return np.random.default_rng((config.seed, 1))


def _cpu_seconds(call: Callable[[], object]) -> float:
    """Seconds of all processors together."""
    with quiet():
        began = time.process_time()
        call()
        return time.process_time() - began


# -- a pole on a cart ------------------------------------------------------------------------------


def cart_policy(obs: Any, t: Any) -> Floats:
    """The target policy: leans against the fall, not always."""
    return _leaning(np.asarray(obs), np.array([0.0, 0.0, 8.0, 2.0]), 0.5)


def cart_logs(episodes: int, horizon: int, seed: int) -> Transitions:
    """Episodes of ten controllers; the reward is 1 a step, the cost grows away from the middle."""
    rng = np.random.default_rng((seed, 2))
    gains = np.column_stack(
        [
            0.3 * rng.standard_normal(10),
            0.4 * rng.standard_normal(10),
            rng.uniform(3.0, 15.0, 10),
            rng.uniform(0.0, 4.0, 10),
        ]
    )
    own = gains[np.arange(episodes) % 10]
    state = rng.uniform(-0.05, 0.05, (episodes, 4))
    running = np.arange(episodes)
    parts: list[tuple[Any, ...]] = []
    for t in range(horizon):
        obs = state[running]
        right = _leaning(obs, own[running], 0.5)[:, 1]
        action = (rng.random(len(running)) < right).astype(np.int64)
        after = _moved(obs, action)
        over = (np.abs(after[:, 0]) > 2.4) | (np.abs(after[:, 2]) > 0.2094)
        cost = 0.2 + after[:, 0] ** 2 + 0.2 * action
        parts.append((running, np.full(len(running), t), obs, action, cost, after, over))
        state[running] = after
        running = running[~over]
    episode, time_, obs, action, cost, after, over = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    order = np.lexsort((time_, episode))
    return Transitions(
        time_[order],
        obs[order],
        action[order],
        np.ones(len(order)),
        cost[order],
        after[order],
        over[order],
    )


def _leaning(obs: Any, gain: Any, steep: float) -> Floats:
    """Probabilities of left and right [n, 2]."""
    right = 1.0 / (1.0 + np.exp(-np.clip(2.0 * steep * (obs * gain).sum(axis=1), -30.0, 30.0)))
    return np.stack([1.0 - right, right], axis=1)


def _moved(obs: Any, action: Any) -> Floats:
    """One step of the cart and its pole, 20 ms."""
    x, v, angle, spin = obs.T
    force = np.where(action == 1, 10.0, -10.0)
    cos, sin = np.cos(angle), np.sin(angle)
    push = (force + 0.05 * spin**2 * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    speed = push - 0.05 * turn * cos / 1.1
    return np.stack([x + 0.02 * v, v + 0.02 * speed, angle + 0.02 * spin, spin + 0.02 * turn], 1)

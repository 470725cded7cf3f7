"""One action for one observation, against one forward pass of a target's network.

A controller waits for `act`, so the 99th percentile of the time of a call counts. The target is a
torch network with two hidden layers of 64; it is part of `act` if observations are vectors. Calls
of both sides alternate, so that busy moments of the machine affect both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, quiet
from benchmarks.quadratic import Quadratic
from scopeval.arrays import Floats, check_whole
from scopeval.behavior.designer import design
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.envs.gridworld import Gridworld, logs_of, target_policies
from scopeval.models.model.regression import Networks
from scopeval.models.model.return_features import Study
from scopeval.models.model.training import Training
from scopeval.models.protocols import Regression
from scopeval.policies.adapters import TorchPolicy

__all__ = ["Config", "alternating", "run"]


@dataclass(frozen=True)
class Config:
    """What to measure."""

    calls: int = 20_000
    """Calls of each side."""
    rows: int = 3_000
    """Logged rows of the vectors."""
    model: Networks = field(
        default_factory=lambda: Networks(
            training=Training(steps=200), paths=100, study=Study(paths=100, steps=100)
        )
    )
    """Settings of the model of the environment, which is the default for vectors."""
    seed: int = 0
    """Seed of the problems, the target and the draws."""

    def __post_init__(self) -> None:
        for name in ("calls", "rows"):
            check_whole(name, getattr(self, name), 1)


def run(config: Config) -> list[Comparison]:
    """Every kind of critic."""
    rng = np.random.default_rng(config.seed)
    table, states = _gridworld(config)
    model, vectors = _vectors(config, config.model)
    forward = _forward(model, vectors)
    rows = []
    for name, policy, observations in (
        ("table", table, states),
        ("model", model, vectors),
    ):
        took = alternating(_acting(policy, observations, rng), forward, config.calls)
        middle = np.median(took, axis=1) * 1e6
        last = np.quantile(took, 0.99, axis=1)
        rows.append(
            Comparison(
                f"act, {name}",
                float(last[0]),
                float(last[1]),
                unit="call, p99",
                sense="slower",
                goal=3.0,
                note=f"{config.calls:,} calls; medians {middle[0]:.0f} and {middle[1]:.0f} us",
            )
        )
    return rows


def _acting(
    policy: BehaviorPolicy, observations: Any, rng: np.random.Generator
) -> Callable[[int], object]:
    horizon, many = policy.recipe.horizon, len(observations)
    return lambda i: policy.act(observations[i % many], i % horizon, rng)


def alternating(ours: Callable[[int], object], peer: Callable[[int], object], calls: int) -> Floats:
    """Seconds [2, calls] of every call, a hundred of one side after a hundred of the other."""
    took = np.empty((2, calls))
    for call in (ours, peer):
        for i in range(100):
            call(i)
    clock = time.perf_counter
    with quiet():
        for start in range(0, calls, 100):
            for k, call in enumerate((ours, peer)):
                for i in range(start, min(start + 100, calls)):
                    began = clock()
                    call(i)
                    took[k, i] = clock() - began
    return took


def _gridworld(config: Config) -> tuple[BehaviorPolicy, list[int]]:
    mdp = Gridworld(10, seed=config.seed).mdp()
    target = target_policies(1, 10, seed=config.seed)[0]
    log = logs_of(mdp, [target], 300, seed=config.seed)
    return design(log, target, horizon=10, method="scope"), [int(s) for s in log.obs[:1000]]


def _vectors(config: Config, how: Regression | Networks) -> tuple[BehaviorPolicy, Floats]:
    """Designed for a torch target; made to differ from it even if the design fell back."""
    import torch

    torch.manual_seed(config.seed)
    world, T = Quadratic(seed=config.seed), 3
    layers: list[torch.nn.Module] = []
    for before, after in ((world.width, 64), (64, 64), (64, world.actions)):
        layers += [torch.nn.Linear(before, after), torch.nn.Tanh()]
    target = TorchPolicy(torch.nn.Sequential(*layers[:-1]))
    log = world.log(max(config.rows // T, 4), T, seed=3)
    policy = design(log, target, horizon=T, method="scope", learn=how)
    recipe = replace(policy.recipe, method="scope", floor=0.02)
    return BehaviorPolicy(target, policy.critics, recipe, policy.report), np.asarray(log.obs[:1000])


def _forward(policy: BehaviorPolicy, observations: Floats) -> Callable[[int], None]:
    """The target's network for one observation that is a tensor already."""
    import torch

    assert isinstance(policy.target, TorchPolicy)
    module = policy.target.module
    tensors = list(torch.tensor(observations, dtype=torch.float32)[:, None])

    def forward(i: int) -> None:
        with torch.inference_mode():
            module(tensors[i % len(tensors)])

    return forward

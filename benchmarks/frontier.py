"""A whole frontier beside one design, and `act` at a weight beside `act` without.

The Gridworld with table critics and 40 prices. A frontier sweeps all prices over all logs and both
halves, and judges each half's designs by the other; a design does that for one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.act import alternating
from benchmarks.harness import Comparison, timed
from scopeval import Table
from scopeval.arrays import check_whole
from scopeval.behavior.designer import design
from scopeval.behavior.frontier import Frontier, frontier
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.envs.gridworld import Gridworld, cells, gridworld_logs, target_policies

__all__ = ["Config", "run"]


@dataclass(frozen=True)
class Config:
    """What to measure."""

    size: int = 30
    """Cells along one side of the Gridworld; also the number of steps of an episode."""
    episodes: int = 1_000
    """Logged episodes."""
    prices: int = 40
    """Points of the frontier."""
    repeats: int = 3
    """Times that each is measured; the fastest counts."""
    calls: int = 20_000
    """Calls of `act` of each side."""
    seed: int = 0
    """Seed of the world, the logs and the draws."""

    def __post_init__(self) -> None:
        for name in ("size", "episodes", "prices", "repeats", "calls"):
            check_whole(name, getattr(self, name), 1)


def run(config: Config) -> list[Comparison]:
    """The frontier, and one action."""
    mdp = Gridworld(config.size, seed=config.seed).mdp()
    target = target_policies(1, config.size, seed=config.seed)[0]
    logs = gridworld_logs(mdp, config.episodes, seed=config.seed)
    horizon, features = config.size, cells(config.size)

    def one() -> BehaviorPolicy:
        return design(
            logs, target, horizon=horizon, method="scope-dr", learn=Table(features=features)
        )

    def every() -> Frontier:
        return frontier(
            logs, target, horizon=horizon, points=config.prices, learn=Table(features=features)
        )

    blind, curve = one(), every()  # compiled, if they were not
    once = min(timed(one) for _ in range(config.repeats))
    whole = min(timed(every) for _ in range(config.repeats))
    name = f"frontier, {config.size} x {config.size}, {config.prices} prices"
    found = [
        Comparison(
            name, whole, once, unit="frontier", sense="slower", goal=40.0, note="one design is 1"
        )
    ]
    if curve.points:
        aware = curve.at(cost=max(0.8, min(p.safe_cost for p in curve.points)))
        found.append(_acts(config, aware, blind, [int(s) for s in logs.obs[:1000]]))
    return found


def _acts(
    config: Config, aware: BehaviorPolicy, blind: BehaviorPolicy, states: list[int]
) -> Comparison:
    rng = np.random.default_rng(config.seed)
    weights = np.exp(rng.normal(size=1000)).tolist()
    T, many = config.size, len(states)

    def at_a_weight(i: int) -> object:
        return aware.act(states[i % many], i % T, rng, weight=weights[i % 1000])

    def without(i: int) -> object:
        return blind.act(states[i % many], i % T, rng)

    took = alternating(at_a_weight, without, config.calls)
    middle = np.median(took, axis=1)
    return Comparison(
        "act at a weight",
        float(middle[0]),
        float(middle[1]),
        unit="call, median",
        sense="slower",
        goal=1.5,
        note=f"{config.calls:,} calls; beside act without weights",
    )

"""The first five seconds: one policy, four ways to evaluate it, simulated episode by episode.

The design of every method comes from exact values, the figures from simulated episodes: each method
runs the same number of episodes several times over, and is compared with running the policy itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scopeval import exact, simulate
from scopeval.confidence import Interval, interval
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.errors import InputError
from scopeval.experiments.gridworld_exact import worst_state

__all__ = ["METHODS", "Config", "Demo", "Row", "run"]

METHODS = ("on-policy", "odi", "scope", "scope-dr")


@dataclass(frozen=True)
class Config:
    """What to run."""

    size: int = 10
    """Cells along one side of the Gridworld; also the number of steps of an episode."""
    cost_law: str = "same-tilt"
    """How costs are drawn, see `envs.gridworld`."""
    seed: int = 0
    """Of the world, the policy and the episodes."""
    episodes: int = 1000
    """Episodes of one run."""
    runs: int = 200
    """Independent runs of each method."""

    def __post_init__(self) -> None:
        for name, least in (("episodes", 2), ("runs", 1), ("seed", 0)):
            value = getattr(self, name)
            if value < least:
                raise InputError(f"{name}: got {value}, expected a whole number >= {least}")


@dataclass(frozen=True)
class Row:
    """One method, measured.

    Attributes:
        method: its name.
        first_run: the estimate of the first run with its 95 % confidence interval.
        error: mean |estimate - truth| over the runs.
        variance: variance of one episode's estimate over on-policy's.
        cost: mean cost of an episode over on-policy's.
        worst_state: the largest ratio of cost-to-go over the target's (exact, not measured).
    """

    method: str
    first_run: Interval
    error: float
    variance: float
    cost: float
    worst_state: float

    @property
    def needed(self) -> float:
        """Cost to reach the accuracy of 1,000 on-policy episodes, in on-policy episodes."""
        return 1000.0 * self.variance * self.cost


@dataclass(frozen=True)
class Demo:
    """The result: J(pi), and one row for each method."""

    config: Config
    truth: float
    rows: tuple[Row, ...]


def run(config: Config) -> Demo:
    """Design, simulate and compare; a pure function of the config."""
    mdp = Gridworld(config.size, config.cost_law, config.seed).mdp()
    target = target_policies(1, config.size, seed=config.seed)[0]
    truth = exact.assess(mdp, target, target).value
    rows: list[Row] = []
    variance = cost = np.nan
    for method in METHODS:
        behavior = exact.design(mdp, target, method)
        episodes = simulate.summaries(
            mdp,
            target,
            behavior,
            episodes=config.runs * config.episodes,
            control_variate=behavior.control,
            seed=config.seed,
        )
        if method == "on-policy":
            variance, cost = episodes.estimate.var(ddof=1), episodes.cost.mean()
        by_run = episodes.estimate.reshape(config.runs, config.episodes)
        rows.append(
            Row(
                method,
                first_run=interval(by_run[0]),
                error=float(np.abs(by_run.mean(axis=1) - truth).mean()),
                variance=float(episodes.estimate.var(ddof=1) / variance),
                cost=float(episodes.cost.mean() / cost),
                worst_state=worst_state(mdp, target, behavior),
            )
        )
    return Demo(config, truth, tuple(rows))

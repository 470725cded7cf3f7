"""How often verdicts about the cost are wrong, in worlds that fool intervals.

Three rules judge the same episodes:

- ``t interval``: the rule before bounds could be stated: *safe* or *refuted* as soon as the t
  interval of E[D] excludes 0. It is kept here for comparison only;
- ``as far as seen``: the certificate and the guard without a stated bound;
- ``stated bound``: both with the bound of the world.

The guard looks after every 50 episodes; its alarms are false where the promise holds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from scopeval.arrays import Ints, check_whole
from scopeval.errors import InputError
from scopeval.estimation.running_moments import Moments, moments_interval
from scopeval.paper.backends.shards import ShardOptions, run_shards
from scopeval.paper.experiments.verdict_worlds import WORLDS, VerdictWorld
from scopeval.paper.results import Result
from scopeval.safety.certificate import Ledger
from scopeval.safety.episode_costs import EpisodeCosts
from scopeval.safety.guard import Guard

__all__ = ["OUTCOMES", "RULES", "Config", "VerdictBlock", "run"]

RULES = ("t interval", "as far as seen", "stated bound")
OUTCOMES = ("safe", "refuted", "not enough evidence", "alarm")

#: Episodes between two looks of the guard.
LOOK = 50


@dataclass(frozen=True)
class Config:
    """What to compute."""

    worlds: tuple[str, ...] = tuple(WORLDS)
    """Names of the worlds."""
    episodes: tuple[int, ...] = (50, 100, 1000, 4000)
    """Numbers of episodes after which a verdict is asked for."""
    runs: int = 500
    """Runs of each world and number of episodes."""
    alpha: float = 0.05
    """Of certificate and guard."""
    seed: int = 0
    """Of the episodes."""

    def __post_init__(self) -> None:
        for name in self.worlds:
            if name not in WORLDS:
                raise InputError(f"worlds: got {name!r}, expected some of {', '.join(WORLDS)}")
        for n in self.episodes:
            check_whole("episodes", n, 2)
        check_whole("runs", self.runs, 1)
        check_whole("seed", self.seed, 0)

    @property
    def shards(self) -> tuple[Shard, ...]:
        """One for each world and number of episodes."""
        return tuple(Shard(world, n, self) for world in self.worlds for n in self.episodes)


@dataclass(frozen=True)
class Shard:
    """One world, one number of episodes."""

    world: str
    episodes: int
    config: Config

    @property
    def label(self) -> str:
        """The name used in messages."""
        return f"{self.world}, {self.episodes:,} episodes"


@dataclass(frozen=True)
class VerdictBlock:
    """One world.

    Attributes:
        world: its name.
        ratio: the true ratio of costs.
        episodes: numbers of episodes.
        runs: of each.
        counts: [episodes, rules, outcomes] how many runs had which outcome.
    """

    world: str
    ratio: float
    episodes: tuple[int, ...]
    runs: int
    counts: Ints = field(repr=False)

    @property
    def wrong(self) -> str:
        """The firm verdict that is wrong here."""
        return "safe" if self.ratio > 1 else "refuted"

    def share(self, k: int, rule: str, outcome: str) -> float:
        """Share of the runs with an outcome."""
        return float(self.counts[k, RULES.index(rule), OUTCOMES.index(outcome)]) / self.runs

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"world": self.world, "ratio": self.ratio, "rows": self.records()["verdicts"]}

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """For Parquet."""
        rows = [
            {
                "world": self.world,
                "episodes": n,
                "rule": rule,
                **{outcome: self.share(k, rule, outcome) for outcome in OUTCOMES},
            }
            for k, n in enumerate(self.episodes)
            for rule in RULES
        ]
        return {"verdicts": rows}


def run(
    config: Config, *, folder: str | os.PathLike[str], **how: Unpack[ShardOptions]
) -> Result[Config, VerdictBlock]:
    """Compute everything; a pure function of the config (see `run_shards` for the rest)."""
    answers = run_shards(judge_runs, config.shards, folder=folder, **how)
    counts = np.array(answers, np.int64).reshape(
        len(config.worlds), len(config.episodes), len(RULES), len(OUTCOMES)
    )
    blocks = tuple(
        VerdictBlock(name, WORLDS[name]().ratio, config.episodes, config.runs, found)
        for name, found in zip(config.worlds, counts, strict=True)
    )
    return Result("verdicts", config, blocks)


def judge_runs(shard: Shard) -> list[list[int]]:
    """The work of one shard: outcomes of every rule, [rules, outcomes] counts."""
    config = shard.config
    world = WORLDS[shard.world]()
    place = list(WORLDS).index(shard.world)
    counts = np.zeros((len(RULES), len(OUTCOMES)), np.int64)
    for k in range(config.runs):
        rng = np.random.default_rng([config.seed, place, shard.episodes, k])
        costs = world.draw(rng, shard.episodes)
        counts += _outcomes(world, costs, config.alpha)
    return [[int(x) for x in row] for row in counts]


def _outcomes(world: VerdictWorld, costs: EpisodeCosts, alpha: float) -> Ints:
    """[rules, outcomes] 1 where a rule had the outcome."""
    found = np.zeros((len(RULES), len(OUTCOMES)), np.int64)
    moments = Moments()
    moments.merge(costs.cost - costs.weighted_cost)
    interval = moments_interval(moments, alpha=alpha)
    found[0, :2] = interval.high <= 0, interval.low > 0
    for row, bound in ((1, None), (2, world.bound)):
        ledger, guard = Ledger(alpha=alpha, bound=bound), Guard(alpha=alpha, bound=bound)
        ledger.add(costs)
        verdict = ledger.certificate().verdict
        found[row, :3] = [verdict == name for name in OUTCOMES[:3]]
        starts = range(0, len(costs), LOOK)
        found[row, 3] = any(guard.add(costs.select(slice(i, i + LOOK))).tripped for i in starts)
    return found

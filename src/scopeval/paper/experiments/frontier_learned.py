"""The frontier learned from logs: what it promises at asked costs, and what comes out.

For every target policy `scopeval.frontier` learns from logged episodes and designs a behavior
policy at every asked cost, relative to the target's own. Each is judged exactly in the true model
(`exact.tabulate`): its relative variance and cost, beside what was predicted and what a design with
exact values reaches at the same cost. Worlds and targets are those of `frontier_worlds`; the logs
are the Gridworld's and those of `foreign_worlds`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np

from scopeval import exact
from scopeval.arrays import Floats, check_whole
from scopeval.behavior.frontier import Frontier, frontier
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.data.transitions import Transitions
from scopeval.envs.gridworld import cells, gridworld_logs
from scopeval.errors import InputError
from scopeval.exact import TabularMDP
from scopeval.paper.backends.shards import ShardOptions, run_shards
from scopeval.paper.experiments.foreign_worlds import finite_world
from scopeval.paper.experiments.frontier_worlds import Place, Worlds, by_world
from scopeval.paper.results import Result, Statistic

__all__ = ["FIELDS", "LearnedBlock", "LearnedConfig", "run"]

#: What is known of a design; see `LearnedBlock`.
FIELDS = (
    "variance",
    "cost",
    "predicted_variance",
    "predicted_cost",
    "checked_variance",
    "checked_cost",
    "exact_variance",
)
#: Points of the table in which a design is judged.
POINTS = 48


@dataclass(frozen=True)
class LearnedConfig(Worlds):
    """What to compute."""

    cost_laws: tuple[str, ...] = ("same-tilt",)
    environments: tuple[str, ...] = ("FrozenLake", "CliffWalking", "Taxi")
    asked: tuple[float, ...] = (1.0, 0.8, 0.6, 0.5)
    logged: int = 1000
    """Logged episodes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("logged", self.logged, 1)

    @property
    def shards(self) -> tuple[Shard, ...]:
        """One for each target, in the order of the blocks."""
        return tuple(Shard(place, self.asked, self.logged) for place in self.places)


@dataclass(frozen=True)
class Shard:
    """One target; everything that its results depend on."""

    place: Place
    asked: tuple[float, ...]
    logged: int

    @property
    def label(self) -> str:
        """The name used in messages."""
        return self.place.label


@dataclass(frozen=True)
class LearnedBlock:
    """The learned frontier in one world.

    Attributes:
        title: of the world.
        targets: names of the targets.
        asked: costs, [K].
        found: field -> [targets, K], relative to the target policy; NaN where no design was
            offered. variance and cost: in the true model. predicted: what the design told.
            checked: what held-out logs said. exact_variance: of the design with exact values.
        even: [targets, 2] true variance and cost of `at(variance=1)`.
        best: [targets, 2] true variance and cost of `best()`.
    """

    title: str
    targets: tuple[str, ...]
    asked: tuple[float, ...]
    found: dict[str, Floats] = field(repr=False)
    even: Floats = field(repr=False)
    best: Floats = field(repr=False)

    def statistic(self, name: str, k: int) -> Statistic:
        """One of `FIELDS` at the k-th asked cost, of the targets that have a design there."""
        values = self.found[name][:, k]
        return Statistic(values[np.isfinite(values)])

    def overspent(self, k: int) -> float:
        """The largest true cost over the asked one; NaN where there is no design."""
        cost = self.found["cost"][:, k]
        known = cost[np.isfinite(cost)]
        return float(known.max() / self.asked[k]) if len(known) else float("nan")

    def agreement(self, k: int) -> tuple[float, float]:
        """The smallest and largest predicted variance over the true one."""
        quotient = self.found["predicted_variance"][:, k] / self.found["variance"][:, k]
        known = quotient[np.isfinite(quotient)]
        return (float(known.min()), float(known.max())) if len(known) else (np.nan, np.nan)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        points = []
        for k, asked in enumerate(self.asked):
            found = {name: self.statistic(name, k) for name in FIELDS}
            points.append(
                {
                    "asked": asked,
                    "targets": len(found["variance"].values),
                    **{
                        name: one.as_dict() if len(one.values) else None
                        for name, one in found.items()
                    },
                }
            )
        known = {"even": self.even, "best": self.best}
        return {
            "world": self.title,
            "points": points,
            **{
                name: [[x if np.isfinite(x) else None for x in row] for row in rows.tolist()]
                for name, rows in known.items()
            },
        }

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """For Parquet: every number, target by target."""
        rows = [
            {
                "world": self.title,
                "target": target,
                "asked": asked,
                **{name: float(self.found[name][i, k]) for name in FIELDS},
            }
            for i, target in enumerate(self.targets)
            for k, asked in enumerate(self.asked)
        ]
        return {"frontier-learned": rows}


def run(
    config: LearnedConfig, *, folder: str | os.PathLike[str], **how: Unpack[ShardOptions]
) -> Result[LearnedConfig, LearnedBlock]:
    """Compute everything; a pure function of the config (see `run_shards` for the rest)."""
    answers = run_shards(learn_frontier, config.shards, folder=folder, **how)
    blocks = []
    for title, names, found in by_world(config.places, answers):
        points = np.array(
            [[[p[name] for name in FIELDS] for p in a["points"]] for a in found], np.float64
        )
        blocks.append(
            LearnedBlock(
                title=title,
                targets=names,
                asked=config.asked,
                found={name: points[:, :, k] for k, name in enumerate(FIELDS)},
                even=np.array([a["even"] for a in found], np.float64),
                best=np.array([a["best"] for a in found], np.float64),
            )
        )
    return Result("frontier-learned", config, tuple(blocks))


def learn_frontier(shard: Shard) -> dict[str, Any]:
    """The work of one shard: `FIELDS` at every asked cost, None where nothing is offered."""
    place = shard.place
    mdp, target = place.model()
    curve = frontier(
        _logs(place, mdp, shard.logged),
        target,
        horizon=mdp.horizon,
        gamma=mdp.gamma,
        regression="table",
        features=cells(place.size) if place.size else None,
        seed=place.seed + place.target,
    )
    limit = exact.frontier(mdp, target, threads=1)

    def judged(design: BehaviorPolicy | None) -> tuple[float | None, float | None]:
        if design is None:
            return None, None
        found = exact.tabulate(mdp, target, design, points=POINTS).predicted
        return found.relative_variance, found.relative_cost

    points = []
    for asked in shard.asked:
        design = _offered(curve, cost=asked)
        told: tuple[float | None, ...] = (None,) * 4
        if design is not None:
            said = design.predicted
            told = (said.variance, said.cost, said.checked_variance, said.checked_cost)
        numbers = (*judged(design), *told, _reachable(limit, asked))
        points.append(dict(zip(FIELDS, numbers, strict=True)))
    return {
        "points": points,
        "even": judged(_offered(curve, variance=1.0)),
        "best": judged(curve.best() if curve.points else None),
    }


def _logs(place: Place, mdp: TabularMDP, episodes: int) -> Transitions:
    if place.size:
        return gridworld_logs(mdp, episodes, seed=place.seed + place.target)
    world = replace(finite_world(place.world, place.seed), mdp=mdp)
    return world.logs("mixed", episodes, place.target)


def _offered(
    curve: Frontier, *, cost: float | None = None, variance: float | None = None
) -> BehaviorPolicy | None:
    """The design, or None where the logs do not bear one out."""
    try:
        return curve.at(cost=cost, variance=variance)
    except InputError:
        return None


def _reachable(limit: exact.Frontier, asked: float) -> float | None:
    try:
        return limit.at(cost=asked).predicted.relative_variance
    except InputError:  # nothing within the cap is that cheap
        return None

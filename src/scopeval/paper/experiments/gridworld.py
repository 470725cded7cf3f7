"""The paper's Gridworld: tables and curves of every method, learned from the same logs.

Thirty targets, each in its own world (see `gridworld_exact` for why) with 1,000 logged episodes of
30 other controllers; 30 runs of 1,000 episodes for each method. For every method:

- *relative variance* and *relative cost* of one episode. Designs are assessed exactly in the true
  model; ROS, whose episodes depend on each other, by the variance over runs of its last estimate;
- *cost needed* for on-policy's accuracy after 1,000 episodes, in on-policy episodes:
  1000 (relative variance) (relative cost), as in every row of the paper;
- *crossing*: the same, read off the measured error curves: the cost after which the mean error
  remains below on-policy's last one. For ROS this is the number to trust: its error does not fall
  like 1 / sqrt(episodes).

`direct` is not a sampling method: it is the critics' own estimate v(s0), from the logs alone and at
no cost. No number of episodes makes its error smaller.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Unpack

import numpy as np

from scopeval.arrays import Floats, Ints, check_whole
from scopeval.behavior.settings import check_epsilon
from scopeval.errors import InputError
from scopeval.paper import published
from scopeval.paper.backends.shards import ShardOptions, run_shards
from scopeval.paper.experiments import gridworld_exact
from scopeval.paper.experiments.gridworld_target import (
    BASELINES,
    GridworldOutcome,
    Shard,
    TargetResult,
    episode_grid,
    evaluate_target,
)
from scopeval.paper.methods import REFERENCE, check_methods, constrained, digest_of, names_of
from scopeval.paper.results import Crossing, MethodResult, Result, Statistic, crossing_of

__all__ = ["CRITICS", "Config", "EpsilonCurve", "GridworldBlock", "GridworldMethod", "run"]

CRITICS = ("table", "mlp")


@dataclass(frozen=True)
class Config(gridworld_exact.Config):
    """What to run: the worlds and methods of the exact experiment, and what is sampled there."""

    cost_laws: tuple[str, ...] = ("same-tilt",)
    methods: tuple[str, ...] = (REFERENCE, "scope", "scope-dr", "odi", "dopt", *BASELINES)
    """Registered methods, module:attribute, or `BASELINES`; on-policy is always one of them."""
    runs: int = 30
    """Independent runs of each method for each target, as in the paper."""
    episodes: int = 1000
    """Episodes of one run, as in the paper."""
    logged: int = 1000
    """Logged episodes to learn from, as in the paper."""
    critics: str = "table"
    """What learns the values: "table" (with the cells' coordinates as features) or "mlp"."""
    epsilons: tuple[float, ...] = (0.0, 0.1, 0.25, 0.5, 1.0)
    """Safety parameters of the variance-cost frontier; each is one more design for each constrained
    method and target."""

    def __post_init__(self) -> None:
        self.check_worlds()
        for name, least in (("runs", 2), ("episodes", 2), ("logged", 1)):
            check_whole(name, getattr(self, name), least)
        if self.critics not in CRITICS:
            raise InputError(f"critics: got {self.critics!r}, expected one of {', '.join(CRITICS)}")
        for epsilon in self.epsilons:
            check_epsilon(epsilon)
        check_methods(self.methods, BASELINES)

    @property
    def shards(self) -> list[Shard]:
        """The pieces of work: sizes, laws, targets."""
        digest = digest_of(self.methods, BASELINES)
        return [
            Shard(
                size=size,
                cost_law=law,
                target=k,
                world=self.world(k),
                seed=self.seed,
                runs=self.runs,
                episodes=self.episodes,
                logged=self.logged,
                critics=self.critics,
                epsilon=self.epsilon,
                epsilons=self.epsilons,
                budget=self.budget,
                methods=self.methods,
                digest=digest,
            )
            for size in self.sizes
            for law in self.cost_laws
            for k in range(self.targets)
        ]


@dataclass(frozen=True)
class GridworldMethod(MethodResult[GridworldOutcome]):
    """One method over all targets, and where it reaches on-policy's accuracy."""

    crossing: Crossing = field(kw_only=True)

    @property
    def exact(self) -> bool:
        """Whether variance and cost are computed and not measured."""
        return self.outcomes[0].exact

    @property
    def limit_needed(self) -> Statistic | None:
        """`needed` with exact values; None if the method does not learn."""
        variance, cost = self.find("limit_variance"), self.find("limit_cost")
        if variance is None or cost is None:
            return None
        return Statistic(1000.0 * variance.values * cost.values)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: statistics over targets, and mean curves with standard errors."""
        found = {name: self.find(name) for name in _NUMBERS}
        return {
            **self.summary(),
            "exact": self.exact,
            **{name: s.as_dict() if s is not None else None for name, s in found.items()},
            "crossing": asdict(self.crossing),
            "curve": self.mean_curve(),
        }


#: Fields of an outcome, in the order of the Parquet table.
_NUMBERS = (
    "measured_variance",
    "measured_square",
    "measured_cost",
    "bias",
    "worst_state",
    "limit_variance",
    "limit_cost",
    "predicted_variance",
    "predicted_cost",
)


@dataclass(frozen=True)
class EpsilonCurve:
    """One method at several safety parameters; arrays are [targets, epsilons]."""

    method: str
    epsilons: tuple[float, ...]
    variance: Floats
    cost: Floats
    limit_variance: Floats
    limit_cost: Floats

    @property
    def arrays(self) -> dict[str, Floats]:
        """The arrays by name."""
        return {name: v for name, v in vars(self).items() if isinstance(v, np.ndarray)}

    def as_dict(self) -> dict[str, Any]:
        """For JSON: means over targets."""
        means = {name: values.mean(axis=0).tolist() for name, values in self.arrays.items()}
        return {"method": self.method, "epsilon": list(self.epsilons), **means}


@dataclass(frozen=True)
class GridworldBlock:
    """All methods on one size and cost law.

    Attributes:
        size: cells along one side.
        cost_law: how costs are drawn.
        grid: numbers of episodes at which errors are recorded.
        methods: by name, in the order of the config.
        direct_error: signed error of the critics' own estimate, see `TargetResult`.
        direct_square: its squared error.
        frontier: constrained methods at several safety parameters.
    """

    size: int
    cost_law: str
    grid: Ints = field(repr=False)
    methods: dict[str, GridworldMethod] = field(repr=False)
    direct_error: Statistic = field(repr=False)
    direct_square: Statistic = field(repr=False)
    frontier: tuple[EpsilonCurve, ...] = field(repr=False)

    @property
    def title(self) -> str:
        """The name used in tables and figures."""
        return f"{self.size} x {self.size}, cost law {self.cost_law}"

    @property
    def cheapest(self) -> GridworldMethod:
        """The method with the least crossing (the least cost needed where nothing crosses)."""
        return min(
            (row for name, row in self.methods.items() if name != REFERENCE),
            key=lambda row: (row.crossing.cost is None, row.crossing.cost or row.needed.mean),
            default=self.methods[REFERENCE],
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "size": self.size,
            "cost_law": self.cost_law,
            "episodes": self.grid.tolist(),
            "methods": [row.as_dict() for row in self.methods.values()],
            "direct": {
                "error": self.direct_error.as_dict(),
                "squared_error": self.direct_square.as_dict(),
            },
            "frontier": [line.as_dict() for line in self.frontier],
            "cheapest": self.cheapest.method,
            "paper": published.as_json(published.GRIDWORLD.get(self.size, {})),
        }

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """For Parquet: ``targets``, ``curves`` and ``frontier``, target by target."""
        at = {"size": self.size, "cost_law": self.cost_law}
        targets: list[dict[str, Any]] = []
        curves: list[dict[str, Any]] = []
        frontier: list[dict[str, Any]] = []
        for k in range(len(self.direct_error.values)):
            for name, row in self.methods.items():
                here, one = {**at, "method": name, "target": k}, row.outcomes[k]
                numbers = {number: getattr(one, number) for number in _NUMBERS}
                ours = {"variance": one.relative_variance, "cost": one.relative_cost}
                targets.append({**here, **ours, **numbers})
                curves += [
                    {**here, "episodes": int(n), "error": e, "cost": c}
                    for n, e, c in zip(self.grid, one.errors, one.costs, strict=True)
                ]
            for line in self.frontier:
                here = {**at, "method": line.method, "target": k}
                frontier += [
                    {
                        **here,
                        "epsilon": epsilon,
                        **{name: float(v[k, j]) for name, v in line.arrays.items()},
                    }
                    for j, epsilon in enumerate(line.epsilons)
                ]
        return {"targets": targets, "curves": curves, "frontier": frontier}


def run(
    config: Config, *, folder: str | os.PathLike[str], **how: Unpack[ShardOptions]
) -> Result[Config, GridworldBlock]:
    """Run the whole experiment; a pure function of the config (see `run_shards` for the rest)."""
    shards = config.shards
    answers = run_shards(evaluate_target, shards, folder=folder, **how)
    results = [TargetResult.of(answer) for answer in answers]
    each = config.targets
    blocks = (
        _block(shards[first], results[first : first + each])
        for first in range(0, len(shards), each)
    )
    return Result("gridworld", config, tuple(blocks))


def _block(shard: Shard, results: Sequence[TargetResult]) -> GridworldBlock:
    names = names_of(shard.methods, BASELINES)
    return GridworldBlock(
        size=shard.size,
        cost_law=shard.cost_law,
        grid=episode_grid(shard.episodes),
        methods={name: _method(name, shard.episodes, results) for name in names},
        direct_error=Statistic(np.array([r.direct_error for r in results])),
        direct_square=Statistic(np.array([r.direct_square for r in results])),
        frontier=tuple(_frontier(name, shard.epsilons, results) for name in constrained(names)),
    )


def _method(name: str, episodes: int, results: Sequence[TargetResult]) -> GridworldMethod:
    outcomes = tuple(r.outcomes[name] for r in results)
    errors, costs = (np.array([getattr(o, what) for o in outcomes]) for what in ("errors", "costs"))
    own = np.array([r.outcomes[REFERENCE].errors for r in results])
    crossing = crossing_of(errors, costs, own)
    if name == REFERENCE:
        crossing = Crossing(float(episodes), None)  # by definition
    return GridworldMethod(name, outcomes, crossing=crossing)


def _frontier(
    name: str, epsilons: tuple[float, ...], results: Sequence[TargetResult]
) -> EpsilonCurve:
    points = [[p for p in r.frontier if p.method == name] for r in results]
    arrays = (
        np.array([[getattr(p, what) for p in of_target] for of_target in points])
        for what in ("variance", "cost", "limit_variance", "limit_cost")
    )
    return EpsilonCurve(name, epsilons, *arrays)

"""The paper's Gridworld: tables and curves of every method, learned from the same logs.

Thirty targets, each in a world of its own (see `gridworld_exact` for why) with 1,000 logged
episodes of 30 other controllers; 30 runs of 1,000 episodes for each method. For every method:

- *relative variance* and *relative cost* of one episode. Designs are assessed exactly in the true
  model; ROS, whose episodes depend on each other, by the variance over runs of its last estimate;
- *cost needed* for on-policy's accuracy after 1,000 episodes, in on-policy episodes:
  1000 (relative variance) (relative cost), as in every row of the paper;
- *crossing*: the same, read off the measured error curves: the cost from which on the mean error
  stays below on-policy's last one. The one to trust for ROS, whose error does not fall like
  1 / sqrt(episodes).

`direct` is no sampling method: the critics' own answer v(s0), from the logs alone and for free. No
number of episodes makes its error smaller.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Unpack

import numpy as np

from scopeval.arrays import Floats, Ints, check_whole
from scopeval.behavior.settings import check_budget, check_epsilon
from scopeval.envs.gridworld import Gridworld
from scopeval.errors import InputError
from scopeval.paper.backends.shards import Running, run_shards
from scopeval.paper.curves import Crossing, crossing_of
from scopeval.paper.experiments.gridworld_exact import PAPER, Statistic
from scopeval.paper.experiments.gridworld_target import (
    EPSILONS,
    FRONTIER,
    METHODS,
    Shard,
    TargetResult,
    episode_grid,
    evaluate_target,
)
from scopeval.paper.written import as_columns, mean_curve, published

__all__ = ["CRITICS", "Block", "Config", "Crossing", "Frontier", "Result", "Row", "run"]

CRITICS = ("table", "mlp")


@dataclass(frozen=True)
class Config:
    """What to run."""

    sizes: tuple[int, ...] = (10, 30)
    """Cells along one side; also the horizon. The paper has 10 and 30."""
    cost_laws: tuple[str, ...] = ("same-tilt",)
    """How costs are drawn, see `envs.gridworld`."""
    targets: int = 30
    """Number of target policies, as in the paper."""
    worlds: int | None = None
    """Number of worlds that the targets share in turn; None: one world for each target."""
    seed: int = 0
    """Target k lives in world seed + (k modulo worlds); logs and runs of target k follow from
    (seed, k)."""
    runs: int = 30
    """Independent runs of each method for each target, as in the paper."""
    episodes: int = 1000
    """Episodes of one run, as in the paper."""
    logged: int = 1000
    """Logged episodes to learn from, as in the paper."""
    critics: str = "table"
    """What learns the values: "table" (with the cells' coordinates as features) or "mlp"."""
    epsilon: float = 0.0
    """Safety parameter of the constrained methods."""
    epsilons: tuple[float, ...] = EPSILONS
    """Safety parameters of the variance-cost frontier; each is two more designs for each target."""
    budget: str = "state"
    """Of the constrained methods: "state" (the paper's) or "episode"."""

    def __post_init__(self) -> None:
        for name, least in (("targets", 1), ("runs", 2), ("episodes", 2), ("logged", 1)):
            check_whole(name, getattr(self, name), least)
        check_whole("seed", self.seed, 0)
        if self.worlds is not None and not 1 <= self.worlds <= self.targets:
            raise InputError(
                f"worlds: got {self.worlds} for {self.targets} targets; expected at least one, and "
                "at most one for each target"
            )
        if self.critics not in CRITICS:
            raise InputError(f"critics: got {self.critics!r}, expected one of {', '.join(CRITICS)}")
        for epsilon in (self.epsilon, *self.epsilons):
            check_epsilon(epsilon)
        check_budget(self.budget, None)
        for size in self.sizes:
            for law in self.cost_laws:
                Gridworld(size, law)  # says what is wrong before anything is computed

    @property
    def shards(self) -> list[Shard]:
        """The pieces of work: sizes, laws, targets."""
        return [
            Shard(
                size=size,
                cost_law=law,
                target=k,
                world=self.seed + (k if self.worlds is None else k % self.worlds),
                seed=self.seed,
                runs=self.runs,
                episodes=self.episodes,
                logged=self.logged,
                critics=self.critics,
                epsilon=self.epsilon,
                epsilons=self.epsilons,
                budget=self.budget,
            )
            for size in self.sizes
            for law in self.cost_laws
            for k in range(self.targets)
        ]


@dataclass(frozen=True)
class Row:
    """One method over all targets; see `gridworld_target.Outcome` for the fields.

    ``variance`` and ``cost`` are exact for on-policy and designs, measured for ROS. ``errors`` and
    ``costs`` are [targets, grid].
    """

    method: str
    variance: Statistic
    cost: Statistic
    measured_variance: Statistic
    measured_square: Statistic
    measured_cost: Statistic
    bias: Statistic
    worst_state: Statistic | None
    limit_variance: Statistic | None
    limit_cost: Statistic | None
    predicted_variance: Statistic | None
    predicted_cost: Statistic | None
    errors: Floats
    costs: Floats
    crossing: Crossing

    @property
    def exactly(self) -> bool:
        """Whether variance and cost are computed and not measured."""
        return self.worst_state is not None

    @property
    def needed(self) -> Statistic:
        """Cost for the accuracy of 1,000 on-policy episodes, target by target.

        ROS may be biased, so there the squared error stands for the variance.
        """
        inaccuracy = self.variance if self.exactly else self.measured_square
        return Statistic(1000.0 * inaccuracy.values * self.cost.values)

    @property
    def saved(self) -> float:
        """Share of the on-policy cost that is saved at equal accuracy."""
        return 1.0 - self.needed.mean / 1000.0

    @property
    def limit_needed(self) -> Statistic | None:
        """`needed` with exact values."""
        if self.limit_variance is None or self.limit_cost is None:
            return None
        return Statistic(1000.0 * self.limit_variance.values * self.limit_cost.values)

    @property
    def unsafe(self) -> int:
        """Number of targets whose cost is more than one per cent above on-policy's."""
        return int((self.cost.values > 1.01).sum())

    def as_dict(self) -> dict[str, Any]:
        """For JSON: statistics over targets, and mean curves with standard errors."""
        statistics = {
            "relative_variance": self.variance,
            "relative_cost": self.cost,
            "cost_needed": self.needed,
            "measured_variance": self.measured_variance,
            "measured_square": self.measured_square,
            "measured_cost": self.measured_cost,
            "bias": self.bias,
            "worst_state": self.worst_state,
            "limit_variance": self.limit_variance,
            "limit_cost": self.limit_cost,
            "predicted_variance": self.predicted_variance,
            "predicted_cost": self.predicted_cost,
        }
        return {
            "method": self.method,
            "exact": self.exactly,
            **{name: s.as_dict() if s is not None else None for name, s in statistics.items()},
            "saved": self.saved,
            "crossing": asdict(self.crossing),
            "curve": mean_curve(self.errors, self.costs),
        }


@dataclass(frozen=True)
class Frontier:
    """One method at several safety parameters; arrays are [targets, epsilons]."""

    method: str
    epsilons: tuple[float, ...]
    variance: Floats
    cost: Floats
    limit_variance: Floats
    limit_cost: Floats

    def as_dict(self) -> dict[str, Any]:
        """For JSON: means over targets."""
        arrays = {k: v for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return {
            "method": self.method,
            "epsilon": list(self.epsilons),
            **{name: values.mean(axis=0).tolist() for name, values in arrays.items()},
        }


@dataclass(frozen=True)
class Block:
    """All methods on one size and cost law."""

    size: int
    cost_law: str
    grid: Ints = field(repr=False)
    rows: tuple[Row, ...] = field(repr=False)
    direct_error: Statistic = field(repr=False)
    direct_square: Statistic = field(repr=False)
    frontier: tuple[Frontier, ...] = field(repr=False)

    def row(self, method: str) -> Row:
        """The row of one method."""
        return next(row for row in self.rows if row.method == method)

    @property
    def cheapest(self) -> Row:
        """The method with the least crossing (the least cost needed where nothing crosses)."""
        return min(
            (row for row in self.rows if row.method != "on-policy"),
            key=lambda row: (row.crossing.cost is None, row.crossing.cost or row.needed.mean),
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "size": self.size,
            "cost_law": self.cost_law,
            "episodes": self.grid.tolist(),
            "methods": [row.as_dict() for row in self.rows],
            "direct": {
                "error": self.direct_error.as_dict(),
                "squared_error": self.direct_square.as_dict(),
            },
            "frontier": [line.as_dict() for line in self.frontier],
            "cheapest": self.cheapest.method,
            "paper": published(PAPER.get(self.size, {})),
        }


@dataclass(frozen=True)
class Result:
    """What was asked, and one block for each size and cost law."""

    config: Config
    blocks: tuple[Block, ...] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "experiment": "gridworld",
            "config": asdict(self.config),
            "blocks": [block.as_dict() for block in self.blocks],
        }

    def tables(self) -> dict[str, dict[str, list[Any]]]:
        """Every number target by target, as columns: ``targets``, ``curves`` and ``frontier``."""
        targets: list[dict[str, Any]] = []
        curves: list[dict[str, Any]] = []
        frontier: list[dict[str, Any]] = []
        for block in self.blocks:
            at = {"size": block.size, "cost_law": block.cost_law}
            for k in range(self.config.targets):
                for row in block.rows:
                    here = {**at, "method": row.method, "target": k}
                    numbers = {
                        name: float(s.values[k]) if isinstance(s, Statistic) else None
                        for name, s in vars(row).items()
                        if name in _STATISTICS
                    }
                    targets.append({**here, **numbers})
                    curves += [
                        {**here, "episodes": int(n), "error": float(e), "cost": float(c)}
                        for n, e, c in zip(block.grid, row.errors[k], row.costs[k], strict=True)
                    ]
                for line in block.frontier:
                    here = {**at, "method": line.method, "target": k}
                    frontier += [
                        {
                            **here,
                            "epsilon": epsilon,
                            "variance": float(line.variance[k, j]),
                            "cost": float(line.cost[k, j]),
                            "limit_variance": float(line.limit_variance[k, j]),
                            "limit_cost": float(line.limit_cost[k, j]),
                        }
                        for j, epsilon in enumerate(line.epsilons)
                    ]
        named = {"targets": targets, "curves": curves, "frontier": frontier}
        return {name: as_columns(rows) for name, rows in named.items()}


def run(config: Config, *, folder: str | os.PathLike[str], **how: Unpack[Running]) -> Result:
    """Run the whole experiment; a pure function of the config (see `run_shards` for the rest)."""
    shards = config.shards
    answers = run_shards(evaluate_target, shards, folder=folder, **how)
    results = [TargetResult.of(answer) for answer in answers]
    blocks = []
    for first in range(0, len(shards), config.targets):
        shard = shards[first]
        of_block = results[first : first + config.targets]
        blocks.append(_block(shard, of_block, episode_grid(config.episodes)))
    return Result(config, tuple(blocks))


_STATISTICS = (
    "variance",
    "cost",
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


def _block(shard: Shard, results: Sequence[TargetResult], grid: Ints) -> Block:
    own = np.array([r.outcomes["on-policy"].errors for r in results])
    rows = []
    for method in METHODS:
        outcomes = [r.outcomes[method] for r in results]
        found: dict[str, Any] = {}
        for name in _STATISTICS:
            numbers = [getattr(outcome, name) for outcome in outcomes]
            found[name] = None if numbers[0] is None else Statistic(np.array(numbers))
        for name in ("variance", "cost"):  # ROS: measured
            found[name] = found[name] or found[f"measured_{name}"]
        errors = np.array([outcome.errors for outcome in outcomes])
        costs = np.array([outcome.costs for outcome in outcomes])
        crossing = crossing_of(errors, costs, own)
        if method == "on-policy":
            crossing = Crossing(float(grid[-1]), None)  # by definition
        rows.append(Row(method, **found, errors=errors, costs=costs, crossing=crossing))
    frontier = []
    for method in FRONTIER:
        points = [[p for p in r.frontier if p.method == method] for r in results]
        arrays = [
            np.array([[getattr(p, name) for p in of_target] for of_target in points])
            for name in ("variance", "cost", "limit_variance", "limit_cost")
        ]
        frontier.append(Frontier(method, shard.epsilons, *arrays))
    return Block(
        shard.size,
        shard.cost_law,
        grid,
        tuple(rows),
        Statistic(np.array([r.direct_error for r in results])),
        Statistic(np.array([r.direct_square for r in results])),
        tuple(frontier),
    )

"""Environments that scopeval was not tuned on: do its designs keep their promises there?

For every environment, target policy and kind of logs (`foreign_worlds`), each method designs a
behavior policy at default settings. Finite environments are judged exactly: relative variance and
cost in the true model, beside what the design predicted and what its cross-check said.

The targets are split into two halves. Thresholds of the decision may be chosen on the first half
(target numbers 0, 2, 4, ...) only; the second half (1, 3, 5, ...) is what counts. A design breaks a
promise if its relative cost is above 1.005 or its relative variance above 1.05, and its prediction
is good if predicted / true variance is between 0.7 and 1.4.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Unpack

from scopeval import exact
from scopeval.arrays import check_whole
from scopeval.behavior.designer import designs
from scopeval.behavior.settings import Settings
from scopeval.errors import InputError
from scopeval.paper.backends.shards import ShardOptions, run_shards
from scopeval.paper.experiments.foreign_worlds import FINITE, LOGS, finite_world
from scopeval.paper.methods import REFERENCE, check_methods, digest_of, names_of
from scopeval.paper.results import as_columns

__all__ = [
    "ENVIRONMENTS",
    "HALVES",
    "MOST_COST",
    "MOST_VARIANCE",
    "PREDICTION",
    "Config",
    "ForeignDesign",
    "ForeignResult",
    "Group",
    "run",
]

HALVES = ("chosen on", "reported on")
ENVIRONMENTS = FINITE
#: Relative cost above which a design breaks its promise.
MOST_COST = 1.005
#: Relative variance above which it does.
MOST_VARIANCE = 1.05
#: Predicted / true variance of a good prediction.
PREDICTION = (0.7, 1.4)


@dataclass(frozen=True)
class Config:
    """What to run."""

    environments: tuple[str, ...] = ENVIRONMENTS
    """Their names."""
    targets: int = 10
    """Number of target policies of each environment."""
    episodes: tuple[int, ...] = (1000, 100, 32)
    """Numbers of episodes of the logs by all loggers."""
    missing_episodes: int = 1000
    """Number of episodes of the logs that miss a part of what the target does."""
    seed: int = 0
    """Of targets, loggers, logs and designs."""
    methods: tuple[str, ...] = ("scope", "scope-dr")
    """Registered methods, or module:attribute."""

    def __post_init__(self) -> None:
        for name in self.environments:
            if name not in ENVIRONMENTS:
                raise InputError(
                    f"environments: got {name!r}, expected some of {', '.join(ENVIRONMENTS)}"
                )
        check_whole("targets", self.targets, 1)
        check_whole("seed", self.seed, 0)
        for number in (*self.episodes, self.missing_episodes):
            check_whole("episodes", number, 1)
        check_methods(tuple(dict.fromkeys((REFERENCE, *self.methods))))

    @property
    def logs(self) -> tuple[tuple[str, int], ...]:
        """Kind and number of episodes of all logs."""
        mixed = tuple((LOGS[0], number) for number in self.episodes)
        return mixed + tuple((kind, self.missing_episodes) for kind in LOGS[1:])


@dataclass(frozen=True)
class Shard:
    """One target with all its logs."""

    environment: str
    target: int
    seed: int
    logs: tuple[tuple[str, int], ...]
    methods: tuple[str, ...]
    digest: str
    """Of the methods' code."""

    @property
    def label(self) -> str:
        """The name used in messages."""
        return f"{self.environment}, target {self.target}"


@dataclass(frozen=True)
class ForeignDesign:
    """One design, and how it was judged.

    Attributes:
        environment: its name.
        target: number of the target policy.
        logs: kind of the logs.
        episodes: their number.
        method: that was asked for.
        used: method that was decided on.
        warnings: number of them.
        support: share of the target's steps that the logs show, as the design reports it.
        predicted_variance: what the design predicted,
        predicted_cost: likewise.
        checked_variance: what its cross-check said,
        checked_cost: likewise.
        variance: the truth: relative to running the target policy, exact.
        cost: likewise.
    """

    environment: str
    target: int
    logs: str
    episodes: int
    method: str
    used: str
    warnings: int
    support: float
    predicted_variance: float
    predicted_cost: float
    checked_variance: float
    checked_cost: float
    variance: float
    cost: float

    @property
    def half(self) -> str:
        """Which half of the targets it belongs to."""
        return HALVES[self.target % 2]

    @property
    def falls_back(self) -> bool:
        """Whether the design is to run the target policy itself."""
        return self.used == REFERENCE

    @property
    def calibration(self) -> float:
        """Predicted / true variance."""
        return self.predicted_variance / self.variance

    @property
    def too_expensive(self) -> bool:
        """Whether the cost is above what was promised."""
        return self.cost > MOST_COST

    @property
    def too_variable(self) -> bool:
        """Whether the variance is above the target policy's own."""
        return self.variance > MOST_VARIANCE

    @property
    def well_predicted(self) -> bool:
        """Whether the prediction is near the truth."""
        return PREDICTION[0] <= self.calibration <= PREDICTION[1]

    def as_dict(self) -> dict[str, Any]:
        """For JSON and Parquet."""
        return {
            **asdict(self),
            "half": self.half,
            "falls_back": self.falls_back,
            "calibration": self.calibration,
        }


@dataclass(frozen=True)
class Group:
    """Some of the designs, counted.

    Attributes:
        environment: its name, or "all".
        half: of the targets.
        rows: the designs.
    """

    environment: str
    half: str
    rows: tuple[ForeignDesign, ...] = field(repr=False)

    @property
    def departures(self) -> tuple[ForeignDesign, ...]:
        """The designs that do not fall back to the target policy."""
        return tuple(row for row in self.rows if not row.falls_back)

    def as_dict(self) -> dict[str, Any]:
        """The counts, for JSON; numbers of the designs that do not fall back where it matters."""
        away = self.departures
        many = len(away)
        return {
            "environment": self.environment,
            "half": self.half,
            "designs": len(self.rows),
            "fall_back": len(self.rows) - many,
            "mean_variance": sum(row.variance for row in self.rows) / len(self.rows),
            "worst_variance": max(row.variance for row in self.rows),
            "worst_cost": max(row.cost for row in self.rows),
            "too_variable": _count(row.too_variable for row in self.rows),
            "too_expensive": _count(row.too_expensive for row in self.rows),
            "well_predicted": _count(row.well_predicted for row in self.rows) / len(self.rows),
            "well_predicted_departures": _count(row.well_predicted for row in away) / many
            if many
            else None,
        }


@dataclass(frozen=True)
class ForeignResult:
    """What was asked, and every design."""

    config: Config
    rows: tuple[ForeignDesign, ...] = field(repr=False)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Each environment and then all of them, in both halves."""

        def group(name: str, half: str, belongs: Callable[[ForeignDesign], bool]) -> Group:
            chosen = tuple(row for row in self.rows if row.half == half and belongs(row))
            return Group(name, half, chosen)

        found = [
            group(name, half, lambda row, name=name: row.environment == name)  # type: ignore[misc]
            for name in self.config.environments
            for half in HALVES
        ]
        found += [group("all", half, lambda row: True) for half in HALVES]
        return tuple(one for one in found if one.rows)

    @property
    def exceptions(self) -> tuple[ForeignDesign, ...]:
        """The designs that break a promise or whose prediction is not near the truth."""
        return tuple(
            row
            for row in self.rows
            if row.too_expensive or row.too_variable or not row.well_predicted
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "experiment": "foreign",
            "config": asdict(self.config),
            "summary": [group.as_dict() for group in self.groups],
            "exceptions": [row.as_dict() for row in self.exceptions],
        }

    def tables(self) -> dict[str, dict[str, list[Any]]]:
        """Every number, design by design, as columns."""
        return {"designs": as_columns([row.as_dict() for row in self.rows])}


def run(
    config: Config, *, folder: str | os.PathLike[str], **how: Unpack[ShardOptions]
) -> ForeignResult:
    """Run the whole experiment; a pure function of the config (see `run_shards` for the rest)."""
    shards = [
        Shard(name, k, config.seed, config.logs, config.methods, digest_of(config.methods))
        for name in config.environments
        for k in range(config.targets)
    ]
    answers = run_shards(judge_designs, shards, folder=folder, **how)
    return ForeignResult(
        config, tuple(ForeignDesign(**row) for answer in answers for row in answer["rows"])
    )


def judge_designs(shard: Shard) -> dict[str, Any]:
    """The work of one shard: a row for each kind of logs and method."""
    world = finite_world(shard.environment, shard.seed)
    target = world.target(shard.target)
    alone = exact.assess(world.mdp, target, target)
    settings = Settings(horizon=world.mdp.horizon, seed=shard.seed)
    rows = []
    for kind, episodes in shard.logs:
        logged = world.logs(kind, episodes, shard.target)
        for method, learned in designs(logged, target, names_of(shard.methods), settings).items():
            found = exact.assess(world.mdp, target, learned)
            predicted = learned.predicted
            row = ForeignDesign(
                environment=shard.environment,
                target=shard.target,
                logs=kind,
                episodes=episodes,
                method=method,
                used=learned.recipe.method,
                warnings=len(learned.report.warnings),
                support=learned.report.support,
                predicted_variance=predicted.variance,
                predicted_cost=predicted.cost,
                checked_variance=predicted.checked_variance,
                checked_cost=predicted.checked_cost,
                variance=found.variance / alone.variance,
                cost=found.cost / alone.cost,
            )
            rows.append(asdict(row))
    return {"rows": rows}


def _count(flags: Iterable[bool]) -> int:
    return sum(flags)

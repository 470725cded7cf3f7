"""Environments that scopeval was not tuned on: do its designs keep their promises there?

For every environment, target policy and kind of logs, each method designs a behavior policy at
default settings. Finite environments (`foreign_worlds`) are judged exactly: relative variance and
cost in the true model, beside what the design predicted and what its cross-check said. Environments
with vectors (`foreign_vectors`) are measured in many episodes, with standard errors.

The targets are split into two halves. Thresholds of the decision may be chosen on the first half
(target numbers 0, 2, 4, ...) only; the second half (1, 3, 5, ...) is what counts. A design breaks a
promise if its relative cost is above 1.005 or its relative variance above 1.05, by two standard
errors where they are measured. Its prediction is good if predicted / true variance is between 0.7
and 1.4.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Unpack

import numpy as np

from scopeval import exact
from scopeval.arrays import Floats, check_whole
from scopeval.behavior.designer import designs
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.settings import Settings
from scopeval.errors import InputError
from scopeval.paper.backends.shards import ShardOptions, run_shards
from scopeval.paper.experiments.foreign_designs import HALVES, ForeignDesign, Group
from scopeval.paper.experiments.foreign_vectors import (
    EXTRA,
    VECTOR_LOGS,
    VECTORS,
    Measured,
    measure,
    vector_world,
)
from scopeval.paper.experiments.foreign_worlds import FINITE, LOGS, finite_world
from scopeval.paper.experiments.lunar_lander import MISSING, lander_installed
from scopeval.paper.experiments.mujoco_outcome import variance_error
from scopeval.paper.methods import REFERENCE, check_methods, digest_of, names_of
from scopeval.paper.results import as_columns

__all__ = [
    "ENVIRONMENTS",
    "Config",
    "ForeignResult",
    "Shard",
    "judge_designs",
    "run",
    "runnable",
]

ENVIRONMENTS = FINITE + VECTORS + EXTRA


def runnable() -> tuple[str, ...]:
    """The environments that can be run here: LunarLander needs an extra of the package."""
    return ENVIRONMENTS if lander_installed() else FINITE + VECTORS


@dataclass(frozen=True)
class Config:
    """What to run."""

    environments: tuple[str, ...] = field(default_factory=runnable)
    """Their names."""
    targets: int = 10
    """Number of target policies of each finite environment."""
    episodes: tuple[int, ...] = (1000, 100, 32)
    """Numbers of episodes of the logs by all loggers."""
    missing_episodes: int = 1000
    """Number of episodes of the logs that miss a part of what the target does."""
    vector_targets: int = 4
    """Number of target policies of each environment with vectors."""
    vector_episodes: tuple[int, ...] = (300, 30)
    """Numbers of episodes of the logs by all loggers there."""
    vector_missing_episodes: int = 300
    """Number of episodes there of the logs that miss a part."""
    measured: int = 20_000
    """Episodes in which a design for vectors is measured; the target, in five times as many. For
    LunarLander, a tenth of both."""
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
        if "LunarLander" in self.environments and not lander_installed():
            raise InputError(f"environments: {MISSING}")
        check_whole("targets", self.targets, 1)
        check_whole("vector_targets", self.vector_targets, 1)
        check_whole("seed", self.seed, 0)
        check_whole("measured", self.measured, 2)
        for number in (*self.episodes, self.missing_episodes, *self.vector_episodes):
            check_whole("episodes", number, 1)
        check_methods(tuple(dict.fromkeys((REFERENCE, *self.methods))))

    def logs(self, environment: str) -> tuple[tuple[str, int], ...]:
        """Kind and number of episodes of all logs of an environment."""
        if environment in FINITE:
            kinds, several, missing = LOGS, self.episodes, self.missing_episodes
        else:
            kinds, several = VECTOR_LOGS, self.vector_episodes
            missing = self.vector_missing_episodes
        mixed = tuple((kinds[0], number) for number in several)
        return mixed + tuple((kind, missing) for kind in kinds[1:])

    def numbers(self, environment: str) -> range:
        """The targets of an environment."""
        return range(self.targets if environment in FINITE else self.vector_targets)


@dataclass(frozen=True)
class Shard:
    """One target with all its logs."""

    environment: str
    target: int
    seed: int
    logs: tuple[tuple[str, int], ...]
    methods: tuple[str, ...]
    measured: int
    digest: str
    """Of the methods' code."""

    @property
    def label(self) -> str:
        """The name used in messages."""
        return f"{self.environment}, target {self.target}"


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
    digest = digest_of(config.methods)
    shards = [
        Shard(name, k, config.seed, config.logs(name), config.methods, config.measured, digest)
        for name in config.environments
        for k in config.numbers(name)
    ]
    answers = run_shards(judge_designs, shards, folder=folder, **how)
    return ForeignResult(
        config, tuple(ForeignDesign(**row) for answer in answers for row in answer["rows"])
    )


def judge_designs(shard: Shard) -> dict[str, Any]:
    """The work of one shard: a row for each kind of logs and method."""
    return {"rows": _exact_rows(shard) if shard.environment in FINITE else _measured_rows(shard)}


def _exact_rows(shard: Shard) -> list[dict[str, Any]]:
    world = finite_world(shard.environment, shard.seed)
    target = world.target(shard.target)
    alone = exact.assess(world.mdp, target, target)
    settings = Settings(horizon=world.mdp.horizon, seed=shard.seed)
    rows = []
    for kind, episodes in shard.logs:
        logged = world.logs(kind, episodes, shard.target)
        for method, learned in designs(logged, target, names_of(shard.methods), settings).items():
            found = exact.assess(world.mdp, target, learned)
            truth = {
                "variance": found.variance / alone.variance,
                "cost": found.cost / alone.cost,
            }
            rows.append(_row(shard, (kind, episodes), method, learned, truth))
    return rows


def _measured_rows(shard: Shard) -> list[dict[str, Any]]:
    world = vector_world(shard.environment, shard.seed)
    target = world.target(shard.target)
    key = (shard.seed, 5, shard.target)
    many = max(2, shard.measured // world.slower)
    alone = measure(world, target, None, 5 * many, np.random.default_rng(key))
    settings = Settings(horizon=world.control.horizon, seed=shard.seed)
    rows = []
    for k, (kind, episodes) in enumerate(shard.logs):
        logged = world.logs(kind, episodes, shard.target)
        known: dict[str, dict[str, float]] = {REFERENCE: {"variance": 1.0, "cost": 1.0}}
        for method, learned in designs(logged, target, names_of(shard.methods), settings).items():
            used = learned.recipe.method
            if used not in known:  # what falls back is what it is compared with
                rng = np.random.default_rng((*key, k))
                known[used] = _relative(measure(world, target, learned, many, rng), alone)
            rows.append(_row(shard, (kind, episodes), method, learned, known[used]))
    return rows


def _relative(found: Measured, alone: Measured) -> dict[str, float]:
    """Variance and cost relative to the target's, with standard errors."""
    variance = _ratio(
        (float(found.value.var(ddof=1)), variance_error(found.value)),
        (float(alone.value.var(ddof=1)), variance_error(alone.value)),
    )
    cost = _ratio(_mean(found.cost), _mean(alone.cost))
    return {
        "variance": variance[0],
        "variance_error": variance[1],
        "cost": cost[0],
        "cost_error": cost[1],
    }


def _ratio(value: tuple[float, float], own: tuple[float, float]) -> tuple[float, float]:
    """Of two independent numbers, each with its standard error."""
    ratio = value[0] / own[0]
    return ratio, float(np.hypot(value[1], ratio * own[1]) / own[0])


def _mean(values: Floats) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _row(
    shard: Shard,
    logs: tuple[str, int],
    method: str,
    learned: BehaviorPolicy,
    truth: dict[str, float],
) -> dict[str, Any]:
    predicted = learned.predicted
    row = ForeignDesign(
        environment=shard.environment,
        target=shard.target,
        logs=logs[0],
        episodes=logs[1],
        method=method,
        used=learned.recipe.method,
        warnings=len(learned.report.warnings),
        support=learned.report.support,
        predicted_variance=predicted.variance,
        predicted_cost=predicted.cost,
        checked_variance=predicted.checked_variance,
        checked_cost=predicted.checked_cost,
        **truth,
    )
    return asdict(row)

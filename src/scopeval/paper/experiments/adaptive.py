"""Evaluations in stages, with no logs, few logs, many logs and bad logs.

Every run is a whole evaluation. For each world and kind of logs:

- ``adaptive``: `evaluate(refit=...)`, designs from the logs and all earlier episodes;
- ``fixed``: the design from the logs alone, assessed exactly (with no logs: on-policy);
- ``ros`` and ``bps``: the methods that need no logs.

The *squared error* of an estimate is relative to that of as many on-policy episodes, so on-policy
evaluation has 1; the *cost* is relative to the target policy's. Stages are uncorrelated given the
past, so the expected squared error of an adaptive run is the mean over runs of

    sum_k share_k^2 (variance of stage k's design) / episodes_k

with every design's variance, and cost, computed exactly in the true model (vectors and robots: as
the stage's episodes show them). *Measured* is the mean
of (estimate - value)^2 itself, which needs many more runs to be known as well. *Covered* is the
share of runs whose 95 % interval holds the value. *Ever missed* is the share of runs in which the
anytime-valid sequence missed it after any batch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Unpack

import numpy as np

from scopeval import exact
from scopeval.arrays import check_whole, is_number
from scopeval.baselines.bps import bps_tabular
from scopeval.baselines.ros import ros_tabular
from scopeval.behavior.designer import design
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.collection.collector import collect
from scopeval.errors import InputError
from scopeval.evaluation.evaluator import evaluate
from scopeval.evaluation.refitting import Refitting
from scopeval.evaluation.result import Evaluation
from scopeval.evaluation.sources import summarize
from scopeval.evaluation.stage_report import Stage
from scopeval.evaluation.stopping import Running
from scopeval.exact import TabularMDP
from scopeval.paper.backends.shards import ShardOptions, run_shards
from scopeval.paper.experiments.adaptive_worlds import (
    Problem,
    check_logs,
    check_world,
    is_finite,
    problem,
)
from scopeval.paper.results import Statistic, as_columns

__all__ = ["COMPARED", "LOGS", "WORLDS", "AdaptiveResult", "AdaptiveRow", "Config", "run"]

WORLDS = ("gridworld-10", "gridworld-30")
LOGS = ("none", "30", "100", "1000", "one controller", "hidden states", "corrupted", "bad")
COMPARED = ("adaptive", "fixed", "ros", "bps")
#: Methods that learn from logs; the others run in finite worlds only.
DESIGNING = ("adaptive", "fixed")
#: Episodes that a fixed design is measured with, where it is not assessed exactly.
MEASURED = 3000


@dataclass(frozen=True)
class Config:
    """What to run."""

    worlds: tuple[str, ...] = WORLDS
    """Their names; see `adaptive_worlds`."""
    logs: tuple[str, ...] = LOGS
    """Kinds of logs."""
    methods: tuple[str, ...] = COMPARED
    """Some of `COMPARED`."""
    epsilon: float = 0.0
    """The cost budget, of every stage after the first if below zero."""
    targets: int = 30
    """Number of target policies in each world."""
    runs: int = 20
    """Runs of each target and kind of logs."""
    episodes: int = 1000
    """Episodes of a run."""
    seed: int = 0
    """Of targets, logs and runs."""

    def __post_init__(self) -> None:
        for world in self.worlds:
            check_world(world)
        for logs in self.logs:
            check_logs(logs)
        for method in self.methods:
            if method not in COMPARED:
                raise InputError(f"methods: got {method!r}, expected some of {', '.join(COMPARED)}")
        if not (is_number(self.epsilon) and self.epsilon > -1.0):
            raise InputError(f"epsilon: got {self.epsilon!r}, expected a number above -1")
        for name in ("targets", "runs", "episodes"):
            check_whole(name, getattr(self, name), 1)
        check_whole("seed", self.seed, 0)

    @property
    def shards(self) -> list[Shard]:
        """The work, shard by shard; methods without logs have none."""
        return [
            Shard(world, logs, method, target, self.epsilon, self.runs, self.episodes, self.seed)
            for world in self.worlds
            for method in self.methods
            for logs in (self.logs if method in DESIGNING else ("none",))
            if (method, logs) != ("fixed", "none") and (method in DESIGNING or is_finite(world))
            for target in range(self.targets)
        ]


@dataclass(frozen=True)
class Shard:
    """One target with one kind of logs and one method: all runs of it."""

    world: str
    logs: str
    method: str
    target: int
    epsilon: float
    runs: int
    episodes: int
    seed: int

    @property
    def label(self) -> str:
        """The name used in messages."""
        return f"{self.world}, {self.method}, logs {self.logs}, target {self.target}"


@dataclass(frozen=True)
class AdaptiveRow:
    """One method with one kind of logs in one world, over the targets.

    Attributes:
        world: its name.
        method: its name.
        logs: what logs there were.
        square: expected squared error, relative to on-policy's.
        cost: relative to the target policy's.
        measured: mean squared error over the runs, relative to on-policy's; None if it is exact.
        covered: share of runs whose interval holds the value; None for methods without one.
        missed: share of runs in which the anytime-valid sequence ever missed it.
        dropped: share of runs in which the logs were dropped.
        refits: designs in a run.
    """

    world: str
    method: str
    logs: str
    square: Statistic = field(repr=False)
    cost: Statistic = field(repr=False)
    measured: Statistic | None = field(repr=False, default=None)
    covered: Statistic | None = field(repr=False, default=None)
    missed: Statistic | None = field(repr=False, default=None)
    dropped: Statistic | None = field(repr=False, default=None)
    refits: Statistic | None = field(repr=False, default=None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {"world": self.world, "method": self.method, "logs": self.logs}
        for name in NUMBERS:
            value = getattr(self, name)
            found[name] = None if value is None else value.as_dict()
        return found


#: The numbers of a row.
NUMBERS = ("square", "cost", "measured", "covered", "missed", "dropped", "refits")


@dataclass(frozen=True)
class AdaptiveResult:
    """What was asked, and every row."""

    config: Config
    rows: tuple[AdaptiveRow, ...] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "experiment": "adaptive",
            "config": asdict(self.config),
            "rows": [row.as_dict() for row in self.rows],
        }

    def tables(self) -> dict[str, dict[str, list[Any]]]:
        """Every number, target by target, as columns."""
        found = []
        for row in self.rows:
            for k in range(len(row.square.values)):
                one: dict[str, Any] = {
                    "world": row.world,
                    "method": row.method,
                    "logs": row.logs,
                    "target": k,
                }
                for name in NUMBERS:
                    value = getattr(row, name)
                    one[name] = None if value is None else float(value.values[k])
                found.append(one)
        return {"targets": as_columns(found)}


def run(
    config: Config, *, folder: str | os.PathLike[str], **how: Unpack[ShardOptions]
) -> AdaptiveResult:
    """Run the whole experiment; a pure function of the config (see `run_shards` for the rest)."""
    shards = config.shards
    answers = run_shards(measure, shards, folder=folder, **how)
    each = config.targets
    rows = [
        _row(shards[first], answers[first : first + each]) for first in range(0, len(shards), each)
    ]
    return AdaptiveResult(config, tuple(rows))


def _row(shard: Shard, answers: Sequence[dict[str, Any]]) -> AdaptiveRow:
    def over_targets(name: str) -> Statistic | None:
        if answers[0][name] is None:
            return None
        return Statistic(np.array([answer[name] for answer in answers], np.float64))

    square, cost = over_targets("square"), over_targets("cost")
    assert square is not None
    assert cost is not None
    rest = {name: over_targets(name) for name in NUMBERS[2:]}
    return AdaptiveRow(shard.world, shard.method, shard.logs, square, cost, **rest)


def measure(shard: Shard) -> dict[str, Any]:
    """The work of one shard: means over its runs."""
    given = problem(shard.world, shard.target, shard.logs, shard.seed)
    if shard.method == "adaptive":
        return _adaptive(shard, given)
    if shard.method == "fixed":
        return _fixed(shard, given)
    return _baseline(shard, given)


def _adaptive(shard: Shard, given: Problem) -> dict[str, Any]:
    settings, own = Refitting(features=given.features), given.own
    runs = []
    for k in range(shard.runs):
        misses: list[bool] = []

        def watch(now: Running, misses: list[bool] = misses) -> None:
            misses.append(not now.interval.contains(own.value))

        found = evaluate(
            given.env,
            given.target,
            horizon=given.horizon,
            episodes=shard.episodes,
            epsilon=shard.epsilon,
            logs=given.logs,
            refit=settings,
            seed=_seed(shard, k),
            progress=watch,
        )
        assert found.learning is not None
        dropped = any(one.what == "the logs" for one in found.learning.changed)
        square, cost = _expected(found, given)
        runs.append(
            {
                "square": square,
                "cost": cost,
                "measured": (found.estimate - own.value) ** 2 / (own.variance / shard.episodes),
                "covered": found.interval.contains(own.value),
                "missed": any(misses),
                "dropped": dropped,
                "refits": found.learning.refits,
            }
        )
    return {name: float(np.mean([one[name] for one in runs])) for name in NUMBERS}


def _expected(found: Evaluation, given: Problem) -> tuple[float, float]:
    """Squared error given the designs, and cost, both relative to the target policy's."""
    square, cost = 0.0, 0.0
    for stage in found.stages:
        variance, spent = _judged(stage, given)
        square += stage.share**2 * variance / stage.episodes
        cost += stage.episodes * spent / found.finished
    return square * found.finished / given.own.variance, cost / given.own.cost


def _judged(stage: Stage, given: Problem) -> tuple[float, float]:
    """Variance and cost of an episode: exact where a model is known, else as measured."""
    behavior = stage.behavior
    if stage.on_policy:
        return given.own.variance, given.own.cost
    known = isinstance(given.env, TabularMDP) and not stage.by_target
    if not known or not isinstance(behavior, BehaviorPolicy):
        return stage.variance, stage.cost
    if behavior.weighted:
        point = exact.tabulate(given.env, given.target, behavior).predicted
        return point.variance, point.cost
    exactly = exact.assess(given.env, given.target, behavior)
    return exactly.variance, exactly.cost


def _fixed(shard: Shard, given: Problem) -> dict[str, Any]:
    """The design from the logs alone."""
    assert given.logs is not None
    own = given.own
    made = design(
        given.logs,
        given.target,
        horizon=given.horizon,
        method="scope-dr",
        epsilon=shard.epsilon,
        features=given.features,
        seed=shard.seed + shard.target,
    )
    if not isinstance(given.env, TabularMDP):
        ran = collect(
            given.env,
            given.target,
            made,
            horizon=given.horizon,
            episodes=MEASURED,
            seed=_seed(shard, 0),
        )
        values = summarize(ran, 1.0, "auto").value
        return _answer(float(values.var()) / own.variance, float(ran.costs().mean()) / own.cost)
    if made.weighted:
        point = exact.tabulate(given.env, given.target, made).predicted
        return _answer(point.relative_variance, point.relative_cost)
    found = exact.assess(given.env, given.target, made)
    return _answer(found.variance / own.variance, found.cost / own.cost)


def _baseline(shard: Shard, given: Problem) -> dict[str, Any]:
    """ROS or BPS."""
    seed, own = _seed(shard, 0), given.own
    runs, many = shard.runs, shard.episodes
    if shard.method == "ros":
        ros = ros_tabular(given.env, given.target, runs=runs, episodes=many, seed=seed, threads=1)
        last, costs = ros.estimates[:, -1], ros.costs
    else:
        bps = bps_tabular(given.env, given.target, runs=runs, episodes=many, seed=seed, threads=1)
        last, costs = bps.estimates[:, -1], bps.costs
    square = float(((last - own.value) ** 2).mean() / (own.variance / shard.episodes))
    return _answer(square, float(costs.mean() / own.cost)) | {"measured": square}


def _answer(square: float, cost: float) -> dict[str, Any]:
    return dict.fromkeys(NUMBERS) | {"square": square, "cost": cost}


def _seed(shard: Shard, k: int) -> int:
    """The seed of a run."""
    words = np.random.SeedSequence((shard.seed, shard.target, k, 41)).generate_state(1, np.uint64)
    return int(words[0]) >> 2

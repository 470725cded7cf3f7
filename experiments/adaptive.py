"""Evaluations in stages, with no logs, few logs, many logs and bad logs.

Every run is a whole evaluation. For each world and kind of logs (`worlds.staged`):

- ``adaptive``: `evaluate(refit=...)`, designs from the logs and all earlier episodes;
- ``fixed``: the design from the logs alone, judged exactly (with no logs: on-policy);
- ``ros`` and ``bps``: the methods that need no logs.

The *squared error* of an estimate is relative to that of as many on-policy episodes, so on-policy
evaluation has 1; the *cost* is relative to the target policy's. Stages are uncorrelated given the
past, so the expected squared error of an adaptive run is the mean over runs of

    sum_k share_k^2 (variance of stage k's design) / episodes_k

with every design's variance, and cost, computed exactly in the true model (vectors and robots: as
the stage's episodes show them). *Measured* is the mean of (estimate - value)^2 itself, which needs
many more runs to be known as well. *Covered* is the share of runs whose 95 % interval holds the
value. *Ever missed* is the share of runs in which the anytime-valid sequence missed it after any
batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from experiments.baselines.bps import bps_tabular
from experiments.baselines.ros import ros_tabular
from experiments.common import Note, RunArgs, Table, judge_exactly, main, mean_of, text_of
from experiments.worlds.staged import Problem, check_logs, check_world, is_finite, problem
from scopeval import Promise, collect, design, evaluate, exact
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.evaluation.batches import summarize
from scopeval.evaluation.loop import Running
from scopeval.evaluation.result import Evaluation
from scopeval.evaluation.stage_report import Stage
from scopeval.evaluation.stages import Stages
from scopeval.exact import TabularMDP
from scopeval.models import table as models

#: Methods that learn from logs; the others run in finite worlds only.
DESIGNING = ("adaptive", "fixed")
#: Episodes that a fixed design is measured with, where it is not judged exactly.
MEASURED = 3000
#: The numbers of a row.
NUMBERS = ("square", "cost", "measured", "covered", "missed", "dropped", "refits")


@dataclass(frozen=True)
class Args(RunArgs):
    """Evaluations that learn while they run, with and without logs."""

    worlds: tuple[str, ...] = ("gridworld-10", "gridworld-30")
    """gridworld-10 (or another size), survival, FrozenLake, CliffWalking, Taxi, Blackjack,
    CartPole, MountainCar, Acrobot, Pendulum, or a robot."""
    logs: tuple[str, ...] = (
        *("none", "30", "100", "1000", "one controller", "hidden states", "corrupted", "bad"),
    )
    """none, a number of episodes, one controller, hidden states, corrupted, bad, and with vectors
    random or hidden region."""
    methods: tuple[Literal["adaptive", "fixed", "ros", "bps"], ...] = (
        *("adaptive", "fixed", "ros", "bps"),
    )
    """What is compared."""
    epsilon: float = 0.0
    """The cost budget is 1 + epsilon times the target policy's cost; below zero, of every stage
    after the first."""
    targets: int = 30
    """Number of target policies in each world."""
    runs: int = 20
    """Runs of each target and kind of logs."""
    episodes: int = 1000
    """Episodes of a run."""
    seed: int = 0
    """Of targets, logs and runs."""

    RANGES: ClassVar[tuple[str, ...]] = ("worlds", "logs", "methods", "targets")

    def check(self) -> None:
        """Refuse what cannot be run, before the work."""
        for world in self.worlds:
            check_world(world)
        for logs in self.logs:
            check_logs(logs)


QUICK: dict[str, Any] = {"targets": 3, "runs": 4}


def jobs(args: Args) -> list[dict[str, Any]]:
    """One for each target with one kind of logs and one method; all runs of it."""
    return [
        {"world": world, "method": method, "logs": logs, "target": target}
        for world in args.worlds
        for method in args.methods
        for logs in (args.logs if method in DESIGNING else ("none",))
        if (method, logs) != ("fixed", "none") and (method in DESIGNING or is_finite(world))
        for target in range(args.targets)
    ]


def job(args: Args, world: str, method: str, logs: str, target: int) -> dict[str, Any]:
    """Means over the runs; a method has some of `NUMBERS`."""
    given = problem(world, target, logs, args.seed)
    if method == "adaptive":
        return _adaptive(args, given, target)
    if method == "fixed":
        return _fixed(args, given, target)
    run = ros_tabular if method == "ros" else bps_tabular
    seed, own = _seed(args, target, 0), given.own
    found: Any = run(
        given.env, given.target, runs=args.runs, episodes=args.episodes, seed=seed, threads=1
    )
    wrong = (found.estimates[:, -1] - own.value) ** 2
    square = float(wrong.mean() / (own.variance / args.episodes))
    cost = float(found.costs.mean() / own.cost)
    return {"square": square, "cost": cost, "measured": square}


def _adaptive(args: Args, given: Problem, target: int) -> dict[str, Any]:
    settings, own = Stages(learn=models.Table(features=given.features)), given.own
    runs = []
    for k in range(args.runs):
        misses: list[bool] = []

        def watch(now: Running, misses: list[bool] = misses) -> None:
            misses.append(not now.interval.contains(own.value))

        found = evaluate(
            given.env,
            given.target,
            horizon=given.horizon,
            episodes=args.episodes,
            run=replace(settings, logs=given.logs),
            promise=Promise(at_most=1 + args.epsilon),
            seed=_seed(args, target, k),
            progress=watch,
        )
        assert found.learning is not None
        square, cost = _expected(found, given)
        runs.append(
            {
                "square": square,
                "cost": cost,
                "measured": (found.estimate - own.value) ** 2 / (own.variance / args.episodes),
                "covered": found.interval.contains(own.value),
                "missed": any(misses),
                "dropped": any(one.what == "the logs" for one in found.learning.changed),
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
    modeled = isinstance(given.env, TabularMDP) and not stage.by_target
    if not modeled or not isinstance(behavior, BehaviorPolicy):
        return stage.variance, stage.cost
    if behavior.weighted:
        point = exact.tabulate(given.env, given.target, behavior).predicted
        return point.variance, point.cost
    exactly = exact.assess(given.env, given.target, behavior)
    return exactly.variance, exactly.cost


def _fixed(args: Args, given: Problem, target: int) -> dict[str, Any]:
    """The design from the logs alone."""
    assert given.logs is not None
    own = given.own
    made = design(
        given.logs,
        given.target,
        horizon=given.horizon,
        method="scope-dr",
        promise=Promise(at_most=1 + args.epsilon),
        learn=models.Table(features=given.features),
        seed=args.seed + target,
    )
    if isinstance(given.env, TabularMDP):
        square, cost = judge_exactly(given.env, given.target, made)
        return {"square": square, "cost": cost}
    ran = collect(
        given.env,
        given.target,
        made,
        horizon=given.horizon,
        episodes=MEASURED,
        seed=_seed(args, target, 0),
    )
    values = summarize(ran, 1.0, "auto").value
    return {"square": float(values.var()) / own.variance, "cost": ran.costs().mean() / own.cost}


def _seed(args: Args, target: int, k: int) -> int:
    """The seed of a run."""
    words = np.random.SeedSequence((args.seed, target, k, 41)).generate_state(1, np.uint64)
    return int(words[0]) >> 2


def summary(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Statistics over the targets for each world, method and kind of logs."""
    found = []
    for first in range(0, len(rows), args.targets):
        each = rows[first : first + args.targets]
        numbers = {n: mean_of([row[n] for row in each]) if n in each[0] else None for n in NUMBERS}
        found.append({**{n: each[0][n] for n in ("world", "method", "logs")}, **numbers})
    return {"rows": found}


HEADER = ("logs", "method", "squared error", "measured", "cost", "most expensive", "covered",
          "ever missed", "logs dropped")  # fmt: skip


def table(content: Mapping[str, Any]) -> list[Table | str]:
    """A table for each world, and how to read them."""
    config = content["config"]
    epsilon = config["epsilon"]
    asked = f", {1 + epsilon:g} of the target policy's cost asked for" if epsilon else ""
    tables: list[Table | str] = [
        Table(
            f"{world}{asked}",
            HEADER,
            tuple(_cells(row) for row in content["rows"] if row["world"] == world),
        )
        for world in config["worlds"]
    ]
    return [
        *tables,
        Note(
            f"{config['targets']} targets, {config['runs']} runs of {config['episodes']:,} "
            f"episodes each, seed {config['seed']}; ± standard error over the targets. Squared "
            "error relative to that of as many on-policy episodes, expected given the designs and "
            "measured; cost relative to the target policy's, exact for designs. Fixed: one design "
            "from the logs. Most expensive: the largest mean cost of any target. Covered: runs "
            "whose 95 % interval holds the value. Ever missed: runs in which the anytime-valid 95 "
            "% sequence missed the value after any batch."
        ),
    ]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{int(row['logs']):,} episodes" if row["logs"].isdigit() else row["logs"],
        row["method"],
        text_of(row["square"]),
        text_of(row["measured"], ".2f"),
        text_of(row["cost"]),
        f"{max(row['cost']['values']):.3f}",
        _share(row["covered"]),
        _share(row["missed"]),
        "" if row["logs"] == "none" else _share(row["dropped"]),
    )


def _share(mean: Mapping[str, Any] | None) -> str:
    return "" if mean is None else f"{mean['mean']:.1%}"


if __name__ == "__main__":
    main("experiments.adaptive")

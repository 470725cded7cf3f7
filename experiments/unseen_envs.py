"""Environments that scopeval was not tuned on: do its designs keep their promises there?

For every environment, target policy and kind of logs, each method designs a behavior policy at
default settings. Finite environments (`worlds.finite`) are judged exactly: relative variance and
cost in the true model, beside what the design predicted and what its cross-check said. Environments
with vectors (`worlds.vectors`) are measured in many episodes, with standard errors.

The targets are split into two halves. Thresholds of the decision may be chosen on the first half
(target numbers 0, 2, 4, ...) only; the second half (1, 3, 5, ...) is what counts. A design breaks a
promise if its relative cost is above 1.005 or its relative variance above 1.05, by two standard
errors where they are measured. Its prediction is good if predicted / true variance is between 0.7
and 1.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from experiments.common import (
    REFERENCE,
    Note,
    RunArgs,
    Table,
    main,
    methods_of,
    ratio_of,
    variance_error,
)
from experiments.worlds.finite import FINITE, LOGS, finite_world
from experiments.worlds.lunar_lander import MISSING, lander_installed
from experiments.worlds.vectors import EXTRA, VECTOR_LOGS, VECTORS, Measured, measure, vector_world
from scopeval import exact
from scopeval.behavior.designer import designs
from scopeval.behavior.methods import METHODS
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.step import Recipe
from scopeval.errors import InputError

ENVIRONMENTS = FINITE + VECTORS + EXTRA
HALVES = ("chosen on", "reported on")
#: Relative cost and variance above which a design breaks its promise.
MOST_COST, MOST_VARIANCE = 1.005, 1.05
#: Predicted / true variance of a good prediction.
PREDICTION = (0.7, 1.4)

Row = Mapping[str, Any]


def runnable() -> tuple[str, ...]:
    """The environments that can be run here: LunarLander needs the extra box2d."""
    return ENVIRONMENTS if lander_installed() else FINITE + VECTORS


@dataclass(frozen=True)
class Args(RunArgs):
    """Environments that scopeval was not tuned on."""

    environments: tuple[str, ...] = field(default_factory=runnable)
    """FrozenLake, CliffWalking, Taxi, Blackjack, CartPole, MountainCar, Acrobot, Pendulum, or
    LunarLander (extra box2d)."""
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
    methods: tuple[str, ...] = ("scope", "scope-dr")
    """Registered methods, or module:attribute."""
    seed: int = 0
    """Of targets, loggers, logs and designs."""

    RANGES: ClassVar[tuple[str, ...]] = ("environments", "targets", "vector_targets")

    def check(self) -> None:
        """Refuse what cannot be run, before the work."""
        for name in self.environments:
            if name not in ENVIRONMENTS:
                raise InputError(
                    f"environments: got {name!r}, expected some of {', '.join(ENVIRONMENTS)}"
                )
        if "LunarLander" in self.environments and not lander_installed():
            raise InputError(f"environments: {MISSING}")
        methods_of(self.methods)


QUICK: dict[str, Any] = {"targets": 2, "vector_targets": 2}


def jobs(args: Args) -> list[dict[str, Any]]:
    """One for each target."""
    return [
        {"environment": name, "target": k}
        for name in args.environments
        for k in range(args.targets if name in FINITE else args.vector_targets)
    ]


def logs_of(args: Args, environment: str) -> list[tuple[str, int]]:
    """Kind and number of episodes of all logs of an environment."""
    if environment in FINITE:
        kinds, several, missing = LOGS, args.episodes, args.missing_episodes
    else:
        kinds, several = VECTOR_LOGS, args.vector_episodes
        missing = args.vector_missing_episodes
    return [(kinds[0], n) for n in several] + [(kind, missing) for kind in kinds[1:]]


def job(args: Args, environment: str, target: int) -> dict[str, Any]:
    """A row for each kind of logs and method."""
    judged = _exactly if environment in FINITE else _by_episodes
    rows = []
    for (kind, episodes), method, made, truth in judged(args, environment, target):
        predicted = made.predicted
        rows.append(
            {
                "environment": environment,
                "target": target,
                "logs": kind,
                "episodes": episodes,
                "method": method,
                "used": made.recipe.method.name,
                "warnings": len(made.report.warnings),
                "support": made.report.support,
                "predicted_variance": predicted.variance,
                "predicted_cost": predicted.cost,
                "checked_variance": predicted.checked_variance,
                "checked_cost": predicted.checked_cost,
                "variance_error": 0.0,
                "cost_error": 0.0,
                **truth,
            }
        )
    return {"rows": rows}


Judged = Iterator[tuple[tuple[str, int], str, BehaviorPolicy, dict[str, float]]]


def _exactly(args: Args, environment: str, number: int) -> Judged:
    world = finite_world(environment, args.seed)
    target = world.target(number)
    alone = exact.assess(world.mdp, target, target)
    asked = [Recipe(METHODS[name], world.mdp.horizon) for name in methods_of(args.methods)[1:]]
    for kind, episodes in logs_of(args, environment):
        logged = world.logs(kind, episodes, number)
        for method, made in designs(logged, target, asked, seed=args.seed).items():
            found = exact.assess(world.mdp, target, made)
            truth = {"variance": found.variance / alone.variance, "cost": found.cost / alone.cost}
            yield (kind, episodes), method, made, truth


def _by_episodes(args: Args, environment: str, number: int) -> Judged:
    world = vector_world(environment, args.seed)
    target = world.target(number)
    key = (args.seed, 5, number)
    many = max(2, args.measured // world.slower)
    alone = measure(world, target, None, 5 * many, np.random.default_rng(key))
    asked = [Recipe(METHODS[name], world.control.horizon) for name in methods_of(args.methods)[1:]]
    for k, (kind, episodes) in enumerate(logs_of(args, environment)):
        logged = world.logs(kind, episodes, number)
        truths: dict[str, dict[str, float]] = {REFERENCE: {"variance": 1.0, "cost": 1.0}}
        for method, made in designs(logged, target, asked, seed=args.seed).items():
            used = made.recipe.method.name
            if used not in truths:  # what falls back is what it is compared with
                rng = np.random.default_rng((*key, k))
                truths[used] = _relative(measure(world, target, made, many, rng), alone)
            yield (kind, episodes), method, made, truths[used]


def _relative(found: Measured, alone: Measured) -> dict[str, float]:
    """Variance and cost relative to the target's, with standard errors."""
    ours, own = ((float(x.value.var(ddof=1)), variance_error(x.value)) for x in (found, alone))
    variance = ratio_of(*ours, *own)
    cost = ratio_of(*_mean(found.cost), *_mean(alone.cost))
    return {
        "variance": variance[0],
        "variance_error": variance[1],
        "cost": cost[0],
        "cost_error": cost[1],
    }


def _mean(values: Any) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


# -- summary ---------------------------------------------------------------------------------------


def half(row: Row) -> str:
    """Which half of the targets it belongs to."""
    return HALVES[row["target"] % 2]


def too_expensive(row: Row) -> bool:
    """Whether the cost is above what was promised, by two standard errors."""
    return bool(row["cost"] - 2.0 * row["cost_error"] > MOST_COST)


def too_variable(row: Row) -> bool:
    """Whether the variance is above the target policy's own, by two standard errors."""
    return bool(row["variance"] - 2.0 * row["variance_error"] > MOST_VARIANCE)


def well_predicted(row: Row) -> bool:
    """Whether the predicted variance is near the true one."""
    return bool(PREDICTION[0] <= row["predicted_variance"] / row["variance"] <= PREDICTION[1])


def summary(args: Args, rows: Sequence[Row]) -> dict[str, Any]:
    """Counts for each environment and then all of them, in both halves; and the exceptions."""
    every = [
        {**row, "half": half(row), "falls_back": row["used"] == REFERENCE}
        for answer in rows
        for row in answer["rows"]
    ]
    groups = []
    for name in (*args.environments, "all"):
        for which in HALVES:
            some = [r for r in every if r["half"] == which and name in ("all", r["environment"])]
            groups += [_counted(name, which, some)] if some else []
    broken = [r for r in every if too_expensive(r) or too_variable(r) or not well_predicted(r)]
    return {"summary": groups, "exceptions": broken}


def _counted(name: str, which: str, rows: Sequence[Row]) -> dict[str, Any]:
    away = [row for row in rows if not row["falls_back"]]
    variable = max(rows, key=lambda row: row["variance"])
    expensive = max(rows, key=lambda row: row["cost"])
    return {
        "environment": name,
        "half": which,
        "designs": len(rows),
        "fall_back": len(rows) - len(away),
        "mean_variance": sum(row["variance"] for row in rows) / len(rows),
        "worst_variance": variable["variance"],
        "worst_variance_error": variable["variance_error"],
        "worst_cost": expensive["cost"],
        "worst_cost_error": expensive["cost_error"],
        "too_variable": sum(map(too_variable, rows)),
        "too_expensive": sum(map(too_expensive, rows)),
        "well_predicted": sum(map(well_predicted, rows)) / len(rows),
        "well_predicted_departures": sum(map(well_predicted, away)) / len(away) if away else None,
    }


# -- table -----------------------------------------------------------------------------------------


def table(content: Mapping[str, Any]) -> list[Table | str]:
    """A table that counts, and one of the designs that broke a promise or predicted badly."""
    config = content["config"]
    return [
        _counts(content["summary"]),
        *([_exceptions(content["exceptions"])] if content["exceptions"] else []),
        Note(
            f"{config['targets']} targets in each finite environment, {config['vector_targets']} "
            f"in those with vectors, seed {config['seed']}; half of them (even numbers) thresholds "
            "may be chosen on, the other half is what counts. Variance and cost of one episode "
            "under the learned design, relative to running the target policy: exact in finite "
            f"environments; from {config['measured']:,} episodes (the target policy's from five "
            "times as many), with standard errors, in those with vectors, where two standard "
            f"errors are allowed. Limits: variance {MOST_VARIANCE}, cost {MOST_COST}, predicted / "
            f"true variance {PREDICTION[0]} to {PREDICTION[1]}. Well predicted: share within "
            "these, of the designs that do not fall back to the target policy."
        ),
    ]


def _counts(groups: Sequence[Row]) -> Table:
    rows = []
    for group in groups:
        predicted = group["well_predicted_departures"]
        rows.append(
            (
                group["environment"],
                group["half"],
                f"{group['designs']}",
                f"{group['fall_back']}",
                f"{group['mean_variance']:.3f}",
                _number(group["worst_variance"], group.get("worst_variance_error", 0.0)),
                f"{group['too_variable']}",
                _number(group["worst_cost"], group.get("worst_cost_error", 0.0), 4),
                f"{group['too_expensive']}",
                "" if predicted is None else f"{predicted:.0%}",
            )
        )
    header = ("environment", "targets", "designs", "fall back", "mean vari\xadance",
      "worst vari\xadance", "above", "worst cost", "above", "well pre\xaddicted")  # fmt: skip
    return Table("", header, tuple(rows))


def _exceptions(designs: Sequence[Row]) -> Table:
    rows = []
    for row in designs:
        asked, used = row["method"], row["used"]
        variances = (row[name] for name in ("predicted_variance", "checked_variance"))
        costs = (row[name] for name in ("predicted_cost", "checked_cost"))
        rows.append(
            (
                f"{row['environment']} {row['target']}",
                f"{row['episodes']:,}" if row["logs"] == "mixed" else row["logs"],
                asked if asked == used else f"{asked}, used {used}",
                _number(row["variance"], row.get("variance_error", 0.0)),
                *(f"{x:.3f}" for x in variances),
                _number(row["cost"], row.get("cost_error", 0.0), 4),
                *(f"{x:.4f}" for x in costs),
            )
        )
    header = ("environment, target", "logs", "method", "vari\xadance", "pre\xaddicted", "checked",
              "cost", "pre\xaddicted", "checked")  # fmt: skip
    return Table("Designs outside the limits", header, tuple(rows))


def _number(value: float, error: float, digits: int = 3) -> str:
    """With its standard error, if it has one."""
    shown = f"{value:.{digits}f}"
    return f"{shown} ± {error:.{digits}f}" if error > 0.0 else shown


if __name__ == "__main__":
    main("experiments.unseen_envs")

"""Designs on vectors before and after the training by compiled code: processor time and variance.

    python tools/measure_vectors.py measure CartPole MountainCar LunarLander Hopper
    python tools/measure_vectors.py table

`measure` learns one world from 1,000 logged episodes of an environment, with today's training and
with the one before (8,000 steps of 1,024 rows for each half, 3,000 of 1,024 for the return
features, soft first units), designs `scope-dr` for five of the reported target policies in each,
and runs the designs. Every target is a line in `docs/results/vectors/designs.jsonl`; lines that are
there already are not measured again. `table` prints them as a table.

The training before was done by torch. Here compiled code does its steps, and its processor time is
measured for some steps of torch and multiplied by their number. Everything else of a design then
counts with today's time, which is less than it was. With `--validation` other targets and logs are
used (seed 1): settings are chosen on these only.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scopeval import World
from scopeval.arrays import Floats
from scopeval.behavior.designer import designs
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.settings import Settings
from scopeval.collection.collector import collect
from scopeval.critics.log_rows import following_obs
from scopeval.critics.model.fitting import Examples
from scopeval.critics.model.regression import ModelRegression
from scopeval.critics.model.return_features import Study
from scopeval.critics.model.training import Training
from scopeval.data.transitions import Transitions
from scopeval.estimation.estimators import doubly_robust, pdis
from scopeval.paper.benchmarks.torch_training import torch_step_seconds
from scopeval.paper.experiments.foreign_vectors import EXTRA, VECTORS, measure, vector_world
from scopeval.paper.experiments.mujoco_outcome import variance_error
from scopeval.paper.robots.env import HORIZON, ROBOTS, Robots
from scopeval.paper.robots.logs import robot_logs
from scopeval.paper.robots.policies import robot_policies

RESULTS = Path("docs/results/vectors/designs.jsonl")
#: Ways to train: the networks of the dynamics, and the return features.
TRAININGS = {
    "now": (Training(), Study()),
    "before": (
        Training(steps=8000, batch=1024, rate=1e-2, gain=1.0),
        Study(steps=3000, batch=1024, rate=1e-2, gain=1.0),
    ),
}
#: Targets: of classic control, and of a robot.
REPORTED = ((1, 3, 5, 7, 9), (3, 9, 15, 21, 27))
VALIDATION = ((30, 31, 32, 33, 34), (1, 2, 3, 4, 5))
LOGGED, METHOD = 1000, "scope-dr"


class Place:
    """An environment: logs, target policies, and episodes of designs."""

    def __init__(self, name: str, validation: bool, measured: int) -> None:
        self.name, self.robot, self.measured = name, name in ROBOTS, measured
        self.seed = int(validation)
        self.alone: dict[int, tuple[Floats, ...]] = {}
        self.numbers = (VALIDATION if validation else REPORTED)[self.robot]
        if self.robot:
            role = "validation" if validation else "reported"
            self.policies, self.horizon = robot_policies(name, role), HORIZON
            self.actions: int | None = None
        else:
            self.world = vector_world(name, self.seed)
            self.horizon, self.actions = self.world.control.horizon, len(self.world.control.levels)
            self.measured = max(measured // self.world.slower, 2)

    def logs(self) -> Transitions:
        """Of all loggers."""
        if self.robot:
            return robot_logs(self.name, episodes=LOGGED, seed=self.seed)
        return self.world.logs("mixed", LOGGED, self.numbers[0])

    def target(self, number: int) -> Any:
        """One of the target policies."""
        return self.policies[number] if self.robot else self.world.target(number)

    def run(self, number: int, behavior: BehaviorPolicy | None, times: int) -> tuple[Floats, ...]:
        """An estimate of the value and a cost for each episode of a design, or of the target."""
        pi, episodes = self.target(number), times * self.measured
        key = (self.seed, 9, number, int(behavior is None))
        if not self.robot:
            found = measure(self.world, pi, behavior, episodes, np.random.default_rng(key))
            return found.value, found.cost
        seed = int(np.random.SeedSequence(key).generate_state(1)[0])
        fleet = Robots(self.name, min(episodes, 300))
        ran = collect(fleet, pi, behavior, horizon=HORIZON, episodes=episodes, seed=seed)
        return (pdis(ran) if ran.control is None else doubly_robust(ran)), ran.costs()

    def run_target(self, number: int) -> tuple[Floats, ...]:
        """The same of the target policy itself, in four times as many episodes."""
        if number not in self.alone:
            self.alone[number] = self.run(number, None, 4)
        return self.alone[number]


def torch_seconds(place: Place, log: Transitions) -> float:
    """Processor time of the training before, by torch."""
    rng = np.random.default_rng(3)
    rows = min(len(log), 20_000)
    after = following_obs(log)[:rows]
    width = after.shape[1]
    action = np.asarray(log.action)[:rows].reshape(rows, -1)
    inputs = width + (place.actions or action.shape[1])
    x = rng.standard_normal((rows, inputs)).astype(np.float32)
    y = rng.standard_normal((rows, width + 2)).astype(np.float32)
    end = np.asarray(log.terminated[:rows], np.float32)
    training, study = TRAININGS["before"]
    dynamics = Examples(x, y, np.ones_like(y), end if end.any() else end[:0])
    features = Examples(x[:, : width + 1], y[:, :2], np.empty((0, 0), np.float32), end[:0])
    assert training.steps is not None
    return 2.0 * (
        training.steps * torch_step_seconds(dynamics, training.hidden, training.batch, 30, 3, rng)
        + study.steps * torch_step_seconds(features, study.hidden, study.batch, 30, 3, rng)
    )


def measured_rows(place: Place, training: str, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
    """One world, then the design of every target in it."""
    how, study = TRAININGS[training]
    log = place.logs()
    warm_up(place, log)
    began = time.process_time()
    world = World.learn(log, actions=place.actions, training=how, seed=place.seed)
    learning = time.process_time() - began
    torch = torch_seconds(place, log) if training == "before" else None
    settings = Settings(place.horizon, regression=ModelRegression(study=study), seed=place.seed)
    for number in numbers:
        began = time.process_time()
        behavior = designs(world, place.target(number), [METHOD], settings)[METHOD]
        designing = time.process_time() - began
        own_values, own_costs = place.run_target(number)
        values, costs = own_values, own_costs
        if not behavior.falls_back:
            values, costs = place.run(number, behavior, 1)
        spread, own = float(values.var(ddof=1)), float(own_values.var(ddof=1))
        variance = _ratio((spread, variance_error(values)), (own, variance_error(own_values)))
        cost = _ratio(_mean(costs), _mean(own_costs))
        if behavior.falls_back:
            variance, cost = (1.0, 0.0), (1.0, 0.0)
        yield {
            "environment": place.name,
            "training": training,
            "seed": place.seed,
            "target": number,
            "rows": len(log),
            "used": behavior.recipe.method,
            "error": world.error,
            "learning_seconds": learning,
            "design_seconds": designing,
            "torch_seconds": torch,
            "predicted": behavior.predicted.variance,
            "variance": variance[0],
            "variance_error": variance[1],
            "cost": cost[0],
            "cost_error": cost[1],
        }


def warm_up(place: Place, log: Transitions) -> None:
    """Compile what a design needs, or load it: that is not its time."""
    few = log.select(np.arange(min(len(log), 2000)))
    world = World.learn(few, actions=place.actions, training=Training(steps=2))
    small = replace(ModelRegression(), study=Study(paths=20, steps=2), paths=20)
    settings = Settings(place.horizon, regression=small)
    designs(world, place.target(place.numbers[0]), [METHOD], settings)


def _ratio(value: tuple[float, float], own: tuple[float, float]) -> tuple[float, float]:
    ratio = value[0] / own[0]
    return ratio, math.hypot(value[1], ratio * own[1]) / own[0]


def _mean(values: Floats) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))


def read(path: Path) -> list[dict[str, Any]]:
    """What was measured so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def measure_all(given: argparse.Namespace) -> None:
    """Measure what is not yet in the file."""
    given.path.parent.mkdir(parents=True, exist_ok=True)
    for name in given.environments:
        place = Place(name, given.validation, given.measured)
        for training in given.trainings:
            done = {
                row["target"]
                for row in read(given.path)
                if (row["environment"], row["training"], row["seed"])
                == (name, training, place.seed)
            }
            left = [number for number in place.numbers[: given.targets] if number not in done]
            for row in measured_rows(place, training, left) if left else ():
                with given.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each environment: processor time, and mean relative variance and cost."""
    lines = [
        "| | targets | CPU before | now | ratio | variance before | now | difference | "
        "highest cost now |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["environment"] for row in rows):
        own = [row for row in rows if row["environment"] == name]
        by = {
            training: {row["target"]: row for row in own if row["training"] == training}
            for training in TRAININGS
        }
        both = sorted(set(by["now"]) & set(by["before"]))
        if not both:
            continue
        now, before = ([by[training][k] for k in both] for training in ("now", "before"))
        torch = next(r["torch_seconds"] for r in before)
        rest = float(np.mean([r["design_seconds"] for r in now]))
        taken = now[0]["learning_seconds"] + rest
        was = torch + rest
        gaps = np.array([a["variance"] - b["variance"] for a, b in zip(now, before, strict=True)])
        errors = [
            math.hypot(a["variance_error"], b["variance_error"])
            for a, b in zip(now, before, strict=True)
        ]
        error = math.sqrt(sum(e * e for e in errors)) / len(both)
        worst = max(now, key=lambda row: float(row["cost"]))
        lines.append(
            f"| {name} | {len(both)} | {was:.0f} s | {taken:.1f} s | {was / taken:.1f} | "
            f"{_average(before)} | {_average(now)} | {gaps.mean():+.3f} ± {error:.3f} | "
            f"{worst['cost']:.3f} ± {worst['cost_error']:.3f} |"
        )
    return lines


def _average(rows: Sequence[dict[str, Any]]) -> str:
    mean = float(np.mean([row["variance"] for row in rows]))
    error = math.sqrt(sum(row["variance_error"] ** 2 for row in rows)) / len(rows)
    return f"{mean:.3f} ± {error:.3f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Designs on vectors, before and now.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure", help="measure what is not yet in the file")
    one.add_argument("environments", nargs="+", choices=(*VECTORS, *EXTRA, *ROBOTS))
    one.add_argument("--trainings", nargs="+", choices=tuple(TRAININGS), default=tuple(TRAININGS))
    one.add_argument("--targets", type=int, default=5, help="how many, at most five")
    one.add_argument("--measured", type=int, default=4000, help="episodes of each design")
    one.add_argument("--validation", action="store_true", help="other targets and logs")
    two = commands.add_parser("table", help="print what was measured")
    for sub in (one, two):
        sub.add_argument("--path", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.command == "measure":
        measure_all(given)
    else:
        print("\n".join(table(read(given.path))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

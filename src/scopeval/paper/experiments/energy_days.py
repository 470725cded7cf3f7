"""The days of the data center experiment (`energy`): logs, the targets' own, and evaluations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval._files import replace_file
from scopeval.arrays import Floats
from scopeval.behavior.designer import design
from scopeval.behavior.frontier import frontier
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.collection.collector import collect
from scopeval.data.parquet import write_logged
from scopeval.data.readers import read_logged
from scopeval.data.transitions import Transitions
from scopeval.envs.data_center import DataCenterFleet, operators, target_controllers
from scopeval.envs.data_center.environment import FIELDS, Reward, usual_energy
from scopeval.envs.data_center.logs import RECORDED
from scopeval.envs.data_center.weather import HOURS
from scopeval.errors import InputError
from scopeval.evaluation.evaluator import evaluate
from scopeval.evaluation.result import Evaluation
from scopeval.evaluation.sources import summarize
from scopeval.paper.backends.shards import ShardOptions, run_shards

__all__ = [
    "ENERGY", "FRONTIER", "METHODS", "OPERATORS", "TARGETS", "Measurer", "Own", "Shard", "own_days",
    "write_logs",
]  # fmt: skip

TARGETS = tuple(target_controllers())
METHODS = ("on-policy", "scope-dr", "frontier", "adaptive", "adaptive with logs")
FRONTIER = ("frontier adaptive", "frontier adaptive with logs")
ENERGY = ("energy on-policy", "energy scope-dr", "energy scope-dr starts")
#: Controllers of the logs.
OPERATORS = 10
#: Where observations have the outdoor temperature.
OUTDOOR = FIELDS.index("outdoor")
#: Engines that run side by side.
SIDE_BY_SIDE = 8


@dataclass(frozen=True)
class LogShard:
    """The days of one of the controllers of the logs."""

    operator: int
    days: int
    seed: int

    @property
    def label(self) -> str:
        """The name used in messages."""
        return f"logs, controller {self.operator}"


@dataclass(frozen=True)
class Shard:
    """One target with one method; `digest` is of the logs it learns from."""

    target: str
    method: str
    days: int
    starts: int
    asked: float
    seed: int
    digest: str

    @property
    def label(self) -> str:
        """The name used in messages."""
        return f"{self.target}, {self.method}"

    @property
    def learns(self) -> bool:
        """Whether the logs are learned from."""
        return not self.method.endswith("adaptive")

    @property
    def reward(self) -> Reward:
        """The reward of the environment."""
        return "energy" if self.method in ENERGY else "saving"


class Own(NamedTuple):
    """The target's own days: return and overheating of each."""

    value: Floats
    cost: Floats

    @staticmethod
    def of(days: dict[str, Any], method: str) -> Own:
        """With the reward that a method has."""
        value = np.array(days["value"])
        if method in ENERGY:
            value -= np.array(days["usual"])
        return Own(value, np.array(days["cost"]))


def write_logs(days: int | None, seed: int, place: Path, how: ShardOptions) -> str:
    """Write the logs, and return the digest of their file; None: the recorded ones."""
    path = place / "logs.parquet"
    if days is None:
        replace_file(path, RECORDED.read_bytes())
        return hashlib.sha256(path.read_bytes()).hexdigest()
    shards = [LogShard(k, len(range(k, days, OPERATORS)), seed) for k in range(OPERATORS)]
    parts = run_shards(_logged_days, shards, folder=place / "shards", **how)
    log = Transitions.concat([Transitions(**part) for part in parts])
    write_logged(log, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def _rooms(reward: Reward) -> Iterator[DataCenterFleet]:
    """Rooms for a shard."""
    rooms = DataCenterFleet(SIDE_BY_SIDE, reward)
    try:
        yield rooms
    finally:
        rooms.close()


def _seed(*key: int) -> int:
    return int(np.random.SeedSequence((*key, 71)).generate_state(1, np.uint64)[0]) >> 2


def _logged_days(shard: LogShard) -> dict[str, Any]:
    """Columns of the log."""
    controller = operators(OPERATORS, shard.seed)[shard.operator]
    with _rooms("saving") as rooms:
        ran = collect(
            rooms,
            controller.policy(),
            horizon=HOURS,
            episodes=shard.days,
            seed=_seed(shard.seed, shard.operator),
        )
    return {name: column.tolist() for name, column in ran.transitions().items()}


def own_days(shard: Shard) -> dict[str, Any]:
    """Return and overheating of the target's own days."""
    with _rooms("saving") as rooms:
        ran = collect(
            rooms,
            target_controllers()[shard.target].policy(),
            horizon=HOURS,
            episodes=shard.days,
            seed=_seed(shard.seed, TARGETS.index(shard.target), 1),
        )
    rows = ran.transitions()
    usual = _usual(rows["obs"], rows["next_obs"]).reshape(shard.days, HOURS).sum(axis=1)
    return {
        "value": ran.returns().tolist(),
        "usual": usual.tolist(),
        "cost": ran.costs().tolist(),
    }


def _usual(obs: NDArray[Any], next_obs: NDArray[Any]) -> Floats:
    """What the reward "saving" adds to "energy" at every step."""
    return usual_energy((obs[:, OUTDOOR] + next_obs[:, OUTDOOR]) / 2.0)


@dataclass(frozen=True)
class Measurer:
    """The work of one target and method, for `run_shards`; the logs are in the folder."""

    folder: Path

    def measure(self, shard: Shard) -> dict[str, Any]:
        """The evaluation's numbers; only what was said where the logs offer no design."""
        with _rooms(shard.reward) as rooms:
            return self._measured(shard, rooms)

    def _measured(self, shard: Shard, rooms: DataCenterFleet) -> dict[str, Any]:
        target = target_controllers()[shard.target].policy()
        logs = self._logs(shard.reward) if shard.learns else None
        seed = _seed(shard.seed, TARGETS.index(shard.target), 2)
        run = partial(
            evaluate, rooms, target, horizon=HOURS, episodes=shard.days, seed=seed, keep=True
        )
        if "adaptive" in shard.method:
            epsilon = shard.asked - 1.0 if shard.method in FRONTIER else 0.0
            return _numbers(run(refit=True, logs=logs, epsilon=epsilon), None)
        assert logs is not None
        made: BehaviorPolicy
        if shard.method == "frontier":
            curve = frontier(logs, target, horizon=HOURS, seed=shard.seed)
            try:
                made = curve.at(cost=shard.asked)
            except InputError as refused:
                return {"said": [str(refused), *curve.warnings]}
        else:
            made = design(logs, target, horizon=HOURS, method="scope-dr", seed=shard.seed)
        starts = shard.starts if shard.method.endswith("starts") else None
        return _numbers(run(made, starts=starts), made)

    def _logs(self, reward: str) -> Transitions:
        log = read_logged(self.folder / "logs.parquet")
        if reward == "saving":
            return log
        return replace(log, reward=log.reward - _usual(log.obs, log.next_obs))


def _numbers(found: Evaluation, made: BehaviorPolicy | None) -> dict[str, Any]:
    """What the rows need of an evaluation."""
    assert found.episodes is not None
    batch = summarize(found.episodes, 1.0, "auto")
    told = found.certificate
    warnings = [*found.diagnostics.warnings, *(made.report.warnings if made is not None else ())]
    return {
        "estimate": found.estimate,
        "error": _finite(found.interval.half_width / 1.96),
        "value": batch.value.tolist(),
        "cost": batch.spent.tolist(),
        "by_target": found.by_target,
        "stages": [(one.episodes, one.share, one.on_policy) for one in found.stages],
        "why": [one.why for one in found.stages],
        "verdict": "" if told is None else told.verdict,
        "ratio": None if told is None else [_finite(x) for x in (told.ratio.low, told.ratio.high)],
        "predicted": None if made is None else (made.predicted.variance, made.predicted.cost),
        "starts": 1.0 if found.starts is None else found.starts.relative_variance,
        "said": warnings,
    }


def _finite(number: float) -> float | None:
    """JSON has no other numbers."""
    return float(number) if np.isfinite(number) else None

"""The frontier of scope-dr on the robots: asked costs below the target's own, and what comes out.

Logs, dynamics and targets are those of `experiments.mujoco`, ten full actions are offered at each
step. For every target a frontier is learned, and a behavior policy at each asked cost is run for as
many episodes as a method there. Beside the measured variance and cost, relative to the target's,
stand what was promised and the verdict of the certificate on the asked cost.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from scopeval.arrays import Floats, is_number
from scopeval.behavior.frontier import Frontier, frontier
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.collection.collector import collect
from scopeval.critics.model.regression import ModelRegression
from scopeval.errors import InputError
from scopeval.estimation.estimators import doubly_robust, pdis, pdis_cost
from scopeval.paper.backends.shards import ShardOptions, run_shards
from scopeval.paper.experiments.mujoco import Config
from scopeval.paper.experiments.mujoco_prepare import recall
from scopeval.paper.experiments.mujoco_target import Shard, TargetRun, Workshop
from scopeval.paper.methods import REFERENCE
from scopeval.paper.results import Result, Statistic
from scopeval.paper.robots.env import HORIZON
from scopeval.paper.robots.world import robot_world
from scopeval.safety.certificate import certify

__all__ = ["ASKED", "FIELDS", "FrontierConfig", "RobotFrontier", "run"]

#: Costs that are asked for, relative to the target's own.
ASKED = (1.0, 0.9, 0.8, 0.7, 0.5)
#: Numbers of one design; see `RobotFrontier`.
FIELDS = ("variance", "cost", "predicted_variance", "predicted_cost")


@dataclass(frozen=True)
class FrontierConfig:
    """What to run."""

    robots: Config
    """Robots, targets, logs, networks; its methods are not run."""
    asked: tuple[float, ...] = ASKED
    """Costs, relative to the target's own."""

    def __post_init__(self) -> None:
        for cost in self.asked:
            if not (is_number(cost) and cost > 0):
                raise InputError(f"asked: got {cost!r}, expected relative costs > 0")


@dataclass(frozen=True)
class FrontierShard:
    """One target, and the costs that are asked for."""

    place: Shard
    asked: tuple[float, ...]

    @property
    def label(self) -> str:
        """The name used in messages."""
        return f"{self.place.label}: frontier"


@dataclass(frozen=True)
class RobotFrontier:
    """The frontiers of one robot.

    Attributes:
        title: its name.
        targets: their names.
        asked: costs, [K].
        found: field -> [targets, K], relative to the target; NaN where no design is offered.
            variance and cost: measured. predicted: what the design promised.
        verdicts: [targets][K] of the certificate on the asked cost; "" where there is no design.
    """

    title: str
    targets: tuple[str, ...]
    asked: tuple[float, ...]
    found: dict[str, Floats] = field(repr=False)
    verdicts: tuple[tuple[str, ...], ...] = field(repr=False)

    def statistic(self, name: str, k: int) -> Statistic:
        """One of `FIELDS` at the k-th asked cost, of the targets that have a design there."""
        values = self.found[name][:, k]
        return Statistic(values[np.isfinite(values)])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        points = []
        for k, asked in enumerate(self.asked):
            known = {name: self.statistic(name, k) for name in FIELDS}
            numbers = {
                name: one.as_dict() if len(one.values) else None for name, one in known.items()
            }
            verdicts = [row[k] for row in self.verdicts]
            points.append({"asked": asked, "verdicts": verdicts, **numbers})
        return {"robot": self.title, "targets": list(self.targets), "points": points}

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """For Parquet: every number, target by target."""
        rows = [
            {
                "robot": self.title,
                "target": target,
                "asked": asked,
                "verdict": self.verdicts[i][k],
                **{name: float(self.found[name][i, k]) for name in FIELDS},
            }
            for i, target in enumerate(self.targets)
            for k, asked in enumerate(self.asked)
        ]
        return {"mujoco-frontier": rows}


def run(
    config: FrontierConfig, *, folder: str | os.PathLike[str], **how: Unpack[ShardOptions]
) -> Result[FrontierConfig, RobotFrontier]:
    """Run everything; what was finished before is read (see `run_shards`).

    Args:
        config: what to run.
        folder: where answers are kept (``shards``), and logs and dynamics (``prepared``); may be
            the folder of `experiments.mujoco`, whose logs and dynamics then serve.
        how: as in `run_shards`.
    """
    place = Path(folder).resolve()
    work, kept = Workshop(place / "prepared"), place / "shards"
    preparations = config.robots.preparations
    prepared = work.prepare_all(preparations, kept, how)
    shards = [FrontierShard(one, config.asked) for one in config.robots.shards(prepared)]
    answers = run_shards(Tracer(work.folder).trace, shards, folder=kept, **how)
    blocks = []
    for what in preparations:
        some = [
            answer
            for shard, answer in zip(shards, answers, strict=True)
            if shard.place.preparation == what
        ]
        blocks.append(_block(what.robot, config.asked, some))
    return Result("mujoco-frontier", config, tuple(blocks))


def _block(
    robot: str, asked: tuple[float, ...], answers: Sequence[dict[str, Any]]
) -> RobotFrontier:
    points = np.array([[[p[name] for name in FIELDS] for p in a["points"]] for a in answers], float)
    return RobotFrontier(
        title=robot,
        targets=tuple(a["target"] for a in answers),
        asked=asked,
        found={name: points[:, :, k] for k, name in enumerate(FIELDS)},
        verdicts=tuple(tuple(p["verdict"] for p in a["points"]) for a in answers),
    )


@dataclass(frozen=True)
class Tracer:
    """The work of one target, for `run_shards`; logs and dynamics are in the folder."""

    folder: Path

    def trace(self, shard: FrontierShard) -> dict[str, Any]:
        """Measured and promised numbers at every asked cost; None where nothing is offered."""
        target = TargetRun(shard.place, self.folder)
        own = target.run(REFERENCE, None)
        base = float(own.values.var(ddof=1)), float(own.costs.mean())
        curve = self._learned(shard.place, target) if min(base) > 0 else None
        points = [_measured(target, curve, asked, base) for asked in shard.asked]
        return {"target": target.policy.name, "points": points}

    def _learned(self, shard: Shard, target: TargetRun) -> Frontier:
        what = shard.preparation
        have = recall(self.folder, what, *shard.digests)
        how = ModelRegression(
            dynamics=have.dynamics or robot_world(target.robot, target.binned),
            paths=shard.paths,
            study=shard.study,
        )
        return frontier(have.logs, target.pi, horizon=HORIZON, regression=how, seed=what.seed)


def _measured(
    target: TargetRun, curve: Frontier | None, asked: float, base: tuple[float, float]
) -> dict[str, Any]:
    """What the design at an asked cost promised, and what came out of its episodes."""
    design = None if curve is None else _offered(curve, asked)
    if design is None:
        return {**dict.fromkeys(FIELDS), "verdict": ""}
    shard = target.shard
    episodes = collect(
        target.fleet,
        target.pi,
        design,
        horizon=HORIZON,
        episodes=shard.runs * shard.episodes,
        seed=target.seed(f"frontier {asked:g}"),
    )
    values = pdis(episodes) if episodes.control is None else doubly_robust(episodes)
    costs = episodes.costs()
    told = certify(costs, pdis_cost(episodes), epsilon=asked - 1.0)
    return {
        "variance": float(values.var(ddof=1)) / base[0],
        "cost": float(costs.mean()) / base[1],
        "predicted_variance": design.predicted.variance,
        "predicted_cost": design.predicted.cost,
        "verdict": told.verdict,
    }


def _offered(curve: Frontier, asked: float) -> BehaviorPolicy | None:
    """The design, or None where the logs do not bear one out."""
    try:
        return curve.at(cost=asked)
    except InputError:
        return None

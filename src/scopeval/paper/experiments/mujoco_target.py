"""One target on one robot: designs from the logs, then episodes of every method."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scopeval.arrays import Floats
from scopeval.behavior.designer import designs
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.settings import Settings
from scopeval.collection.collector import collect
from scopeval.collection.episodes import Episodes
from scopeval.critics.model.regression import ModelRegression
from scopeval.critics.model.return_features import Study
from scopeval.estimation.estimators import doubly_robust, pdis
from scopeval.paper.backends.shards import ShardOptions, run_shards
from scopeval.paper.experiments.gridworld_target import episode_grid
from scopeval.paper.experiments.mujoco_outcome import (
    Designed,
    OnPolicy,
    TargetResult,
    pooled_value,
)
from scopeval.paper.experiments.mujoco_prepare import (
    Preparation,
    prepare,
    protocol_policy,
    recall,
    whole,
)
from scopeval.paper.experiments.mujoco_ros import run_ros
from scopeval.paper.methods import REFERENCE, names_of
from scopeval.paper.robots.bins import BinnedPolicy, BinnedRobots
from scopeval.paper.robots.env import HORIZON, ROBOTS, Robots
from scopeval.paper.robots.logs import PROTOCOLS
from scopeval.paper.robots.policies import ROLES, RobotPolicy, robot_policies
from scopeval.paper.robots.world import robot_world

__all__ = ["BASELINES", "DEFAULT_METHODS", "Shard", "TargetRun", "Workshop"]

#: Methods that run episodes but design no behavior policy from the logs.
BASELINES = ("ros",)
#: The paper's methods and ours; their order decides the random numbers of each, so it is fixed.
DEFAULT_METHODS = (REFERENCE, "scope", "scope-dr", "odi", "dopt", *BASELINES)
#: Episodes that are run side by side.
BATCH = 300
#: On-policy runs this many times as many episodes as the others: every ratio contains its noise.
ON_POLICY_FACTOR = 3


@dataclass(frozen=True)
class Shard:
    """Everything that one target's results depend on.

    Attributes:
        preparation: of logs and dynamics.
        digests: of their files, Parquet and NumPy.
        role: "reported", or "validation" for policies that settings are tuned on.
        target: its number among the robot's policies of that role.
        runs: of each method.
        episodes: of one run.
        paths: episodes that a design imagines with each network.
        study: how return features are learned.
        ros_episodes: of one run of ROS; 0: ROS is not run.
        epsilon: safety parameter of the constrained methods.
        budget: of these methods: "state" (the paper's) or "episode".
        methods: which are run.
        digest: of the methods' code.
    """

    preparation: Preparation
    digests: tuple[str, str]
    role: str
    target: int
    runs: int
    episodes: int
    paths: int
    study: Study
    ros_episodes: int
    epsilon: float
    budget: str
    methods: tuple[str, ...]
    digest: str

    @property
    def label(self) -> str:
        """The name used in messages."""
        what = self.preparation
        return f"{what.robot}, {what.protocol}, {self.role} target {self.target}"


@dataclass(frozen=True)
class Workshop:
    """The work of the experiment, for `run_shards`; files are kept in the folder.

    The answers do not depend on where the folder is. Workers on other machines must see it.
    """

    folder: Path

    def prepare(self, what: Preparation) -> dict[str, str]:
        """Logs and dynamics of a robot and protocol."""
        return prepare(self.folder, what)

    def prepare_all(
        self, preparations: Sequence[Preparation], kept: Path, how: ShardOptions
    ) -> list[dict[str, str]]:
        """Those of all robots and protocols; made again where their files were removed since."""
        found = run_shards(self.prepare, preparations, folder=kept, **how)
        return [
            told if whole(self.folder, what, told) else self.prepare(what)
            for what, told in zip(preparations, found, strict=True)
        ]

    def evaluate(self, shard: Shard) -> dict[str, Any]:
        """One target; a pure function of the shard, apart from `design_seconds`."""
        return asdict(TargetRun(shard, self.folder).result())


@dataclass(frozen=True)
class _Ran:
    """Episodes of one method: an estimate and a cost for each, and how many broke."""

    values: Floats
    costs: Floats
    lost: int
    designed: Designed | None = None


class TargetRun:
    """What all methods share on one target."""

    def __init__(self, shard: Shard, folder: Path) -> None:
        self.shard = shard
        what = shard.preparation
        self.robot, self.protocol = what.robot, what.protocol
        self.folder = folder
        self.policy: RobotPolicy = robot_policies(what.robot, shard.role)[shard.target]
        self.pi = protocol_policy(self.policy, what.protocol)
        self.binned = self.pi if isinstance(self.pi, BinnedPolicy) else None
        many = min(shard.runs * shard.episodes, BATCH)
        self.fleet = (
            BinnedRobots(self.robot, self.binned, many) if self.binned else Robots(self.robot, many)
        )

    def result(self) -> TargetResult:
        """Run everything."""
        ran = {REFERENCE: self.run(REFERENCE, None)}
        own = ran[REFERENCE]
        mean, spread = float(own.values.mean()), float(own.values.std(ddof=1))
        found = TargetResult(
            name=self.policy.name,
            value=mean,
            value_error=spread / math.sqrt(len(own.values)),
            mean=mean,
            spread=spread,
            cost=float(own.costs.mean()),
            design_seconds=0.0,
            outcomes={},
        )
        if not found.excluded:
            learned, seconds = self.learn()
            found = replace(found, design_seconds=round(seconds, 2))
            ran |= {method: self.run(method, behavior) for method, behavior in learned.items()}
        others = [one.values for method, one in ran.items() if method != REFERENCE]
        value, value_error = pooled_value(own.values, others)
        unit = float(np.abs(own.values - value).mean())
        base = OnPolicy(own.values, own.costs, value, unit or 1.0)
        grid = episode_grid(self.shard.episodes)
        outcomes = {
            method: base.outcome(one.values, one.costs, grid, one.lost, one.designed)
            for method, one in ran.items()
        }
        if self.shard.ros_episodes and not found.excluded:
            ros = run_ros(
                self.robot,
                self.pi,
                runs=self.shard.runs,
                episodes=self.shard.ros_episodes,
                seed=self.seed("ros"),
            )
            outcomes["ros"] = base.ros_outcome(ros.returns, ros.costs)
        return replace(found, value=value, value_error=value_error, outcomes=outcomes)

    def learn(self) -> tuple[dict[str, BehaviorPolicy], float]:
        """All designs, from the logs and dynamics of the robot; and how long it took."""
        began = time.perf_counter()
        what = self.shard.preparation
        have = recall(self.folder, what, *self.shard.digests)
        names = names_of(self.shard.methods, BASELINES)
        learned = designs(
            have.logs,
            self.pi,
            [name for name in names if name not in (REFERENCE, *BASELINES)],
            Settings(
                HORIZON,
                epsilon=self.shard.epsilon,
                budget=self.shard.budget,
                regression=ModelRegression(
                    dynamics=have.dynamics or robot_world(self.robot, self.binned),
                    paths=self.shard.paths,
                    study=self.shard.study,
                ),
                seed=what.seed,
            ),
        )
        return learned, time.perf_counter() - began

    def run(self, method: str, behavior: BehaviorPolicy | None) -> _Ran:
        """All episodes of all runs of a method, side by side."""
        factor = ON_POLICY_FACTOR if behavior is None else 1
        episodes: Episodes = collect(
            self.fleet,
            self.pi,
            behavior,
            horizon=HORIZON,
            episodes=self.shard.runs * self.shard.episodes * factor,
            seed=self.seed(method),
        )
        return _Ran(
            pdis(episodes) if episodes.control is None else doubly_robust(episodes),
            episodes.costs(),
            len(episodes.lost),
            None if behavior is None else Designed.of(behavior, episodes, self.shard.epsilon),
        )

    def seed(self, method: str) -> int:
        """The seed of a method's episodes, whatever other methods are run."""
        where = (
            self.shard.preparation.seed,
            ROBOTS.index(self.robot),
            PROTOCOLS.index(self.protocol),
            ROLES.index(self.shard.role),
            self.shard.target,
            8,
        )
        if method in DEFAULT_METHODS:
            words = np.random.SeedSequence(where).generate_state(len(DEFAULT_METHODS), np.uint64)
            return int(words[DEFAULT_METHODS.index(method)]) >> 1
        own = np.random.SeedSequence((*where, zlib.crc32(method.encode())))
        return int(own.generate_state(1, np.uint64)[0]) >> 1

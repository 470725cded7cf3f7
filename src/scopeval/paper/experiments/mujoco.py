"""The paper's five robots: every method learned from the same logs, measured online.

For every robot 30 policies from untrained to well trained are the targets, and 1,000 episodes of
those policies are the logs. Two protocols:

- ``candidates``: the robot as it is; the target offers ten actions, and designs re-weigh them;
- ``bins``: the paper's: the first action dimension in ten bins, the others drawn beforehand.

For every method and target: *relative variance* and *relative cost* of one episode, measured over
runs x episodes, with standard errors that include on-policy's. *Cost needed* for the accuracy of
1,000 on-policy episodes is 1000 (relative variance) (relative cost), as in the paper. Targets whose
returns have no spread are left out of means, counted and named.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Unpack

import numpy as np

from scopeval.arrays import Ints, check_whole
from scopeval.behavior.settings import check_budget, check_epsilon
from scopeval.critics.model.regression import ModelRegression
from scopeval.critics.model.return_features import Study
from scopeval.critics.model.training import WIDE, Training
from scopeval.errors import InputError
from scopeval.paper.backends.shards import ShardOptions, run_shards
from scopeval.paper.experiments.gridworld_target import episode_grid
from scopeval.paper.experiments.mujoco_outcome import TargetResult
from scopeval.paper.experiments.mujoco_prepare import DYNAMICS, Preparation
from scopeval.paper.experiments.mujoco_results import RobotBlock, block_of
from scopeval.paper.experiments.mujoco_target import (
    BASELINES,
    DEFAULT_METHODS,
    Shard,
    Workshop,
)
from scopeval.paper.methods import check_methods, digest_of, names_of
from scopeval.paper.results import Result
from scopeval.paper.robots.env import ROBOTS, robot_name
from scopeval.paper.robots.logs import PROTOCOLS
from scopeval.paper.robots.policies import robot_policies

__all__ = ["QUICK", "Config", "run"]

#: Networks that learn the dynamics.
NETWORKS = ("usual", "wide", "best")
#: Policies of each robot by role.
_MANY = {"reported": 30, "validation": 6}


@dataclass(frozen=True)
class Config:
    """What to run."""

    robots: tuple[str, ...] = ROBOTS
    """Their names."""
    protocols: tuple[str, ...] = PROTOCOLS
    """How actions are offered: see above."""
    role: str = "reported"
    """Of the policies that are targets. Settings are tuned on those for "validation" only."""
    targets: int = 30
    """How many of them, evenly spread; at most 30 are reported and 6 are for validation."""
    runs: int = 30
    """Independent runs of each method for each target, as in the paper."""
    episodes: int = 10
    """Episodes of one run."""
    ros_targets: int = 5
    """For how many of the targets ROS is run, evenly spread."""
    ros_episodes: int = 50
    """Episodes of one run of ROS, one after the other."""
    seed: int = 0
    """Seed of logs, designs and runs."""
    logged: int = 1000
    """Logged episodes to learn from, as in the paper."""
    networks: str = "usual"
    """That learn the dynamics: "usual", "wide", or the "best" of both by held-out error."""
    usual: Training = field(default_factory=Training)
    """How the usual ones are trained."""
    paths: int = ModelRegression().paths
    """Episodes that a design imagines with each network."""
    study: Study = field(default_factory=Study)
    """How return features are learned."""
    epsilon: float = 0.0
    """Safety parameter of the constrained methods."""
    budget: str = "state"
    """Of these methods: "state" (the paper's) or "episode"."""
    dynamics: str = "learned"
    """Where critics have the dynamics from: "learned" from the logs, or the robot's own
    "simulator", which shows what critics could do at best."""
    methods: tuple[str, ...] = DEFAULT_METHODS
    """Registered methods, module:attribute, or "ros"; on-policy is always one of them."""

    def __post_init__(self) -> None:
        for name, least in (("runs", 2), ("episodes", 2), ("logged", 2), ("targets", 1)):
            check_whole(name, getattr(self, name), least)
        check_whole("paths", self.paths, 1)
        for name in ("seed", "ros_targets", "ros_episodes"):
            check_whole(name, getattr(self, name), 0)
        check_epsilon(self.epsilon)
        check_budget(self.budget, None)
        check_methods(self.methods, BASELINES)
        for name, known in (("dynamics", DYNAMICS), ("networks", NETWORKS), ("role", tuple(_MANY))):
            _check_word(name, getattr(self, name), known)
        for protocol in self.protocols:
            _check_word("protocols", protocol, PROTOCOLS)
        if self.dynamics != "learned" and self.networks != "usual":
            raise InputError("networks: a simulator has none; expected dynamics 'learned'")
        for robot in self.robots:
            robot_policies(robot_name(robot), self.role)  # raises if files are missing

    @property
    def trainings(self) -> tuple[Training, ...]:
        """Ways to train networks that are tried."""
        if self.dynamics != "learned":
            return ()
        return {"usual": (self.usual,), "wide": (WIDE,), "best": (self.usual, WIDE)}[self.networks]

    @property
    def source(self) -> str:
        """Source of the critics' dynamics, and kind of the cost budget, in words."""
        learned = f"learned from them by {self.networks} networks"
        dynamics = learned if self.dynamics == "learned" else "by the robot's simulator"
        budget = ", one budget for whole episodes" if self.budget == "episode" else ""
        return f"dynamics {dynamics}{budget}"

    @property
    def preparations(self) -> list[Preparation]:
        """Logs and dynamics that are made once for each robot and protocol."""
        return [
            Preparation(
                robot=robot_name(robot),
                protocol=protocol,
                seed=self.seed,
                logged=self.logged,
                training=self.trainings,
            )
            for robot in self.robots
            for protocol in self.protocols
        ]

    def shards(self, prepared: Sequence[dict[str, str]]) -> list[Shard]:
        """The pieces of work: robots, protocols, targets."""
        numbers = _spread(_MANY[self.role], self.targets)
        many = self.ros_targets if "ros" in self.methods else 0
        with_ros = {int(numbers[k]) for k in _spread(len(numbers), many)}
        digest = digest_of(self.methods, BASELINES)
        return [
            Shard(
                preparation=preparation,
                digests=(digests["parquet"], digests["npz"]),
                role=self.role,
                target=int(k),
                runs=self.runs,
                episodes=self.episodes,
                paths=self.paths,
                study=self.study,
                ros_episodes=self.ros_episodes if int(k) in with_ros else 0,
                epsilon=self.epsilon,
                budget=self.budget,
                methods=self.methods,
                digest=digest,
            )
            for preparation, digests in zip(self.preparations, prepared, strict=True)
            for k in numbers
        ]


QUICK = partial(
    Config,
    robots=("InvertedPendulum",),
    targets=3,
    runs=10,
    episodes=5,
    ros_targets=1,
    ros_episodes=5,
    logged=200,
    usual=Training(hidden=32, steps=300),
    paths=60,
    study=Study(paths=200, hidden=16, steps=200),
)
"""A small config for a first look; arguments replace its settings."""


def run(
    config: Config, *, folder: str | os.PathLike[str], **how: Unpack[ShardOptions]
) -> Result[Config, RobotBlock]:
    """Run the whole experiment (see `run_shards` for the rest).

    Args:
        config: what to run.
        folder: where answers are kept (``shards``), and logs and dynamics (``prepared``).
        how: as in `run_shards`.
    """
    place = Path(folder).resolve()
    work = Workshop(place / "prepared")
    kept = place / "shards"
    preparations = config.preparations
    shards = config.shards(work.prepare_all(preparations, kept, how))
    answers = run_shards(work.evaluate, shards, folder=kept, **how)
    results = [TargetResult.of(answer) for answer in answers]
    each = len(results) // len(preparations)
    blocks = tuple(
        block_of(
            what,
            results[k * each : (k + 1) * each],
            names_of(config.methods, BASELINES),
            config.episodes,
            config.ros_episodes,
        )
        for k, what in enumerate(preparations)
    )
    numbers = {"on-policy": config.episodes, "ros": config.ros_episodes}
    grids = {method: episode_grid(many).tolist() for method, many in numbers.items()}
    return Result("mujoco", config, blocks, {"episodes": grids})


def _check_word(name: str, word: str, known: Sequence[str]) -> None:
    if word not in known:
        raise InputError(f"{name}: got {word!r}, expected one of {', '.join(known)}")


def _spread(many: int, few: int) -> Ints:
    """A few of many numbers, evenly spread; all of them where few = many."""
    few = min(few, many)
    return np.asarray(((np.arange(few) + 0.5) * many / max(few, 1)).astype(np.int64))

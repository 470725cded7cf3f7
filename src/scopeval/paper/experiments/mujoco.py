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
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from scopeval.arrays import Floats, Ints, check_whole
from scopeval.behavior.settings import check_budget, check_epsilon
from scopeval.critics.model.regression import ModelRegression
from scopeval.critics.model.return_features import Study
from scopeval.critics.model.training import WIDE, Training
from scopeval.errors import InputError
from scopeval.paper.backends.shards import Running, run_shards
from scopeval.paper.experiments.gridworld_exact import Statistic
from scopeval.paper.experiments.gridworld_target import episode_grid
from scopeval.paper.experiments.mujoco_prepare import DYNAMICS, Preparation, whole
from scopeval.paper.experiments.mujoco_target import METHODS, Outcome, Shard, TargetResult, Workshop
from scopeval.paper.robots.env import ROBOTS, robot_name
from scopeval.paper.robots.logs import PROTOCOLS
from scopeval.paper.robots.policies import robot_policies
from scopeval.paper.written import as_columns, mean_curve, published

__all__ = ["PAPER", "QUICK", "SAFE", "Block", "Config", "Extreme", "Result", "Row", "run"]

#: Methods that promise to cost at most 1 + epsilon times the target.
SAFE = ("scope", "scope-dr")

#: The paper's tables, robot -> method -> (relative variance, relative cost, cost needed).
PAPER = {
    "Ant": {
        "scope": (0.835, 0.897, 746),
        "odi": (0.811, 1.397, 1136),
        "ros": (1.032, 1.033, 1063),
    },
    "Hopper": {
        "scope": (0.596, 0.930, 552),
        "odi": (0.542, 1.523, 824),
        "ros": (1.005, 1.021, 1026),
    },
    "InvertedDoublePendulum": {
        "scope": (0.778, 0.876, 681),
        "odi": (0.724, 1.399, 1014),
        "ros": (0.992, 1.012, 1003),
    },
    "InvertedPendulum": {
        "scope": (0.439, 0.961, 425),
        "odi": (0.351, 1.743, 615),
        "ros": (0.900, 0.990, 890),
    },
    "Walker2d": {
        "scope": (0.728, 0.953, 694),
        "odi": (0.696, 1.485, 1031),
        "ros": (0.908, 1.061, 960),
    },
}
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
    """Of the policies that are targets. What is tuned, is tuned on those for "validation"."""
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
    """Of logs, designs and runs."""
    logged: int = 1000
    """Logged episodes to learn from, as in the paper."""
    networks: str = "usual"
    """That learn the dynamics: "usual", "wide", or the "best" of both by held-out error."""
    usual: Training = field(default_factory=Training)
    """How the usual ones are trained."""
    paths: int = ModelRegression().paths
    """Episodes that a design imagines with each network."""
    study: Study = field(default_factory=Study)
    """How foresight is learned."""
    epsilon: float = 0.0
    """Safety parameter of the constrained methods."""
    budget: str = "state"
    """Of these methods: "state" (the paper's) or "episode"."""
    dynamics: str = "learned"
    """Which way a step leads, to the critics: "learned" from the logs, or by the robot's own
    "simulator", which shows what critics could do at best."""

    def __post_init__(self) -> None:
        for name, least in (("runs", 2), ("episodes", 2), ("logged", 2), ("targets", 1)):
            check_whole(name, getattr(self, name), least)
        check_whole("paths", self.paths, 1)
        for name in ("seed", "ros_targets", "ros_episodes"):
            check_whole(name, getattr(self, name), 0)
        check_epsilon(self.epsilon)
        check_budget(self.budget, None)
        if self.dynamics not in DYNAMICS:
            raise InputError(
                f"dynamics: got {self.dynamics!r}, expected one of {', '.join(DYNAMICS)}"
            )
        if self.networks not in NETWORKS:
            raise InputError(
                f"networks: got {self.networks!r}, expected one of {', '.join(NETWORKS)}"
            )
        if self.dynamics != "learned" and self.networks != "usual":
            raise InputError("networks: a simulator has none; expected dynamics 'learned'")
        if self.role not in _MANY:
            raise InputError(f"role: got {self.role!r}, expected one of {', '.join(_MANY)}")
        for protocol in self.protocols:
            if protocol not in PROTOCOLS:
                expected = ", ".join(PROTOCOLS)
                raise InputError(f"protocols: got {protocol!r}, expected some of {expected}")
        for robot in self.robots:
            robot_policies(
                robot_name(robot), self.role
            )  # says what is missing before anything is computed

    @property
    def trainings(self) -> tuple[Training, ...]:
        """Ways to train networks that are tried."""
        if self.dynamics != "learned":
            return ()
        return {"usual": (self.usual,), "wide": (WIDE,), "best": (self.usual, WIDE)}[self.networks]

    @property
    def source(self) -> str:
        """Where critics have the dynamics from, and what a budget is for; for people."""
        learned = f"learned from them by {self.networks} networks"
        world = learned if self.dynamics == "learned" else "by the robot's simulator"
        whole = ", one budget for whole episodes" if self.budget == "episode" else ""
        return f"dynamics {world}{whole}"

    @property
    def preparations(self) -> list[Preparation]:
        """What is made once for each robot and protocol."""
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
        with_ros = {int(numbers[k]) for k in _spread(len(numbers), self.ros_targets)}
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
"""A config for a look: most of it can still be said otherwise."""


@dataclass(frozen=True)
class Extreme:
    """The target with the largest number of all, and that number's standard error."""

    target: str
    value: float
    error: float

    def above(self, level: float) -> bool:
        """Whether it is above a level by more than two standard errors."""
        return self.value - 2.0 * self.error > level

    def text(self, pm: str = "±") -> str:
        """The number and its standard error."""
        return f"{self.value:.2f} {pm} {self.error:.2f}"


@dataclass(frozen=True)
class Row:
    """One method over the targets it was run on; see `mujoco_target.Outcome`.

    Attributes:
        method: its name.
        targets: names of the targets.
        outcomes: one for each of them.
    """

    method: str
    targets: tuple[str, ...]
    outcomes: tuple[Outcome, ...] = field(repr=False)

    @property
    def variance(self) -> Statistic:
        """Relative variance."""
        return self._of("relative_variance")

    @property
    def cost(self) -> Statistic:
        """Relative cost."""
        return self._of("relative_cost")

    @property
    def paired(self) -> Statistic:
        """Relative cost by the certificates, which compare within the same episodes.

        Where there is none, that of independent episodes.
        """
        told = (None if o.designed is None else o.designed.certified_cost for o in self.outcomes)
        both = zip(told, self.cost.values, strict=True)
        return Statistic(np.array([own if paired is None else paired for paired, own in both]))

    @property
    def needed(self) -> Statistic:
        """Cost for the accuracy of 1,000 on-policy episodes, target by target.

        ROS may be biased, so there the squared error stands for the variance.
        """
        each = [o.relative_variance if o.square is None else o.square for o in self.outcomes]
        return Statistic(1000.0 * np.array(each) * self.cost.values)

    @property
    def saved(self) -> float:
        """Share of the on-policy cost that is saved at equal accuracy."""
        return 1.0 - self.needed.mean / 1000.0

    @property
    def worst(self) -> Extreme:
        """The target with the largest relative variance."""
        return self._extreme("relative_variance")

    @property
    def dearest(self) -> Extreme:
        """The target with the largest relative cost."""
        return self._extreme("relative_cost")

    def beyond(self, name: str, level: float) -> list[str]:
        """Targets whose relative variance or cost is above a level by two standard errors."""
        return [e.target for e in self._each(f"relative_{name}") if e.above(level)]

    def told(self, name: str) -> Statistic | None:
        """What the designs said of themselves, such as "predicted_cost"; None for on-policy."""
        each = [o.designed for o in self.outcomes]
        values = [getattr(d, name) for d in each if d is not None]
        some = [np.nan if v is None else float(v) for v in values]
        return Statistic(np.array(some)) if some else None

    def told_mean(self, name: str) -> float | None:
        """Mean of these over the targets that have one."""
        told = self.told(name)
        if told is None or np.isnan(told.values).all():
            return None
        return float(np.nanmean(told.values))

    @property
    def used(self) -> dict[str, int]:
        """How many targets were left with which method, where designs fell back."""
        each = [o.designed.used for o in self.outcomes if o.designed is not None]
        return {name: each.count(name) for name in sorted(set(each))}

    @property
    def refuted(self) -> list[str]:
        """Targets whose certificate refutes the promise."""
        both = zip(self.targets, (o.designed for o in self.outcomes), strict=True)
        return [name for name, d in both if d is not None and d.certificate == "refuted"]

    @property
    def certificates(self) -> dict[str, int]:
        """How many targets have which verdict on the promise."""
        each = [o.designed.certificate for o in self.outcomes if o.designed is not None]
        return {name: each.count(name) for name in sorted(set(each))}

    @property
    def errors(self) -> Floats:
        """Error curves [targets, grid]."""
        return np.array([o.errors for o in self.outcomes])

    @property
    def costs(self) -> Floats:
        """Cost curves [targets, grid]."""
        return np.array([o.costs for o in self.outcomes])

    def as_dict(self) -> dict[str, Any]:
        """For JSON: statistics over targets, the extremes, and mean curves."""
        told = {
            name: {"mean": self.told_mean(name), "values": _plain(s.values)}
            for name in _TOLD
            if (s := self.told(name)) is not None
        }
        noise = {
            f"relative_{name}_noise": float(
                np.linalg.norm([getattr(o, f"relative_{name}_error") for o in self.outcomes])
                / len(self.outcomes)
            )
            for name in ("variance", "cost")
        }
        return {
            "method": self.method,
            "targets": list(self.targets),
            "relative_variance": self.variance.as_dict(),
            "relative_cost": self.cost.as_dict(),
            **noise,
            "median_variance": float(np.median(self.variance.values)),
            "median_cost": float(np.median(self.cost.values)),
            "cost_needed": self.needed.as_dict(),
            "saved": self.saved,
            "worst": asdict(self.worst),
            "dearest": asdict(self.dearest),
            **told,
            "used": self.used,
            "certificates": self.certificates,
            "refuted": self.refuted,
            "curve": mean_curve(self.errors, self.costs),
        }

    def _of(self, name: str) -> Statistic:
        return Statistic(np.array([getattr(o, name) for o in self.outcomes]))

    def _each(self, name: str) -> list[Extreme]:
        return [
            Extreme(target, getattr(o, name), getattr(o, f"{name}_error"))
            for target, o in zip(self.targets, self.outcomes, strict=True)
        ]

    def _extreme(self, name: str) -> Extreme:
        return max(self._each(name), key=lambda each: each.value)


@dataclass(frozen=True)
class Block:
    """All methods on one robot in one protocol.

    Attributes:
        robot: its name.
        protocol: "candidates" or "bins".
        results: one for each target, those without variance too.
        rows: of the methods that were run; none where no target has variance.
    """

    robot: str
    protocol: str
    results: tuple[TargetResult, ...] = field(repr=False)
    rows: tuple[Row, ...] = field(repr=False)

    @property
    def excluded(self) -> tuple[str, ...]:
        """Targets without variance, which no mean contains."""
        return tuple(r.name for r in self.results if r.excluded)

    def row(self, method: str) -> Row:
        """The row of one method."""
        return next(row for row in self.rows if row.method == method)

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.robot}, {self.protocol}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "robot": self.robot,
            "protocol": self.protocol,
            "targets": [
                {k: v for k, v in vars(r).items() if k != "outcomes"} for r in self.results
            ],
            "excluded": list(self.excluded),
            "methods": [row.as_dict() for row in self.rows],
            "paper": published(PAPER[self.robot]),
        }


@dataclass(frozen=True)
class Result:
    """What was asked, and one block for each robot and protocol."""

    config: Config
    blocks: tuple[Block, ...] = field(repr=False)

    def grid(self, method: str) -> Ints:
        """Numbers of episodes at which a method's errors are looked at."""
        ros = method == "ros"
        return episode_grid(self.config.ros_episodes if ros else self.config.episodes)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "experiment": "mujoco",
            "config": asdict(self.config),
            "episodes": {m: self.grid(m).tolist() for m in ("on-policy", "ros")},
            "blocks": [block.as_dict() for block in self.blocks],
        }

    def tables(self) -> dict[str, dict[str, list[Any]]]:
        """Every number target by target, as columns: ``targets`` and ``curves``."""
        targets: list[dict[str, Any]] = []
        curves: list[dict[str, Any]] = []
        for block in self.blocks:
            for result in block.results:
                for method, outcome in result.outcomes.items():
                    here = {
                        "robot": block.robot,
                        "protocol": block.protocol,
                        "target": result.name,
                        "method": method,
                    }
                    numbers = {k: v for k, v in vars(outcome).items() if k not in _CURVES}
                    told = outcome.designed
                    design = {k: None if told is None else getattr(told, k) for k in _DESIGN}
                    if told is not None:
                        design["warnings"] = " | ".join(told.warnings)
                    about = {
                        "excluded": result.excluded,
                        "value": result.value,
                        "value_error": result.value_error,
                        "design_seconds": result.design_seconds,
                    }
                    targets.append({**here, **about, **numbers, **design})
                    curves += [
                        {**here, "episodes": int(n), "error": e, "cost": c}
                        for n, e, c in zip(
                            self.grid(method), outcome.errors, outcome.costs, strict=True
                        )
                    ]
        return {"targets": as_columns(targets), "curves": as_columns(curves)}


def run(config: Config, *, folder: str | os.PathLike[str], **how: Unpack[Running]) -> Result:
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
    prepared = run_shards(work.prepare, preparations, folder=kept, **how)
    for k, what in enumerate(preparations):
        if not whole(work.folder, what, prepared[k]):  # somebody has cleaned up: make it anew
            prepared[k] = work.prepare(what)
    answers = run_shards(work.evaluate, config.shards(prepared), folder=kept, **how)
    results = [TargetResult.of(answer) for answer in answers]
    each = len(results) // len(preparations)
    return Result(
        config,
        tuple(
            block_of(what, results[k * each : (k + 1) * each])
            for k, what in enumerate(preparations)
        ),
    )


def block_of(what: Preparation, results: Sequence[TargetResult]) -> Block:
    """Rows over the targets that have variance."""
    rows = []
    for method in METHODS:
        ran = [r for r in results if not r.excluded and method in r.outcomes]
        if ran:
            names = tuple(r.name for r in ran)
            rows.append(Row(method, names, tuple(r.outcomes[method] for r in ran)))
    return Block(what.robot, what.protocol, tuple(results), tuple(rows))


_TOLD = ("predicted_variance", "predicted_cost", "checked_variance", "checked_cost",
         "certified_cost", "floor", "share", "margin", "kept", "binding")  # fmt: skip
_CURVES = ("errors", "costs", "designed")
_DESIGN = (
    "used",
    *_TOLD,
    "warnings",
    "asked",
    "unseen",
    "infeasible",
    "not_finite",
    "certificate",
    "certified_low",
    "certified_high",
)


def _spread(many: int, few: int) -> Ints:
    """A few of many numbers, evenly spread; all of them where few = many."""
    few = min(few, many)
    return np.asarray(((np.arange(few) + 0.5) * many / max(few, 1)).astype(np.int64))


def _plain(values: Floats) -> list[float | None]:
    return [None if np.isnan(v) else float(v) for v in values]

"""One target on one robot: designs from the logs, then episodes of every method.

Nothing is exact here: values, costs and their variances are measured over runs x episodes, and
every number comes with its standard error. The truth that error curves refer to is the mean of all
unbiased methods, weighted by their precision.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.behavior.designer import designs
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.settings import Settings
from scopeval.collection.collector import collect
from scopeval.collection.episodes import Episodes
from scopeval.critics.model.regression import ModelRegression
from scopeval.critics.model.return_features import Study
from scopeval.estimation.estimators import doubly_robust, pdis, pdis_cost
from scopeval.paper.experiments.gridworld_target import episode_grid
from scopeval.paper.experiments.mujoco_prepare import Preparation, prepare, protocol_policy, recall
from scopeval.paper.experiments.mujoco_ros import run_ros
from scopeval.paper.robots.bins import BinnedPolicy, BinnedRobots
from scopeval.paper.robots.env import HORIZON, ROBOTS, Robots
from scopeval.paper.robots.logs import PROTOCOLS
from scopeval.paper.robots.policies import ROLES, RobotPolicy, robot_policies
from scopeval.paper.robots.world import robot_world
from scopeval.safety.certificate import certify

__all__ = [
    "DESIGNS",
    "METHODS",
    "Designed",
    "Outcome",
    "Shard",
    "TargetResult",
    "Workshop",
    "variance_error",
]

#: Designed from the logs, in the order of the tables.
DESIGNS = ("scope", "scope-dr", "odi", "dopt")
METHODS = ("on-policy", *DESIGNS, "ros")
#: Episodes that are run side by side.
BATCH = 300
#: On-policy, which all are compared with, runs so many times as many episodes as each of them.
OWN = 3
#: A target whose returns spread less than this part of their mean has no variance to reduce.
LEAST_SPREAD = 1e-3


@dataclass(frozen=True)
class Shard:
    """Everything that one target's results depend on.

    Attributes:
        preparation: of logs and dynamics, and
        digests: of their files, Parquet and NumPy.
        role: "reported", or "validation" for what is tuned, and
        target: its number among the robot's policies of that role.
        runs: of each method.
        episodes: of one run.
        paths: episodes that a design imagines with each network.
        study: how foresight is learned.
        ros_episodes: of one run of ROS; 0: ROS is not run.
        epsilon: safety parameter of the constrained methods, and
        budget: what it is about, "state" (the paper's) or "episode".
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
    budget: str = "state"

    @property
    def label(self) -> str:
        """For people."""
        what = self.preparation
        return f"{what.robot}, {what.protocol}, {self.role} target {self.target}"


@dataclass(frozen=True)
class Designed:
    """What a design says of itself, and what happened while it ran.

    Attributes:
        used: the method that was designed in the end: where the logs are too thin, scope-dr may
            become scope, and any method may stay at the target (on-policy).
        predicted_variance: relative to the target's, from the design's critics.
        predicted_cost: likewise.
        checked_variance: the same on the other half of the logs.
        checked_cost: likewise.
        floor: share of the target's own probabilities that is kept.
        margin: share of the budget that is left unspent.
        kept: share of imagined states where the target's probabilities are kept as they are.
        binding: share where the budget binds.
        warnings: of the design.
        asked: decisions; and how many of them kept to the target, because of
        unseen: an observation unlike the logs,
        infeasible: no affordable answer,
        not_finite: critics that are no numbers.
        certificate: verdict of `safety.certify` on the promise.
        certified_cost: its ratio of costs,
        certified_low: with the ends of its interval,
        certified_high: None where it has none.
        share: of the critics' differences between actions, what the control variate takes over.
    """

    used: str
    predicted_variance: float | None
    predicted_cost: float | None
    checked_variance: float | None
    checked_cost: float | None
    floor: float
    margin: float
    kept: float
    binding: float
    warnings: tuple[str, ...]
    asked: int
    unseen: int
    infeasible: int
    not_finite: int
    certificate: str
    certified_cost: float | None
    certified_low: float | None
    certified_high: float | None
    share: float = 1.0


@dataclass(frozen=True)
class Outcome:
    """One method on one target.

    Attributes:
        mean: estimate of J(pi) from all episodes.
        variance: of one episode's estimate; of ROS, whose episodes depend on each other: of a run's
            estimate times its number of episodes.
        variance_error: standard error of the variance, from the fourth moment.
        cost: mean of an episode's.
        cost_error: its standard error.
        relative_variance: to on-policy's.
        relative_variance_error: its standard error; on-policy's part included.
        relative_cost: to on-policy's.
        relative_cost_error: its standard error.
        square: of ROS, which may be biased: mean squared error over runs, relative as the variance.
        lost: episodes that broke.
        errors: mean |estimate - truth| over runs after each number of episodes of the grid, in
            units of what one on-policy episode makes.
        costs: mean cost spent until then, in costs of one on-policy episode.
        designed: None for on-policy and ROS.
    """

    mean: float
    variance: float
    variance_error: float
    cost: float
    cost_error: float
    relative_variance: float
    relative_variance_error: float
    relative_cost: float
    relative_cost_error: float
    square: float | None
    lost: int
    errors: tuple[float, ...]
    costs: tuple[float, ...]
    designed: Designed | None = None


@dataclass(frozen=True)
class TargetResult:
    """One target.

    Attributes:
        name: of the policy.
        value: J(pi), and
        value_error: its standard error, pooled over all unbiased methods.
        mean: return of on-policy's episodes.
        spread: their standard deviation.
        cost: mean cost of theirs.
        design_seconds: for all designs together.
        outcomes: by method; only on-policy where its returns have no spread.
    """

    name: str
    value: float
    value_error: float
    mean: float
    spread: float
    cost: float
    design_seconds: float
    outcomes: dict[str, Outcome]

    @property
    def excluded(self) -> bool:
        """Whether there is no variance to reduce."""
        return not self.spread > LEAST_SPREAD * abs(self.mean)

    @classmethod
    def of(cls, content: dict[str, Any]) -> TargetResult:
        """From JSON."""
        outcomes = {}
        for name, o in content["outcomes"].items():
            told = o["designed"]
            if told is not None:
                told = Designed(**{**told, "warnings": tuple(told["warnings"])})
            curves = {key: tuple(o[key]) for key in ("errors", "costs")}
            outcomes[name] = Outcome(**{**o, **curves, "designed": told})
        return cls(**{**content, "outcomes": outcomes})


@dataclass(frozen=True)
class Workshop:
    """The work of the experiment, for `run_shards`; files are kept in the folder.

    The answers do not depend on where the folder is. Workers on other machines must see it.
    """

    folder: Path

    def prepare(self, what: Preparation) -> dict[str, str]:
        """Logs and dynamics of a robot and protocol."""
        return prepare(self.folder, what)

    def evaluate(self, shard: Shard) -> dict[str, Any]:
        """One target; a pure function of the shard, but for `design_seconds`."""
        return asdict(_One(shard, self.folder).result())


def variance_error(values: Floats) -> float:
    """Standard error of the sample variance, by the fourth moment."""
    n = len(values)
    away = values - values.mean()
    variance = away @ away / (n - 1)
    fourth = float((away**4).mean())
    return math.sqrt(max(fourth - (n - 3) / (n - 1) * variance**2, 0.0) / n)


class _One:
    """One target: what all its methods share."""

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
        where = (
            ROBOTS.index(self.robot),
            PROTOCOLS.index(self.protocol),
            ROLES.index(shard.role),
            shard.target,
        )
        words = np.random.SeedSequence((what.seed, *where, 8)).generate_state(
            len(METHODS), np.uint64
        )
        self.seeds = dict(zip(METHODS, (int(word) >> 1 for word in words), strict=True))

    def result(self) -> TargetResult:
        """Run everything."""
        own = self.run("on-policy", None)
        values, costs = {"on-policy": pdis(own)}, {"on-policy": own.costs()}
        mean, spread = float(values["on-policy"].mean()), float(values["on-policy"].std(ddof=1))
        found = TargetResult(
            self.policy.name, mean, spread / math.sqrt(len(own)), mean, spread,
            float(costs["on-policy"].mean()), 0.0, {},
        )  # fmt: skip
        told: dict[str, Designed | None] = {"on-policy": None}
        lost = {"on-policy": len(own.lost)}
        if not found.excluded:
            learned, seconds = self.learn()
            found = replace(found, design_seconds=round(seconds, 2))
            for method, behavior in learned.items():
                ran = self.run(method, behavior)
                values[method] = pdis(ran) if ran.control is None else doubly_robust(ran)
                costs[method], lost[method] = ran.costs(), len(ran.lost)
                told[method] = _designed(behavior, ran, self.shard.epsilon)
        others = [x for method, x in values.items() if method != "on-policy"]
        value, value_error = _pooled(values["on-policy"], others)
        found = replace(found, value=value, value_error=value_error)
        unit = float(np.abs(values["on-policy"] - value).mean())
        base = _Base(values["on-policy"], costs["on-policy"], value, unit or 1.0)
        grid = episode_grid(self.shard.episodes)
        outcomes = {
            method: base.outcome(values[method], costs[method], grid, lost[method], told[method])
            for method in values
        }
        if self.shard.ros_episodes and not found.excluded:
            ran_ros = run_ros(
                self.robot,
                self.pi,
                runs=self.shard.runs,
                episodes=self.shard.ros_episodes,
                seed=self.seeds["ros"],
            )
            outcomes["ros"] = base.ros_outcome(ran_ros.returns, ran_ros.costs)
        return replace(found, outcomes=outcomes)

    def learn(self) -> tuple[dict[str, BehaviorPolicy], float]:
        """All designs, from the logs and dynamics of the robot; and how long it took."""
        began = time.perf_counter()
        what = self.shard.preparation
        have = recall(self.folder, what, *self.shard.digests)
        learned = designs(
            have.logs,
            self.pi,
            DESIGNS,
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

    def run(self, method: str, behavior: BehaviorPolicy | None) -> Episodes:
        """All episodes of all runs of a method, side by side."""
        return collect(
            self.fleet,
            self.pi,
            behavior,
            horizon=HORIZON,
            episodes=self.shard.runs * self.shard.episodes * (OWN if behavior is None else 1),
            seed=self.seeds[method],
        )


@dataclass(frozen=True)
class _Base:
    """On-policy's returns and costs, what all others are compared with; the truth; the unit."""

    values: Floats
    costs: Floats
    truth: float
    unit: float

    def outcome(
        self, values: Floats, costs: Floats, grid: Ints, lost: int, designed: Designed | None
    ) -> Outcome:
        """Numbers of one method from the estimates and costs of its independent episodes.

        The error after n episodes is the mean over all groups of n that follow each other.
        """
        errors = []
        for n in grid:
            groups = values[: len(values) // n * n].reshape(-1, n).mean(axis=1)
            errors.append(float(np.abs(groups - self.truth).mean()) / self.unit)
        spent = grid * (costs.mean() / self._own_cost)
        return self._numbers(values, costs, 1, None, lost, errors, spent.tolist(), designed)

    def ros_outcome(self, returns: Floats, costs: Floats) -> Outcome:
        """Numbers of ROS from returns and costs [runs, episodes]: only runs are independent."""
        episodes = returns.shape[1]
        grid = episode_grid(episodes)
        means = np.cumsum(returns, axis=1)[:, grid - 1] / grid
        errors = np.abs(means - self.truth).mean(axis=0) / self.unit
        spent = np.cumsum(costs, axis=1)[:, grid - 1].mean(axis=0) / self._own_cost
        last = means[:, -1]
        square = float(((last - self.truth) ** 2).mean() * episodes / self.values.var(ddof=1))
        return self._numbers(
            last, costs.mean(axis=1), episodes, square, 0, errors.tolist(), spent.tolist(), None
        )

    def _numbers(
        self,
        values: Floats,
        costs: Floats,
        episodes: int,
        square: float | None,
        lost: int,
        errors: list[float],
        spent: list[float],
        designed: Designed | None,
    ) -> Outcome:
        """From independent estimates, each of some episodes, and their mean costs."""
        variance, variance_se = (
            episodes * x for x in (float(values.var(ddof=1)), variance_error(values))
        )
        cost, cost_se = float(costs.mean()), _standard_error(costs)
        same = values is self.values
        own, own_se = float(self.values.var(ddof=1)), variance_error(self.values)
        own_cost_se = _standard_error(self.costs)
        return Outcome(
            mean=float(values.mean()),
            variance=variance,
            variance_error=variance_se,
            cost=cost,
            cost_error=cost_se,
            **_relative("variance", variance, variance_se, own, own_se, same),
            **_relative("cost", cost, cost_se, self._own_cost, own_cost_se, same),
            square=square,
            lost=lost,
            errors=tuple(errors),
            costs=tuple(spent),
            designed=designed,
        )

    @property
    def _own_cost(self) -> float:
        return float(self.costs.mean()) or 1.0


def _standard_error(values: Floats) -> float:
    """Of the mean."""
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def _relative(
    name: str, value: float, error: float, own: float, own_error: float, same: bool
) -> dict[str, float]:
    """Ratio to on-policy's, with standard error; 1 where both are zero, or the same."""
    if same or own == 0.0:
        return {f"relative_{name}": 1.0, f"relative_{name}_error": 0.0}
    ratio = value / own
    spread = math.hypot(error / own, ratio * own_error / own)
    return {f"relative_{name}": ratio, f"relative_{name}_error": spread}


def _pooled(own: Floats, others: list[Floats]) -> tuple[float, float]:
    """Mean of unbiased estimates weighted by their precision, and its standard error.

    No variance counts as less than a hundredth of on-policy's: a method that has not yet met a
    rare event looks more precise than it is.
    """
    least = 0.01 * float(own.var(ddof=1))
    if least == 0.0:
        return float(own.mean()), 0.0
    means = np.array([x.mean() for x in (own, *others)])
    weight = np.array([len(x) / max(float(x.var(ddof=1)), least) for x in (own, *others)])
    return float(weight @ means / weight.sum()), float(1.0 / math.sqrt(weight.sum()))


def _designed(behavior: BehaviorPolicy, ran: Episodes, epsilon: float) -> Designed:
    recipe, report, counts = behavior.recipe, behavior.report, behavior.counts
    predicted = report.prediction
    certificate = certify(ran.costs(), pdis_cost(ran), epsilon=epsilon)
    ratio = certificate.ratio
    return Designed(
        used=recipe.method,
        predicted_variance=_finite(predicted.variance),
        predicted_cost=_finite(predicted.cost),
        checked_variance=_finite(predicted.checked_variance),
        checked_cost=_finite(predicted.checked_cost),
        floor=recipe.floor if recipe.method != "on-policy" else 1.0,
        share=recipe.share,
        margin=recipe.margin,
        kept=report.kept,
        binding=report.binding,
        warnings=report.warnings,
        asked=counts.asked,
        unseen=counts.unseen,
        infeasible=counts.infeasible,
        not_finite=counts.not_finite,
        certificate=certificate.verdict,
        certified_cost=_finite(ratio.estimate),
        certified_low=_finite(ratio.low),
        certified_high=_finite(ratio.high),
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None

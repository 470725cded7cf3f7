"""The paper's five robots: every method learned from the same logs, measured online.

For every robot 30 policies from untrained to well trained are the targets, and 1,000 episodes of
those policies are the logs. Two protocols:

- ``candidates``: the robot as it is; the target offers ten actions, and designs re-weigh them;
- ``bins``: the paper's: the first action dimension in ten bins, the others drawn beforehand.

For every method and target: *variance* and *cost* of one episode relative to on-policy's, measured
over runs x episodes, with standard errors that include on-policy's. *Needed* cost for the accuracy
of 1,000 on-policy episodes is 1000 (relative variance) (relative cost), as in the paper. The true
value that error curves refer to is the mean of all unbiased methods, weighted by their precision.
Targets whose returns have no spread are left out of means, counted and named.

``--frontier``: the frontier of scope-dr, at costs below the target's own, with candidates.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from experiments import drawing
from experiments.common import (
    REFERENCE,
    Judged,
    Note,
    RunArgs,
    Table,
    constrained,
    judge_by_episodes,
    main,
    mean_of,
    methods_of,
    ratio_of,
    run_jobs,
    saved_of,
    text_of,
    variance_error,
)
from experiments.gridworld import episode_grid, standard_errors
from experiments.robots.bins import BinnedPolicy, BinnedRobots
from experiments.robots.env import HORIZON, ROBOTS, Robots, robot_name
from experiments.robots.logs import PROTOCOLS
from experiments.robots.policies import ROLES, robot_policies
from experiments.robots.preparation import Preparation, prepare, protocol_policy, recall, whole
from experiments.robots.ros import run_ros
from experiments.robots.world import robot_world
from scopeval import frontier
from scopeval.behavior.designer import designs
from scopeval.behavior.methods import METHODS
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.step import Recipe
from scopeval.errors import InputError
from scopeval.estimation.estimators import pdis_cost
from scopeval.models.model_critic import Study
from scopeval.models.networks import Networks
from scopeval.models.training import WIDE, Training
from scopeval.safety.certificate import certify

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scopeval.arrays import Floats, Ints

#: Methods that run episodes but design no behavior policy from the logs.
BASELINES = ("ros",)
#: The paper's methods and ours; their order decides the random numbers of each, so it is fixed.
DEFAULT_METHODS = (REFERENCE, "scope", "scope-dr", "odi", "dopt", *BASELINES)
#: Policies of each robot by role.
MANY = {"reported": 30, "validation": 6}
#: Episodes that are run side by side.
BATCH = 300
#: On-policy runs this many times as many episodes as the others: every ratio contains its noise.
ON_POLICY_FACTOR = 3
#: A target whose returns spread less than this part of their mean has no variance to reduce.
LEAST_SPREAD = 1e-3
#: (variance, cost, needed) of scope, odi and ros in the paper's Table 2.
PAPER = {
    "Ant": ((0.835, 0.897, 746), (0.811, 1.397, 1136), (1.032, 1.033, 1063)),
    "Hopper": ((0.596, 0.930, 552), (0.542, 1.523, 824), (1.005, 1.021, 1026)),
    "InvertedDoublePendulum": ((0.778, 0.876, 681), (0.724, 1.399, 1014), (0.992, 1.012, 1003)),
    "InvertedPendulum": ((0.439, 0.961, 425), (0.351, 1.743, 615), (0.900, 0.990, 890)),
    "Walker2d": ((0.728, 0.953, 694), (0.696, 1.485, 1031), (0.908, 1.061, 960)),
}


def published(block: Mapping[str, Any]) -> dict[str, tuple[float, float, int]]:
    """The paper's (variance, cost, needed) of a robot, by method."""
    return dict(zip(("scope", "odi", "ros"), PAPER[block["robot"]], strict=True))


@dataclass(frozen=True)
class Args(RunArgs):
    """The paper's five robots: hours; with --quick a minute."""

    robots: tuple[str, ...] = ROBOTS
    """Their names."""
    protocols: tuple[Literal["candidates", "bins"], ...] = ("candidates", "bins")
    """How actions are offered: see above."""
    role: Literal["reported", "validation"] = "reported"
    """Of the policies that are targets. Settings are tuned on those for validation only."""
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
    logged: int = 1000
    """Logged episodes to learn from, as in the paper."""
    networks: Literal["usual", "wide", "best"] = "usual"
    """That learn the dynamics: best is that of both with the lesser held-out error."""
    usual: Training = field(default_factory=Training)
    """How the usual ones are trained."""
    paths: int = Networks().paths
    """Episodes that a design imagines with each network."""
    study: Study = field(default_factory=Study)
    """How return features are learned."""
    epsilon: float = 0.0
    """Safety parameter of the constrained methods."""
    budget: Literal["state", "episode"] = "state"
    """What the cost budget limits: every state (the paper's), or whole episodes."""
    dynamics: Literal["learned", "simulator"] = "learned"
    """Where critics have the dynamics from: the logs, or the robot's own simulator, which shows
    what critics could do at best."""
    methods: tuple[str, ...] = DEFAULT_METHODS[1:]
    """Registered methods, module:attribute, or ros."""
    frontier: bool = False
    """The frontier of scope-dr at costs below the target's own instead."""
    asked: tuple[float, ...] = (1.0, 0.9, 0.8, 0.7, 0.5)
    """Costs that are asked of the frontier, relative to the target's own."""
    seed: int = 0
    """Seed of logs, designs and runs."""

    RANGES: ClassVar[tuple[str, ...]] = ("robots", "protocols", "targets", "ros_targets")

    def check(self) -> None:
        """Refuse what cannot be run, before the work."""
        methods_of(self.methods, BASELINES)
        if self.dynamics != "learned" and self.networks != "usual":
            raise InputError("networks: a simulator has none; expected dynamics 'learned'")
        if self.frontier and self.protocols != ("candidates",):
            raise InputError("frontier: expected --protocols candidates")
        for robot in self.robots:
            robot_policies(robot_name(robot), self.role)  # raises if files are missing

    @property
    def name(self) -> str:
        """A frontier has a file of its own."""
        return "mujoco-frontier" if self.frontier else "mujoco"

    def preparation(self, robot: str, protocol: str) -> Preparation:
        """Of logs and dynamics."""
        trainings = {"usual": (self.usual,), "wide": (WIDE,), "best": (self.usual, WIDE)}
        chosen = trainings[self.networks] if self.dynamics == "learned" else ()
        return Preparation(robot, protocol, self.seed, self.logged, chosen)


QUICK: dict[str, Any] = {
    "robots": ("InvertedPendulum",),
    "targets": 3,
    "runs": 10,
    "episodes": 5,
    "ros_targets": 1,
    "ros_episodes": 5,
    "logged": 200,
    "usual": Training(hidden=32, steps=300),
    "paths": 60,
    "study": Study(paths=200, hidden=16, steps=200),
}


def prepared(args: Args) -> Path:
    """Where logs and dynamics are kept; workers on other machines must see it."""
    return args.folder.resolve() / "prepared"


def make_ready(args: Args, robot: str, protocol: str) -> dict[str, Any]:
    """Logs and dynamics of a robot and protocol, as files; their digests."""
    return dict(prepare(prepared(args), args.preparation(robot, protocol)))


def jobs(args: Args) -> list[dict[str, Any]]:
    """One for each target, once its robot's logs and dynamics are there."""
    places = [{"robot": robot_name(r), "protocol": p} for r in args.robots for p in args.protocols]
    depends = ("seed", "logged", "networks", "usual", "dynamics")
    found = run_jobs(make_ready, args, places, depends=depends)
    numbers = _spread(MANY[args.role], args.targets)
    many = args.ros_targets if "ros" in args.methods and not args.frontier else 0
    with_ros = {int(numbers[k]) for k in _spread(len(numbers), many)}
    work = []
    for place, row in zip(places, found, strict=True):
        digests = {name: row[name] for name in ("parquet", "npz")}
        if not whole(prepared(args), args.preparation(**place), digests):
            digests = make_ready(args, **place)  # the files were removed since
        work += [{**place, "target": int(k), **digests, "ros": int(k) in with_ros} for k in numbers]
    return work


def _spread(many: int, few: int) -> Ints:
    """A few of many numbers, evenly spread; all of them where few = many."""
    few = min(few, many)
    return np.asarray(((np.arange(few) + 0.5) * many / max(few, 1)).astype(np.int64))


def job(
    args: Args, robot: str, protocol: str, target: int, parquet: str, npz: str, ros: bool
) -> dict[str, Any]:
    """One target: designs from the logs, then episodes of every method."""
    run = _Target(args, robot, protocol, target, (parquet, npz))
    return run.frontier() if args.frontier else run.every_method(ros=ros)


class _Target:
    """What all methods share on one target."""

    def __init__(
        self, args: Args, robot: str, protocol: str, target: int, digests: tuple[str, str]
    ) -> None:
        self.args, self.robot, self.target = args, robot, target
        self.what, self.digests = args.preparation(robot, protocol), digests
        self.policy = robot_policies(robot, args.role)[target]
        self.pi = protocol_policy(self.policy, protocol)
        self.binned = self.pi if isinstance(self.pi, BinnedPolicy) else None
        many = min(args.runs * args.episodes, BATCH)
        self.fleet = BinnedRobots(robot, self.binned, many) if self.binned else Robots(robot, many)

    def every_method(self, *, ros: bool) -> dict[str, Any]:
        """On-policy first; the others only where its returns have a spread."""
        own = self.run(REFERENCE, None)
        mean, spread = float(own.values.mean()), float(own.values.std(ddof=1))
        excluded, seconds = not spread > LEAST_SPREAD * abs(mean), 0.0
        ran: dict[str, Judged] = {REFERENCE: own}
        told: dict[str, dict[str, Any]] = {}
        if not excluded:
            began = time.perf_counter()
            learned = self.learn()
            seconds = time.perf_counter() - began
            for method, behavior in learned.items():
                ran[method] = self.run(method, behavior)
                told[method] = _told(behavior, ran[method], self.args.epsilon)
        value, error = pooled_value([one.values for one in ran.values()])
        unit = float(np.abs(own.values - value).mean()) or 1.0
        outcomes = {
            method: {
                **_outcome(one, own, value, unit, self.args.episodes),
                "designed": told.get(method),
                "lost": len(one.episodes.lost),
            }
            for method, one in ran.items()
        }
        if ros and self.args.ros_episodes and not excluded:
            outcomes["ros"] = self.ros(own, value, unit)
        return {
            "name": self.policy.name,
            "value": value,
            "value_error": error,
            "mean": mean,
            "spread": spread,
            "cost": own.cost,
            "excluded": excluded,
            "design_seconds": round(seconds, 2),
            "outcomes": outcomes,
        }

    def regression(self) -> tuple[Any, Networks]:
        """The robot's logs, and critics by its dynamics."""
        have = recall(prepared(self.args), self.what, *self.digests)
        world = have.dynamics or robot_world(self.robot, self.binned)
        how = Networks(dynamics=world, paths=self.args.paths, study=self.args.study)
        return have.logs, how

    def learn(self) -> dict[str, BehaviorPolicy]:
        """All designs."""
        logs, how = self.regression()
        names = methods_of(self.args.methods, BASELINES)
        chosen = [name for name in names if name not in (REFERENCE, *BASELINES)]
        asked = [
            Recipe(METHODS[name], HORIZON, epsilon=self.args.epsilon, budget=self.args.budget)
            for name in chosen
        ]
        return designs(logs, self.pi, asked, learn=how, seed=self.what.seed)

    def run(self, method: str, behavior: BehaviorPolicy | None) -> Judged:
        """All episodes of all runs of a method, side by side."""
        many = self.args.runs * self.args.episodes
        return judge_by_episodes(
            self.fleet,
            self.pi,
            behavior,
            horizon=HORIZON,
            episodes=many * (ON_POLICY_FACTOR if behavior is None else 1),
            seed=self.seed(method),
        )

    def ros(self, own: Judged, value: float, unit: float) -> dict[str, Any]:
        """Numbers of ROS from returns and costs [runs, episodes]: only runs are independent."""
        many = self.args.ros_episodes
        ran = run_ros(
            self.robot, self.pi, runs=self.args.runs, episodes=many, seed=self.seed("ros")
        )
        grid = episode_grid(many)
        means = np.cumsum(ran.returns, axis=1)[:, grid - 1] / grid
        spent = np.cumsum(ran.costs, axis=1)[:, grid - 1].mean(axis=0) / (own.cost or 1.0)
        last = means[:, -1]
        return {
            **_moments(last, ran.costs.mean(axis=1), own, many),
            "square": float(((last - value) ** 2).mean() * many / own.variance),
            "errors": (np.abs(means - value).mean(axis=0) / unit).tolist(),
            "costs": spent.tolist(),
            "designed": None,
            "lost": 0,
        }

    def frontier(self) -> dict[str, Any]:
        """Measured and promised numbers at every asked cost; None where nothing is offered."""
        own = self.run(REFERENCE, None)
        curve = None
        if min(own.variance, own.cost) > 0:
            logs, how = self.regression()
            curve = frontier(logs, self.pi, horizon=HORIZON, learn=how, seed=self.what.seed)
        points: list[dict[str, Any]] = []
        for asked in self.args.asked:
            try:
                made = None if curve is None else curve.at(cost=asked)
            except InputError:  # the logs do not bear one out
                made = None
            if made is None:
                points.append({**dict.fromkeys(POINT), "verdict": ""})
                continue
            found = self.run(f"frontier {asked:g}", made)
            told = certify(found.costs, pdis_cost(found.episodes), epsilon=asked - 1.0)
            points.append(
                {
                    "variance": found.variance / own.variance,
                    "cost": found.cost / own.cost,
                    "predicted_variance": made.predicted.variance,
                    "predicted_cost": made.predicted.safe_cost,
                    "verdict": told.verdict,
                }
            )
        return {"name": self.policy.name, "points": points}

    def seed(self, method: str) -> int:
        """The seed of a method's episodes, whatever other methods are run."""
        where = (
            self.what.seed,
            ROBOTS.index(self.robot),
            PROTOCOLS.index(self.what.protocol),
            ROLES.index(self.args.role),
            self.target,
            8,
        )
        if method in DEFAULT_METHODS:
            words = np.random.SeedSequence(where).generate_state(len(DEFAULT_METHODS), np.uint64)
            return int(words[DEFAULT_METHODS.index(method)]) >> 1
        own = np.random.SeedSequence((*where, zlib.crc32(method.encode())))
        return int(own.generate_state(1, np.uint64)[0]) >> 1


# -- arithmetic ------------------------------------------------------------------------------------


def pooled_value(estimates: Sequence[Floats]) -> tuple[float, float]:
    """Mean of unbiased estimates weighted by their precision, and its standard error.

    No variance counts as less than a hundredth of on-policy's, which is the first: a method that
    has not yet seen a rare event looks more precise than it is.
    """
    least = 0.01 * float(estimates[0].var(ddof=1))
    if least == 0.0:
        return float(estimates[0].mean()), 0.0
    means = np.array([x.mean() for x in estimates])
    weight = np.array([len(x) / max(float(x.var(ddof=1)), least) for x in estimates])
    return float(weight @ means / weight.sum()), float(1.0 / math.sqrt(weight.sum()))


def _outcome(ran: Judged, own: Judged, truth: float, unit: float, episodes: int) -> dict[str, Any]:
    """Numbers of one method from the estimates and costs of its independent episodes.

    The error after n episodes is the mean over all groups of n consecutive episodes, in units of
    the mean error of one on-policy episode; costs in costs of one.
    """
    grid = episode_grid(episodes)
    errors = []
    for n in grid:
        groups = ran.values[: len(ran.values) // n * n].reshape(-1, n).mean(axis=1)
        errors.append(float(np.abs(groups - truth).mean()) / unit)
    spent = grid * (ran.costs.mean() / (own.cost or 1.0))
    moments = _moments(ran.values, ran.costs, own, 1)
    return {**moments, "square": None, "errors": errors, "costs": spent.tolist()}


def _moments(values: Floats, costs: Floats, own: Judged, episodes: int) -> dict[str, Any]:
    """Moments of independent estimates from `episodes` episodes each, and of their costs.

    Of ROS, whose episodes depend on each other: of a run's estimate times its episodes.
    """
    variance = episodes * float(values.var(ddof=1)), episodes * variance_error(values)
    cost = float(costs.mean()), _error(costs)
    alone = own.variance, variance_error(own.values)
    theirs = own.cost or 1.0, _error(own.costs)
    same = values is own.values
    found: dict[str, Any] = {"mean": float(values.mean())}
    for name, ours, base in (("variance", variance, alone), ("cost", cost, theirs)):
        ratio = (1.0, 0.0) if same or base[0] == 0.0 else ratio_of(*ours, *base)
        found |= {name: ours[0], f"{name}_error": ours[1]}
        found |= {f"relative_{name}": ratio[0], f"relative_{name}_error": ratio[1]}
    return found


def _error(values: Floats) -> float:
    """Standard error of the mean."""
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def _told(behavior: BehaviorPolicy, ran: Judged, epsilon: float) -> dict[str, Any]:
    """What a design predicted, and what its certificate says."""
    recipe, report, counts = behavior.recipe, behavior.report, behavior.counts
    predicted = report.prediction
    certificate = certify(ran.costs, pdis_cost(ran.episodes), epsilon=epsilon)
    ratio = certificate.ratio
    numbers = {
        "predicted_variance": predicted.variance,
        "predicted_cost": predicted.cost,
        "checked_variance": predicted.checked_variance,
        "checked_cost": predicted.checked_cost,
        "certified_cost": ratio.estimate,
        "certified_low": ratio.low,
        "certified_high": ratio.high,
    }
    return {
        "used": recipe.method.name,
        **{name: float(x) if math.isfinite(x) else None for name, x in numbers.items()},
        "floor": recipe.floor if recipe.method.name != REFERENCE else 1.0,
        "share": recipe.share,
        "margin": recipe.margin,
        "kept": report.kept,
        "binding": report.binding,
        "warnings": list(report.warnings),
        "asked": counts.asked,
        "unseen": counts.unseen,
        "infeasible": counts.infeasible,
        "not_finite": counts.not_finite,
        "certificate": certificate.verdict,
    }


# -- summary ---------------------------------------------------------------------------------------

#: Numbers of a design that the summary has target by target.
DESIGN = ("predicted_variance", "predicted_cost", "checked_variance", "checked_cost",
          "certified_cost", "floor", "share", "margin", "kept", "binding")  # fmt: skip
#: Numbers of a point of the frontier.
POINT = ("variance", "cost", "predicted_variance", "predicted_cost")
#: Of a target, beside its outcomes.
TARGET = ("name", "value", "value_error", "mean", "spread", "cost", "design_seconds")


def summary(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A block for each robot and protocol."""
    blocks = []
    for robot, protocol in dict.fromkeys((row["robot"], row["protocol"]) for row in rows):
        here = [row for row in rows if (row["robot"], row["protocol"]) == (robot, protocol)]
        block = _frontier_block(args, here) if args.frontier else _block(args, here)
        blocks.append({"robot": robot, "protocol": protocol, **block})
    grids = {"on-policy": args.episodes, "ros": args.ros_episodes}
    return {"episodes": {k: episode_grid(n).tolist() for k, n in grids.items()}, "blocks": blocks}


def _block(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    methods = []
    for name in methods_of(args.methods, BASELINES):
        ran = [row for row in rows if not row["excluded"] and name in row["outcomes"]]
        if ran:
            each = [row["outcomes"][name] for row in ran]
            methods.append(_method(name, each, [row["name"] for row in ran]))
    return {
        "targets": [{name: row[name] for name in TARGET} for row in rows],
        "excluded": [row["name"] for row in rows if row["excluded"]],
        "methods": methods,
    }


def _method(name: str, each: Sequence[Mapping[str, Any]], targets: list[str]) -> dict[str, Any]:
    # ROS may be biased, so the squared error takes the place of the variance
    inexact = [o["relative_variance"] if o["square"] is None else o["square"] for o in each]
    costs = [o["relative_cost"] for o in each]
    needed = mean_of(1000.0 * np.array(inexact) * np.array(costs))
    made = [o["designed"] for o in each if o["designed"] is not None]
    designed = {what: _partial([one[what] for one in made]) for what in DESIGN} if made else {}
    errors = np.array([o["errors"] for o in each])
    refuted = [
        target
        for target, o in zip(targets, each, strict=True)
        if o["designed"] is not None and o["designed"]["certificate"] == "refuted"
    ]
    return {
        "method": name,
        "relative_variance": mean_of([o["relative_variance"] for o in each]),
        "relative_cost": mean_of(costs),
        "cost_needed": needed,
        "saved": 1.0 - needed["mean"] / 1000.0,
        "targets": targets,
        "relative_variance_error": [o["relative_variance_error"] for o in each],
        "relative_cost_error": [o["relative_cost_error"] for o in each],
        "worst": _largest("variance", each, targets),
        "most_expensive": _largest("cost", each, targets),
        **designed,
        "used": _counted([one["used"] for one in made]),
        "certificates": _counted([one["certificate"] for one in made]),
        "refuted": refuted,
        "curve": {
            "error": errors.mean(axis=0).tolist(),
            "standard_error": standard_errors(errors).tolist(),
            "cost": np.mean([o["costs"] for o in each], axis=0).tolist(),
        },
    }


def _partial(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean over the targets that have a number."""
    some = [x for x in values if x is not None]
    return {"mean": float(np.mean(some)) if some else None, "values": list(values)}


def _largest(
    what: str, each: Sequence[Mapping[str, Any]], targets: Sequence[str]
) -> dict[str, Any]:
    k = int(np.argmax([o[f"relative_{what}"] for o in each]))
    value, error = each[k][f"relative_{what}"], each[k][f"relative_{what}_error"]
    return {"target": targets[k], "value": value, "error": error}


def _counted(words: Sequence[str]) -> dict[str, int]:
    return {word: words.count(word) for word in sorted(set(words))}


def _frontier_block(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    points = []
    for k, asked in enumerate(args.asked):
        here = [row["points"][k] for row in rows]
        some = [point for point in here if point["verdict"]]
        numbers = {n: mean_of([p[n] for p in some]) if some else None for n in POINT}
        points.append({"asked": asked, "verdicts": [p["verdict"] for p in here], **numbers})
    return {"targets": [row["name"] for row in rows], "points": points}


# -- table -----------------------------------------------------------------------------------------


def table(content: Mapping[str, Any]) -> list[Table | str]:
    """A table and findings for each robot and protocol; how to read them."""
    config, blocks = content["config"], content["blocks"]
    if "points" in blocks[0]:
        return [*map(_frontier_table, blocks), _FRONTIER_NOTES]
    shown: list[Table | str] = []
    for block in blocks:
        if block["methods"]:
            shown.append(_table(block))
        shown += _findings(block, config["epsilon"])
    return [
        *shown,
        Note(
            f"{config['role'].capitalize()} policies; {config['runs']} runs of "
            f"{config['episodes']} episodes for each policy and method, three times as many "
            f"on-policy; {config['logged']:,} logged episodes; dynamics "
            f"{config.get('dynamics', 'learned')}; seed {config['seed']}; ± standard error over "
            "the targets. Variance and cost of one episode are relative to on-policy Monte Carlo. "
            "Worst, most expensive: the target with the largest number, and its own standard "
            "error. Paired: the cost by the certificates, which compare within the same episodes. "
            "Predicted: variance and cost by the designs. Needed: cost for the accuracy of 1,000 "
            "on-policy episodes, in on-policy episodes, 1000 x variance x cost (ros: squared error "
            f"instead of variance, over runs of {config['ros_episodes']} episodes)."
        ),
    ]


def _table(block: Mapping[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = []
    paper = published(block)
    for row in block["methods"]:
        name = row["method"]
        if name == REFERENCE:
            continue
        fallen = row.get("used", {}).get(REFERENCE, 0)
        predicted = [row.get(f"predicted_{what}", {}).get("mean") for what in ("variance", "cost")]
        paired = [x for x in row.get("certified_cost", {}).get("values", []) if x is not None]
        rows.append(
            (
                f"{name} ({fallen} fall back)" if fallen else name,
                text_of(row["relative_variance"]),
                _extreme(row["worst"]),
                text_of(row["relative_cost"]),
                _extreme(row["most_expensive"]),
                text_of(mean_of(paired)) if len(paired) > 1 else "",
                "" if None in predicted else "{:.3f}, {:.3f}".format(*predicted),
                text_of(row["cost_needed"], ".0f"),
                "falls back" if fallen == len(block["targets"]) else saved_of(row["saved"]),
            )
        )
        if name in paper:
            variance, cost, needed = paper[name]
            cells = ("  paper", f"{variance:.3f}", "", f"{cost:.3f}", "", "", "", f"{needed}")
            rows.append((*cells, f"{1 - needed / 1000:.0%}"))
    rows += [tuple(cells) for cells in block.get("beside", ())]  # of other experiments
    many = len(block["targets"])
    counted = many - len(block["excluded"])
    header = ("method", "variance", "worst", "cost", "most expensive", "paired", "pre\xaddicted",
              "needed", "saved")  # fmt: skip
    caption = f"{block['robot']}, {block['protocol']}: {counted} of {many} targets"
    return Table(caption, header, tuple(rows))


def _extreme(one: Mapping[str, Any]) -> str:
    return f"{one['value']:.2f} ± {one['error']:.2f}"


def _findings(block: Mapping[str, Any], epsilon: float) -> list[str]:
    """Targets that a reader should know of."""
    said, rows = [], {row["method"]: row for row in block["methods"]}
    if block["excluded"]:
        names = ", ".join(block["excluded"])
        said.append(f"No variance to reduce, left out of the means: {names}.")
    for name in constrained(rows):
        row, lists = rows[name], []
        if "relative_cost_error" not in row:  # results of earlier versions
            continue
        for what, level in (("cost", 1.02 + epsilon), ("variance", 1.1)):
            values, errors = row[f"relative_{what}"]["values"], row[f"relative_{what}_error"]
            every = zip(row["targets"], values, errors, strict=True)
            lists.append([target for target, x, error in every if x - 2.0 * error > level])
        extremes = (
            f"cost above {1.02 + epsilon:g}",
            "variance above 1.1",
            "refuted by the certificate",
        )
        words = [
            f"{words} ({', '.join(some)})"
            for words, some in zip(extremes, (*lists, row["refuted"]), strict=True)
            if some
        ]
        if words:
            said.append(f"{name}, by more than two standard errors: {'; '.join(words)}.")
    return said


_FRONTIER_NOTES = Note(
    "Frontiers of scope-dr; mean and standard error over the targets that have a design at the "
    "asked cost, relative to the target's own. Largest / asked: the largest measured cost over the "
    "asked one. Predicted: variance and cost. Safe, refuted: certificates on the asked cost; the "
    "others have not enough evidence."
)


def _frontier_table(block: Mapping[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = []
    for point in block["points"]:
        some, verdicts = point["cost"], point["verdicts"]
        many = 0 if some is None else len(some["values"])
        cells = [f"{point['asked']:.2f}", f"{many} of {len(block['targets'])}"]
        if some is None:
            rows.append((*cells, *["-"] * 6))
            continue
        cells += [text_of(point["variance"]), text_of(some)]
        cells.append(f"{max(some['values']) / point['asked']:.3f}")
        cells += [text_of(point[f"predicted_{what}"]) for what in ("variance", "cost")]
        rows.append((*cells, f"{verdicts.count('safe')}, {verdicts.count('refuted')}"))
    header = ("asked", "targets", "variance", "cost", "largest / asked", "predicted", "its cost",
              "safe, refuted")  # fmt: skip
    return Table(block["robot"], header, tuple(rows))


# -- figure ----------------------------------------------------------------------------------------

#: Upper end of the axes of `calibration`.
FAR = 3.0
#: Robot -> color and marker.
_COLORS = ("#d55e00", "#0f7fc4", "#c75fa0", "#00986f", "#d98a00")
_ROBOTS = dict(zip(ROBOTS, zip(_COLORS, "^svoD", strict=True), strict=True))


def figure(content: Mapping[str, Any]) -> dict[str, Figure]:
    """For each protocol: errors against cost, and predicted numbers against measured ones."""
    if "points" in content["blocks"][0]:
        return {}
    drawn = {}
    for protocol in content["config"]["protocols"]:
        blocks = [b for b in content["blocks"] if b["protocol"] == protocol and b["methods"]]
        shown = drawing.error_panels(blocks, [block["robot"] for block in blocks])
        drawn[f"error-cost-{protocol}"] = drawing.error_figure(shown, least=0.5)
        drawn[f"calibration-{protocol}"] = calibration(blocks)
    return drawn


def calibration(blocks: Sequence[Mapping[str, Any]]) -> Figure:
    """Relative variance and cost, predicted (full) and checked (hollow) against measured.

    One point for each target, for the constrained methods; bars are standard errors of what was
    measured, where they are stored. Points on the line were predicted correctly; above it, the
    design was too optimistic. What is beyond `FAR` stands at the edge.
    """
    methods = constrained([row["method"] for block in blocks[:1] for row in block["methods"]])
    with drawing.panels(max(2 * len(methods), 1)) as (figure, axes):
        for i, method in enumerate(methods):
            for j, what in enumerate(("variance", "cost")):
                ax = axes[2 * i + j]
                for block in blocks:
                    rows = {row["method"]: row for row in block["methods"]}
                    _points(ax, rows[method], _ROBOTS[block["robot"]], what)
                _diagonal(ax)
                ax.set_xlabel(f"predicted {what}")
                ax.set_ylabel(f"measured {what}")
                ax.set_title(method)
        _legend(figure, [block["robot"] for block in blocks])
        return figure


def _points(ax: Axes, row: Mapping[str, Any], look: tuple[str, str], what: str) -> None:
    color, marker = look
    y = np.array(row[f"relative_{what}"]["values"], dtype=float)
    for name in ("checked", "predicted"):
        if f"{name}_{what}" not in row:
            continue
        found = np.array(row[f"{name}_{what}"]["values"], dtype=float)
        ax.errorbar(
            np.minimum(found, FAR),
            np.minimum(y, FAR),
            yerr=row.get(f"relative_{what}_error") if name == "predicted" else None,
            color=color,
            marker=marker,
            markersize=4.5,
            markerfacecolor=color if name == "predicted" else "none",
            linestyle="none",
            linewidth=0.7,
            alpha=0.85,
        )


def _diagonal(ax: Axes) -> None:
    """The line where both are the same; and 1, the number of on-policy Monte Carlo."""
    ends = [*ax.get_xlim(), *ax.get_ylim()]
    low, high = max(min(ends), 0.0), min(max(ends), 1.02 * FAR)
    ax.plot([low, high], [low, high], color=drawing.INK, linewidth=0.9, zorder=0)
    ax.axhline(1.0, color=drawing.INK, linewidth=0.7, linestyle=(0, (2, 3)), zorder=0)
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)


def _legend(figure: Figure, robots: list[str]) -> None:
    from matplotlib.lines import Line2D

    def mark(color: str, marker: str, face: str, label: str) -> Any:
        return Line2D(
            [], [], color=color, marker=marker, markerfacecolor=face, linestyle="none", label=label
        )

    handles = [mark(*_ROBOTS[robot], _ROBOTS[robot][0], robot) for robot in robots]
    handles.append(mark(drawing.INK, "o", drawing.INK, "predicted"))
    handles.append(mark(drawing.INK, "o", "none", "checked on other logs"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 3))


if __name__ == "__main__":
    main("experiments.mujoco")

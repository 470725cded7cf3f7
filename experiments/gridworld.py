"""The paper's Gridworld: every method on thirty targets, learned from the same logs.

Every target lives in a world of its own (how much can be saved depends on the draw of the world's
rewards and costs as much as on the target) and has 1,000 logged episodes of 30 other controllers.
For every method, over 30 runs of 1,000 episodes:

- *relative variance* and *relative cost* of one episode. Designs are judged exactly in the true
  model; ROS, whose episodes depend on each other, by the variance over runs of its last estimate;
- *needed*: cost for on-policy's accuracy after 1,000 episodes, in on-policy episodes:
  1000 (relative variance) (relative cost), as in every row of the paper;
- *crossing*: the same, read off the measured error curves: the cost after which the mean error
  remains below on-policy's last one. For ROS this is the number to trust: its error does not fall
  like 1 / sqrt(episodes).

`direct` is no sampling method: it is the critics' own estimate v(s0), from the logs alone and at no
cost. No number of episodes makes its error smaller.

``--critics mlp`` learns with the paper's networks. ``--critics exact`` learns and samples nothing:
designs by dynamic programming, what the methods can reach.

A method of your own: ``--methods mine:half``, where ``half`` in mine.py is a `scopeval` `Method`.
Estimators, of your own too: ``--estimators wis fqe mine:clipped``, each on the episodes of every
method that designs, beside the one it is meant for (``auto``).

Differs from the paper: its text does not give the reward and cost functions ("randomly generate"),
so its numbers stand beside ours for comparison and are not a goal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from experiments import drawing
from experiments.baselines.ros import ros_tabular
from experiments.common import (
    REFERENCE,
    Note,
    RunArgs,
    Table,
    constrained,
    judge_exactly,
    main,
    mean_of,
    methods_of,
    saved_of,
    text_of,
)
from experiments.mlp.regression import MLPRegression
from scopeval import Inference, Promise, collect, design, estimate, exact, simulate
from scopeval.behavior.evidence import Learn, learn_of
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.cli.sources import attribute_from, estimator_from
from scopeval.envs.gridworld import Gridworld, cells, gridworld_logs, target_policies
from scopeval.errors import InputError
from scopeval.models import table as models
from scopeval.policies.adapters import TabularPolicy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scopeval.arrays import Floats, Ints

#: Methods that run episodes but design no behavior policy from the logs.
BASELINES = ("ros", "ros-reset")
#: With exact values only: the constraint uses the cost-to-go under the target policy.
BY_TARGET = "scope (target)"
CostLaw = Literal["same-tilt", "uniform", "reward", "opposite-tilt"]
#: (variance, cost, needed) of the paper's Table 1, by size and method.
PAPER: dict[int, dict[str, tuple[float, float, int]]] = {
    10: {"scope": (0.547, 0.861, 472), "odi": (0.460, 1.602, 738), "ros": (0.953, 1.083, 1035)},
    30: {"scope": (0.575, 0.849, 487), "odi": (0.484, 1.590, 765), "ros": (0.987, 1.067, 1049)},
}


def published(block: Mapping[str, Any]) -> dict[str, tuple[float, float, int]]:
    """The paper's (variance, cost, needed) of a world, by method."""
    return PAPER.get(block["size"], {})


@dataclass(frozen=True)
class Args(RunArgs):
    """The paper's Gridworld."""

    sizes: tuple[int, ...] = (10, 30)
    """Cells along one side; also the horizon. The paper has 10 and 30."""
    cost_laws: tuple[CostLaw, ...] = ("same-tilt",)
    """How costs are drawn, see `envs.gridworld`."""
    targets: int = 30
    """Number of target policies, as in the paper."""
    worlds: int | None = None
    """Number of worlds that the targets share in turn; one for each target if it is left out."""
    critics: str = "table"
    """What learns the values: "table", with the cells' coordinates as features, "mlp", the paper's
    networks, "exact" for nothing, exact values; or module:attribute, a function of the coordinates
    [S, 2] that returns a regression over state numbers."""
    methods: tuple[str, ...] = ("scope", "scope-dr", "odi", "dopt", *BASELINES)
    """Registered methods, module:attribute, ros or ros-reset."""
    estimators: tuple[str, ...] = ()
    """Of `Inference(estimator=)`, or module:attribute: each in a table of squared errors."""
    epsilon: float = 0.0
    """Safety parameter of the constrained methods."""
    epsilons: tuple[float, ...] = (0.0, 0.1, 0.25, 0.5, 1.0)
    """More of them, for the figure of variance against cost."""
    budget: Literal["state", "episode"] = "state"
    """What the cost budget limits: every state (the paper's), or whole episodes."""
    runs: int = 30
    """Independent runs of each method for each target, as in the paper."""
    episodes: int = 1000
    """Episodes of one run, as in the paper."""
    logged: int = 1000
    """Logged episodes to learn from, as in the paper."""
    seed: int = 0
    """Target k is in world seed + k; targets, logs and runs follow from it, too."""

    RANGES: ClassVar[tuple[str, ...]] = ("sizes", "cost_laws", "targets", "worlds")

    def check(self) -> None:
        """Refuse what cannot be run, before the work."""
        if self.worlds is not None and not 1 <= self.worlds <= self.targets:
            raise InputError(
                f"worlds: got {self.worlds} for {self.targets} targets; expected at least one, and "
                "at most one for each target"
            )
        names_of(self)
        if self.critics != "exact":
            regression_of(self, self.sizes[0])
        for spec in self.estimators:
            Inference(estimator=estimator_from(spec))
        if self.estimators and self.critics == "exact":
            raise InputError("estimators: exact values have no episodes; leave critics=exact out")

    @property
    def name(self) -> str:
        """Exact values have a file of their own."""
        return "gridworld-exact" if self.critics == "exact" else "gridworld"


QUICK: dict[str, Any] = {"sizes": (10,), "targets": 6, "runs": 5}


def names_of(args: Args) -> tuple[str, ...]:
    """Names of the methods; ROS samples, so it has no exact values."""
    others = (BY_TARGET,) if args.critics == "exact" else BASELINES
    specs = [m for m in args.methods if args.critics != "exact" or m not in BASELINES]
    return methods_of(specs, others)


def regression_of(args: Args, size: int) -> Learn:
    """What learns the values in a world of this size."""
    if args.critics == "table":
        return models.Table(features=cells(size))
    if args.critics == "mlp":
        return MLPRegression(states=size**2)
    if ":" not in args.critics:
        raise InputError(
            f"critics: got {args.critics!r}, expected table, mlp, exact or module:attribute"
        )
    made: Learn = attribute_from(args.critics, "critics")(cells(size))
    learn_of(made)
    return made


def jobs(args: Args) -> list[dict[str, Any]]:
    """One for each target."""
    return [
        {
            "size": size,
            "cost_law": law,
            "target": k,
            "world": args.seed + k % (args.worlds or args.targets),
        }
        for size in args.sizes
        for law in args.cost_laws
        for k in range(args.targets)
    ]


def job(args: Args, size: int, cost_law: str, target: int, world: int) -> dict[str, Any]:
    """Every method on one target."""
    mdp = Gridworld(size, cost_law, world).mdp()
    pi = target_policies(target + 1, size, seed=args.seed)[target]
    if args.critics == "exact":
        return {"methods": {name: _by_exact_values(args, mdp, pi, name) for name in names_of(args)}}
    return _Target(args, mdp, pi, size, args.seed + target).answer(target)


def _by_exact_values(
    args: Args, mdp: exact.TabularMDP, pi: TabularPolicy, name: str
) -> dict[str, float]:
    if name == REFERENCE:
        return {"relative_variance": 1.0, "relative_cost": 1.0, "worst_state": 1.0}
    mu = exact.design(
        mdp,
        pi,
        "scope" if name == BY_TARGET else name,
        promise=Promise(at_most=1.0 + args.epsilon, per=args.budget),
        constraint="target" if name == BY_TARGET else "behavior",
    )
    variance, cost = judge_exactly(mdp, pi, mu)
    worst = worst_state(mdp, pi, mu)
    return {"relative_variance": variance, "relative_cost": cost, "worst_state": worst}


def worst_state(mdp: exact.TabularMDP, target: TabularPolicy, behavior: TabularPolicy) -> float:
    """Largest v^c_mu / v^c_pi over the states and times that the target can visit."""
    ours, theirs = (exact.cost_values(mdp, policy).v[:-1] for policy in (behavior, target))
    visited = mdp.initial > 0
    worst = 0.0
    for t, pi in enumerate(target.table(mdp.horizon)):
        here = visited & (theirs[t] > 0)
        worst = max(worst, float((ours[t][here] / theirs[t][here]).max(initial=0.0)))
        visited = mdp.transition.T @ (visited[:, None] * pi).ravel() > 0
    return worst


def episode_grid(episodes: int) -> Ints:
    """Numbers of episodes at which errors are recorded, evenly spaced on a logarithmic axis."""
    if not episodes:
        return np.empty(0, np.int64)
    return np.unique(np.geomspace(1, episodes, 49).round().astype(np.int64))


class _Target:
    """What all methods share on one target; units are on-policy's."""

    def __init__(
        self, args: Args, mdp: exact.TabularMDP, pi: TabularPolicy, size: int, seed: int
    ) -> None:
        self.args, self.mdp, self.pi, self.size, self.seed = args, mdp, pi, size, seed
        self.own = exact.assess(mdp, pi, pi)
        self.logs = gridworld_logs(mdp, args.logged, seed=seed)
        self.grid = episode_grid(args.episodes)

    def answer(self, target: int) -> dict[str, Any]:
        args, names = self.args, names_of(self.args)
        words = np.random.SeedSequence((args.seed, target, 5)).generate_state(2, np.uint64)
        self.seeds = [int(word) >> 1 for word in words]
        alone = self.simulate(None)
        # The mean over all episodes of all runs: each could be the first episode of a run.
        self.unit = float(np.abs(alone.estimate - self.own.value).mean())
        learned = {
            name: self.learn(name, args.epsilon)
            for name in names
            if name not in (REFERENCE, *BASELINES)
        }
        numbers = {}
        for name in names:
            if name in BASELINES:
                numbers[name] = self.ros(reset=name == "ros-reset")
            elif name == REFERENCE:
                ones = {"relative_variance": 1.0, "relative_cost": 1.0, "worst_state": 1.0}
                numbers[name] = ones | self.measured(alone.estimate, alone.cost)
            else:
                numbers[name] = self.designed(learned[name])
        # The critics of every design estimate the same v, so those of one of them are enough.
        some = learned.get("scope") or self.learn("scope", args.epsilon)
        states = np.arange(self.mdp.states)
        q = some.critics[0].at(states).q
        direct = float(self.mdp.initial @ (self.pi.probs(states, 0) * q).sum(axis=1))
        error = direct - self.own.value
        return {
            "methods": numbers,
            "direct_error": error / self.unit,
            "direct_square": error**2 / self.own.variance,
            "estimators": {
                name: self.estimated(learned.get(name)) for name in (REFERENCE, *learned)
            }
            if args.estimators
            else {},
            "frontier": [
                self.point(name, epsilon, learned[name])
                for name in constrained(names)
                for epsilon in args.epsilons
            ],
        }

    def learn(self, method: str, epsilon: float) -> BehaviorPolicy:
        """A design from the logs."""
        return design(
            self.logs,
            self.pi,
            horizon=self.mdp.horizon,
            method=method,
            seed=self.seed,
            promise=Promise(at_most=1 + epsilon, per=self.args.budget),
            learn=regression_of(self.args, self.size),
        )

    def simulate(self, behavior: BehaviorPolicy | None) -> simulate.Summaries:
        """All episodes of all runs."""
        mu, b = behavior.table(self.mdp.states) if behavior is not None else (None, None)
        return simulate.summaries(
            self.mdp,
            self.pi,
            mu,
            episodes=self.args.runs * self.args.episodes,
            control_variate=b,
            seed=self.seeds[0],
            threads=1,
        )

    def designed(self, behavior: BehaviorPolicy) -> dict[str, Any]:
        """Judged exactly, and measured."""
        ran = self.simulate(behavior)
        variance, cost = judge_exactly(self.mdp, self.pi, behavior, self.own)
        limit = self.limit(behavior.recipe.method.name, self.args.epsilon)
        table = TabularPolicy(behavior.table(self.mdp.states)[0])
        return {
            "relative_variance": variance,
            "relative_cost": cost,
            "worst_state": worst_state(self.mdp, self.pi, table),
            "limit_variance": limit[0],
            "limit_cost": limit[1],
            "predicted_variance": behavior.predicted.variance,
            "predicted_cost": behavior.predicted.cost,
            **self.measured(ran.estimate, ran.cost),
        }

    def estimated(self, behavior: BehaviorPolicy | None) -> dict[str, float]:
        """Mean squared error of each estimator, relative to on-policy's theoretical variance."""
        runs, n = self.args.runs, self.args.episodes
        every = collect(self.mdp, self.pi, behavior, episodes=runs * n, seed=self.seeds[0])
        squares = {}
        for spec in ("auto", *self.args.estimators):
            by = Inference(estimator=estimator_from(spec))
            errors = [
                estimate(every.select(slice(k * n, k * n + n)), self.pi, inference=by).estimate
                - self.own.value
                for k in range(runs)
            ]
            squares[spec] = float(np.mean(np.square(errors)) * n / self.own.variance)
        return squares

    def ros(self, *, reset: bool) -> dict[str, Any]:
        """ROS as its authors run it, or reset after each episode."""
        ran = ros_tabular(
            self.mdp,
            self.pi,
            runs=self.args.runs,
            episodes=self.args.episodes,
            seed=self.seeds[1],
            reset_each_episode=reset,
            threads=1,
        )
        found = self.measured(ran.returns, ran.costs)
        names = {"relative_variance": "measured_variance", "relative_cost": "measured_cost"}
        return {**{name: found[old] for name, old in names.items()}, **found}

    def point(self, method: str, epsilon: float, learned: BehaviorPolicy) -> dict[str, Any]:
        """A design for one epsilon, judged exactly; `learned` is that for the usual one."""
        if epsilon != self.args.epsilon:
            learned = self.learn(method, epsilon)
        found = *judge_exactly(self.mdp, self.pi, learned, self.own), *self.limit(method, epsilon)
        return {"method": method, "epsilon": epsilon, **dict(zip(POINT, found, strict=True))}

    def limit(self, method: str, epsilon: float) -> tuple[float, float]:
        """What a method reaches with exact values."""
        best = exact.design(
            self.mdp, self.pi, method,
            promise=Promise(at_most=1.0 + epsilon, per=self.args.budget),
        )  # fmt: skip
        return judge_exactly(self.mdp, self.pi, best, self.own)

    def measured(self, values: Floats, costs: Floats) -> dict[str, Any]:
        """Curves over the grid and last estimates, means over the runs.

        Errors are in units of the mean error of one on-policy episode, variances and squared errors
        relative to on-policy's in theory, costs to on-policy's expected cost.
        """
        size, upto = (self.args.runs, self.args.episodes), self.grid - 1
        values, costs = values.reshape(size), costs.reshape(size)
        means = np.cumsum(values, axis=1)[:, upto] / self.grid
        spent = np.cumsum(costs, axis=1)[:, upto] / self.own.cost
        last = means[:, -1]
        by_theory = self.own.variance / self.args.episodes
        return {
            "measured_variance": float(last.var(ddof=1) / by_theory),
            "measured_square": float(((last - self.own.value) ** 2).mean() / by_theory),
            "measured_cost": float(costs.mean() / self.own.cost),
            "bias": float((last.mean() - self.own.value) / self.unit),
            "errors": (np.abs(means - self.own.value).mean(axis=0) / self.unit).tolist(),
            "costs": spent.mean(axis=0).tolist(),
        }


#: Numbers of a point of the frontier.
POINT = ("variance", "cost", "limit_variance", "limit_cost")
#: Further numbers of a method.
NUMBERS = ("measured_variance", "measured_square", "measured_cost", "bias", "worst_state",
           "limit_variance", "limit_cost", "predicted_variance", "predicted_cost")  # fmt: skip


# -- summary ---------------------------------------------------------------------------------------


def summary(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A block for each size and cost law: statistics over the targets."""
    places = dict.fromkeys((row["size"], row["cost_law"]) for row in rows)
    blocks = [
        _block(args, [row for row in rows if (row["size"], row["cost_law"]) == place])
        for place in places
    ]
    return {"blocks": blocks}


def _block(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    size, names = rows[0]["size"], names_of(args)
    found: dict[str, Any] = {"size": size, "cost_law": rows[0]["cost_law"]}
    if args.critics == "exact":
        return found | {"methods": [_statistics(name, rows) for name in names]}
    direct = {"error": "direct_error", "squared_error": "direct_square"}
    return found | {
        "episodes": episode_grid(args.episodes).tolist(),
        "methods": [{**_statistics(name, rows), **_curves(args, name, rows)} for name in names],
        "direct": {name: mean_of([row[old] for row in rows]) for name, old in direct.items()},
        "frontier": [_frontier(args, name, rows) for name in constrained(names)],
        "estimators": {
            name: {spec: mean_of([row["estimators"][name][spec] for row in rows]) for spec in first}
            for name, first in rows[0].get("estimators", {}).items()
        },
    }


def _statistics(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    each = [row["methods"][name] for row in rows]
    by_design = each[0].get("worst_state") is not None
    # ROS may be biased, so the squared error takes the place of the variance
    inexact = [one["relative_variance" if by_design else "measured_square"] for one in each]
    costs = [one["relative_cost"] for one in each]
    needed = mean_of(1000.0 * np.array(inexact) * np.array(costs))
    found = {
        "method": name,
        "relative_variance": mean_of([one["relative_variance"] for one in each]),
        "relative_cost": mean_of(costs),
        "cost_needed": needed,
        "saved": 1.0 - needed["mean"] / 1000.0,
        "exact": by_design,
    }
    more = {n: mean_of([one[n] for one in each]) if n in each[0] else None for n in NUMBERS}
    return found | {n: value for n, value in more.items() if value is not None or n in each[0]}


def _curves(args: Args, name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    each = [row["methods"][name] for row in rows]
    errors, costs = (np.array([one[what] for one in each]) for what in ("errors", "costs"))
    own = np.array([row["methods"][REFERENCE]["errors"] for row in rows])
    cost, spread = crossing_of(errors, costs, own)
    if name == REFERENCE:
        cost, spread = float(args.episodes), None  # by definition
    return {
        "crossing": {"cost": cost, "standard_error": spread},
        "curve": {
            "error": errors.mean(axis=0).tolist(),
            "standard_error": standard_errors(errors).tolist(),
            "cost": costs.mean(axis=0).tolist(),
        },
    }


def _frontier(args: Args, name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    points = [[p for p in row["frontier"] if p["method"] == name] for row in rows]
    means = {
        what: np.mean([[p[what] for p in of_target] for of_target in points], axis=0).tolist()
        for what in POINT
    }
    return {"method": name, "epsilon": list(args.epsilons), **means}


def standard_errors(values: Floats) -> Floats:
    """Standard errors over the first axis; zero for a single row."""
    rows = len(values)
    if rows < 2:
        return np.zeros(values.shape[1:])
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(rows))


def crossing_of(errors: Floats, costs: Floats, own: Floats) -> tuple[float | None, float | None]:
    """The cost at which a method is as accurate as on-policy is at the end, for good.

    Where the mean over targets of `errors` [K, G] falls below on-policy's last mean error; between
    two points of the grid both axes are logarithmic. The standard error is the jackknife's over
    targets. None where the method never gets there.
    """
    targets = len(errors)
    everyone = np.ones(targets, np.bool_)
    cost = _cross(errors, costs, own, everyone)
    if targets < 2 or cost is None:
        return cost, None
    without = [_cross(errors, costs, own, np.arange(targets) != k) for k in range(targets)]
    if any(one is None for one in without):
        return cost, None
    left = np.array(without, dtype=np.float64)
    spread = (targets - 1) / targets * ((left - left.mean()) ** 2).sum()
    return cost, float(np.sqrt(spread))


def _cross(errors: Floats, costs: Floats, own: Floats, which: Any) -> float | None:
    level = float(own[which, -1].mean())
    error, cost = errors[which].mean(axis=0), costs[which].mean(axis=0)
    above = np.flatnonzero(error > level)
    if len(above) == 0:
        return float(cost[0])
    last = int(above[-1])
    if last == len(error) - 1:
        return None
    e, c = np.log(error[last : last + 2]), np.log(cost[last : last + 2])
    share = (e[0] - np.log(level)) / (e[0] - e[1])
    return float(np.exp(c[0] + share * (c[1] - c[0])))


# -- table -----------------------------------------------------------------------------------------


def table(content: Mapping[str, Any]) -> list[Table | str]:
    """Two tables for each size and cost law (one of exact values), and how to read them."""
    config, learned = content["config"], "direct" in content["blocks"][0]
    shown: list[Table | str] = []
    for block in content["blocks"]:
        shown.append(_main_table(block, config))
        if learned:
            shown.append(_error_table(block, config))
            shown += _estimator_table(block, config)
    notes = (
        f"{config['targets']} targets, seed {config['seed']}; ± standard error over the targets. "
        "Variance and cost of one episode are relative to on-policy Monte Carlo, exact for "
        "designs. Worst state: expected cost from a state on, relative to the target policy's, at "
        "the state where it is largest. Needed: cost for the accuracy of 1,000 on-policy episodes, "
        "in on-policy episodes, 1000 x variance x cost. "
    )
    if learned:
        notes += (
            "For ros, whose episodes depend on each other, everything is measured over runs, with "
            "the squared error instead of the variance. Crossing: needed, read off the measured "
            f"error curves. Squared error: after {config['episodes']:,} episodes, relative to "
            "on-policy's theoretical variance; |error| in units of the mean error of one on-policy "
            "episode. Limit: with exact values. ros-reset: ros that is reset after every episode, "
            "an ablation. direct: the critics' own estimate, without any episode. "
        )
    notes += "Paper: it does not say how rewards and costs were drawn."
    return [*shown, Note(notes)]


def _main_table(block: Mapping[str, Any], config: Mapping[str, Any]) -> Table:
    rows = []
    paper = published(block)
    crosses = "crossing" in block["methods"][0]
    for row in block["methods"]:
        name, worst = row["method"], row.get("worst_state")
        if name == REFERENCE:
            continue
        cells = [
            name,
            text_of(row["relative_variance"]),
            text_of(row["relative_cost"]),
            f"{max(worst['values']):.2f}" if worst else "",
            text_of(row["cost_needed"], ".0f"),
            saved_of(row["saved"]),
        ]
        rows.append((*cells, _crossing(row["crossing"])) if crosses else tuple(cells))
        if name in paper:
            variance, cost, needed = paper[name]
            saved = f"{1 - needed / 1000:.0%}"
            cells = ["  paper", f"{variance:.3f}", f"{cost:.3f}", "", f"{needed}", saved]
            rows.append((*cells, "") if crosses else tuple(cells))
    how = (
        "exact values"
        if config.get("critics", "exact") == "exact"
        else (f"{config['logged']:,} logged episodes ({config['critics']})")
    )
    caption = f"Gridworld {block['size']} x {block['size']}, cost law {block['cost_law']}, {how}"
    header = ("method", "variance", "cost", "worst state", "needed", "saved")
    return Table(caption, (*header, "crossing") if crosses else header, tuple(rows))


def _error_table(block: Mapping[str, Any], config: Mapping[str, Any]) -> Table:
    rows = []
    for row in block["methods"]:
        curve = row["curve"]
        last = {"mean": curve["error"][-1], "standard_error": curve["standard_error"][-1]}
        limits = [text_of(row.get(f"limit_{what}")) for what in ("variance", "cost")]
        cells = (row["method"], text_of(row["measured_square"]), text_of(last, ".4f"), *limits)
        rows.append(cells)
    values = {name: np.array(one["values"]) for name, one in block["direct"].items()}
    square = text_of(mean_of(config["episodes"] * values["squared_error"]))
    rows.append(("direct", square, text_of(mean_of(abs(values["error"])), ".4f"), "", ""))
    caption = f"Errors measured over {config['runs']} runs for each target, and limits"
    return Table(
        caption,
        ("method", "squared error", "|error|", "limit: variance", "limit: cost"),
        tuple(rows),
    )


def _estimator_table(block: Mapping[str, Any], config: Mapping[str, Any]) -> list[Table | str]:
    """A row for each policy that ran, a column for each estimator of the same episodes."""
    rows = block.get("estimators")
    if not rows:
        return []
    specs = list(next(iter(rows.values())))
    caption = (
        f"Squared error of other estimators after {config['episodes']:,} episodes, over "
        f"{config['runs']} runs for each target (auto: the one that the policy is meant for)"
    )
    cells = tuple((name, *(text_of(by[spec]) for spec in specs)) for name, by in rows.items())
    return [Table(caption, ("what ran", *specs), cells)]


def _crossing(crossing: Mapping[str, Any]) -> str:
    if crossing["cost"] is None:
        return "not reached"
    return text_of({"mean": crossing["cost"], **crossing}, ".0f")


# -- figure ----------------------------------------------------------------------------------------


def figure(content: Mapping[str, Any]) -> dict[str, Figure]:
    """All figures by name, of a JSON file's content; the frontier if methods are constrained."""
    blocks = content["blocks"]
    if "curve" not in blocks[0]["methods"][0]:
        return {}
    shown = drawing.error_panels(blocks, [_title(block) for block in blocks])
    drawn = {
        "error-episodes": drawing.error_figure(shown, episodes=blocks[0]["episodes"]),
        "error-cost": drawing.error_figure(shown),
        "cost-by-target": _cost_by_target(content),
    }
    return drawn | ({"frontier": _draw_frontier(content)} if blocks[0]["frontier"] else {})


def _title(block: Mapping[str, Any]) -> str:
    return f"{block['size']} x {block['size']}, {block['cost_law']}"


def _cost_by_target(content: Mapping[str, Any]) -> Figure:
    """Relative cost of each target's learned design, sorted; the line is what is allowed."""
    allowed = 1.0 + content["config"]["epsilon"]
    with drawing.panels(len(content["blocks"])) as (figure, axes):
        for ax, block in zip(axes, content["blocks"], strict=True):
            ax.axhline(
                allowed, color=drawing.INK, linewidth=1.0, zorder=1, label=f"allowed: {allowed:g}"
            )
            names = [row["method"] for row in block["methods"]]
            looks, safe = drawing.looks_of(names), constrained(names)
            for name, row in zip(names, block["methods"], strict=True):
                if name == REFERENCE or not row["exact"]:
                    continue
                values = np.sort(row["relative_cost"]["values"])
                x = np.arange(1, len(values) + 1)
                drawing.marks(
                    ax, x, values, looks[name], 4.5, filled=name in safe, label=name, zorder=2
                )
            ax.set_xlabel("targets, by cost")
            ax.set_title(_title(block))
            ax.xaxis.get_major_locator().set_params(integer=True)
        drawing.label_rows(axes, "relative cost")
        drawing.legend(figure, axes)
        return figure


def _draw_frontier(content: Mapping[str, Any]) -> Figure:
    """Relative variance against relative cost as the safety parameter grows."""
    with drawing.panels(len(content["blocks"])) as (figure, axes):
        for ax, block in zip(axes, content["blocks"], strict=True):
            methods = {row["method"]: row for row in block["methods"]}
            looks = drawing.looks_of(list(methods))
            for k, line in enumerate(block["frontier"]):
                name, look = line["method"], looks[line["method"]]
                learned = f"{name}, learned", line["cost"], line["variance"], True
                limit = f"{name}, exact values", line["limit_cost"], line["limit_variance"], False
                for label, cost, variance, filled in (learned, limit):
                    drawing.marks(
                        ax,
                        cost,
                        variance,
                        look,
                        5,
                        filled=filled,
                        linestyle="-" if filled else ":",
                        linewidth=1.2,
                        label=label,
                    )
                if k == 0:
                    _name_epsilons(ax, line)
            for name in ("odi", "ros"):
                if name in methods:
                    x, y = (
                        methods[name][f"relative_{what}"]["mean"] for what in ("cost", "variance")
                    )
                    drawing.marks(ax, x, y, looks[name], 7, filled=True, label=name)
            ax.set_ylim(bottom=0.0)
            ax.set_xlabel("relative cost")
            ax.set_title(_title(block))
            ax.locator_params(axis="x", nbins=5)
            ax.margins(x=0.12, y=0.15)
        drawing.label_rows(axes, "relative variance")
        drawing.legend(figure, axes)
        return figure


def _name_epsilons(ax: Axes, line: Mapping[str, Any]) -> None:
    """Label the first point, and the others together, for they lie close to each other."""
    cost, variance = line["cost"], line["variance"]
    first, *others = line["epsilon"]
    names = [f"eps {first:g}"]
    if others:
        names.append(f"eps {others[0]:g}" + (f" to {others[-1]:g}" if others[1:] else ""))
    for j, text in enumerate(names):
        ax.annotate(
            text,
            (cost[j], variance[j]),
            textcoords="offset points",
            xytext=(8, 0) if j == 0 else (-4, 8),
            va="center" if j == 0 else "bottom",
            fontsize=8.5,
        )


if __name__ == "__main__":
    main("experiments.gridworld")

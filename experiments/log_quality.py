"""How good must the logs be? Learned designs against the number of logged episodes, and bad logs.

Every design is judged exactly in the true model: its relative variance and cost, mean over the
targets and worst target, beside what the design predicted. Good logs are the paper's (30
controllers of every quality in turn), in numbers from 30 to 10,000 episodes; bad ones are

- ``one controller``: all episodes by one deterministic controller, the best;
- ``half the grid``: episodes stop when they enter the upper half, where rewards and costs are
  largest;
- ``mixed-up rewards``: a tenth of the rewards is replaced by those of other rows;
- ``tenfold rewards``: a tenth of the rewards is ten times too large.

As logs get worse, a design should fall back to the target policy, and stay safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from experiments import drawing
from experiments.common import (
    REFERENCE,
    Note,
    RunArgs,
    Table,
    judge_exactly,
    main,
    mean_of,
    methods_of,
)
from experiments.gridworld import CostLaw
from scopeval import Transitions, design, exact
from scopeval.envs.gridworld import Gridworld, cells, logging_policies, logs_of, target_policies
from scopeval.models import table as models
from scopeval.policies.adapters import TabularPolicy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Bad = Literal["one controller", "half the grid", "mixed-up rewards", "tenfold rewards"]
BAD: tuple[Bad, ...] = ("one controller", "half the grid", "mixed-up rewards", "tenfold rewards")
#: Share of the rewards that are replaced in bad logs.
REPLACED = 0.1
#: Largest relative error of a prediction that is good.
WITHIN = 0.25


@dataclass(frozen=True)
class Args(RunArgs):
    """How good logs must be."""

    sizes: tuple[int, ...] = (10,)
    """Cells along one side; also the horizon."""
    cost_law: CostLaw = "same-tilt"
    """How costs are drawn, see `envs.gridworld`."""
    targets: int = 30
    """Number of target policies, each in its own world."""
    episodes: tuple[int, ...] = (30, 100, 300, 1000, 3000, 10000)
    """Numbers of good logged episodes."""
    bad_episodes: int = 1000
    """Number of logged episodes of each kind of bad logs."""
    bad: tuple[Bad, ...] = BAD
    """Kinds of bad logs; may be empty."""
    methods: tuple[str, ...] = ("scope", "scope-dr")
    """Registered methods, or module:attribute."""
    seed: int = 0
    """Target k is in world seed + k, and its logs follow from that number."""

    RANGES: ClassVar[tuple[str, ...]] = ("sizes", "targets")

    def check(self) -> None:
        """Refuse what cannot be run, before the work."""
        methods_of(self.methods)


QUICK: dict[str, Any] = {"targets": 3}


def jobs(args: Args) -> list[dict[str, Any]]:
    """One for each target."""
    return [{"size": size, "target": k} for size in args.sizes for k in range(args.targets)]


def job(args: Args, size: int, target: int) -> dict[str, Any]:
    """Every method with every kind of logs, with and without the cells' coordinates."""
    world, names = args.seed + target, methods_of(args.methods)[1:]
    mdp = Gridworld(size, args.cost_law, world).mdp()
    pi = target_policies(target + 1, size, seed=args.seed)[target]
    own = exact.assess(mdp, pi, pi)
    controllers = logging_policies(30, mdp, seed=world)
    kinds = [("good", n) for n in args.episodes] + [(kind, args.bad_episodes) for kind in args.bad]
    designs = []
    for kind, episodes in kinds:
        logs = _logs(mdp, controllers, kind, episodes, world)
        for features in (True, False):
            for method in names:
                made = design(
                    logs,
                    pi,
                    horizon=mdp.horizon,
                    method=method,
                    seed=world,
                    learn=models.Table(features=cells(size) if features else None),
                )
                variance, cost = judge_exactly(mdp, pi, made, own)
                designs.append(
                    {
                        "logs": kind,
                        "episodes": episodes,
                        "features": features,
                        "method": method,
                        "variance": variance,
                        "cost": cost,
                        "predicted_variance": made.predicted.variance,
                        "predicted_cost": made.predicted.cost,
                        "fell_back": made.recipe.method.name == REFERENCE,
                    }
                )
    limits = {name: judge_exactly(mdp, pi, exact.design(mdp, pi, name), own) for name in names}
    return {"designs": designs, "limits": limits}


def _logs(
    mdp: exact.TabularMDP, controllers: list[TabularPolicy], kind: str, episodes: int, seed: int
) -> Transitions:
    """Logs of one kind, by `logging_policies` from worst to best."""
    if kind == "one controller":
        best = controllers[-1].table(mdp.horizon)
        always = TabularPolicy(np.eye(mdp.actions)[best.argmax(axis=2)])
        return logs_of(mdp, [always], episodes, seed=seed)
    logs = logs_of(mdp, controllers, episodes, seed=seed)
    if kind == "good":
        return logs
    if kind == "half the grid":
        size = mdp.horizon
        inside = (np.asarray(logs.obs) % size > size // 2).reshape(-1, size)
        return logs.select(~np.logical_or.accumulate(inside, axis=1).ravel())
    rng = np.random.default_rng((seed, 6))
    replaced = rng.random(len(logs)) < REPLACED
    wrong = 10.0 * logs.reward if kind == "tenfold rewards" else rng.permutation(logs.reward)
    return replace(logs, reward=np.where(replaced, wrong, logs.reward))


NUMBERS = ("variance", "cost", "predicted_variance", "predicted_cost")
CASE = ("logs", "episodes", "features", "method")


def summary(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A block for each size: statistics over the targets for every case."""
    blocks = []
    for size in args.sizes:
        here = [row for row in rows if row["size"] == size]
        limits = {
            name: dict(zip(("relative_variance", "relative_cost"), mean, strict=True))
            for name in here[0]["limits"]
            for mean in (np.mean([row["limits"][name] for row in here], axis=0).tolist(),)
        }
        cases = zip(*(row["designs"] for row in here), strict=True)
        blocks.append({"size": size, "limits": limits, "rows": [_case(case) for case in cases]})
    return {"blocks": blocks}


def _case(designs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One kind of logs and method over the targets."""
    numbers = {name: mean_of([one[name] for one in designs]) for name in NUMBERS}
    near = [abs(one["predicted_variance"] / one["variance"] - 1.0) <= WITHIN for one in designs]
    return {
        **{name: designs[0][name] for name in CASE},
        **{name: one | {"worst": max(one["values"])} for name, one in numbers.items()},
        "kept": sum(one["fell_back"] for one in designs),
        "well_predicted": sum(near),
    }


def table(content: Mapping[str, Any]) -> list[Table | str]:
    """A table for each method, with and without coordinates."""
    config = content["config"]
    shown: list[Table | str] = [
        _table(block, method, features)
        for block in content["blocks"]
        for method in block["limits"]
        for features in (True, False)
    ]
    return [
        *shown,
        Note(
            f"{config['targets']} targets, cost law {config['cost_law']}, seed {config['seed']}. "
            "Variance and cost of one episode are relative to on-policy Monte Carlo, exact, mean "
            "over targets. Worst target: the largest of any target. Predicted: by the design. "
            "Falls back: number of targets for which the design falls back to the target policy. "
            "Within 25 %: number of targets whose predicted variance is so near to the true one. "
            f"Bad logs have {config['bad_episodes']:,} episodes."
        ),
    ]


def _table(block: Mapping[str, Any], method: str, features: bool) -> Table:
    rows = []
    for row in _select(block, method, features):
        variance, cost, *predicted = (row[name] for name in NUMBERS)
        numbers = [variance["mean"], variance["worst"], predicted[0]["mean"]]
        numbers += [cost["mean"], cost["worst"], predicted[1]["mean"]]
        name = f"{row['episodes']:,} episodes" if row["logs"] == "good" else row["logs"]
        counts = f"{row['kept']}", f"{row['well_predicted']}"
        rows.append((name, *(f"{x:.3f}" for x in numbers), *counts))
    limit = block["limits"][method]
    caption = (
        f"{method}, {block['size']} x {block['size']}, {'with' if features else 'without'} the "
        f"cells' coordinates (limit: {limit['relative_variance']:.3f} at cost "
        f"{limit['relative_cost']:.3f})"
    )
    header = ("logs", "variance", "worst target", "pre\xaddicted", "cost", "worst target",
              "pre\xaddicted", "falls back", "within 25 %")  # fmt: skip
    return Table(caption, header, tuple(rows))


def _select(
    block: Mapping[str, Any], method: str, features: bool, *, good: bool | None = None
) -> list[dict[str, Any]]:
    """The rows of one table; with `good`, those of one line of the figure."""
    return [
        row
        for row in block["rows"]
        if (row["method"], row["features"]) == (method, features)
        and good in (None, row["logs"] == "good")
    ]


def figure(content: Mapping[str, Any]) -> dict[str, Figure]:
    """Relative variance and cost against the number of logged episodes, and for bad logs.

    Lines and large markers are means over targets, small ones the worst target.
    """
    blocks, config = content["blocks"], content["config"]
    if not config["bad"]:  # half of the figure
        return {}
    with drawing.new_figure(8.4, 6.0 * len(blocks)) as drawn:
        axes = drawn.subplots(2 * len(blocks), 2, squeeze=False, width_ratios=(1.0, 1.1))
        for j, block in enumerate(blocks):
            for i, what in enumerate(("variance", "cost")):
                left, right = axes[2 * j + i]
                _against_episodes(left, block, what)
                _bad_logs(right, block, what)
                name = f"relative {what}"
                left.set_ylabel(f"{block['size']} x {block['size']}: {name}" if not i else name)
                low = min(left.get_ylim()[0], right.get_ylim()[0])
                high = max(left.get_ylim()[1], right.get_ylim()[1])
                for ax in (left, right):
                    ax.set_ylim(0.0 if what == "variance" else low, high)
        axes[0, 0].set_title("good logs (small marks: worst target)")
        axes[0, 1].set_title(f"bad logs, {config['bad_episodes']:,} episodes")
        axes[-1, 0].set_xlabel("logged episodes")
        drawing.legend(drawn, axes[0])
    return {"log-quality": drawn}


def _lines(block: Mapping[str, Any], good: bool) -> list[tuple[str, bool, list[dict[str, Any]]]]:
    """Method, with or without coordinates, and its rows."""
    return [
        (method, features, _select(block, method, features, good=good))
        for method in block["limits"]
        for features in (True, False)
    ]


def _against_episodes(ax: Axes, block: Mapping[str, Any], what: str) -> None:
    ax.axhline(1.0, color=drawing.INK, linewidth=0.9, zorder=1)
    looks = drawing.looks_of(list(block["limits"]))
    for method, features, rows in _lines(block, True):
        x = [row["episodes"] for row in rows]
        style = {
            "linestyle": "-" if features else "--",
            "label": f"{method}, {'with' if features else 'without'} coordinates",
        }
        means, worst = ([row[what][kind] for row in rows] for kind in ("mean", "worst"))
        drawing.marks(ax, x, means, looks[method], 5, filled=features, **style)
        drawing.marks(ax, x, worst, looks[method], 2.8, filled=features)
    if what == "variance":
        for method, limit in block["limits"].items():
            color = looks[method].color
            ax.axhline(limit["relative_variance"], color=color, linewidth=0.8, linestyle=":")
    ax.set_xscale("log")
    drawing.plain_ticks(ax)


def _bad_logs(ax: Axes, block: Mapping[str, Any], what: str) -> None:
    ax.axhline(1.0, color=drawing.INK, linewidth=0.9, zorder=1)
    looks, lines = drawing.looks_of(list(block["limits"])), _lines(block, False)
    for k, (method, features, rows) in enumerate(lines):
        x = np.arange(len(rows)) + 0.16 * (k - (len(lines) - 1) / 2)
        means, worst = ([row[what][kind] for row in rows] for kind in ("mean", "worst"))
        drawing.marks(ax, x, means, looks[method], 6.0, filled=features)
        drawing.marks(ax, x, worst, looks[method], 2.8, filled=features)
    kinds = [row["logs"] for row in lines[0][2]]
    ax.set_xticks(range(len(kinds)), [kind.replace(" ", "\n", 1) for kind in kinds])
    ax.grid(visible=False, axis="x")


if __name__ == "__main__":
    main("experiments.log_quality")

"""Figures of the experiments: results in, matplotlib figures out.

Colors can be told apart by people who are color-blind, every line has a style of its own as well,
and ink and background suit light pages and dark ones.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from scopeval.paper.curves import standard_errors
from scopeval.paper.experiments.gridworld_target import DESIGNS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scopeval.paper.experiments import log_quality as log_quality_experiment
    from scopeval.paper.experiments.gridworld import Block, Frontier, Result

__all__ = [
    "INK",
    "LOOK",
    "cost_by_target",
    "error_against_cost",
    "error_against_episodes",
    "frontier",
    "legend",
    "log_quality",
    "panels",
    "plain_ticks",
    "png",
    "svg",
]

INK, FAINT = "#767676", "#b0b0b0"

#: Method -> color (after Okabe and Ito, for light and dark), line style, marker.
LOOK: dict[str, tuple[str, Any, str]] = {
    "on-policy": ("#7f7f7f", "-", "o"),
    "scope": ("#0f7fc4", "-", "s"),
    "scope-dr": ("#00986f", "-", "D"),
    "odi": ("#d98a00", "--", "^"),
    "dopt": ("#c75fa0", (0, (1.5, 2.5)), "v"),
    "ros": ("#d55e00", ":", "P"),
    "ros-reset": ("#a08560", (0, (4, 1.5, 1, 1.5)), "X"),
}

_STYLE: dict[Any, Any] = {
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.titlesize": 10.0,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.alpha": 0.4,
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "lines.linewidth": 1.7,
    "svg.fonttype": "none",
    "svg.hashsalt": "scopeval",
    "figure.constrained_layout.use": True,
}


@contextmanager
def panels(
    count: int, width: float = 4.2, height: float = 3.6, *, sharey: bool = False
) -> Iterator[tuple[Figure, Any]]:
    """A figure with panels side by side, made without pyplot, so nothing lingers."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context():
        mpl.rcdefaults()  # what a user has set elsewhere must not change the picture
        mpl.rcParams.update(_STYLE)
        figure = Figure(figsize=(max(width * count, 5.2), height))
        yield figure, figure.subplots(1, count, squeeze=False, sharey=sharey)[0]


def svg(figure: Figure) -> str:
    """The figure as an SVG document without date, transparent; text stays text."""
    return _saved(figure, "svg", transparent=True, metadata={"Date": None}).decode()


def png(figure: Figure) -> bytes:
    """The figure as a PNG file on white."""
    return _saved(figure, "png", dpi=160, facecolor="white", metadata={"Software": None})


def _saved(figure: Figure, form: str, **how: Any) -> bytes:
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        out = io.BytesIO()
        figure.savefig(out, format=form, **how)
    return out.getvalue()


def error_against_episodes(result: Result) -> Figure:
    """Mean |error| against online episodes; bands are standard errors over targets."""
    return _errors(result, "episodes")


def error_against_cost(result: Result) -> Figure:
    """Mean |error| against cost spent; the dotted line is on-policy's accuracy in the end."""
    return _errors(result, "cost")


def _errors(result: Result, against: str) -> Figure:
    with panels(len(result.blocks), sharey=True) as (figure, axes):
        for ax, block in zip(axes, result.blocks, strict=True):
            for row in block.rows:
                color, style, _ = LOOK[row.method]
                x = block.grid if against == "episodes" else row.costs.mean(axis=0)
                mean, spread = row.errors.mean(axis=0), standard_errors(row.errors)
                ax.plot(x, mean, color=color, linestyle=style, label=row.method)
                ax.fill_between(
                    x, mean - spread, mean + spread, color=color, alpha=0.22, linewidth=0
                )
            if against == "cost":
                level = block.row("on-policy").errors[:, -1].mean()
                ax.axhline(level, color=INK, linewidth=0.8, linestyle=(0, (2, 3)), zorder=0)
            ax.set_xscale("log")
            ax.set_yscale("log")
            plain_ticks(ax)
            ax.set_xlabel("episodes" if against == "episodes" else "cost, in on-policy episodes")
            ax.set_title(_title(block))
        axes[0].set_ylabel("mean |error|\n(one on-policy episode = 1)")
        legend(figure, axes)
        return figure


def cost_by_target(result: Result) -> Figure:
    """Relative cost of each target's learned design, sorted; the line is what is allowed."""
    allowed = 1.0 + result.config.epsilon
    with panels(len(result.blocks)) as (figure, axes):
        for ax, block in zip(axes, result.blocks, strict=True):
            ax.axhline(allowed, color=INK, linewidth=1.0, zorder=1, label=f"allowed: {allowed:g}")
            for method in DESIGNS:
                color, _, marker = LOOK[method]
                values = np.sort(block.row(method).cost.values)
                hollow = "none" if method in ("odi", "dopt") else color
                ax.plot(
                    np.arange(1, len(values) + 1),
                    values,
                    color=color,
                    marker=marker,
                    markersize=4.5,
                    markerfacecolor=hollow,
                    linestyle="none",
                    label=method,
                    zorder=2,
                )
            ax.set_xlabel("targets, sorted for each method")
            ax.set_title(_title(block))
            ax.xaxis.get_major_locator().set_params(integer=True)
        axes[0].set_ylabel("expected cost of an episode\n(target's own = 1)")
        legend(figure, axes)
        return figure


def frontier(result: Result) -> Figure:
    """Relative variance against relative cost as the safety parameter grows."""
    with panels(len(result.blocks)) as (figure, axes):
        for ax, block in zip(axes, result.blocks, strict=True):
            for line in block.frontier:
                color, _, marker = LOOK[line.method]
                for learned in (True, False):
                    cost = line.cost if learned else line.limit_cost
                    variance = line.variance if learned else line.limit_variance
                    ax.plot(
                        cost.mean(axis=0),
                        variance.mean(axis=0),
                        color=color,
                        marker=marker,
                        markersize=5,
                        markerfacecolor=color if learned else "none",
                        linestyle="-" if learned else ":",
                        linewidth=1.2,
                        label=f"{line.method}, {'learned' if learned else 'exact values'}",
                    )
                if line.method == "scope":
                    _name_epsilons(ax, line)
            for method in ("odi", "ros"):
                row = block.row(method)
                color, _, marker = LOOK[method]
                ax.plot(
                    row.cost.mean,
                    row.variance.mean,
                    color=color,
                    marker=marker,
                    markersize=7,
                    linestyle="none",
                    label=method,
                )
            ax.set_ylim(bottom=0.0)
            ax.set_xlabel("relative cost")
            ax.set_title(_title(block))
            ax.margins(x=0.12, y=0.15)
        axes[0].set_ylabel("relative variance")
        legend(figure, axes)
        return figure


def _name_epsilons(ax: Axes, line: Frontier) -> None:
    """The first; and the others together, for they lie close to each other."""
    cost, variance = line.cost.mean(axis=0), line.variance.mean(axis=0)
    first, *others = line.epsilons
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


def _title(block: Block) -> str:
    return f"{block.size} x {block.size}, cost law {block.cost_law}"


def legend(figure: Figure, axes: Any) -> None:
    """Below the panels, in as few rows as there is room for, evenly filled."""
    handles, labels = axes[0].get_legend_handles_labels()
    room = 13.0 * figure.get_size_inches()[0]
    most = max(1, int(room // (6 + max(len(label) for label in labels))))
    rows = -(-len(labels) // most)
    figure.legend(handles, labels, loc="outside lower center", ncols=-(-len(labels) // rows))


def plain_ticks(ax: Axes) -> None:
    """1, 10, 100 instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() != "log":
            continue
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())


def log_quality(result: log_quality_experiment.Result) -> Figure:
    """Relative variance and cost against the number of logged episodes, and for bad logs.

    Lines and large markers are means over targets, small ones the worst target.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        blocks = result.blocks
        figure = Figure(figsize=(8.4, 6.0 * len(blocks)))
        axes = figure.subplots(2 * len(blocks), 2, squeeze=False, width_ratios=(1.0, 1.1))
        for j, block in enumerate(blocks):
            for i, what in enumerate(("variance", "cost")):
                left, right = axes[2 * j + i]
                _against_episodes(left, block, what)
                _bad_logs(right, block, what)
                name = f"relative {what}"
                left.set_ylabel(f"{block.size} x {block.size}: {name}" if j or i == 0 else name)
                low = min(left.get_ylim()[0], right.get_ylim()[0])
                high = max(left.get_ylim()[1], right.get_ylim()[1])
                for ax in (left, right):
                    ax.set_ylim(0.0 if what == "variance" else low, high)
        axes[0, 0].set_title("good logs (small marks: worst target)")
        axes[0, 1].set_title(f"bad logs, {result.config.bad_episodes:,} episodes")
        axes[-1, 0].set_xlabel("logged episodes")
        legend(figure, axes[0])
        return figure


def _lines(block: log_quality_experiment.Block, *, good: bool) -> Iterator[tuple[Any, ...]]:
    for method in ("scope", "scope-dr"):
        for features in (True, False):
            rows = block.select(method, features=features, good=good)
            yield method, features, rows


def _against_episodes(ax: Axes, block: log_quality_experiment.Block, what: str) -> None:
    ax.axhline(1.0, color=INK, linewidth=0.9, zorder=1)
    for method, features, rows in _lines(block, good=True):
        color, _, marker = LOOK[method]
        x = [row.episodes for row in rows]
        values = [getattr(row, what).values for row in rows]
        ax.plot(
            x,
            [v.mean() for v in values],
            color=color,
            linestyle="-" if features else "--",
            marker=marker,
            markersize=5,
            markerfacecolor=color if features else "none",
            label=f"{method}, {'with' if features else 'without'} coordinates",
        )
        ax.plot(
            x,
            [v.max() for v in values],
            color=color,
            linestyle="none",
            marker=marker,
            markersize=2.8,
            markerfacecolor=color if features else "none",
        )
    if what == "variance":
        for method, (limit, _) in block.limits.items():
            ax.axhline(limit, color=LOOK[method][0], linewidth=0.8, linestyle=":", zorder=0)
    ax.set_xscale("log")
    plain_ticks(ax)


def _bad_logs(ax: Axes, block: log_quality_experiment.Block, what: str) -> None:
    ax.axhline(1.0, color=INK, linewidth=0.9, zorder=1)
    kinds: list[str] = []
    for k, (method, features, rows) in enumerate(_lines(block, good=False)):
        color, _, marker = LOOK[method]
        kinds = [row.logs for row in rows]
        x = np.arange(len(rows)) + 0.16 * (k - 1.5)
        values = [getattr(row, what).values for row in rows]
        face = color if features else "none"
        for high, size in ((False, 6.0), (True, 2.8)):
            y = [v.max() if high else v.mean() for v in values]
            ax.plot(
                x,
                y,
                color=color,
                marker=marker,
                markersize=size,
                markerfacecolor=face,
                linestyle="none",
            )
    ax.set_xticks(range(len(kinds)), [kind.replace(" ", "\n", 1) for kind in kinds])
    ax.grid(visible=False, axis="x")

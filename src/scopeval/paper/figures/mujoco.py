"""Figures of the robots: errors against cost, and what designs promise against what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scopeval.paper.curves import standard_errors
from scopeval.paper.experiments.mujoco import SAFE
from scopeval.paper.figures.gridworld import INK, LOOK, legend, panels, plain_ticks
from scopeval.paper.robots.env import ROBOTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scopeval.paper.experiments.mujoco import Block, Result

__all__ = ["calibration", "error_against_cost"]

#: Most that the axes of `calibration` show.
FAR = 3.0
#: Robot -> color and marker.
_ROBOTS = dict(
    zip(
        ROBOTS,
        (
            ("#d55e00", "^"),
            ("#0f7fc4", "s"),
            ("#c75fa0", "v"),
            ("#00986f", "o"),
            ("#d98a00", "D"),
        ),
        strict=True,
    )
)


def error_against_cost(result: Result, protocol: str) -> Figure:
    """Mean |error| against cost spent, a panel for each robot; bands are standard errors.

    The dotted line is on-policy's accuracy in the end.
    """
    blocks = [b for b in result.blocks if b.protocol == protocol and b.rows]
    with panels(max(len(blocks), 1), sharey=True) as (figure, axes):
        for ax, block in zip(axes, blocks, strict=False):
            for row in block.rows:
                color, style, _ = LOOK[row.method]
                x, mean = row.costs.mean(axis=0), row.errors.mean(axis=0)
                spread = standard_errors(row.errors)
                ax.plot(x, mean, color=color, linestyle=style, label=row.method)
                low = np.maximum(mean - spread, 0.5 * mean)
                ax.fill_between(x, low, mean + spread, color=color, alpha=0.22, linewidth=0)
            level = block.row("on-policy").errors[:, -1].mean()
            ax.axhline(level, color=INK, linewidth=0.8, linestyle=(0, (2, 3)), zorder=0)
            ax.set_xscale("log")
            ax.set_yscale("log")
            plain_ticks(ax)
            ax.set_xlabel("cost, in on-policy episodes")
            ax.set_title(block.title)
        axes[0].set_ylabel("mean |error|\n(one on-policy episode = 1)")
        if blocks:
            legend(figure, axes)
        return figure


def calibration(result: Result, protocol: str) -> Figure:
    """Relative variance and cost, predicted (full) and checked (hollow) against measured.

    One point for each target, for scope and scope-dr; bars are standard errors of what was
    measured. Points on the line were predicted rightly; above it, the design was too hopeful. What
    is beyond `FAR` stands at the edge.
    """
    blocks = [b for b in result.blocks if b.protocol == protocol and b.rows]
    with panels(2 * len(SAFE), 3.4) as (figure, axes):
        for i, method in enumerate(SAFE):
            for j, what in enumerate(("variance", "cost")):
                ax = axes[2 * i + j]
                for block in blocks:
                    _points(ax, block, method, what)
                _diagonal(ax)
                ax.set_xlabel(f"predicted {what}")
                ax.set_ylabel(f"measured {what}")
                ax.set_title(f"{method}: relative {what}")
        _legend(figure, [block.robot for block in blocks])
        return figure


def _points(ax: Axes, block: Block, method: str, what: str) -> None:
    color, marker = _ROBOTS[block.robot]
    row = block.row(method)
    y = np.array([getattr(o, f"relative_{what}") for o in row.outcomes])
    error = np.array([getattr(o, f"relative_{what}_error") for o in row.outcomes])
    for name in ("checked", "predicted"):
        told = row.told(f"{name}_{what}")
        if told is None:
            continue
        ax.errorbar(
            np.minimum(told.values, FAR),
            np.minimum(y, FAR),
            yerr=error if name == "predicted" else None,
            color=color,
            marker=marker,
            markersize=4.5,
            markerfacecolor=color if name == "predicted" else "none",
            linestyle="none",
            linewidth=0.7,
            alpha=0.85,
        )


def _diagonal(ax: Axes) -> None:
    """The line where both are the same; and 1, what running the target itself has."""
    ends = [*ax.get_xlim(), *ax.get_ylim()]
    low, high = max(min(ends), 0.0), min(max(ends), 1.02 * FAR)
    ax.plot([low, high], [low, high], color=INK, linewidth=0.9, zorder=0)
    ax.axhline(1.0, color=INK, linewidth=0.7, linestyle=(0, (2, 3)), zorder=0)
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)


def _legend(figure: Figure, robots: list[str]) -> None:
    from matplotlib.lines import Line2D

    def mark(color: str, marker: str, face: str, label: str) -> Any:
        return Line2D(
            [], [], color=color, marker=marker, markerfacecolor=face, linestyle="none", label=label
        )

    handles = [mark(*_ROBOTS[robot], _ROBOTS[robot][0], robot) for robot in robots]
    handles.append(mark(INK, "o", INK, "predicted"))
    handles.append(mark(INK, "o", "none", "checked on other logs"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 7))

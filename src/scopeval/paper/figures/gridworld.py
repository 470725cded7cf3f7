"""Figures of the Gridworld experiment: results in, matplotlib figures out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scopeval.paper.figures import drawing
from scopeval.paper.methods import REFERENCE, constrained

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scopeval.paper.experiments.gridworld import Config, EpsilonCurve, GridworldBlock
    from scopeval.paper.results import Result

    GridworldResult = Result[Config, GridworldBlock]

__all__ = ["draw_gridworld"]


def draw_gridworld(result: GridworldResult) -> dict[str, Figure]:
    """All figures by name; the frontier if there are constrained methods."""
    drawn = {
        "error-episodes": drawing.error_figure(result.blocks, episodes=result.blocks[0].grid),
        "error-cost": drawing.error_figure(result.blocks),
        "cost-by-target": _cost_by_target(result),
    }
    return drawn | ({"frontier": _frontier(result)} if result.blocks[0].frontier else {})


def _cost_by_target(result: GridworldResult) -> Figure:
    """Relative cost of each target's learned design, sorted; the line is what is allowed."""
    allowed = 1.0 + result.config.epsilon
    with drawing.panels(len(result.blocks)) as (figure, axes):
        for ax, block in zip(axes, result.blocks, strict=True):
            ax.axhline(
                allowed, color=drawing.INK, linewidth=1.0, zorder=1, label=f"allowed: {allowed:g}"
            )
            looks = drawing.looks_of(list(block.methods))
            safe = constrained(list(block.methods))
            for name, row in block.methods.items():
                if name == REFERENCE or not row.exact:
                    continue
                values = np.sort(row.cost.values)
                x = np.arange(1, len(values) + 1)
                drawing.marks(
                    ax, x, values, looks[name], 4.5, filled=name in safe, label=name, zorder=2
                )
            ax.set_xlabel("targets, sorted for each method")
            ax.set_title(block.title)
            ax.xaxis.get_major_locator().set_params(integer=True)
        axes[0].set_ylabel("expected cost of an episode\n(target's own = 1)")
        drawing.legend(figure, axes)
        return figure


def _frontier(result: GridworldResult) -> Figure:
    """Relative variance against relative cost as the safety parameter grows."""
    with drawing.panels(len(result.blocks)) as (figure, axes):
        for ax, block in zip(axes, result.blocks, strict=True):
            looks = drawing.looks_of(list(block.methods))
            for k, line in enumerate(block.frontier):
                look = looks[line.method]
                learned = f"{line.method}, learned", line.cost, line.variance, True
                limit = f"{line.method}, exact values", line.limit_cost, line.limit_variance, False
                for label, cost, variance, filled in (learned, limit):
                    drawing.marks(
                        ax,
                        cost.mean(axis=0),
                        variance.mean(axis=0),
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
                if name in block.methods:
                    row = block.methods[name]
                    x, y = row.cost.mean, row.variance.mean
                    drawing.marks(ax, x, y, looks[name], 7, filled=True, label=name)
            ax.set_ylim(bottom=0.0)
            ax.set_xlabel("relative cost")
            ax.set_title(block.title)
            ax.margins(x=0.12, y=0.15)
        axes[0].set_ylabel("relative variance")
        drawing.legend(figure, axes)
        return figure


def _name_epsilons(ax: Axes, line: EpsilonCurve) -> None:
    """Label the first point, and the others together, for they lie close to each other."""
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

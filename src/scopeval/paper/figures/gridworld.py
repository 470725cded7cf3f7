"""Figures of the Gridworld experiment: stored results in, matplotlib figures out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from scopeval.paper.figures import drawing
from scopeval.paper.methods import REFERENCE, constrained

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_gridworld"]


def draw_gridworld(stored: Mapping[str, Any]) -> dict[str, Figure]:
    """All figures by name, of a JSON file's content; the frontier if methods are constrained."""
    blocks = stored["blocks"]
    shown = drawing.error_panels(blocks, [_title(block) for block in blocks])
    drawn = {
        "error-episodes": drawing.error_figure(shown, episodes=blocks[0]["episodes"]),
        "error-cost": drawing.error_figure(shown),
        "cost-by-target": _cost_by_target(stored),
    }
    return drawn | ({"frontier": _frontier(stored)} if blocks[0]["frontier"] else {})


def _title(block: Mapping[str, Any]) -> str:
    return f"{block['size']} x {block['size']}, {block['cost_law']}"


def _cost_by_target(stored: Mapping[str, Any]) -> Figure:
    """Relative cost of each target's learned design, sorted; the line is what is allowed."""
    allowed = 1.0 + stored["config"]["epsilon"]
    with drawing.panels(len(stored["blocks"])) as (figure, axes):
        for ax, block in zip(axes, stored["blocks"], strict=True):
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


def _frontier(stored: Mapping[str, Any]) -> Figure:
    """Relative variance against relative cost as the safety parameter grows."""
    with drawing.panels(len(stored["blocks"])) as (figure, axes):
        for ax, block in zip(axes, stored["blocks"], strict=True):
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

"""Figures of the robots: errors against cost, and predicted numbers against measured ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from scopeval.paper.figures import drawing
from scopeval.paper.methods import constrained
from scopeval.paper.robots.env import ROBOTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["calibration", "draw_robots", "error_against_cost"]

#: Upper end of the axes of `calibration`.
FAR = 3.0
#: Robot -> color and marker.
_COLORS = ("#d55e00", "#0f7fc4", "#c75fa0", "#00986f", "#d98a00")
_ROBOTS = dict(zip(ROBOTS, zip(_COLORS, "^svoD", strict=True), strict=True))


def draw_robots(stored: Mapping[str, Any]) -> dict[str, Figure]:
    """All figures by name, for each protocol, of a JSON file's content."""
    draw = {"error-cost": error_against_cost, "calibration": calibration}
    return {
        f"{name}-{protocol}": make(stored, protocol)
        for protocol in stored["config"]["protocols"]
        for name, make in draw.items()
    }


def _blocks(stored: Mapping[str, Any], protocol: str) -> list[Mapping[str, Any]]:
    return [b for b in stored["blocks"] if b["protocol"] == protocol and b["methods"]]


def error_against_cost(stored: Mapping[str, Any], protocol: str) -> Figure:
    """Mean |error| against cost spent, a panel for each robot."""
    blocks = _blocks(stored, protocol)
    shown = drawing.error_panels(blocks, [block["robot"] for block in blocks])
    return drawing.error_figure(shown, least=0.5)


def calibration(stored: Mapping[str, Any], protocol: str) -> Figure:
    """Relative variance and cost, predicted (full) and checked (hollow) against measured.

    One point for each target, for the constrained methods; bars are standard errors of what was
    measured, where they are stored. Points on the line were predicted correctly; above it, the
    design was too optimistic. What is beyond `FAR` stands at the edge.
    """
    blocks = _blocks(stored, protocol)
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

"""Figures of the exact frontier: relative variance against relative cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scopeval.paper.figures.drawing import Curve, frontier_figure, looks_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["frontiers_by_cost"]

#: Variances above are left out: the axis is for what is worth running.
MOST = 3.0


def frontiers_by_cost(stored: Mapping[str, Any]) -> dict[str, Figure]:
    """Of a JSON file's content: a figure for each size of the Gridworld, and one for the others."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for block in stored["blocks"]:
        words = block["world"].split()
        name = f"frontier-{words[1]}" if words[0] == "Gridworld" else "frontier-environments"
        groups.setdefault(name, []).append(block)
    return {name: _side_by_side(blocks) for name, blocks in groups.items()}


def _side_by_side(blocks: Sequence[Mapping[str, Any]]) -> Figure:
    """Means over the targets, at the asked costs where all of them have a design."""
    looks = looks_of(["scope-dr", "odi", "scope"]).values()
    drawn = []
    for block in blocks:
        curves = []
        for (family, points), look in zip(block["families"].items(), looks, strict=True):
            shown = [
                (np.mean(point["relative_cost"]), point["relative_variance"]["mean"])
                for point in points
                if point["targets"] == len(point["relative_cost"])
                and point["relative_variance"]["mean"] <= MOST
            ]
            cost, variance = np.array(shown, dtype=float).reshape(-1, 2).T
            curves.append(Curve(family, look, cost, variance))
        drawn.append((block["world"].removeprefix("Gridworld "), curves))
    return frontier_figure(drawn)

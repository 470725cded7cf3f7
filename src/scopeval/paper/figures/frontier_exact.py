"""Figures of the exact frontier: relative variance against relative cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scopeval.paper.figures.drawing import Curve, frontier_figure, looks_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scopeval.paper.experiments.frontier_exact import Config, FrontierBlock
    from scopeval.paper.results import Result

__all__ = ["frontiers_by_cost"]

#: Variances above are left out: the axis is for what is worth running.
MOST = 3.0


def frontiers_by_cost(result: Result[Config, FrontierBlock]) -> dict[str, Figure]:
    """One figure for each size of the Gridworld, with all cost laws, and one for the others."""
    groups: dict[str, list[FrontierBlock]] = {}
    for block in result.blocks:
        words = block.title.split()
        name = f"frontier-{words[1]}" if words[0] == "Gridworld" else "frontier-environments"
        groups.setdefault(name, []).append(block)
    return {name: _side_by_side(blocks) for name, blocks in groups.items()}


def _side_by_side(blocks: list[FrontierBlock]) -> Figure:
    """Means over the targets, at the asked costs where all of them have a design."""
    looks = looks_of(["scope-dr", "odi", "scope"]).values()
    drawn = []
    for block in blocks:
        curves = []
        for (family, variance), look in zip(block.variance.items(), looks, strict=True):
            cost, mean = block.cost[family].mean(axis=0), variance.mean(axis=0)
            shown = np.isfinite(mean) & (mean <= MOST)
            curves.append(Curve(family, look, cost[shown], mean[shown]))
        drawn.append((block.title, curves))
    return frontier_figure(drawn)

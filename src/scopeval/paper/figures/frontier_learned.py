"""Figures of the learned frontier: relative variance against relative cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scopeval.paper.figures.drawing import Curve, frontier_figure, looks_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scopeval.paper.experiments.frontier_learned import LearnedBlock, LearnedConfig
    from scopeval.paper.results import Result

__all__ = ["learned_frontiers"]


def learned_frontiers(result: Result[LearnedConfig, LearnedBlock]) -> dict[str, Figure]:
    """All worlds side by side: means over the targets that have a design."""
    learned, exact = looks_of(["scope-dr", "odi"]).values()
    drawn = []
    for block in result.blocks:
        shown = np.isfinite(block.found["variance"]).any(axis=0)
        cost, variance, limit = (
            np.nanmean(block.found[name][:, shown], axis=0)
            for name in ("cost", "variance", "exact_variance")
        )
        curves = (
            Curve("learned from logs", learned, cost, variance),
            Curve("exact values", exact, np.array(block.asked)[shown], limit),
        )
        drawn.append((block.title, curves))
    return {"frontier-learned": frontier_figure(drawn)}

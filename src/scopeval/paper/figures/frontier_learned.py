"""Figures of the learned frontier: relative variance against relative cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from scopeval.paper.figures.drawing import Curve, frontier_figure, looks_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["learned_frontiers"]


def learned_frontiers(stored: Mapping[str, Any]) -> dict[str, Figure]:
    """All worlds of a JSON file's content: means over the targets that have a design."""
    learned, exact = looks_of(["scope-dr", "odi"]).values()
    drawn = []
    for block in stored["blocks"]:
        points = [point for point in block["points"] if point["variance"] is not None]
        asked = np.array([point["asked"] for point in points])
        cost, variance, limit = (
            np.array([point[name]["mean"] for point in points])
            for name in ("cost", "variance", "exact_variance")
        )
        curves = (
            Curve("learned from logs", learned, cost, variance),
            Curve("exact values", exact, asked, limit),
        )
        drawn.append((block["world"], curves))
    return {"frontier-learned": frontier_figure(drawn)}

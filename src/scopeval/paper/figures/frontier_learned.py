"""Figures of the learned frontier: relative variance against relative cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scopeval.paper.figures.drawing import INK, legend, looks_of, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scopeval.paper.experiments.frontier_learned import LearnedBlock, LearnedConfig
    from scopeval.paper.results import Result

__all__ = ["learned_frontiers"]


def learned_frontiers(result: Result[LearnedConfig, LearnedBlock]) -> dict[str, Figure]:
    """All worlds side by side: means over the targets that have a design."""
    with panels(len(result.blocks), width=3.4, sharey=True) as (figure, axes):
        learned, exact = looks_of(["scope-dr", "odi"]).values()
        for ax, block in zip(axes, result.blocks, strict=True):
            shown = np.isfinite(block.found["variance"]).any(axis=0)
            lines = (
                ("learned from logs", learned, "cost", "variance"),
                ("exact values", exact, "", "exact_variance"),
            )
            for label, look, cost, variance in lines:
                x = np.array(block.asked)[shown]
                if cost:
                    x = np.nanmean(block.found[cost][:, shown], axis=0)
                ax.plot(
                    x,
                    np.nanmean(block.found[variance][:, shown], axis=0),
                    color=look.color,
                    linestyle=look.line,
                    marker=look.marker,
                    markersize=4,
                    label=label,
                )
            ax.plot(1.0, 1.0, color=INK, marker="o", linestyle="none", label="target policy")
            ax.set_ylim(bottom=0.0)
            ax.set_xlabel("relative cost")
            ax.set_title(block.title)
        axes[0].set_ylabel("relative variance")
        legend(figure, axes)
        return {"frontier-learned": figure}

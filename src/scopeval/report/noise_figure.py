"""Where the variance went, as a bar that a person understands."""

from __future__ import annotations

from scopeval.evaluation.noise import Noise
from scopeval.report.page import Figure
from scopeval.report.svg import OURS, OWN, SOFT, canvas, figure_of

__all__ = ["noise_figure"]


def noise_figure(noise: Noise, about: str = "") -> Figure:
    """A bar of three parts: what was taken out by what, and what is left.

    Args:
        noise: its parts; a first one below 0 is left out, and said in the caption.
        about: what it is about, in words.
    """
    parts = [
        (max(noise.design, 0.0), noise.by, OURS),
        (max(noise.context, 0.0), "context", OWN),
        (max(noise.left, 0.0), "left", SOFT),
    ]
    total = sum(share for share, _, _ in parts) or 1.0
    with canvas(4.8, 1.5) as (drawing, ax):
        start = 0.0
        for share, name, color in parts:
            if share <= 0:
                continue
            ax.barh([0], [100 * share], left=start, color=color, height=0.5)
            ax.plot([], [], color=color, lw=6, label=f"{name} {100 * share:.0f}%")
            start += 100 * share
        ax.set_xlim(0, max(100.0, 100 * total))
        ax.set_ylim(-0.5, 0.5)
        ax.set_yticks([])
        ax.set_xlabel(f"share of {noise.of}, in percent")
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=8, frameon=False)
        before = f"{about}: " if about else ""
        return figure_of(
            drawing,
            label=f"A bar: {noise.sentence}.",
            caption=f"{before}Where the variance went. {noise.lever}",
        )

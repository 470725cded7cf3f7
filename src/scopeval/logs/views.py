"""A log in a notebook: its card and its plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.notebook.card import Card
from scopeval.notebook.sketch import OURS, OWN, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_log", "log_card"]


def log_card(facts: Sequence[tuple[str, str]], rows: int, notes: tuple[str, ...]) -> Card:
    """The card of a log.

    Args:
        facts: name and content of the lines of its summary.
        rows: number of logged steps.
        notes: remarks about the log.
    """
    doubt = ", with remarks" if notes else ""
    return Card("Logs", f"{rows:,} logged steps{doubt}.", tuple(facts), remarks=notes)


def draw_log(t: Ints, reward: Floats, cost: Floats, ax: Axes | None) -> Axes:
    """Mean reward and mean cost of a step by time, with the middle half of them shaded."""
    ax = axes_or_new(ax)
    order = np.argsort(t, kind="stable")
    times, starts = np.unique(t[order], return_index=True)
    for values, color, name in ((reward, OURS, "reward"), (cost, OWN, "cost")):
        groups = np.split(values[order], starts[1:])
        quarters = np.array([np.quantile(group, (0.25, 0.75)) for group in groups])
        ax.fill_between(times, quarters[:, 0], quarters[:, 1], color=color, alpha=0.15, lw=0)
        ax.plot(times, [group.mean() for group in groups], color=color, lw=2.0, label=name)
    ax.set_xlabel("time within the episode")
    ax.set_ylabel("mean of a step; shaded: middle half")
    ax.legend(frameon=False)
    return ax

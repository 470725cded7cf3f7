"""Axes to draw on."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["axes_or_new", "in_ipython", "write_in"]


def in_ipython() -> bool:
    """Whether this runs in IPython or in the kernel of a notebook."""
    if "IPython" not in sys.modules:  # it need not be loaded to know that it does not run
        return False
    from IPython import get_ipython

    return get_ipython() is not None


def axes_or_new(ax: Axes | None, width: float = 5.4, height: float = 3.6) -> Axes:
    """The axes, or those of a new figure of this size in inches.

    In a notebook the figure is pyplot's, which shows it below the cell. Elsewhere it is one that
    nothing else holds on to: ``ax.figure.savefig(path)`` writes it.
    """
    if ax is not None:
        return ax
    if in_ipython():
        import matplotlib.pyplot as plt

        return plt.subplots(figsize=(width, height), layout="constrained")[1]
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def write_in(ax: Axes, text: str, height: float = 0.5) -> None:
    """Write in the middle of axes, such as why they are empty; `height` is 0 below and 1 above."""
    ax.text(
        0.5, height, textwrap.fill(text, 48), transform=ax.transAxes, ha="center", va="center",
        fontsize=9, bbox={"facecolor": ax.get_facecolor(), "edgecolor": "none"},
    )  # fmt: skip

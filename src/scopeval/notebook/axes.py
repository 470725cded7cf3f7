"""Axes to draw on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["axes_or_new", "in_ipython"]


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

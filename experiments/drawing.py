"""How all figures look: panels, colors of methods, legends, and files.

Figures are drawn from what the JSON files hold, so that those of stored results can be drawn anew.
At most two panels stand side by side: on a phone a figure is 5 cm wide, and must still be readable.
Colors can be told apart by people who are color-blind, every line also has its own style, and ink
and background suit light pages and dark ones.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.common import REFERENCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scopeval.arrays import Floats

__all__ = [
    "Curve",
    "Look",
    "Panel",
    "error_figure",
    "error_panels",
    "frontier_figure",
    "legend",
    "looks_of",
    "marks",
    "new_figure",
    "panels",
]

INK, FAINT = "#767676", "#b0b0b0"


class Look(NamedTuple):
    """How a method is drawn."""

    color: str
    line: Any
    marker: str


#: Colors after Okabe and Ito, for light and dark.
_LOOKS = {
    "on-policy": Look("#7f7f7f", "-", "o"),
    "scope": Look("#0f7fc4", "-", "s"),
    "scope-dr": Look("#00986f", "-", "D"),
    "odi": Look("#d98a00", "--", "^"),
    "dopt": Look("#c75fa0", (0, (1.5, 2.5)), "v"),
    "ros": Look("#d55e00", ":", "P"),
    "ros-reset": Look("#a08560", (0, (4, 1.5, 1, 1.5)), "X"),
}
#: For all other methods, in turn.
_OTHERS = (
    Look("#7a6fd0", (0, (6, 2)), "*"),
    Look("#4f9aa8", (0, (3, 1, 1, 1, 1, 1)), "h"),
    Look("#9a9a00", (0, (5, 1)), "p"),
    Look("#b0525f", (0, (1, 1)), "<"),
)

_STYLE: dict[Any, Any] = {
    "font.size": 11.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.titlesize": 11.0,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.alpha": 0.4,
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 10.0,
    "lines.linewidth": 1.7,
    "svg.fonttype": "none",
    "svg.hashsalt": "scopeval",
    "figure.constrained_layout.use": True,
}


def looks_of(methods: Sequence[str]) -> dict[str, Look]:
    """How each method is drawn: known ones always alike, others in the order they are given."""
    others = cycle(_OTHERS)
    return {method: _LOOKS.get(method) or next(others) for method in methods}


@contextmanager
def _style() -> Iterator[None]:
    """Our settings, whatever a user has set elsewhere."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """An empty figure, made without pyplot, which would keep it in memory."""
    from matplotlib.figure import Figure

    with _style():
        yield Figure(figsize=(width, height))


#: Panels side by side, at most; and the size of one of them, in inches.
COLUMNS, WIDTH, HEIGHT = 2, 3.2, 2.7


@contextmanager
def panels(count: int, *, sharey: bool = False) -> Iterator[tuple[Figure, Any]]:
    """A figure with panels, in rows of two; one alone is wider."""
    columns = min(count, COLUMNS)
    rows = -(-count // columns)
    width = WIDTH * columns if columns > 1 else 1.5 * WIDTH
    with new_figure(width, HEIGHT * rows + 0.6) as figure:
        grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel()
        for unused in grid[count:]:
            unused.remove()
        yield figure, list(grid[:count])


def label_rows(axes: Sequence[Axes], text: str) -> None:
    """Label the vertical axis of the first panel in each row."""
    for ax in axes[::COLUMNS]:
        ax.set_ylabel(text)


def svg(figure: Figure) -> str:
    """The figure as an SVG document without date, transparent; text stays text."""
    return _saved(figure, "svg", transparent=True, metadata={"Date": None}).decode()


def png(figure: Figure) -> bytes:
    """The figure as a PNG file on white."""
    return _saved(figure, "png", dpi=160, facecolor="white", metadata={"Software": None})


def _saved(figure: Figure, form: str, **how: Any) -> bytes:
    with _style():
        out = io.BytesIO()
        figure.savefig(out, format=form, **how)
    return out.getvalue()


def marks(ax: Axes, x: Any, y: Any, look: Look, size: float, *, filled: bool, **more: Any) -> None:
    """Markers of a method, filled or hollow, without a line unless `more` names one."""
    color = look.color
    face = color if filled else "none"
    how = {"linestyle": "none", **more}
    ax.plot(x, y, color=color, marker=look.marker, markersize=size, markerfacecolor=face, **how)


class Panel(NamedTuple):
    """A panel of `error_figure`: method -> its "error", "standard_error" and "cost" (lists)."""

    title: str
    curves: Mapping[str, Mapping[str, Sequence[float]]]


def error_panels(blocks: Sequence[Mapping[str, Any]], titles: Sequence[str]) -> list[Panel]:
    """Panels of stored blocks; those without methods are left out."""
    return [
        Panel(title, {row["method"]: row["curve"] for row in block["methods"]})
        for block, title in zip(blocks, titles, strict=True)
        if block["methods"]
    ]


def error_figure(
    shown: Sequence[Panel],
    *,
    episodes: Sequence[float] | None = None,
    least: float | None = None,
) -> Figure:
    """Mean |error| against cost spent, or against episodes; bands are standard errors over targets.

    The dotted line is on-policy's accuracy at the end. Bands end above `least` times the mean.
    """
    with panels(max(len(shown), 1), sharey=True) as (figure, axes):
        for ax, panel in zip(axes, shown, strict=False):
            looks = looks_of(list(panel.curves))
            for name, curve in panel.curves.items():
                color, line, _ = looks[name]
                x = curve["cost"] if episodes is None else episodes
                mean, spread = np.array(curve["error"]), np.array(curve["standard_error"])
                ax.plot(x, mean, color=color, linestyle=line, label=name)
                low = mean - spread if least is None else np.maximum(mean - spread, least * mean)
                ax.fill_between(x, low, mean + spread, color=color, alpha=0.22, linewidth=0)
            if episodes is None:
                level = panel.curves[REFERENCE]["error"][-1]
                ax.axhline(level, color=INK, linewidth=0.8, linestyle=(0, (2, 3)), zorder=0)
            ax.set_xscale("log")
            ax.set_yscale("log")
            plain_ticks(ax)
            ax.set_xlabel("cost, in on-policy episodes" if episodes is None else "episodes")
            ax.set_title(panel.title)
        label_rows(axes, "mean |error|\n(one episode = 1)")
        legend(figure, axes)
        return figure


class Curve(NamedTuple):
    """Relative variance against relative cost, in one panel of `frontier_figure`."""

    label: str
    look: Look
    cost: Floats
    variance: Floats


def frontier_figure(panels_of: Sequence[tuple[str, Sequence[Curve]]]) -> Figure:
    """Curves, each panel with its title; the target policy is at (1, 1)."""
    with panels(len(panels_of), sharey=True) as (figure, axes):
        for ax, (title, curves) in zip(axes, panels_of, strict=True):
            for curve in curves:
                look = curve.look
                how = {"color": look.color, "linestyle": look.line, "marker": look.marker}
                ax.plot(curve.cost, curve.variance, **how, markersize=4, label=curve.label)
            ax.plot(1.0, 1.0, color=INK, marker="o", linestyle="none", label="target policy")
            ax.set_ylim(bottom=0.0)
            ax.set_xlabel("relative cost")
            ax.set_title(title)
        label_rows(axes, "relative variance")
        legend(figure, axes)
        return figure


def legend(figure: Figure, axes: Any) -> None:
    """Below the panels, in as few rows as there is room for, evenly filled."""
    handles, labels = axes[0].get_legend_handles_labels()
    if not labels:
        return
    room = 12.0 * figure.get_size_inches()[0]
    most = max(1, int(room // (6 + max(len(label) for label in labels))))
    rows = -(-len(labels) // most)
    figure.legend(handles, labels, loc="outside lower center", ncols=-(-len(labels) // rows))


def plain_ticks(ax: Axes) -> None:
    """1, 10, 100 instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() != "log":
            continue
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())

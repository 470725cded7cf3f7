"""The figure of the log-quality experiment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scopeval.paper.figures import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scopeval.arrays import Floats
    from scopeval.paper.experiments.log_quality import Case, Config, LogBlock
    from scopeval.paper.results import Result

__all__ = ["draw_logs"]


def draw_logs(result: Result[Config, LogBlock]) -> dict[str, Figure]:
    """The figure by its name; none without bad logs, which are half of it."""
    return {"log-quality": _log_quality(result)} if result.config.bad else {}


def _log_quality(result: Result[Config, LogBlock]) -> Figure:
    """Relative variance and cost against the number of logged episodes, and for bad logs.

    Lines and large markers are means over targets, small ones the worst target.
    """
    blocks = result.blocks
    with drawing.new_figure(8.4, 6.0 * len(blocks)) as figure:
        axes = figure.subplots(2 * len(blocks), 2, squeeze=False, width_ratios=(1.0, 1.1))
        for j, block in enumerate(blocks):
            for i, what in enumerate(("variance", "cost")):
                left, right = axes[2 * j + i]
                _against_episodes(left, block, what)
                _bad_logs(right, block, what)
                name = f"relative {what}"
                left.set_ylabel(f"{block.size} x {block.size}: {name}" if j or i == 0 else name)
                low = min(left.get_ylim()[0], right.get_ylim()[0])
                high = max(left.get_ylim()[1], right.get_ylim()[1])
                for ax in (left, right):
                    ax.set_ylim(0.0 if what == "variance" else low, high)
        axes[0, 0].set_title("good logs (small marks: worst target)")
        axes[0, 1].set_title(f"bad logs, {result.config.bad_episodes:,} episodes")
        axes[-1, 0].set_xlabel("logged episodes")
        drawing.legend(figure, axes[0])
        return figure


class _Line(NamedTuple):
    """One method with or without coordinates: its cases, and numbers for each target."""

    method: str
    look: drawing.Look
    features: bool
    cases: list[Case]
    values: list[Floats]


def _lines(block: LogBlock, what: str, *, good: bool) -> Iterator[_Line]:
    looks = drawing.looks_of(list(block.limits))
    for method, look in looks.items():
        for features in (True, False):
            found = block.select(method, features=features, good=good)
            values = [row.statistic(f"relative_{what}").values for row in found.values()]
            yield _Line(method, look, features, list(found), values)


def _against_episodes(ax: Axes, block: LogBlock, what: str) -> None:
    ax.axhline(1.0, color=drawing.INK, linewidth=0.9, zorder=1)
    for line in _lines(block, what, good=True):
        x = [case.episodes for case in line.cases]
        drawing.marks(
            ax,
            x,
            [v.mean() for v in line.values],
            line.look,
            5,
            filled=line.features,
            linestyle="-" if line.features else "--",
            label=f"{line.method}, {'with' if line.features else 'without'} coordinates",
        )
        drawing.marks(ax, x, [v.max() for v in line.values], line.look, 2.8, filled=line.features)
    if what == "variance":
        looks = drawing.looks_of(list(block.limits))
        for method, (limit, _) in block.limits.items():
            ax.axhline(limit, color=looks[method].color, linewidth=0.8, linestyle=":", zorder=0)
    ax.set_xscale("log")
    drawing.plain_ticks(ax)


def _bad_logs(ax: Axes, block: LogBlock, what: str) -> None:
    ax.axhline(1.0, color=drawing.INK, linewidth=0.9, zorder=1)
    lines = list(_lines(block, what, good=False))
    for k, line in enumerate(lines):
        x = np.arange(len(line.cases)) + 0.16 * (k - (len(lines) - 1) / 2)
        drawing.marks(ax, x, [v.mean() for v in line.values], line.look, 6.0, filled=line.features)
        drawing.marks(ax, x, [v.max() for v in line.values], line.look, 2.8, filled=line.features)
    kinds = [case.logs for case in lines[0].cases]
    ax.set_xticks(range(len(kinds)), [kind.replace(" ", "\n", 1) for kind in kinds])
    ax.grid(visible=False, axis="x")

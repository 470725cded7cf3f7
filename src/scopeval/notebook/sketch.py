"""Small drawings inside a card: SVG without fonts, scripts or addresses.

Text has the color of the notebook's text; the other colors can be told apart on light and dark.

Axes to draw on.
"""

from __future__ import annotations

import html
import math
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "OURS",
    "OWN",
    "Bar",
    "Span",
    "axes_or_new",
    "in_ipython",
    "sketch_bars",
    "sketch_curve",
    "sketch_spans",
    "write_in",
]


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


# --------------------------------------------------------------------------------------------------

#: Ours, and running the target policy itself.
OURS, OWN = "#2f7fc8", "#c8730f"
_WIDTH, _NAMES, _ROW = 380.0, 130.0, 22.0


class Span(NamedTuple):
    """An interval with its estimate."""

    name: str
    low: float
    estimate: float
    high: float
    color: str = OURS


class Bar(NamedTuple):
    """A number from 0 on."""

    name: str
    value: float
    color: str = OURS


def sketch_spans(spans: Sequence[Span]) -> str:
    """Intervals below each other on one axis; "" if there is none that can be drawn."""
    drawn = [s for s in spans if math.isfinite(s.low) and math.isfinite(s.high)]
    if not drawn or max(s.high for s in drawn) <= min(s.low for s in drawn):
        return ""
    left, right = min(s.low for s in drawn), max(s.high for s in drawn)

    def x(value: float) -> float:
        return _NAMES + 8 + (_WIDTH - _NAMES - 16) * (value - left) / (right - left)

    parts = []
    for k, span in enumerate(drawn):
        y = _ROW * (k + 0.5)
        parts += [
            _text(0, y + 4, span.name),
            f'<line x1="{x(span.low):.1f}" x2="{x(span.high):.1f}" y1="{y}" y2="{y}" '
            f'stroke="{span.color}" stroke-width="3" stroke-linecap="round"/>',
            f'<circle cx="{x(span.estimate):.1f}" cy="{y}" r="4.5" fill="{span.color}"/>',
        ]
    y = _ROW * len(drawn)
    parts += [
        f'<line x1="{_NAMES}" x2="{_WIDTH}" y1="{y}" y2="{y}" stroke="currentColor" '
        'stroke-opacity=".3"/>',
        _text(x(left), y + 14, f"{left:.4g}"),
        _text(x(right), y + 14, f"{right:.4g}", anchor="end"),
    ]
    said = "; ".join(f"{s.name}: {s.estimate:.4g}, {s.low:.4g} to {s.high:.4g}" for s in drawn)
    return _svg(parts, y + 18, f"Intervals. {said}")


def sketch_bars(bars: Sequence[Bar], mark: float, mark_name: str) -> str:
    """Bars from 0 on, and a line at `mark`; "" if one is not finite."""
    if not bars or not all(math.isfinite(bar.value) and bar.value >= 0 for bar in bars):
        return ""
    most = max(mark, *(bar.value for bar in bars))

    def x(value: float) -> float:
        return _NAMES + (_WIDTH - _NAMES - 44) * value / most

    def label_at(value: float) -> float:
        """Behind the bar, and behind the line where they would meet."""
        after = x(value) + 5
        return x(mark) + 5 if x(mark) - 32 < after < x(mark) + 5 else after

    parts = []
    for k, bar in enumerate(bars):
        y = _ROW * k + 4
        parts += [
            _text(0, y + 11, bar.name),
            f'<rect x="{_NAMES}" y="{y}" width="{x(bar.value) - _NAMES:.1f}" height="14" '
            f'fill="{bar.color}" fill-opacity=".8"/>',
            _text(label_at(bar.value), y + 11, f"{bar.value:.2f}"),
        ]
    y = _ROW * len(bars) + 2
    parts += [
        f'<line x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="0" y2="{y}" stroke="{OWN}" '
        'stroke-width="1.5" stroke-dasharray="4 3"/>',
        _text(x(mark), y + 13, mark_name, anchor="end"),
    ]
    said = "; ".join(f"{bar.name}: {bar.value:.2f}" for bar in bars)
    return _svg(parts, y + 18, f"Bars. {said}; {mark_name}: {mark:g}")


def sketch_curve(points: Sequence[tuple[float, float]], most: float = 2.0) -> str:
    """Relative variance (up) against relative cost (right), with the target policy at (1, 1)."""
    shown = [(c, v) for c, v in points if math.isfinite(c) and 0 <= v <= most]
    if len(shown) < 2:
        return ""
    left, right = min(*(c for c, _ in shown), 1.0), max(*(c for c, _ in shown), 1.0)
    top = max(*(v for _, v in shown), 1.0)
    height, x0 = 120.0, 34.0

    def at(cost: float, variance: float) -> str:
        x = x0 + (_WIDTH - x0 - 12) * (cost - left) / ((right - left) or 1.0)
        return f"{x:.1f},{8 + (height - 8) * (1 - variance / top):.1f}"

    x1, y1 = at(1.0, 1.0).split(",")
    line = " ".join(at(c, v) for c, v in shown)
    parts = [
        f'<path d="M{x0},4V{height}H{_WIDTH}" fill="none" stroke="currentColor" '
        'stroke-opacity=".4"/>',
        f'<polyline points="{line}" fill="none" stroke="{OURS}" stroke-width="2.5"/>',
        f'<circle cx="{x1}" cy="{y1}" r="4.5" fill="{OWN}"/>',
        _text(float(x1) - 8, float(y1) + 4, "the target policy", anchor="end"),
        _text(x0 - 5, 14, f"{top:.2g}", anchor="end"),
        _text(x0 - 5, height, "0", anchor="end"),
        _text(x0, height + 14, f"{left:.2g}"),
        _text(_WIDTH, height + 14, f"{right:.2g}", anchor="end"),
        _text((x0 + _WIDTH) / 2, height + 14, "relative cost", anchor="middle"),
        _text(x0 + 8, height - 8, "relative variance (up)"),
    ]
    first, last = shown[0], shown[-1]
    return _svg(
        parts,
        height + 18,
        f"Curve from a variance of {first[1]:.2f} at a cost of {first[0]:.2f} to {last[1]:.2f} at "
        f"{last[0]:.2f}, relative to the target policy",
    )


def _svg(parts: Sequence[str], height: float, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} {height:.0f}" width="{_WIDTH:.0f}" role="img" '
        f'aria-label="{html.escape(label)}" style="max-width:100%;height:auto;display:block;'
        f'margin:.4em 0;color:inherit">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="11.5" fill="currentColor" '
        f'text-anchor="{anchor}">{html.escape(text)}</text>'
    )

"""Figures: matplotlib to SVG inside a page.

The SVG has no fonts, no dates and no addresses in it. Its text is text, in the page's font; its
colors are the page's (CSS variables), so that it fits dark and light pages; identifiers inside it
start with a fingerprint of the figure, so that those of two figures do not collide.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from scopeval.arrays import Floats
from scopeval.evaluation.noise import Noise
from scopeval.report.page import Figure, Shape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Drawing

__all__ = [
    "INK",
    "LINE",
    "OPEN",
    "OURS",
    "OWN",
    "SAFE",
    "SOFT",
    "UNSAFE",
    "canvas",
    "draw_band",
    "figure_of",
    "label_powers",
    "noise_figure",
]

#: Colors to draw with. In the page each is a variable with a light and a dark value.
INK, SOFT, LINE = "#000000", "#56606a", "#d9dcdf"
OURS, OWN, SAFE, UNSAFE, OPEN = "#0b63b5", "#b35900", "#1a7f37", "#b42318", "#855600"

#: Color in the drawing -> variable in the page; below, what matplotlib draws with by default.
_VARIABLES = {
    INK: "currentColor",
    SOFT: "var(--soft)",
    LINE: "var(--line)",
    OURS: "var(--ours)",
    OWN: "var(--own)",
    SAFE: "var(--good)",
    UNSAFE: "var(--bad)",
    OPEN: "var(--open)",
    "#ffffff": "var(--card)",
    "#b0b0b0": "var(--line)",
    "#cccccc": "var(--line)",
    "#808080": "var(--soft)",
    "#767676": "currentColor",
    "#7f7f7f": "var(--c7)",
    "#1f77b4": "var(--ours)",
    "#ff7f0e": "var(--own)",
    "#2ca02c": "var(--c2)",
    "#d62728": "var(--c3)",
    "#9467bd": "var(--c4)",
    "#8c564b": "var(--c5)",
    "#e377c2": "var(--c6)",
    "#bcbd22": "var(--c8)",
    "#17becf": "var(--c9)",
}

#: What matplotlib sets for everything, and that what it leaves black is the text's color.
_ROOT = "fill: currentColor; stroke-linejoin: round; stroke-linecap: butt"

_STYLE: dict[Any, Any] = {
    "font.size": 11.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 10.0,
    "lines.linewidth": 1.6,
    "figure.constrained_layout.use": True,
}


@contextmanager
def canvas(width: float = 4.8, height: float = 3.1) -> Iterator[tuple[Drawing, Axes]]:
    """One pair of axes in the page's style, in inches; made without pyplot, so nothing lingers."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Drawing

    with mpl.rc_context():
        mpl.rcdefaults()  # what a user has set elsewhere must not change the bytes
        mpl.rcParams.update(_STYLE)
        drawing = Drawing(figsize=(width, height))
        yield drawing, drawing.add_subplot()


def figure_of(drawing: Drawing, *, label: str, caption: str, shape: Shape | None = None) -> Figure:
    """Any matplotlib figure for a page.

    Args:
        drawing: the figure. Black, white, grays and matplotlib's default colors follow the page
            into dark mode; other colors stay as they are.
        label: the text for readers who cannot see it.
        caption: what it shows.
        shape: see `Figure`; None: wide when it was drawn wider than 7 inches.
    """
    if shape is None:
        shape = "wide" if drawing.get_size_inches()[0] > 7.0 else "plain"
    return Figure(_inline(_svg(drawing)), label, caption, shape)


def _svg(drawing: Drawing) -> str:
    import matplotlib as mpl

    text = io.StringIO()
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "scopeval",
        "path.simplify": True,
    }
    with mpl.rc_context(settings):
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        drawing.savefig(text, format="svg", transparent=True, metadata=nothing)
    return text.getvalue()


def _inline(svg: str) -> str:
    """An SVG document as an element of an HTML page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<[^>]*>", lambda tag: _tag(tag[0]), svg)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    mark = hashlib.sha256(svg.encode()).hexdigest()[:8]

    def named(tag: re.Match[str]) -> str:
        text = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", tag[0])
        return re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{mark}-", text)

    svg = re.sub(r"<[^>]*>", named, svg)
    svg = re.sub(r"<(g|defs)>\s*</\1>", "", svg)
    return re.sub(r"\s*\n\s*", "\n", svg).strip()


def _tag(tag: str) -> str:
    """One tag with the page's colors and font; text between tags is never touched."""
    if tag.startswith("<svg"):
        box = re.search(r'viewBox="0 0 ([\d.]+) [\d.]+"', tag)
        assert box is not None
        style = f"--drawn: {float(box[1]):.0f}px; {_ROOT}"
        return f'<svg {box[0]} aria-hidden="true" focusable="false" style="{style}">'
    tag = tag.replace("xlink:href", "href")
    tag = re.sub(r' transform="rotate\(-?0 [^"]*"', "", tag)
    tag = re.sub(r"font-family:[^;\"]*;? *", "", tag)
    tag = re.sub(r"#[0-9a-f]{6}\b", lambda m: _VARIABLES.get(m[0], m[0]), tag)
    # hundredths of a point are enough to see
    return re.sub(
        r' (d|x|y|width|height)="[^"]*"',
        lambda part: re.sub(r"-?\d+\.\d{3,}", lambda m: _short(float(m[0])), part[0]),
        tag,
    )


def _short(x: float) -> str:
    return f"{x:.2f}".rstrip("0").rstrip(".") if round(x, 2) else "0"


# -- what several figures have in common -----------------------------------------------------------


def draw_band(
    ax: Axes, x: Floats, ends: tuple[Floats, Floats, Floats], color: str, **line: Any
) -> None:
    """A line with its interval, shaded where it is finite.

    Args:
        ax: to draw on.
        x: of the points.
        ends: middle, low and high.
        color: of both.
        line: how the line is drawn.
    """
    middle, low, high = ends
    finite = np.isfinite(low) & np.isfinite(high)
    ax.fill_between(x[finite], low[finite], high[finite], color=color, alpha=0.18, lw=0)
    ax.plot(x, middle, color=color, **line)


def label_powers(axis: Axis, *, between: bool = True) -> None:
    """Label a logarithmic axis at powers of ten; `between`: also at 2 and 5 between them."""

    def label(x: float) -> str:
        digit = round(x / 10 ** math.floor(math.log10(x) + 1e-9))
        return f"{x:g}" if between and digit in (2, 5) else ""

    axis.set_major_formatter(lambda x, _: f"{x:,g}")
    axis.set_minor_formatter(lambda x, _: label(x))
    axis.set_tick_params(which="minor", labelsize=9, labelcolor=INK)


def noise_figure(noise: Noise, about: str = "") -> Figure:
    """A bar of three parts: what was taken out by what, and what is left.

    Args:
        noise: its parts; a first one below 0 is left out, and said in the caption.
        about: what it is about, in words.
    """
    parts = [
        (max(noise.design, 0.0), noise.by, OURS),
        (max(noise.context, 0.0), "context", OWN),
        (max(noise.left, 0.0), "neither", SOFT),
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

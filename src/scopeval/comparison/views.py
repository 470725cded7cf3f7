"""A comparison in a notebook: its card, its forest plot and its table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from scopeval.estimation.moments import Interval
from scopeval.evaluation.result import rounded
from scopeval.notebook.card import Card
from scopeval.notebook.sketch import OURS, OWN, Span, axes_or_new, sketch_spans, write_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from scopeval.evaluation.noise import Noise

__all__ = [
    "Ends",
    "between_in_words",
    "comparison_card",
    "comparison_columns",
    "draw_differences",
    "round_guess",
    "rounded_ends",
    "shortened",
]

_NONE = "\N{EN DASH}"


class Row(Protocol):
    """A difference to the baseline: an `Interval` with its verdict."""

    @property
    def estimate(self) -> float: ...

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...

    @property
    def half_width(self) -> float: ...

    @property
    def se(self) -> float: ...

    @property
    def verdict(self) -> str: ...

    @property
    def more_episodes(self) -> int | None: ...

    @property
    def ab_episodes(self) -> float: ...

    @property
    def decided_after(self) -> int | None: ...


class Compared(Protocol):
    """What is shown of a comparison."""

    @property
    def baseline(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def values(self) -> Mapping[str, Interval]: ...

    @property
    def differences(self) -> Mapping[str, Row]: ...

    @property
    def shares(self) -> Mapping[str, float]: ...

    @property
    def sentence(self) -> str: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...

    @property
    def caveats(self) -> tuple[str, ...]: ...

    @property
    def alpha(self) -> float: ...
    @property
    def noise(self) -> Mapping[str, Noise]: ...


_HEADER = ("policy", "value", "difference", "between", "verdict")


def comparison_card(comparison: Compared) -> Card:
    """The card: the answer in words, and a row for each policy."""
    spans = [
        Span(f"{name} less {comparison.baseline}", d.low, d.estimate, d.high)
        for name, d in comparison.differences.items()
        if math.isfinite(d.half_width) and d.half_width > 0
    ]
    if spans:
        spans.append(Span(comparison.baseline, 0.0, 0.0, 0.0, OWN))
    return Card(
        "Comparison",
        comparison.sentence,
        tuple(table_rows(comparison)),
        _HEADER,
        sketch=sketch_spans(spans),
        remarks=(
            *(x for x in comparison.warnings if x not in comparison.caveats),
            *(f"{name}: {one.sentence}" for name, one in comparison.noise.items()),
        ),
    )


def table_rows(comparison: Compared) -> list[tuple[str, ...]]:
    """A row of text for each policy: name, value, difference, its interval, verdict."""
    rows: list[tuple[str, ...]] = []
    for name in comparison.names:
        v = comparison.values[name]
        value = _NONE
        if math.isfinite(v.estimate):
            value = rounded_ends(v)[0]
        if name == comparison.baseline:
            rows.append((name, value, _NONE, _NONE, "baseline"))
            continue
        d = comparison.differences[name]
        difference = between = _NONE
        if math.isfinite(d.low) or math.isfinite(d.high):
            difference, low, high = rounded_ends(d)
            between = f"{low} to {high}"
        rows.append((name, value, difference, between, d.verdict))
    return rows


def comparison_columns(comparison: Compared) -> dict[str, list[Any]]:
    """A row for each policy, as columns."""
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "policy", "value", "value_low", "value_high", "difference", "low", "high", "se",
            "verdict", "more_episodes", "ab_episodes", "decided_after", "share", "episodes",
        )
    }  # fmt: skip
    for name in comparison.names:
        v, d = comparison.values[name], comparison.differences.get(name)
        row = {
            "policy": name,
            "value": v.estimate,
            "value_low": v.low,
            "value_high": v.high,
            "difference": math.nan if d is None else d.estimate,
            "low": math.nan if d is None else d.low,
            "high": math.nan if d is None else d.high,
            "se": math.nan if d is None else d.se,
            "verdict": "baseline" if d is None else d.verdict,
            "more_episodes": None if d is None else d.more_episodes,
            "ab_episodes": math.nan if d is None else d.ab_episodes,
            "decided_after": None if d is None else d.decided_after,
            "share": comparison.shares[name],
            "episodes": v.n,
        }
        for column, value in row.items():
            columns[column].append(value)
    return columns


#: Colors of verdicts, which can be told apart on light and dark.
COLORS = {"better": "#1a7f37", "worse": "#b42318", "undecided": OURS, "failed": "#808080"}


def draw_differences(
    comparison: Compared, ax: Axes | None, colors: Mapping[str, str] = COLORS
) -> Axes:
    """A forest plot: a row for each policy, the difference to the baseline with its interval.

    An end that nothing bounds is an arrow.

    Args:
        comparison: to draw.
        ax: where; None: on new axes.
        colors: of the verdicts.
    """
    rows = list(comparison.differences.items())
    ax = axes_or_new(ax, 5.4, 1.2 + 0.36 * len(rows))
    drawn = [(k, d) for k, (_, d) in enumerate(rows) if math.isfinite(d.low + d.high)]
    half = [
        (k, d)
        for k, (_, d) in enumerate(rows)
        if math.isfinite(d.low) != math.isfinite(d.high) and math.isfinite(d.estimate)
    ]
    ends = [0.0, *(x for _, d in drawn + half for x in (d.low, d.estimate, d.high))]
    ends = [x for x in ends if math.isfinite(x)]
    reach = 0.15 * (max(ends) - min(ends))
    for k, d in drawn + half:
        low, high = max(d.low, min(ends) - reach), min(d.high, max(ends) + reach)
        color = colors[d.verdict]
        ax.plot([low, high], [k, k], color=color, lw=2.0)
        ax.plot([d.estimate], [k], color=color, marker="o", ms=5)
        ax.plot([low], [k], color=color, marker="|" if low == d.low else "<", ms=7)
        ax.plot([high], [k], color=color, marker="|" if high == d.high else ">", ms=7)
    drawn += half
    if not drawn:
        write_in(ax, "There are too few episodes for an interval.")
    ax.axvline(0.0, color=OWN, lw=1.2, ls="--")
    ax.set_yticks(range(len(rows)), [f"{shortened(name, 20)}: {d.verdict}" for name, d in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="x", alpha=0.3)
    ax.locator_params(axis="x", nbins=6)
    level = f"{100 * (1 - comparison.alpha):.4g}% intervals"
    ax.set_xlabel(  # it may begin left of the axes, and must not end right of them
        f"value less that of {shortened(comparison.baseline, 20)}, {level}", loc="right"
    )
    return ax


# -- words and rounded numbers of differences -----------------------------------------------------


class Ends(Protocol):
    """An estimate and its interval."""

    @property
    def estimate(self) -> float:
        """The middle."""
        ...

    @property
    def low(self) -> float:
        """-inf: nothing bounds it."""
        ...

    @property
    def high(self) -> float:
        """inf: nothing bounds it."""
        ...

    @property
    def half_width(self) -> float:
        """Infinite where an end is open."""
        ...


def rounded_ends(d: Ends, sign: float = 1.0) -> tuple[str, str, str]:
    """Estimate, low and high (of the opposite where `sign` is -1), as exact as they are known.

    An end that nothing bounds is "inf" or "-inf".
    """
    low, high = sorted((sign * d.low, sign * d.high))
    ends = [x for x in (low, high) if math.isfinite(x)]
    spread = d.half_width if len(ends) == 2 else max(abs(sign * d.estimate - x) for x in [*ends, 0])
    value, below, above = rounded(spread, sign * d.estimate, low, high)
    return value, below, above


def between_in_words(low: str, high: str) -> str:
    """Both ends in words; few events say nothing about the side of the long tail."""
    if high == "inf":
        return f"at least {low} (too few events for the other end)"
    if low == "-inf":
        return f"at most {high} (too few events for the other end)"
    return f"between {low} and {high}"


def round_guess(n: float) -> str:
    """Two digits are enough for a number that is a guess."""
    if n < 100:
        return f"{math.ceil(n):,}"
    digits = 1 - math.floor(math.log10(n))
    return f"{round(n, digits):,.0f}"


def shortened(name: str, most: int) -> str:
    """A name of at most so many letters."""
    return name if len(name) <= most else name[: most - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"

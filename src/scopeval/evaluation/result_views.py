"""An evaluation in a notebook: its card, its plot and its table.

All of them take what `Evaluation.to_dict` gives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scopeval.notebook.card import Card
from scopeval.notebook.sketch import OURS, OWN, Span, axes_or_new, sketch_spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_evaluation", "evaluation_card", "evaluation_columns"]

_Told = Mapping[str, Any]

#: When an interval holds, by its method; that of the others is usual, and holds for a number of
#: episodes fixed in advance.
_HOLDS = {
    "asymptotic sequence": " at all times, as far as seen",
    "bets": " for any returns within the stated bounds",
}
#: Who ran the episodes of a stage, by color.
_RAN = {OURS: "stage of a behavior policy", OWN: "stage of the target policy"}


def evaluation_card(told: _Told) -> Card:
    """The card: the answer in one sentence, and the numbers behind it."""
    return Card(
        "Evaluation",
        told["sentence"],
        tuple(_rows(told)),
        sketch=sketch_spans(_spans(told)),
        remarks=tuple(
            text
            for text in told["diagnostics"]["warnings"]
            if text not in told["diagnostics"]["caveats"]  # those are in the sentence
        ),
    )


def evaluation_columns(told: _Told) -> dict[str, list[Any]]:
    """A row for every stage, and one for all of them; without stages only that."""
    whole = {
        "part": "all",
        "episodes": told["finished"],
        "estimate": told["estimate"],
        "low": told["interval"]["low"],
        "high": told["interval"]["high"],
        "variance": None,
        "cost": told["cost"]["per_episode"],
        "total_cost": told["cost"]["total"],
        "share": 1.0,
        "verdict": _verdict(told) if told["safety_told"] else "",
        "caveats": _caveats(told),
    }
    rows = [
        {
            "part": f"stage {stage['number']}",
            "episodes": stage["episodes"],
            "estimate": stage["estimate"],
            "low": None,
            "high": None,
            "variance": stage["variance"],
            "cost": stage["cost"],
            "total_cost": stage["cost"] * stage["episodes"],
            "share": stage["share"],
            "verdict": _verdict(stage),
            "caveats": "",
        }
        for stage in told["stages"]
    ]
    every = [*rows, whole]
    numbers = {"estimate", "low", "high", "variance", "cost", "total_cost", "share"}
    return {
        name: [math.nan if name in numbers and row[name] is None else row[name] for row in every]
        for name in whole
    }


def draw_evaluation(told: _Told, ax: Axes | None) -> Axes:
    """The estimate with its interval, below those of the stages.

    Last, the interval that as many episodes of the policy itself would have given.
    """
    stages = _stage_spans(told)
    spans = [*stages, *_spans(told)]
    ax = axes_or_new(ax, 5.4, 1.2 + 0.36 * len(spans))
    for k, span in enumerate(spans):
        ends = [[span.estimate - span.low], [span.high - span.estimate]]
        ax.errorbar(
            [span.estimate], [k], xerr=ends, color=span.color, marker="o", ms=5, capsize=4, lw=2.0
        )
    ax.set_yticks(range(len(spans)), [span.name for span in spans])
    ax.set_ylim(max(len(spans), 1) - 0.5, -0.5)
    ax.grid(axis="x", alpha=0.3)
    ax.locator_params(axis="x", nbins=6)
    sure = 100 * (1 - told["interval"]["alpha"])
    ax.set_xlabel(f"value of the policy, {sure:.4g}% intervals")
    used = [color for color in _RAN if any(span.color == color for span in stages)]
    if used:
        from matplotlib.lines import Line2D

        ax.legend(
            [Line2D([], [], color=color, marker="o", ms=5, lw=2.0) for color in used],
            [_RAN[color] for color in used],
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=8, frameon=False,
        )  # fmt: skip
    return ax


def _rows(told: _Told) -> list[tuple[str, str]]:
    found, own = told["interval"], told["on_policy"]
    value = "not known" if found["estimate"] is None else f"{found['estimate']:.4g}"
    if found["low"] is not None and found["high"] is not None:
        sure = f"{100 * (1 - found['alpha']):.4g}% confidence{_HOLDS.get(found['method'], '')}"
        value += f" ({found['low']:.4g} to {found['high']:.4g} with {sure})"
    rows = [("value", value), ("episodes", f"{told['finished']:,}; {told['stopped']}")]
    if told["cost"]["total"]:
        each, total = told["cost"]["per_episode"], told["cost"]["total"]
        rows.append(("cost of an episode", f"{each:.4g} ({_amount(total)} in total)"))
    if own["unknown"] is None and told["by_target"] < told["finished"] and own["episodes"]:
        total = "" if not own["total"] else f" at a total cost of {_amount(own['total'])}"
        said = f"{own['episodes']:,.0f} episodes{total}, to the same precision"
        rows.append(("on-policy", said))
    rows += [("safety", text) for text in told["safety_told"]]
    if told["noise"] is not None:
        rows.append(("noise", told["noise"]["sentence"]))
    rows += [("try", text) for text in told["advice"]]
    if told["guard"] is not None:
        after = told["guard"]["switched_after"]
        rows.append(("guard", "did not switch" if after is None else f"after {after:,} episodes"))
    if told["learning"] is not None:
        learning = told["learning"]
        rows.append(("stages", f"{len(told['stages'])}, {learning['refits']} designs"))
    if told["diagnostics"]["lost"]:
        rows.append(("lost episodes", f"{told['diagnostics']['lost']:,} of {told['started']:,}"))
    return rows


def _spans(told: _Told) -> list[Span]:
    """The interval, and that of as many episodes of the policy itself."""
    found, own = told["interval"], told["on_policy"]
    if found["estimate"] is None:
        return []
    if found["low"] is None or found["high"] is None:
        return [Span("this evaluation", found["estimate"], found["estimate"], found["estimate"])]
    spans = [Span("this evaluation", found["low"], found["estimate"], found["high"])]
    if own["unknown"] is None and told["by_target"] < told["finished"] and own["episodes"]:
        half = (found["high"] - found["low"]) / 2 * math.sqrt(own["episodes"] / told["finished"])
        middle = found["estimate"]
        spans.append(Span("on-policy, as many", middle - half, middle, middle + half, OWN))
    return spans


def _stage_spans(told: _Told) -> list[Span]:
    """Each stage by itself, with its own standard error."""
    from scipy.stats import norm

    z = float(norm.isf(told["interval"]["alpha"] / 2))
    spans = []
    for stage in told["stages"]:
        if stage["variance"] is None or not stage["episodes"]:
            continue
        half, middle = z * math.sqrt(stage["variance"] / stage["episodes"]), stage["estimate"]
        color = OWN if stage["by_target"] == stage["episodes"] else OURS
        spans.append(Span(f"stage {stage['number']}", middle - half, middle, middle + half, color))
    return spans


def _caveats(told: _Told) -> str:
    """What speaks against trusting the interval; that there is no value."""
    if told["estimate"] is None:
        return str(told["sentence"])
    return "; ".join(told["diagnostics"]["caveats"])


def _amount(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.4g}"


def _verdict(told: _Told) -> str:
    return "" if told["certificate"] is None else str(told["certificate"]["verdict"])

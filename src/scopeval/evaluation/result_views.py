"""An evaluation in a notebook: its card, its plot and its table.

All of them take what `Evaluation.to_dict` gives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scopeval.estimation.moments import confidence
from scopeval.notebook.card import Card
from scopeval.notebook.sketch import OURS, OWN, Span, axes_or_new, sketch_spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_evaluation", "evaluation_card", "evaluation_columns"]

_Content = Mapping[str, Any]

#: When an interval holds, by its method; that of the others is usual, and holds for a number of
#: episodes fixed in advance.
_HOLDS = {
    "asymptotic sequence": " at all times, as far as seen",
    "bets": " for any returns within the stated bounds",
}
#: Who ran the episodes of a stage, by color.
_RAN = {OURS: "stage of a behavior policy", OWN: "stage of the target policy"}


def evaluation_card(content: _Content) -> Card:
    """The card: the answer in one sentence, and the numbers behind it."""
    return Card(
        "Evaluation",
        content["sentence"],
        tuple(_rows(content)),
        sketch=sketch_spans(_spans(content)),
        remarks=tuple(
            text
            for text in content["diagnostics"]["warnings"]
            if text not in content["diagnostics"]["caveats"]  # those are in the sentence
        ),
    )


def evaluation_columns(content: _Content) -> dict[str, list[Any]]:
    """A row for every stage, and one for all of them; without stages only that."""
    whole = {
        "part": "all",
        "episodes": content["finished"],
        "estimate": content["estimate"],
        "low": content["interval"]["low"],
        "high": content["interval"]["high"],
        "variance": None,
        "cost": content["cost"]["per_episode"],
        "total_cost": content["cost"]["total"],
        "share": 1.0,
        "verdict": _verdict(content) if content["safety_told"] else "",
        "caveats": _caveats(content),
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
        for stage in content["stages"]
    ]
    every = [*rows, whole]
    numbers = {"estimate", "low", "high", "variance", "cost", "total_cost", "share"}
    return {
        name: [math.nan if name in numbers and row[name] is None else row[name] for row in every]
        for name in whole
    }


def draw_evaluation(content: _Content, ax: Axes | None) -> Axes:
    """The estimate with its interval, below those of the stages.

    Last, the interval that as many episodes of the policy itself would have given.
    """
    stages = _stage_spans(content)
    spans = [*stages, *_spans(content)]
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
    ax.set_xlabel(f"value of the policy, {confidence(content['interval']['alpha'])} intervals")
    used = [color for color in _RAN if any(span.color == color for span in stages)]
    if used:
        from matplotlib.lines import Line2D

        ax.legend(
            [Line2D([], [], color=color, marker="o", ms=5, lw=2.0) for color in used],
            [_RAN[color] for color in used],
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=8, frameon=False,
        )  # fmt: skip
    return ax


def _rows(content: _Content) -> list[tuple[str, str]]:
    interval, on_policy = content["interval"], content["on_policy"]
    value = "not known" if interval["estimate"] is None else f"{interval['estimate']:.4g}"
    if interval["low"] is not None and interval["high"] is not None:
        sure = f"{confidence(interval['alpha'])} confidence{_HOLDS.get(interval['method'], '')}"
        value += f" ({interval['low']:.4g} to {interval['high']:.4g} with {sure})"
    rows = [("value", value), ("episodes", f"{content['finished']:,}; {content['stopped']}")]
    if content["cost"]["total"]:
        each, total = content["cost"]["per_episode"], content["cost"]["total"]
        rows.append(("cost of an episode", f"{each:.4g} ({_amount(total)} in total)"))
    if _comparable(content):
        total = (
            "" if not on_policy["total"] else f" at a total cost of {_amount(on_policy['total'])}"
        )
        text = f"{on_policy['episodes']:,.0f} episodes{total}, to the same precision"
        rows.append(("on-policy", text))
    rows += [("safety", text) for text in content["safety_told"]]
    if content["noise"] is not None:
        rows.append(("noise", content["noise"]["sentence"]))
    rows += [("try", text) for text in content["advice"]]
    if content["guard"] is not None:
        rows.append(("guard", content["guard"]["sentence"]))
    if content["learning"] is not None:
        learning = content["learning"]
        rows.append(("stages", f"{len(content['stages'])}, {learning['refits']} designs"))
    if content["diagnostics"]["lost"]:
        rows.append(
            ("lost episodes", f"{content['diagnostics']['lost']:,} of {content['started']:,}")
        )
    return rows


def _comparable(content: _Content) -> bool:
    """Whether it is known what running the policy itself would have taken."""
    estimated = content["on_policy"]["unknown"] is None and content["on_policy"]["episodes"]
    return bool(estimated and content["by_target"] < content["finished"])


def _spans(content: _Content) -> list[Span]:
    """The interval, and that of as many episodes of the policy itself."""
    interval, on_policy = content["interval"], content["on_policy"]
    if interval["estimate"] is None:
        return []
    if interval["low"] is None or interval["high"] is None:  # as far as an end is known
        middle = interval["estimate"]
        low, high = (middle if end is None else end for end in (interval["low"], interval["high"]))
        return [Span("this evaluation", low, middle, high)]
    spans = [Span("this evaluation", interval["low"], interval["estimate"], interval["high"])]
    if _comparable(content):
        half = (
            (interval["high"] - interval["low"])
            / 2
            * math.sqrt(on_policy["episodes"] / content["finished"])
        )
        middle = interval["estimate"]
        spans.append(Span("on-policy, as many", middle - half, middle, middle + half, OWN))
    return spans


def _stage_spans(content: _Content) -> list[Span]:
    """Each stage by itself, with its own standard error."""
    from scipy.stats import norm

    z = float(norm.isf(content["interval"]["alpha"] / 2))
    spans = []
    for stage in content["stages"]:
        if stage["variance"] is None or not stage["episodes"]:
            continue
        half, middle = z * math.sqrt(stage["variance"] / stage["episodes"]), stage["estimate"]
        color = OWN if stage["by_target"] == stage["episodes"] else OURS
        spans.append(Span(f"stage {stage['number']}", middle - half, middle, middle + half, color))
    return spans


def _caveats(content: _Content) -> str:
    """What speaks against trusting the interval; that there is no value."""
    if content["estimate"] is None:
        return str(content["sentence"])
    return "; ".join(content["diagnostics"]["caveats"])


def _amount(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.4g}"


def _verdict(content: _Content) -> str:
    return "" if content["certificate"] is None else str(content["certificate"]["verdict"])

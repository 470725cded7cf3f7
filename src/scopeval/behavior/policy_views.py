"""A behavior policy in a notebook: its card, its plot and its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scopeval.behavior.frontier_point import draw_curve
from scopeval.behavior.step import Recipe
from scopeval.behavior.summary import Report, support_in_words
from scopeval.notebook.card import Card
from scopeval.notebook.sketch import OURS, OWN, Bar, axes_or_new, sketch_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_policy", "policy_card", "policy_columns"]

_NONE = "\N{EN DASH}"


def policy_card(recipe: Recipe, report: Report) -> Card:
    """The card: what the design predicts of itself, and what speaks against it."""
    p = report.prediction
    sentence = (
        f"Predicted: {p.variance:.2f} of the target policy's variance at {p.cost:.2f} of its "
        "expected cost."
    )
    if report.fallback is not None:
        sentence = f"Runs your own policy: {report.fallback}."
    rows = (
        ("relative variance", f"{p.variance:.3f}", f"{p.checked_variance:.3f}", _NONE),
        ("relative cost", f"{p.cost:.3f}", f"{p.checked_cost:.3f}", _allowed(recipe, report)),
        ("support", f"{report.support:.1%}", "", ""),
    )
    return Card(
        f"Behavior policy by {recipe.method}, horizon {recipe.horizon}, learned from "
        f"{report.rows:,} logged steps",
        sentence,
        rows,
        ("", "predicted", "cross-checked", "allowed"),
        sketch_bars([Bar("variance", p.variance), Bar("cost", p.cost)], 1.0, "the target policy"),
        (*report.warnings, *report.notes),
    )


def policy_columns(recipe: Recipe, report: Report) -> dict[str, list[Any]]:
    """Predictions as columns, a row for the variance and one for the cost."""
    p = report.prediction
    own = report.promise is None
    return {
        "quantity": ["variance", "cost"],
        "predicted": [p.variance, p.cost],
        "cross_checked": [p.checked_variance, p.checked_cost],
        "allowed": [float("nan"), 1.0 + recipe.epsilon if own else float("nan")],
    }


def draw_policy(recipe: Recipe, report: Report, ax: Axes | None) -> Axes:
    """Where the design lies beside the target policy: relative variance against relative cost."""
    p = report.prediction
    if report.curve is not None and report.curve.points:
        return draw_curve(report.curve, ax, (p.variance, p.safe_cost))
    ax = axes_or_new(ax)
    ax.axhline(1.0, color="#808080", lw=0.8, ls=":")
    if report.promise is None:
        ax.axvline(1.0 + recipe.epsilon, color="#808080", lw=0.8, ls="--", label="allowed cost")
    ax.plot(1.0, 1.0, color=OWN, marker="o", ls="none", label="the target policy itself")
    ax.plot(
        [p.cost, p.checked_cost], [p.variance, p.checked_variance], color=OURS, lw=1.0, alpha=0.5
    )
    ax.plot(
        p.checked_cost, p.checked_variance, color=OURS, marker="o", mfc="none", ls="none",
        label="cross-checked",
    )  # fmt: skip
    ax.plot(p.cost, p.variance, color=OURS, marker="*", ms=13, ls="none", label="predicted")
    ax.set_ylim(0.0, 1.15 * max(1.0, p.variance, p.checked_variance))
    costs = (1.0, 1.0 + recipe.epsilon, p.cost, p.checked_cost)
    room = max(0.15 * (max(costs) - min(costs)), 0.05)
    ax.set_xlim(min(costs) - room, max(costs) + room)
    ax.set_xlabel("expected cost of an episode / target policy's")
    ax.set_ylabel("variance of an episode / target policy's")
    ax.set_title(support_in_words(report), fontsize=9)
    ax.legend(loc="lower right", fontsize=8, frameon=False)
    return ax


def _allowed(recipe: Recipe, report: Report) -> str:
    """What the expected cost may be."""
    promise = report.promise
    if promise is None:
        return f"{1.0 + recipe.epsilon:.3f}"
    if promise.limit is not None:
        return f"{(1.0 + promise.epsilon) * promise.limit:.4g} an episode"
    times = "" if promise.epsilon == 0 else f"{1.0 + promise.epsilon:.3g} times "
    return f"{times}the reference policy's cost"

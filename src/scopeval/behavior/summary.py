"""What a design reports about itself: its summary, card, table and plot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scopeval.behavior.frontier_point import Curve, draw_curve
from scopeval.behavior.promised_cost import PromisedCost
from scopeval.behavior.step import Recipe
from scopeval.notebook.card import Card
from scopeval.notebook.sketch import OURS, OWN, Bar, axes_or_new, sketch_bars
from scopeval.policies.protocols import Counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Prediction",
    "Report",
    "Shape",
    "draw_policy",
    "policy_card",
    "policy_columns",
    "summary_of",
    "support_in_words",
    "what_runs",
]


@dataclass(frozen=True)
class Prediction:
    """What a design predicts of itself, relative to running the target policy.

    Attributes:
        variance: relative variance, from the critics and their own errors.
        cost: expected relative cost, likewise.
        checked_variance: the same for a design on half of the logs, judged by critics of the other
            half; the gap to `variance` is what the critics cannot agree on.
        checked_cost: likewise.
        doubt: about the cost: what is added to it before it is compared with a promise.
    """

    variance: float
    cost: float
    checked_variance: float
    checked_cost: float
    doubt: float = 0.0

    @property
    def safe_cost(self) -> float:
        """The expected cost and the doubt about it: what is kept within a promise."""
        return self.cost + self.doubt


@dataclass(frozen=True)
class Shape:
    """The target's problem: number of actions (0: unknown), width of observations, states."""

    actions: int = 0
    width: int | None = None
    states: int | None = None


@dataclass(frozen=True)
class Report:
    """What was learned about the logs and the design; printed by `summary`."""

    rows: int
    regression: str
    support: float
    binding: float
    kept: float
    prediction: Prediction
    holdout: dict[str, float]
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default=())
    shape: Shape = field(default_factory=lambda: Shape())
    fallback: str | None = None  # why the design falls back to the target policy
    curve: Curve | None = None  # the frontier that it was chosen on
    promise: PromisedCost | None = None  # whose cost is not exceeded; None: the target policy's
    drawn: float | None = None  # share of the target's variance that its own draws make


def support_in_words(report: Report) -> str:
    """What the number means: vectors never repeat, so nearness decides."""
    share = f"{report.support:.1%} of the target policy's own steps are "
    if report.shape.width is None:
        return share + "in the logs"
    return share + "as near to the logs as held-out logged steps"


def what_runs(recipe: Recipe, report: Report) -> str:
    """The first line: what will run, and why."""
    p = report.prediction
    if report.fallback is not None:
        return f"Runs your own policy: the logs confirm no design: {report.fallback}"
    if not recipe.method.tilted:
        return "Runs your own policy, as was asked (on-policy)"
    if recipe.floor >= 1.0 and recipe.method.control_variate:
        return (
            f"Use it: {p.variance:.2f} of the variance at the cost of your own policy, which runs "
            "itself; a control variate saves the rest"
        )
    return f"Use it: {p.variance:.2f} of the variance at {p.cost:.2f} of the cost"


def summary_of(recipe: Recipe, report: Report, counts: Counts, trouble: str | None) -> str:
    """A design in words: what a person should know before running it.

    Args:
        recipe: how mu follows from the critics.
        report: what was learned.
        counts: how often it was asked so far.
        trouble: the last error of a simulator, if one stands for the dynamics.
    """
    p = report.prediction
    spent = f"cost budget binds    in {report.binding:.1%} of the logged states"
    if recipe.budget == "episode" and recipe.method.constrained:
        spent = f"cost budget          one for whole episodes, at a price of {recipe.price:.3g}"
    if recipe.budget == "weighted":
        spent = f"cost has a price of   {recipe.price:.3g}; no weight exceeds {recipe.cap:g}"
    doubt = f"with its doubt: {p.safe_cost:.3f}; " if recipe.budget == "weighted" else ""
    lines = [
        what_runs(recipe, report),
        f"behavior policy by {recipe.method}, horizon {recipe.horizon}, "
        f"epsilon {recipe.epsilon:g}, learned from {report.rows:,} logged rows "
        f"({report.regression}, {report.seconds:.1f} s)",
        f"  predicted variance   {p.variance:.3f} of on-policy's "
        f"(cross-checked: {p.checked_variance:.3f})",
        f"  predicted cost       {p.cost:.3f} of the target policy's "
        f"({doubt}cross-checked: {p.checked_cost:.3f}; allowed: {1 + recipe.epsilon:.3f})",
        f"  support              {support_in_words(report)}",
        f"  {spent}",
        f"  target's share       {recipe.floor:.0%} everywhere, all in {report.kept:.1%} of the "
        "logged states",
    ]
    if report.drawn is not None:
        lines.append(
            f"  origin of variance   {report.drawn:.0%} the target policy's own draws of actions, "
            f"{1.0 - report.drawn:.0%} the environment"
        )
    if recipe.method.control_variate and recipe.share < 1.0:
        lines.append(
            f"  control variate      uses {recipe.share:.0%} of the estimated differences between "
            "actions"
        )
    lines += [f"  held-out error       {k}: {v:.3g}" for k, v in report.holdout.items()]
    if counts.asked:
        lines.append(
            f"  asked so far         {counts.asked:,} times; fell back to the target policy for "
            f"an unseen observation {counts.unseen:,}, no affordable answer "
            f"{counts.infeasible:,}, not finite {counts.not_finite:,}"
        )
    others = [text for text in report.warnings if text != report.fallback]
    lines += [f"  warning: {text}" for text in others]
    lines += [f"  warning: the simulator failed; last error: {trouble}"] if trouble else []
    lines += [f"  note: {text}" for text in report.notes]
    return "\n".join(lines)


# -- in a notebook ---------------------------------------------------------------------------------


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

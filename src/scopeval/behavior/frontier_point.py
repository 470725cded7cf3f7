"""A point of a learned frontier, and how the curve through points is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scopeval.arrays import least
from scopeval.notebook.sketch import axes_or_new, write_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Curve", "Point", "draw_curve", "least_needed"]

#: Checked variance, relative to predicted, up to which a prediction is believed.
AGREEMENT = 3.0
#: How much the check counts in the variance that is told, as a power.
CHECK_SHARE = 0.2
#: Variances above are not drawn: the axis is for what is worth running.
MOST = 2.0
#: Colors that reports know: ours, the others', doubt.
OURS, OTHER, INK = "#1f77b4", "#ff7f0e", "#000000"


@dataclass(frozen=True)
class Point:
    """A point on the frontier, relative to running the target policy.

    Attributes:
        price: of cost, in units of variance.
        variance: predicted relative variance.
        cost: predicted relative cost.
        checked_variance: the predicted one, and what designs from one half of the logs have more by
            the critics of the other half than by their own.
        checked_cost: likewise.
        doubt: about the predicted cost: what is added to it before it is promised.
    """

    price: float
    variance: float
    cost: float
    checked_variance: float
    checked_cost: float
    doubt: float

    @property
    def offered(self) -> bool:
        """Whether held-out logs bear it out: they agree, or say that it beats the target policy.

        A point whose cost cannot be told is not offered.
        """
        agrees = self.checked_variance <= max(AGREEMENT * self.variance, 1.0)
        return bool(agrees and np.isfinite(self.safe_cost))

    @property
    def safe_variance(self) -> float:
        """What to expect: between the predicted and the checked variance.

        The check judges designs from half of the logs, so it is pessimistic; the prediction is by
        the critics that made the design, so it is optimistic.
        """
        between = self.variance ** (1.0 - CHECK_SHARE)
        between *= self.checked_variance**CHECK_SHARE
        return float(max(between, self.checked_variance / AGREEMENT))

    @property
    def safe_cost(self) -> float:
        """What is promised: the predicted cost and the doubt about it."""
        return self.cost + self.doubt

    @property
    def needed(self) -> float:
        """What it costs to know as much as the target policy's own episodes would tell."""
        return self.safe_variance * self.safe_cost

    @property
    def pays(self) -> bool:
        """Whether a given precision costs less than with the target policy itself."""
        return self.needed < 1.0

    @property
    def does_not_pay(self) -> str:
        """Said of a point that does not pay."""
        return (
            f"this point does not pay: a given precision costs {self.needed:.3g} times as much as "
            "with the target policy itself; it is for those who must limit the cost of an episode"
        )


@dataclass(frozen=True)
class Curve:
    """What a behavior policy remembers of the frontier it was chosen on.

    Attributes:
        points: that were offered, from the least variance to the least cost.
        odi: relative variance and cost of ODI, as the critics predict them; None: not known.
    """

    points: tuple[Point, ...] = ()
    odi: tuple[float, float] | None = None


def least_needed(points: Sequence[Point]) -> Point:
    """The point with the least variance times cost; of several, the one that costs less."""
    return points[least([p.needed for p in points], [-p.price for p in points])]


def draw_curve(
    curve: Curve,
    ax: Axes | None = None,
    chosen: tuple[float, float] | None = None,
    why_empty: str = "",
) -> Axes:
    """Draw relative variance against relative cost.

    The line is what to expect, the shade is between what was predicted and what held-out logs say.

    Args:
        curve: what to draw.
        ax: where; None: axes of a new figure.
        chosen: variance and cost of the point that was chosen, if any.
        why_empty: is written where there are no points.
    """
    ax = axes_or_new(ax)
    cost = np.array([p.safe_cost for p in curve.points])
    variance = np.array([p.safe_variance for p in curve.points])
    bounds = np.array([(p.variance, p.checked_variance) for p in curve.points]).reshape(-1, 2)
    if curve.points:
        ax.fill_between(
            cost, bounds.min(axis=1), bounds.max(axis=1), color=OURS, alpha=0.18, lw=0,
            label="doubt: predicted to cross-checked",
        )  # fmt: skip
        ax.plot(cost, variance, color=OURS, lw=2.0, label="frontier")
    elif why_empty:
        write_in(ax, why_empty, 0.25)
    ax.axvline(1.0, color=INK, lw=0.8, ls=":")
    ax.axhline(1.0, color=INK, lw=0.8, ls=":")
    ax.plot(1.0, 1.0, color=INK, marker="o", ls="none", label="the target policy itself")
    if curve.odi is not None:
        ax.plot(
            curve.odi[1], curve.odi[0], color=OTHER, marker="D", ls="none", label="ODI, no budget"
        )
    if chosen is not None:
        ax.plot(
            chosen[1], chosen[0], color=OURS, marker="*", ms=13, ls="none",
            label=f"chosen: variance {chosen[0]:.2f}, cost {chosen[1]:.2f}",
        )  # fmt: skip
    ax.set_ylim(0.0, MOST)
    shown = cost[variance <= MOST]
    right = max(1.05, 1.05 * (curve.odi[1] if curve.odi is not None else 0.0))
    ax.set_xlim(max(float(shown.min(initial=1.0)) - 0.05, 0.0), min(right, 2.0))
    ax.set_xlabel("expected cost of an episode / target policy's")
    ax.set_ylabel("variance of an episode / target policy's")
    ax.legend(loc="upper right", fontsize=9, frameon=False)
    return ax

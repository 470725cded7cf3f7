"""What can be seen of a frontier: a card for notebooks, a plot, a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopeval.arrays import least
from scopeval.behavior.frontier_point import Curve, Point, draw_curve, least_needed
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.notebook.card import Card
from scopeval.notebook.frame import frame_of
from scopeval.notebook.sketch import sketch_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["FrontierViews"]

_COLUMNS = (
    "price", "safe_variance", "safe_cost", "needed", "pays", "variance", "cost",
    "checked_variance", "checked_cost", "doubt",
)  # fmt: skip


class FrontierViews:
    """The verbs of a `Frontier` that show it."""

    points: tuple[Point, ...]
    warnings: tuple[str, ...]

    @property
    def why_empty(self) -> str:
        """Why there are no points; empty where there are some."""
        if self.points:
            return ""
        return "; ".join(self.warnings) or "held-out logs confirm no design"

    @property
    def curve(self) -> Curve:
        """The points, and where ODI lies."""
        raise NotImplementedError

    @property
    def least_needed(self) -> Point:
        """The point with the least variance times cost; of several, the one that costs less."""
        return least_needed(self.points)

    def plot(self, ax: Axes | None = None, chosen: BehaviorPolicy | None = None) -> Axes:
        """Draw the curve with the target policy, ODI and what was chosen; doubts are shaded.

        Args:
            ax: matplotlib axes; None: those of a new figure, which is ``.figure``.
            chosen: a behavior policy of this frontier.
        """
        told = None if chosen is None else chosen.predicted
        at = None if told is None else (told.variance, told.safe_cost)
        return draw_curve(self.curve, ax, at, self.why_empty)

    def to_frame(self) -> DataFrame:
        """A pandas table with a row for each point, from the least variance to the least cost.

        `safe_variance` and `safe_cost` are what to expect, `needed` is their product, and a point
        `pays` if that is below 1; see `Point` for the others.
        """
        return frame_of({name: [getattr(p, name) for p in self.points] for name in _COLUMNS})

    def __repr__(self) -> str:
        why = "" if self.points else f": {self.why_empty}"
        return f"Frontier({len(self.points)} points{why})"

    def _repr_html_(self) -> str:
        if not self.points:
            sentence = "The logs bear out no point: log more, or run the target policy."
            return Card("Frontier", sentence, remarks=self.warnings or (self.why_empty,)).html()
        best, points = self.least_needed, self.points
        named = (
            ("least variance", points[least([p.safe_variance for p in points])]),
            ("best(): least needed", best),
            ("least cost", points[least([p.safe_cost for p in points])]),
        )
        return Card(
            f"Frontier of variance against cost, {len(self.points)} points",
            f"At {best.safe_cost:.2f} of the target policy's cost, {best.safe_variance:.2f} of its "
            f"variance: a given precision for {best.needed:.2f} of the "
            "total cost.",
            tuple((name, *_numbers(point)) for name, point in named),
            ("", "variance", "cost", "needed"),
            sketch_curve([(p.safe_cost, p.safe_variance) for p in self.points]),
            self.warnings,
        ).html()


def _numbers(p: Point) -> tuple[str, str, str]:
    numbers = (p.safe_variance, p.safe_cost, p.needed)
    return tuple(f"{x:.2f}" for x in numbers)  # type: ignore[return-value]

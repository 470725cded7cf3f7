"""The figure of the frontier that a behavior policy was chosen on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopeval.behavior.frontier_point import draw_curve
from scopeval.report.page import Figure
from scopeval.report.svg import canvas, figure_of

if TYPE_CHECKING:
    from scopeval.behavior.policy import BehaviorPolicy

__all__ = ["frontier_figure"]


def frontier_figure(behavior: BehaviorPolicy) -> Figure | None:
    """The frontier that the behavior policy was chosen on; None: it was not chosen on one."""
    curve, told = behavior.report.curve, behavior.predicted
    if curve is None or not curve.points:
        return None
    with canvas(height=3.4) as (drawing, ax):
        draw_curve(curve, ax, (told.variance, told.safe_cost))
        return figure_of(
            drawing,
            label="Relative variance against relative cost of the behavior policies that the logs "
            f"bear out; chosen: {told.variance:.3f} of the variance at {told.safe_cost:.3f} of the "
            "cost of the target policy.",
            caption="Which precision costs what: each point of the line is a behavior policy that "
            "the logs bear out. The shade reaches from what its critics predict to what held-out "
            "logs say.",
        )

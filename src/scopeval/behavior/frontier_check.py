r"""The cross-check of a frontier: designs from one half of the logs, judged by the other half.

With tables more is known of the predicted cost J_W(mu_W), W all of the logs, A and B their halves:

- its standard error (`cost_error`);
- its bias: a design prefers what its own critics think cheap. That error grows with the variance of
  the critics, so a design from A has twice the bias of one from W, which critics from B would tell:
  J_B(mu_A) - J_A(mu_A). All logs say half of it, and know every pair that mu_A relies on, which B
  does not: bias = J_W(mu_A) - J_A(mu_A), mean over both halves.

What B alone says of mu_A is too pessimistic where B does not know the pairs that mu_A prefers and
borrows neighbors' rows for them: there it counts in part only. Else the larger of both counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scopeval.arrays import Floats
from scopeval.behavior.cost_error import cost_error, sweep_recorded
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.frontier_point import CHECK_SHARE
from scopeval.behavior.methods import Method
from scopeval.behavior.step import Recipe
from scopeval.behavior.sweep import Swept, ratio
from scopeval.behavior.weighted_step import PriceGrid, follow_fixed_prices, follow_prices

__all__ = ["Judged", "judge"]

#: With tables, the parts of the bias, of what the other half adds to a predicted cost, and of its
#: standard error, that are added before it is promised. If the best of several actions is taken
#: outright, errors grow with the standard deviation of critics, not the variance, and the bias is
#: the square root of 2 times what is found. Chosen on other worlds and logs than are reported.
TABLE_BIAS, TABLE_CHECK, TABLE_ERRORS = 1.4, 0.1, 0.5
#: How much the check then counts in the variance that is told.
TABLE_SHARE = 0.1
#: The standard error is computed at every fourth price, and interpolated.
EVERY = 4


@dataclass(frozen=True)
class Judged:
    """Designs at all prices, without the cap; all relative to running the target policy.

    Attributes:
        variance: [U] predicted, and
        cost: likewise.
        more_variance: [U] of a half's design by the other half's critics than by its own.
        more_cost: likewise.
        differ: [U] half of the difference between the costs that the two halves check.
        bias: [U] how much too low the predicted cost is, because the design was chosen by the same
            critics. 0 where it is not known.
        error: [U] standard error of the predicted cost; NaN where it is not known.
        borrowed: whether some pairs have the rows of their neighbors.
    """

    variance: Floats
    cost: Floats
    more_variance: Floats
    more_cost: Floats
    differ: Floats
    bias: Floats
    error: Floats
    borrowed: bool = False

    @property
    def check_share(self) -> float:
        """How much the check counts in the variance that is told; see `Point`."""
        return CHECK_SHARE if np.isnan(self.error).all() else TABLE_SHARE

    def read(self, values: Floats, place: float) -> float:
        """One of the fields between two prices."""
        return float(np.interp(place, np.arange(len(values)), values))

    def doubt(self, place: float, error: float | None = None) -> float:
        """What is added to a predicted cost before it is promised.

        Args:
            place: of the price on the grid.
            error: standard error of this very design; None: that of the curve.
        """
        check = max(self.read(self.more_cost, place), 0.0) + self.read(self.differ, place)
        usual = self.read(self.error, place)
        if np.isnan(usual):
            return check
        doubt = TABLE_CHECK * check + TABLE_ERRORS * (usual if error is None else error)
        doubt += TABLE_BIAS * max(self.read(self.bias, place), 0.0)
        return doubt if self.borrowed else max(doubt, check)


def judge(evidence: Evidence, method: Method, recipe: Recipe, grid: PriceGrid) -> Judged:
    """Design at all prices from all logs, and from each half to be judged by the other."""
    e, many = evidence, 1 + grid.count
    follow = follow_prices(method, recipe, grid)
    whole, recorded = sweep_recorded(e, e.whole, follow, grid)
    more, bias, costs = np.zeros((2, grid.count)), np.zeros(grid.count), []
    for k in range(2):
        half, known = sweep_recorded(e, e.halves[k], follow, grid)
        fixed = follow_fixed_prices(method, recipe, grid, half.critics)
        if known is not None:  # tables: the same states, so that mu is known already
            fixed = known.following(grid, recipe.gamma)
            by_all = e.sweep(e.whole, fixed, many)
            bias += 0.5 * (_relative(by_all, "cost") - _relative(half, "cost"))
        judged = e.sweep(e.halves[1 - k], fixed, many)
        for j, by in enumerate(("variance", "cost")):
            more[j] += 0.5 * (_relative(judged, by) - _relative(half, by))
        costs.append(_relative(judged, "cost"))
    error = np.full(grid.count, np.nan)
    if recorded is not None:
        some = np.arange(0, grid.count, EVERY)
        found = [cost_error(e, whole, recorded, grid, int(k)) for k in some]
        error = np.interp(np.arange(grid.count), some, found)
    return Judged(
        variance=_relative(whole, "variance"),
        cost=_relative(whole, "cost"),
        more_variance=more[0],
        more_cost=more[1],
        differ=0.5 * np.abs(costs[0] - costs[1]),
        bias=bias,
        error=error,
        borrowed=any(rows.borrowed.any() for rows in e.whole.rows),
    )


def _relative(swept: Swept, by: str) -> Floats:
    """Variance or cost of the behavior policies at all prices, relative to the target's."""
    values = swept.variance if by == "variance" else swept.cost
    return np.asarray(ratio(values[1:], values[0]))

r"""The cross-check of a frontier: designs from one half of the logs, judged by the other half.

A design prefers what its own critics think cheap, so that the cost J_W(mu_W) which all logs W
predict of their own design is too low. What the check adds to it is J_B(mu_A) - J_A(mu_A), the mean
over both halves A and B: what a design from A costs by logs that it was not chosen by, beyond what
A believes. That optimism falls with more logs (in proportion to 1 / n where the design hardly
changes, to 1 / sqrt(n) where the best of several actions is taken, not at all where every pair
that it prefers has few rows), so that of half of the logs it is at least that of all. What is
promised is

    J_W(mu_W) + max(check, 0) + z standard errors of the check

With tables the standard error is that of J_B(mu_A) (`cost_error`): the rows of B were not chosen
among, so that it knows how few events the cost rests on. Otherwise it is half of the difference
between the halves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scopeval.arrays import Floats
from scopeval.behavior.cost_error import CostError, cost_error, mean_error, sweep_recorded
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.methods import Method
from scopeval.behavior.step import Recipe
from scopeval.behavior.sweep import Swept, ratio
from scopeval.behavior.weighted_step import PriceGrid, follow_fixed_prices, follow_prices
from scopeval.models.protocols import SweepData
from scopeval.models.table import Table

__all__ = ["Judged", "judge", "pooled"]

#: Standard errors up to which a promised cost leaves room, with tables: 2.3 % one-sided.
Z = 2.0
#: The standard error is computed at every fourth price, and interpolated.
EVERY = 4


@dataclass(frozen=True)
class Judged:
    """Designs at all prices, without the cap; all relative to running the target policy.

    Attributes:
        variance: [U] predicted, and
        cost: likewise.
        more_variance: [U] of a half's design by the other half's critics than by its own.
        most_variance: [U] the larger one of the two halves; `more_variance` is their mean.
        more_cost: likewise the mean.
        room: [U] for the error of that cost.
    """

    variance: Floats
    cost: Floats
    more_variance: Floats
    most_variance: Floats
    more_cost: Floats
    room: Floats

    def read(self, values: Floats, place: float) -> float:
        """One of the fields between two prices."""
        return float(np.interp(place, np.arange(len(values)), values))

    def doubt(self, place: float) -> float:
        """What is added to a predicted cost before it is promised; the price has this place."""
        return max(self.read(self.more_cost, place), 0.0) + self.read(self.room, place)


def judge(evidence: Evidence, method: Method, recipe: Recipe, grid: PriceGrid) -> Judged:
    """Design at all prices from all logs, and from each half to be judged by the other."""
    e, many = evidence, 1 + grid.count
    follow = follow_prices(method, recipe, grid)
    whole = e.sweep(pooled(e.whole), follow, many)
    more, costs = np.zeros((2, 2, grid.count)), []
    some = np.arange(0, grid.count, EVERY)
    errors: list[list[CostError]] = []
    for k in range(2):
        half, mine = sweep_recorded(e, pooled(e.halves[k]), follow, grid)
        fixed = follow_fixed_prices(method, recipe, grid, half.critics)
        if mine is not None:  # tables: the same states, so that mu is known already
            fixed = mine.following(grid, recipe.gamma)
        other = e.halves[1 - k]
        judged, recorded = sweep_recorded(e, other, fixed, grid)
        for j, by in enumerate(("variance", "cost")):
            more[j, k] = _relative(judged, by) - _relative(half, by)
        costs.append(_relative(judged, "cost"))
        if recorded is not None:
            errors.append([cost_error(e, other, judged, recorded, grid, int(j)) for j in some])
    room = 0.5 * np.abs(costs[0] - costs[1])
    if errors:
        both = [mean_error(a, b) for a, b in zip(*errors, strict=True)]
        room = np.interp(np.arange(grid.count), some, [one.upper(Z) for one in both])
    return Judged(
        variance=_relative(whole, "variance"),
        cost=_relative(whole, "cost"),
        more_variance=more[0].mean(axis=0),
        most_variance=more[0].max(axis=0),
        more_cost=more[1].mean(axis=0),
        room=room,
    )


def pooled(data: SweepData) -> SweepData:
    """The data that designs of a frontier learn from; what judges them is not shrunk."""
    if not isinstance(data.regression, Table):
        return data
    return replace(data, regression=replace(data.regression, pooled_costs=True))


def _relative(swept: Swept, by: str) -> Floats:
    """Variance or cost of the behavior policies at all prices, relative to the target's."""
    values = swept.variance if by == "variance" else swept.cost
    return np.asarray(ratio(values[1:], values[0]))

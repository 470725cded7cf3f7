r"""The designs of one method at all prices of cost, cross-checked, and the search among them.

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

Critics of tables that designs are made of pool the costs of a state's actions (`models.table`):
otherwise the cheapest pairs are those whose rare, large costs the logs happen not to show, and a
design goes there. Those that judge do not pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from scopeval._parallel import one_blas_thread
from scopeval.arrays import Floats
from scopeval.behavior.cost_error import CostError, cost_error, mean_error, sweep_recorded
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.frontier_point import Point
from scopeval.behavior.price import approach
from scopeval.behavior.step import Recipe
from scopeval.behavior.sweep import Swept, ratio, sweep
from scopeval.behavior.weighted_step import (
    FINER,
    LEAST_WEIGHT,
    PriceGrid,
    follow_fixed_prices,
    follow_prices,
)
from scopeval.models.protocols import SweepData
from scopeval.models.table import Table

__all__ = ["Judged", "PricedDesign", "PricedDesigns", "judge", "pooled"]

#: The grid reaches so many decades below and above variance / cost of the target policy. Above,
#: because prices are lambda / W^2, and most episodes of a cheap behavior policy have small weights.
#: Points are offered as far above as below.
DECADES = (3.0, 6.0)
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


def judge(evidence: Evidence, recipe: Recipe, grid: PriceGrid) -> Judged:
    """Design at all prices from all logs, and from each half to be judged by the other."""
    e, many = evidence, 1 + grid.count
    follow = follow_prices(recipe, grid)
    whole = sweep(pooled(e.whole), follow, many)
    more, costs = np.zeros((2, 2, grid.count)), []
    some = np.arange(0, grid.count, EVERY)
    errors: list[list[CostError]] = []
    for k in range(2):
        half, mine = sweep_recorded(e, pooled(e.halves[k]), follow, grid)
        fixed = follow_fixed_prices(recipe, grid, half.critics)
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


class PricedDesign(NamedTuple):
    """A design at one price with the cap in force, and the grid of prices it is on."""

    swept: Swept
    grid: PriceGrid
    point: Point


class PricedDesigns:
    """The designs of one method at all prices.

    Attributes:
        recipe: method, with or without a control variate; its share, floor, cap.
        points: from the least variance to the least cost; only those that held-out logs bear out.
        first: the point of least variance, offered or not.
    """

    def __init__(self, evidence: Evidence, recipe: Recipe, unit: float, prices: int) -> None:
        self._evidence, self.recipe = evidence, recipe
        self._grid = PriceGrid.around(unit, DECADES, prices)
        judged = self._judged = judge(evidence, recipe, self._grid)
        every = [
            Point(
                float(price),
                float(judged.variance[j]),
                float(judged.cost[j]),
                float(max(judged.variance[j] + judged.more_variance[j], 0.0)),
                float(judged.cost[j] + judged.more_cost[j]),
                judged.doubt(j),
            )
            for j, price in enumerate(self._grid.prices)
            if price <= unit * 10.0 ** DECADES[0]
        ]
        self.first = every[0]
        self.points = tuple(point for point in every if point.offered)

    def confirmed_variance(self, point: Point) -> float:
        """What both halves of the logs confirm of a point: the larger one of what they say."""
        most = point.variance + self._judged.read(
            self._judged.most_variance, self._place(point.price)
        )
        return max(most, point.safe_variance)

    def _place(self, price: float) -> float:
        return float(np.log(price / self._grid.low) / np.log(self._grid.ratio))

    def search(self, by: str, asked: float) -> PricedDesign:
        """The design whose promised cost, or expected variance, is as asked, or a little less.

        The curve, which has no cap, says where to begin.
        """
        sign = 1.0 if by == "cost" else -1.0  # the one falls with the price, the other rises
        values = {
            sign * float(np.log(p.price)): p.safe_cost if by == "cost" else p.safe_variance
            for p in self.points
        }
        places = np.array(sorted(values))
        tried: dict[float, PricedDesign] = {}

        def reached(place: float) -> float:
            if place not in tried:
                tried[place] = self.at_price(float(np.exp(sign * place)))
            point = tried[place].point
            return point.safe_cost if by == "cost" else point.safe_variance

        best = approach(reached, asked, places, np.array([values[x] for x in places]))
        return tried[best]

    @one_blas_thread()
    def at_price(self, price: float) -> PricedDesign:
        """The design at a price with the cap in force, and the grid it is on.

        With tables its variance and cost are those of what runs between two prices. It is checked
        without the cap: what held-out logs say more is carried over.
        """
        recipe, e = self.recipe, self._evidence
        grid, k = self._grid.within_cap(price, recipe.cap)
        follow = follow_prices(recipe, grid, price)
        swept = runs = sweep(pooled(e.whole), follow, 1 + grid.count)
        if isinstance(e.regression, Table):
            finer, k = grid.refined(FINER, price / LEAST_WEIGHT**2), FINER * k
            follow = follow_fixed_prices(recipe, grid, swept.critics, price, finer)
            runs = sweep(pooled(e.whole), follow, 1 + finer.count)
        variance, cost = (float(ratio(x[1 + k], x[0])) for x in (runs.variance, runs.cost))
        free, place = self._judged, self._place(price)
        checked = (
            max(variance + free.read(free.more_variance, place), 0.0),
            cost + free.read(free.more_cost, place),
        )
        point = Point(price, variance, cost, *checked, free.doubt(place))
        return PricedDesign(swept, grid, point)

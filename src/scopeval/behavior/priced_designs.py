"""The designs of one method at all prices of cost, and the search among them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from scopeval._parallel import one_blas_thread
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.frontier_check import judge, pooled
from scopeval.behavior.frontier_point import Point
from scopeval.behavior.methods import Method
from scopeval.behavior.price import approach
from scopeval.behavior.step import Recipe
from scopeval.behavior.sweep import Swept, ratio
from scopeval.behavior.weighted_step import (
    FINER,
    LEAST_WEIGHT,
    PriceGrid,
    follow_fixed_prices,
    follow_prices,
)
from scopeval.models.table import Table

__all__ = ["PricedDesign", "PricedDesigns"]

#: The grid reaches so many decades below and above variance / cost of the target policy. Above,
#: because prices are lambda / W^2, and most episodes of a cheap behavior policy have small weights.
#: Points are offered as far above as below.
DECADES = (3.0, 6.0)


class PricedDesign(NamedTuple):
    """A design at one price with the cap in force, and the grid of prices it is on."""

    swept: Swept
    grid: PriceGrid
    point: Point


class PricedDesigns:
    """The designs of one method at all prices.

    Attributes:
        method: with or without a control variate.
        recipe: floor, share of the control variate, cap.
        points: from the least variance to the least cost; only those that held-out logs bear out.
        first: the point of least variance, offered or not.
    """

    def __init__(
        self, evidence: Evidence, method: Method, recipe: Recipe, unit: float, prices: int
    ) -> None:
        self._evidence, self.method, self.recipe = evidence, method, recipe
        self._grid = PriceGrid.around(unit, DECADES, prices)
        judged = self._judged = judge(evidence, method, recipe, self._grid)
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
        known = {
            sign * float(np.log(p.price)): p.safe_cost if by == "cost" else p.safe_variance
            for p in self.points
        }
        places = np.array(sorted(known))
        tried: dict[float, PricedDesign] = {}

        def reached(place: float) -> float:
            if place not in tried:
                found = self.at_price(float(np.exp(sign * place)))
                tried[place] = self.as_run(found)
            point = tried[place].point
            return point.safe_cost if by == "cost" else point.safe_variance

        best = approach(reached, asked, places, np.array([known[x] for x in places]))
        return tried[best]

    @one_blas_thread()
    def as_run(self, found: PricedDesign) -> PricedDesign:
        """The same design; its variance and cost are those of what runs between two prices."""
        method, recipe, e = self.method, self.recipe, self._evidence
        if not isinstance(e.regression, Table):
            return found
        (swept, grid, point), finer = (
            found,
            found.grid.refined(FINER, found.point.price / LEAST_WEIGHT**2),
        )
        follow = follow_fixed_prices(method, recipe, grid, swept.critics, point.price, finer)
        runs = e.sweep(pooled(e.whole), follow, 1 + finer.count)
        k = 1 + FINER * grid.place_of(point.price)
        more = [
            float(ratio(x[k], x[0])) - before
            for x, before in ((runs.variance, point.variance), (runs.cost, point.cost))
        ]
        point = replace(
            point,
            variance=point.variance + more[0],
            cost=point.cost + more[1],
            checked_variance=max(point.checked_variance + more[0], 0.0),
            checked_cost=point.checked_cost + more[1],
        )
        return found._replace(point=point)

    @one_blas_thread()
    def at_price(self, price: float) -> PricedDesign:
        """The design at a price with the cap in force, and the grid it is on.

        It is checked without the cap: what held-out logs say more is carried over.
        """
        method, recipe, e = self.method, self.recipe, self._evidence
        grid, k = self._grid.within_cap(price, recipe.cap)
        follow = follow_prices(method, recipe, grid, price)
        swept = e.sweep(pooled(e.whole), follow, 1 + grid.count)
        variance = float(ratio(swept.variance[1 + k], swept.variance[0]))
        cost = float(ratio(swept.cost[1 + k], swept.cost[0]))
        free = self._judged
        place = self._place(price)
        checked = (
            max(variance + free.read(free.more_variance, place), 0.0),
            cost + free.read(free.more_cost, place),
        )
        point = Point(price, variance, cost, *checked, free.doubt(place))
        return PricedDesign(swept, grid, point)

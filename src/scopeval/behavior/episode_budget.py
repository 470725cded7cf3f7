"""One cost budget for whole episodes: the price of cost at which the logs say it is just spent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scopeval.behavior.evidence import Evidence, follow_own
from scopeval.behavior.methods import Method
from scopeval.behavior.price import find_price
from scopeval.behavior.step import Recipe
from scopeval.behavior.sweep import ratio
from scopeval.critics.sweep_data import Ground

__all__ = ["with_price"]


def with_price(evidence: Evidence, data: Ground, method: Method, recipe: Recipe) -> Recipe:
    """Where one budget is for whole episodes: the price of cost at which it is just spent.

    Which episodes there are, only the logged first observations tell: twice the standard error
    that comes from their number stays unspent.
    """
    if not method.has_price or recipe.budget == "state":
        return replace(recipe, budget="state")
    unit, root = 1.0, float(np.sqrt(evidence.log.starts.weight.sum()))

    def spent(prices: list[float]) -> list[float]:
        nonlocal unit
        recipes = [replace(recipe, price=price) for price in prices]
        swept = evidence.sweep(data, follow_own(method, *recipes), 1 + len(recipes))
        unit = float(ratio(swept.variance[0], swept.cost[0]))
        ratios = ratio(swept.cost, swept.cost[0]) + 2.0 * swept.start_spread / root
        return [float(one) for one in np.nan_to_num(ratios[1:], nan=np.inf)]

    allowed = 1.0 + recipe.epsilon - recipe.margin
    if spent([0.0])[0] <= allowed:
        return replace(recipe, price=0.0)
    price = find_price(spent, allowed, unit, slack=1e-3 * allowed)
    if price is None:  # no price saves enough: every state keeps its own budget
        return replace(recipe, budget="state")
    return replace(recipe, price=price)

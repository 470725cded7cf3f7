r"""The frontier of variance and cost of a target policy, and designs at its points.

The recursion is the one of learned frontiers (`behavior.weighted_step`), with the known MDP as its
model: there the formulas are. No behavior policy, whatever it knows of the history, has less
variance at the same cost. b = q is the best control variate: it makes (q - b)^2 zero.

The cap depends on the weight itself, so each lambda needs a sweep of its own. With it the answer
need not be the optimum: on tiny MDPs it was within 1 % of it for K = 10, and 4 % for K = 3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import TIE, Floats, Ints, check_whole, is_number, least
from scopeval.behavior.methods import METHODS
from scopeval.behavior.price import approach
from scopeval.behavior.step import Recipe
from scopeval.behavior.weighted_step import FINER, LEAST_WEIGHT, PriceGrid, weigh_prices
from scopeval.errors import InputError
from scopeval.exact.assessment import Assessment, assess, values
from scopeval.exact.known import sweep_prices
from scopeval.exact.model import TabularMDP
from scopeval.exact.tables import AnyPolicy, control_table, policy_table
from scopeval.exact.weighted_design import Point, WeightedDesign
from scopeval.question.promise import check_multiple

if TYPE_CHECKING:
    from scopeval.models.protocols import Estimates

__all__ = ["Frontier", "frontier"]


class Frontier:
    """The least variance for every cost, of all behavior policies; `at` gives designs.

    The curve is the recursion's own, without the cap on weights. Designs have the cap inside their
    recursion, and say what that predicts.

    Attributes:
        prices: lambda, [U], ascending.
        variance: of one episode's estimate, [U], ascending.
        cost: expected cost of one episode, [U], descending.
        own: assessment of running the target policy itself, with plain returns.

    Args:
        mdp: the model.
        pi: the target, [T, S, A].
        control: b [T, S, A], or None for b = 0.
        grid: of prices.
        own: see above.
        floor: least share of the target.
        cap: largest weight; infinite for none.
    """

    def __init__(
        self,
        mdp: TabularMDP,
        pi: Floats,
        control: Floats | None,
        grid: PriceGrid,
        own: Assessment,
        *,
        floor: float,
        cap: float,
    ) -> None:
        self.own, self.prices = own, grid.prices
        self._mdp, self._pi, self._control, self._grid = mdp, pi, control, grid
        self._floor, self._cap = floor, cap
        (self.variance, self.cost), _ = self._sweep(grid)

    @property
    def relative_variance(self) -> Floats:
        """Variance over that of running the target policy, [U]."""
        return self.variance / (self.own.variance or 1.0)

    @property
    def relative_cost(self) -> Floats:
        """Cost over that of the target policy, [U]."""
        return self.cost / (self.own.cost or 1.0)

    def at(
        self,
        *,
        cost: float | None = None,
        variance: float | None = None,
    ) -> WeightedDesign:
        """The design at one point of the frontier; name exactly one.

        Args:
            cost: the least variance at no more than this cost, relative to the target's own.
            variance: the least cost at no more than this variance, relative to the target's own.

        Raises:
            InputError: no behavior policy within the cap and the grid is that cheap or precise.
        """
        given = [x for x in (cost, variance) if x is not None]
        if len(given) != 1 or not is_number(given[0]):
            raise InputError(
                f"at: got cost={cost!r}, variance={variance!r}, expected exactly one of them, a "
                "number"
            )
        if variance is not None:
            return self._search("variance", variance)
        return self._search("cost", check_multiple("cost", cost))

    def best(self) -> WeightedDesign:
        """The design of least variance x cost: what a given precision costs in all."""
        product = np.log(self.variance) + np.log(np.maximum(self.cost, 1e-300))
        k = int(
            np.clip(least(product, [-float(price) for price in self.prices]), 1, len(product) - 2)
        )
        left, here, right = product[k - 1 : k + 2]
        bend = left - 2.0 * here + right  # of the parabola through the three points
        shift = float(np.clip(0.5 * (left - right) / bend, -1.0, 1.0)) if bend > TIE else 0.0
        return self.at_price(float(self.prices[k] * (self.prices[1] / self.prices[0]) ** shift))

    def at_price(self, price: float) -> WeightedDesign:
        """The design that minimizes variance + price * cost within the cap."""
        if not (is_number(price) and price > 0):
            raise InputError(f"price: got {price!r}, expected a number > 0")
        mdp, control = self._mdp, self._control
        grid, k = self._grid.within_cap(price, self._cap)
        swept, mu = self._sweep(grid, price)
        design = WeightedDesign(
            self._point(price, swept, k), grid.prices, mu, self._pi, control,
            floor=self._floor, cap=self._cap, gamma=mdp.gamma,
        )  # fmt: skip
        # what runs between two prices, on a grid as fine as needed, which goes on to weights so
        # small that they hardly come back
        finer = grid.refined(FINER, price / LEAST_WEIGHT**2)
        runs = sweep_prices(
            mdp, self._pi, control_table(mdp, control), finer,
            lambda t, here, _: design.at_prices(finer.prices, t, here),
        )  # fmt: skip
        design.predicted = self._point(price, runs, FINER * k)
        return design

    def _sweep(
        self, grid: PriceGrid, price: float | None = None
    ) -> tuple[tuple[Floats, Floats], Floats]:
        """Variance and cost [U] of designs at all prices, and mu [T, S, U, A].

        Args:
            grid: of prices.
            price: lambda, of an episode of weight 1: the cap is in force.
        """
        mdp, pi, b = self._mdp, self._pi, control_table(self._mdp, self._control)
        recipe = Recipe(
            METHODS["scope"],
            mdp.horizon,
            mdp.gamma,
            floor=self._floor,
            budget="weighted",
            cap=self._cap if self._cap < np.inf else None,
            prices=(grid.low, grid.ratio, grid.count),
        )
        tables = np.repeat(pi[:, :, None], grid.count, axis=2)

        def line_6(t: int, here: Ints, e: Estimates) -> Floats:
            some = replace(e, q=e.q - b[t, here])  # what b leaves of q
            floors = grid.floors(recipe, t, price)
            mu, _ = weigh_prices(recipe, grid, pi[t, here], some, grid, floors)
            tables[t, here] = mu.transpose(1, 0, 2)
            return mu

        return sweep_prices(mdp, pi, b, grid, line_6), tables

    def _point(self, price: float, swept: tuple[Floats, Floats], k: int) -> Point:
        variance, cost = (float(x[k]) for x in swept)
        own = self.own.variance or 1.0, self.own.cost or 1.0
        return Point(price, variance, cost, variance / own[0], cost / own[1])

    def _search(self, what: str, asked: float) -> WeightedDesign:
        """The design whose cost or variance is just what was asked, or a little below.

        The curve, which has no cap, says where to begin.
        """
        if not asked > 0:
            raise InputError(f"{what}: got {asked:g}, expected a number > 0")
        curve = self.relative_cost if what == "cost" else self.relative_variance
        sign = 1.0 if what == "cost" else -1.0  # the one falls with the price, the other rises
        tried: dict[float, WeightedDesign] = {}

        def reached(place: float) -> float:
            if place not in tried:
                tried[place] = self.at_price(float(np.exp(sign * place)))
            return _value(tried[place], what)

        places, values = np.log(self.prices), curve
        if sign < 0.0:
            places, values = -places[::-1], values[::-1]
        aim = asked * (1.0 - 1e-5)  # which `approach` may exceed by a millionth
        best = float(places[0])  # as much as it takes, if that is affordable
        if values[0] > 1.05 * asked or reached(best) > aim:
            best = approach(reached, aim, places, values)
        design = tried[best]
        if _value(design, what) > asked:
            least = min(_value(one, what) for one in tried.values())
            raise InputError(
                f"{what}: got {asked:g}, but the least {what} within the cap {self._cap:g} "
                f"is {least:.3g} of the target policy's; try a larger one"
            )
        return design


def _value(design: WeightedDesign, what: str) -> float:
    point = design.predicted
    return point.relative_cost if what == "cost" else point.relative_variance


def frontier(
    mdp: TabularMDP,
    target: AnyPolicy,
    *,
    control_variate: ArrayLike = "q",
    cap: float | None = 30.0,
    floor: float = 0.0,
    points: int = 40,
    reach: tuple[float, float] = (1e-4, 1e6),
) -> Frontier:
    """The least variance for every cost, of all behavior policies.

    Args:
        mdp: the model.
        target: pi.
        control_variate: b: "q" (the target's own values, the best choice), "none" (b = 0) or a
            table [S, A] or [T, S, A].
        cap: largest weight of an episode, at least 1; None for no limit.
        floor: least share of the target in every step.
        points: number of prices U, at least 4.
        reach: smallest and largest price, in units of the target's variance over its cost. Prices
            are lambda / W^2, so they also span what weights do to them.
    """
    many = check_whole("points", points, 4, " of prices")
    if not (is_number(floor) and 0.0 <= floor <= 1.0):
        raise InputError(f"floor: got {floor!r}, expected a share in 0..1")
    if not (cap is None or (is_number(cap) and cap >= 1.0)):
        raise InputError(f"cap: got {cap!r}, expected a weight >= 1, or None for no limit")
    if not (all(is_number(x) for x in reach) and 0.0 < reach[0] < reach[1]):
        raise InputError(f"reach: got {reach!r}, expected two numbers, 0 < smallest < largest")
    pi = policy_table(mdp, "target", target)
    own = assess(mdp, pi, pi, None)
    control = _control(mdp, pi, control_variate)
    unit = own.variance / own.cost if own.variance > 0 and own.cost > 0 else 1.0
    low, high = reach
    grid = PriceGrid(unit * low, float((high / low) ** (1.0 / (many - 1))), many)
    return Frontier(
        mdp, np.ascontiguousarray(pi), control, grid, own,
        floor=float(floor), cap=np.inf if cap is None else float(cap),
    )  # fmt: skip


def _control(mdp: TabularMDP, pi: Floats, given: ArrayLike) -> Floats | None:
    if isinstance(given, str):
        if given not in ("q", "none"):
            raise InputError(f"control_variate: got {given!r}, expected 'q', 'none' or a table")
        return values(mdp, pi).q if given == "q" else None
    return np.array(control_table(mdp, given))

"""The frontier of variance and cost of a target policy, and designs at its points."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import TIE, Floats, check_whole, is_number, least
from scopeval.errors import InputError
from scopeval.exact.assessment import Assessment, assess
from scopeval.exact.model import TabularMDP
from scopeval.exact.tables import AnyPolicy, control_table, policy_table
from scopeval.exact.values import values
from scopeval.exact.weight_aware import Problem, Sweep, pose, sweep
from scopeval.exact.weighted_design import Point, WeightedDesign

__all__ = ["Frontier", "frontier"]

#: How far below an asked cost or variance a design may end, and how many prices are tried.
SLACK, TRIES = 2e-3, 12
#: Repetitions of the inner program for one design, which begins with what the curve has found.
FEW = 4


class Frontier:
    """The least variance for every cost, of all behavior policies; `at` gives designs.

    The curve is the recursion's own, without the cap on weights. Designs have the cap inside their
    recursion, and say what that predicts.

    Attributes:
        prices: lambda, [U], ascending.
        variance: of one episode's estimate, [U], ascending.
        cost: expected cost of one episode, [U], descending.
        own: assessment of running the target policy itself, with plain returns.
    """

    def __init__(
        self,
        problem: Problem,
        swept: Sweep,
        own: Assessment,
        control: Floats | None,
        *,
        floor: float,
        cap: float,
        repetitions: int,
        tolerance: float,
        threads: int | None,
    ) -> None:
        self.prices, self.variance, self.cost = swept.prices, swept.variance, swept.cost
        self.own = own
        self._problem, self._swept, self._control = problem, swept, control
        self._floor, self._cap = floor, cap
        self._repetitions, self._tolerance, self._threads = repetitions, tolerance, threads

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
        epsilon: float | None = None,
        variance: float | None = None,
    ) -> WeightedDesign:
        """The design at one point of the frontier; name exactly one.

        Args:
            cost: the least variance at no more than this cost, relative to the target's own.
            epsilon: the same as cost = 1 + epsilon.
            variance: the least cost at no more than this variance, relative to the target's own.

        Raises:
            InputError: no behavior policy within the cap and the grid is that cheap or precise.
        """
        named = {"cost": cost, "epsilon": epsilon, "variance": variance}
        given = {name: value for name, value in named.items() if value is not None}
        if len(given) != 1 or not all(is_number(value) for value in given.values()):
            raise InputError(f"at: got {given}, expected exactly one number of {', '.join(named)}")
        if variance is not None:
            return self._search("variance", variance)
        return self._search("cost", 1.0 + epsilon if cost is None else cost)  # type: ignore[operator]

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
        prices, k, start = self._grid_around(price)
        swept = sweep(
            self._problem,
            prices,
            _shares(price, prices, self._floor, self._cap),
            repetitions=min(FEW, self._repetitions),
            tolerance=self._tolerance,
            start=start,
            threads=self._threads,
        )
        variance, cost = float(swept.variance[k]), float(swept.cost[k])
        return WeightedDesign(
            Point(
                price,
                variance,
                cost,
                variance / (self.own.variance or 1.0),
                cost / (self.own.cost or 1.0),
            ),
            prices,
            swept.mu,
            self._problem.pi,
            self._control,
            floor=self._floor,
            cap=self._cap,
        )

    def _grid_around(self, price: float) -> tuple[Floats, int, Floats]:
        """Prices for one lambda, the point where it lies, and mu of the curve at these prices.

        The point is exact, so that the first step is not interpolated. Below it are the weights up
        to the cap, above it weights down to a thousandth and less. The first price is that of the
        largest weight: there the behavior policy becomes the target, and A and B have a kink,
        which interpolation across it would cut off.
        """
        points = len(self.prices)
        width = float(np.log(self.prices[-1] / self.prices[0])) / (points - 1)
        place = float(np.clip(np.log(price / self.prices[0]) / width, 0.0, points - 1.0))
        k, step = round(place), 1.0
        if 1.0 < self._cap < np.inf:
            cells = 2.0 * np.log(self._cap) / width
            k = int(np.clip(np.ceil(cells), 1, points - 2))
            step = cells / k
        steps = step * (np.arange(points) - k)
        low = np.clip(place + steps, 0.0, points - 1.0)
        i = np.minimum(low.astype(np.int64), points - 2)
        part, mu = (low - i)[:, None], self._swept.mu
        start = (1.0 - part) * mu[:, :, i] + part * mu[:, :, i + 1]
        return price * np.exp(width * steps), k, start

    def _search(self, what: str, asked: float) -> WeightedDesign:
        """The design whose cost or variance is just what was asked, or a little below.

        The curve, which has no cap, says where to begin.
        """
        from scipy.interpolate import PchipInterpolator

        if not asked > 0:
            raise InputError(f"{what}: got {asked:g}, expected a number > 0")
        curve = self.relative_cost if what == "cost" else self.relative_variance
        places = np.log(self.prices)
        loose = 0 if what == "cost" else -1  # where most is spent, or least is known
        if curve[loose] <= 1.05 * asked:
            found = self.at_price(float(self.prices[loose]))
            if _value(found, what) <= asked:
                return found
        fine = np.linspace(places[0], places[-1], 64 * len(places))
        values = np.log(np.maximum(PchipInterpolator(places, curve)(fine), 1e-300))
        order = values if what == "variance" else -values
        tried: list[_Try] = []
        x = float(np.interp(np.log(asked) if what == "variance" else -np.log(asked), order, fine))
        for _ in range(TRIES):
            found = self.at_price(float(np.exp(x)))
            tried.append(_Try(x, float(np.log(max(_value(found, what), 1e-300) / asked)), found))
            if -SLACK <= tried[-1].gap <= 0.0:
                return found
            slope = float(np.interp(x, fine, np.gradient(values, fine)))
            ahead = float(np.clip(_next_place(tried, slope), places[0], places[-1]))
            if ahead == x:
                break
            x = ahead
        within = [one for one in tried if one.gap <= 0.0]
        if not within:
            least = min(_value(one.design, what) for one in tried)
            raise InputError(
                f"{what}: got {asked:g}, but the least {what} within the cap {self._cap:g} is "
                f"{least:.3g} of the target policy's; try a larger one"
            )
        return max(within, key=lambda one: one.gap).design


class _Try(NamedTuple):
    """A design, its log price, and the logarithm of its cost or variance over what was asked."""

    place: float
    gap: float
    design: WeightedDesign


def _next_place(tried: list[_Try], slope: float) -> float:
    """The next log price: the secant between both sides, or Newton's step with the curve's slope.

    It aims at half of the slack.
    """
    aim = -0.5 * SLACK
    last = tried[-1]
    below = max((one for one in tried if one.gap <= 0.0), key=lambda one: one.gap, default=None)
    above = min((one for one in tried if one.gap > 0.0), key=lambda one: one.gap, default=None)
    if below is not None and above is not None:
        part = float(np.clip((above.gap - aim) / (above.gap - below.gap), 0.05, 0.95))
        return above.place + part * (below.place - above.place)
    step = (aim - last.gap) / slope if abs(slope) > 1e-9 else np.inf
    return last.place + float(np.clip(1.1 * step, -3.0, 3.0))


def _value(design: WeightedDesign, what: str) -> float:
    point = design.predicted
    return point.relative_cost if what == "cost" else point.relative_variance


def _shares(price: float, prices: Floats, floor: float, cap: float) -> Floats:
    """Least share of the target at each price: the floor, and W/K for the weight of that price."""
    return np.clip(np.maximum(floor, np.sqrt(price / prices) / cap), 0.0, 1.0)


def frontier(
    mdp: TabularMDP,
    target: AnyPolicy,
    *,
    control_variate: ArrayLike = "q",
    cap: float | None = 30.0,
    floor: float = 0.0,
    points: int = 40,
    reach: tuple[float, float] = (1e-4, 1e6),
    repetitions: int = 12,
    tolerance: float = 1e-4,
    threads: int | None = None,
) -> Frontier:
    """The least variance for every cost, by the recursion of `scopeval.exact.weight_aware`.

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
        repetitions: of the inner program at each (t, s, u) at most.
        tolerance: change of mu at which these end.
        threads: how many may work (default: all cores); the result does not depend on it.
    """
    many = check_whole("points", points, 4, " of prices")
    check_whole("repetitions", repetitions, 1)
    if not (is_number(floor) and 0.0 <= floor <= 1.0):
        raise InputError(f"floor: got {floor!r}, expected a share in 0..1")
    if not (cap is None or (is_number(cap) and cap >= 1.0)):
        raise InputError(f"cap: got {cap!r}, expected a weight >= 1, or None for no limit")
    if not (all(is_number(x) for x in reach) and 0.0 < reach[0] < reach[1]):
        raise InputError(f"reach: got {reach!r}, expected two numbers, 0 < smallest < largest")
    pi = policy_table(mdp, "target", target)
    own = assess(mdp, pi, pi, None)
    control = _control(mdp, pi, control_variate)
    problem = pose(mdp, pi, control_table(mdp, control))
    unit = own.variance / own.cost if own.variance > 0 and own.cost > 0 else 1.0
    swept = sweep(
        problem,
        unit * np.geomspace(*reach, many),
        np.full(many, float(floor)),
        repetitions=repetitions,
        tolerance=tolerance,
        threads=threads,
    )
    return Frontier(
        problem,
        swept,
        own,
        control,
        floor=float(floor),
        cap=np.inf if cap is None else float(cap),
        repetitions=repetitions,
        tolerance=tolerance,
        threads=threads,
    )


def _control(mdp: TabularMDP, pi: Floats, given: ArrayLike) -> Floats | None:
    if isinstance(given, str):
        if given not in ("q", "none"):
            raise InputError(f"control_variate: got {given!r}, expected 'q', 'none' or a table")
        return values(mdp, pi).q if given == "q" else None
    return np.array(control_table(mdp, given))

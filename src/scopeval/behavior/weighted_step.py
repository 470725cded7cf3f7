r"""Line 6 where it depends on the weight of the episode so far.

W_t = rho_0 ... rho_{t-1} multiplies the variance that a step adds (by W_t^2), but not its cost. So
an episode whose weight has become small says little about the target policy and should be cheap;
one with a large weight must be precise. With lambda the price of cost, all that matters is
u = lambda / (gamma^t W^2):

    g_t(s, u) = min_mu sum_a pi^2/mu [X_a + gamma^2 E g_{t+1}(S', u mu^2 / (gamma pi^2))] + u mu c_a

less (v - sum_a pi b)^2. g = A + u B, with A the variance and B the cost from here on. The critics
carry A and B for a grid of prices; one backward sweep gives every point between least variance and
least cost. Among all behavior policies, also those that depend on the whole history, this has the
least variance at its cost (if values are exact).

The cap: mu >= (W/K) pi, so that rho <= K/W and the weight never exceeds K. It is a bound within the
program, as the floor is.

**What runs is what was assessed.** At run time the program is solved again for the episode's own
price, which lies between those of the grid. Its solution follows from the observation and the price
alone, by the same steps in the sweep and at run time; and A and B of a chosen point are computed
again on a finer and longer grid (`follow_fixed_prices`): between two prices mu may change abruptly,
and weights fall far below those of the grid's last price, from where they do not come back soon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scopeval._parallel import fan_out
from scopeval.arrays import Floats
from scopeval.behavior.step import LARGEST, Recipe, StepResult
from scopeval.behavior.sweep import Follow, Followed
from scopeval.models.protocols import Critic, Estimates, Points

__all__ = [
    "PriceGrid",
    "follow_each",
    "follow_fixed_prices",
    "follow_prices",
    "weigh_prices",
    "weigh_weighted",
]

#: Rows that are weighed together by one thread.
TOGETHER = 1024
#: Repetitions of the step at most, and the change of mu below which they end.
EFFORT = (12, 5e-4)
#: What runs is assessed on a grid so many times as fine, that ends with so small a weight. With
#: tables only: others would have to learn as many functions.
FINER, LEAST_WEIGHT = 4, 1e-5


@dataclass(frozen=True)
class PriceGrid:
    """Prices of cost, each the same multiple of the one before.

    Attributes:
        low: the first.
        ratio: of neighbors.
        count: how many.
    """

    low: float
    ratio: float
    count: int

    @classmethod
    def around(cls, unit: float, decades: tuple[float, float], count: int) -> PriceGrid:
        """So many decades below and above a unit."""
        below, above = decades
        return cls(unit * 10.0**-below, 10.0 ** ((below + above) / (count - 1)), count)

    def within_cap(self, price: float, cap: float | None) -> tuple[PriceGrid, int]:
        """A grid of about the same width for a design at one price, and the place of that price.

        It begins at the price of the largest weight, price / cap^2: there the behavior policy
        becomes the target, and A and B have a kink which interpolation would cut off.
        """
        if cap is None or not 1.0 < cap < np.inf:
            k = self.count // 3
            return PriceGrid(price / self.ratio**k, self.ratio, self.count), k
        cells = 2.0 * np.log(cap) / np.log(self.ratio)
        k = min(max(int(np.ceil(cells)), 1), self.count - 2)
        return PriceGrid(price / cap**2, float(self.ratio ** (cells / k)), self.count), k

    @cached_property
    def prices(self) -> Floats:
        """[count] prices."""
        return np.asarray(self.low * self.ratio ** np.arange(self.count))

    def place_of(self, price: float) -> int:
        """Where one of these prices lies."""
        return round(float(np.log(price / self.low) / np.log(self.ratio)))

    def refined(self, times: int, last: float) -> PriceGrid:
        """The same grid with so many steps in place of one, and on to a last price."""
        more = max(int(np.ceil((np.log(last / self.low)) / np.log(self.ratio))), self.count - 1)
        return PriceGrid(self.low, self.ratio ** (1.0 / times), times * more + 1)

    def places(self, within: PriceGrid) -> Floats:
        """[count] where these prices lie on another grid."""
        step = np.log(within.ratio)
        return np.asarray(
            (np.log(self.low / within.low) + np.arange(self.count) * np.log(self.ratio)) / step
        )

    def floors(self, recipe: Recipe, t: int, price: float | None) -> Floats:
        """[count] least mu in units of pi at each price; with a price lambda those of the cap.

        Given lambda, the place on the grid determines the weight: W^2 = lambda / (gamma^t u).
        """
        floors = np.full(self.count, recipe.floor)
        if price is None or recipe.cap is None:
            return floors
        weight = np.sqrt(price / (recipe.gamma**t * self.prices))
        return np.asarray(np.maximum(floors, np.minimum(weight / recipe.cap, 1.0)))


def follow_prices(recipe: Recipe, grid: PriceGrid, price: float | None = None) -> Follow:
    """Follow the target and the behavior policies at all prices, by the critics themselves.

    Args:
        recipe: control variate, floor, discount, share, cap.
        grid: of prices.
        price: lambda, if the cap is to be in force; None: no cap.
    """

    def follow(t: int, points: Points, pi: Floats, e: Estimates) -> list[Followed]:
        mu, b = weigh_prices(recipe, grid, pi, e, grid, grid.floors(recipe, t, price))
        return follow_each(pi, mu, b, e, recipe.gamma, grid)

    return follow


def follow_fixed_prices(
    recipe: Recipe,
    grid: PriceGrid,
    critics: list[Critic],
    price: float | None = None,
    finer: PriceGrid | None = None,
) -> Follow:
    """Follow the behavior policies that other critics determine, at all prices of a grid.

    In the cross-check these are critics of other rows. Of the same rows, and on a finer grid, what
    is followed is what runs.

    Args:
        recipe: control variate, floor, discount, share, cap.
        grid: of prices that these critics know.
        critics: one per time step.
        price: lambda, if the cap is to be in force; None: no cap.
        finer: of prices to follow; None: the same.
    """
    within = grid if finer is None else finer

    def follow(t: int, points: Points, pi: Floats, e: Estimates) -> list[Followed]:
        own, floors = points.estimates(critics[t]), within.floors(recipe, t, price)
        mu, b = weigh_prices(recipe, grid, pi, own, within, floors)
        return follow_each(pi, mu, b, e, recipe.gamma, within)

    return follow


def follow_each(
    pi: Floats, mu: Floats, b: Floats, e: Estimates, gamma: float, grid: PriceGrid
) -> list[Followed]:
    """What follows each behavior policy: A and B at the price that its actions lead to."""
    from scopeval.behavior._frontier_kernel import look_ahead

    nothing = np.zeros_like(pi)
    target = [Followed(pi, nothing, e.carried[..., 0], e.cost_behavior[..., 0])]
    step = float(np.log(grid.ratio))
    ahead = fan_out(
        lambda j: look_ahead(e.carried, e.cost_behavior, mu[j], pi, float(j), gamma, step),
        range(grid.count),
        threads=None if len(pi) >= TOGETHER else 1,  # a pool would cost more
    )
    return target + [Followed(mu[j], b, *both) for j, both in enumerate(ahead)]


def weigh_prices(
    recipe: Recipe,
    grid: PriceGrid,
    pi: Floats,
    e: Estimates,
    within: PriceGrid,
    floors: Floats,
) -> tuple[Floats, Floats]:
    """Mu [V, B, A] and b [B, A] at all V prices of a grid; the critics know those of another."""
    from scopeval.behavior._frontier_kernel import weigh_grid

    share = float(recipe.share) if recipe.method.control_variate else -1.0
    prices, places = grid.prices, within.places(grid)

    def work(start: int) -> tuple[Floats, Floats]:
        some = slice(start, start + TOGETHER)
        mu, b = weigh_grid(
            e.q[some], e.noise[some], e.carried[some], e.cost_behavior[some],
            np.array(e.known[some]), np.array(pi[some]), prices, places, floors, share,
            recipe.gamma, LARGEST, EFFORT,
        )  # fmt: skip
        return mu, b

    parts = fan_out(work, range(0, len(pi), TOGETHER))
    mus, bs = zip(*parts, strict=True)
    return np.concatenate(mus, axis=1), np.concatenate(bs)


def weigh_weighted(
    recipe: Recipe,
    grid: PriceGrid,
    pi: Floats,
    e: Estimates,
    t: int,
    weight: Floats,
) -> StepResult:
    """Mu, b and why for episodes of weights [B] at time t.

    Whatever the numbers are, the rows of mu are distributions and b is finite. A weight of zero:
    the episode says nothing more, and is as cheap as the grid's largest price makes it.
    """
    from scopeval.behavior import _frontier_kernel as kernel

    if len(weight) == 1:  # a controller may be waiting
        own, floors = _one_price(recipe, float(weight[0]), t)
    else:
        weight = np.asarray(weight, np.float64)
        with np.errstate(divide="ignore", over="ignore"):
            own = recipe.price / (recipe.gamma**t * weight**2)
        floors = np.full(len(weight), recipe.floor)
        if recipe.cap is not None:
            floors = np.maximum(floors, np.minimum(weight / recipe.cap, 1.0))
    share = float(recipe.share) if recipe.method.control_variate else -1.0
    return StepResult(*kernel.weigh_weighted(
        e.q, e.noise, e.carried, e.cost_behavior, np.array(e.known),
        np.array(pi, np.float64, order="C"), np.minimum(own, grid.prices[-1]), grid.prices, floors,
        share, recipe.gamma, LARGEST, EFFORT,
    ))  # fmt: skip


def _one_price(recipe: Recipe, weight: float, t: int) -> tuple[Floats, Floats]:
    """Price and share of the target policy of one episode, [1] each; as for many."""
    square = recipe.gamma**t * weight * weight
    price = recipe.price / square if square > 0.0 else math.inf
    floor = recipe.floor
    if recipe.cap is not None:
        floor = max(floor, min(weight / recipe.cap, 1.0))
    return np.array([price]), np.array([floor])

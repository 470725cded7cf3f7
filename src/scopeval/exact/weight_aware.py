r"""Designs that depend on the weight of the episode, in a known MDP: all prices in one sweep.

The recursion is the one of learned frontiers (`behavior.weighted_step`), with the known MDP as its
model: there the formulas are. No behavior policy, whatever it knows of the history, has less
variance at the same cost. b = q is the best control variate: it makes (q - b)^2 zero.

The cap depends on the weight itself, so each lambda needs a sweep of its own. With it the answer
need not be the optimum: on tiny MDPs it was within 1 % of it for K = 10, and 4 % for K = 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scopeval.arrays import Bools, Floats, Ints
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe
from scopeval.behavior.weighted_step import PriceGrid
from scopeval.exact.model import TabularMDP

if TYPE_CHECKING:
    from scopeval.behavior.sweep import Followed
    from scopeval.models.protocols import Estimates, Points

__all__ = ["PricedSweep", "PricedTables", "sweep_prices", "visited"]


class PricedSweep(NamedTuple):
    """One backward sweep at all prices of a grid.

    Attributes:
        variance: [U] of one episode's estimate.
        cost: [U] expected cost of one episode.
    """

    variance: Floats
    cost: Floats


@dataclass(frozen=True)
class PricedTables:
    """Behavior policies at all prices of cost, for one target and control variate.

    Attributes:
        mdp: the model.
        pi: the target, [T, S, A].
        control: b, [T, S, A].
        floor: least share of the target.
        cap: largest weight; infinite for none.
    """

    mdp: TabularMDP
    pi: Floats
    control: Floats
    floor: float
    cap: float

    def designed(self, grid: PriceGrid, price: float | None = None) -> tuple[PricedSweep, Floats]:
        """The designs at all prices, and mu [T, S, U, A]; with a price, the cap is in force.

        Args:
            grid: of prices.
            price: lambda, of an episode of weight 1.
        """
        from scopeval.behavior.weighted_step import weigh_prices

        recipe = Recipe(
            "scope", 0.0, self.mdp.horizon, self.mdp.gamma, self.floor, 0.0, "behavior", None,
            budget="weighted", cap=self.cap if self.cap < np.inf else None,
            prices=(grid.low, grid.ratio, grid.count),
        )  # fmt: skip
        tables = np.repeat(self.pi[:, :, None], grid.count, axis=2)

        def solved(t: int, here: Ints, e: Estimates) -> Floats:
            some = replace(e, q=e.q - self.control[t, here])  # what b leaves of q
            floors = grid.floors(recipe, t, price)
            mu, _ = weigh_prices(
                METHODS["scope"], recipe, grid, self.pi[t, here], some, grid, floors,
            )  # fmt: skip
            tables[t, here] = mu.transpose(1, 0, 2)
            return mu

        return sweep_prices(self.mdp, self.pi, self.control, grid, solved), tables


def sweep_prices(
    mdp: TabularMDP,
    pi: Floats,
    control: Floats,
    grid: PriceGrid,
    line_6: Callable[[int, Ints, Estimates], Floats],
) -> PricedSweep:
    """What behavior policies on a grid of prices are worth, by the states that can be reached.

    Args:
        mdp: the model.
        pi: the target, [T, S, A].
        control: b, [T, S, A].
        grid: of prices.
        line_6: (t, states [B], estimates) -> mu_t [U, B, A].
    """
    from scopeval.behavior.weighted_step import follow_each
    from scopeval.exact.known import KnownMDP, known_steps

    def follow(t: int, points: Points, pi_t: Floats, e: Estimates) -> list[Followed]:
        here = np.asarray(points.obs)
        return follow_each(pi_t, line_6(t, here, e), control[t, here], e, mdp.gamma, grid)

    data = KnownMDP(mdp).data(visited(mdp))
    for step in known_steps(mdp, pi, follow, 1 + grid.count, data):
        first = step
    start, v = first.points.initial, first.value
    spread = float(start @ (v - start @ v) ** 2)
    return PricedSweep(start @ first.variance[:, 1:] + spread, start @ first.cost[:, 1:])


def visited(mdp: TabularMDP) -> Bools:
    """[T, S] states that an episode can be in, whatever it does."""
    found = np.empty((mdp.horizon, mdp.states), np.bool_)
    here = mdp.initial > 0
    for t in range(mdp.horizon):
        found[t] = here
        here = np.asarray(mdp.transition.T @ np.repeat(here, mdp.actions).astype(float) > 0)
    return found

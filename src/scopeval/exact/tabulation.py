"""Weight-aware behavior policies as tables: to assess and to simulate them on a finite MDP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scopeval.arrays import Floats, Ints, check_probs, check_whole, is_number
from scopeval.behavior.weighted_step import PriceGrid
from scopeval.errors import InputError
from scopeval.exact.assessment import assess
from scopeval.exact.model import TabularMDP
from scopeval.exact.tables import AnyPolicy, check_horizon, control_table, policy_table
from scopeval.exact.weight_aware import sweep_prices, visited
from scopeval.exact.weighted_design import Point, WeightedDesign
from scopeval.policies.protocols import Behavior, Candidates, EpisodeState, largest_weight

if TYPE_CHECKING:
    from scopeval.models.protocols import Estimates

__all__ = ["tabulate"]

#: Smallest weight of a table, and the largest for behavior policies without a cap.
SMALLEST, USUAL_CAP = 1e-4, 1e2
#: Numbers in a table at most.
LARGEST = 200_000_000


def tabulate(
    mdp: TabularMDP,
    target: AnyPolicy,
    behavior: Behavior,
    *,
    points: int = 60,
    weights: tuple[float, float] | None = None,
) -> WeightedDesign:
    """Any weight-aware behavior policy on a grid of weights, and what it is worth.

    The sweep of `scopeval.exact.weight_aware` with mu given: `predicted` holds the variance
    and the cost of running the behavior policy, up to the interpolation between weights, and
    `scopeval.simulate` can run the table.

    Args:
        mdp: the model.
        target: pi.
        behavior: such as a `BehaviorPolicy` of a learned frontier.
        points: number of weights, evenly spaced in their logarithm; one of them is 1.
        weights: smallest and largest; beyond them the end of the grid stands for all. Default: from
            1e-4 to the cap of the behavior policy, or to 100 if it has none.

    Raises:
        InputError: the table would be too large; run such a behavior in `TabularEnv(mdp)`.
    """
    many = check_whole("points", points, 4, " of weights")
    low, high = (SMALLEST, _cap(behavior)) if weights is None else weights
    if not (is_number(low) and is_number(high) and 0.0 < low < 1.0 < high):
        raise InputError(f"weights: got {weights!r}, expected smallest < 1 < largest")
    pi = policy_table(mdp, "target", target)
    own = assess(mdp, pi, pi, None)
    if pi.size * many > LARGEST:
        raise InputError(
            f"behavior: a table for {pi.size:,} actions of all states and steps at {many} weights "
            f"is too large, expected at most {LARGEST:,} numbers; try env=TabularEnv(mdp)"
        )
    cells = np.log(high) * (many - 1) / np.log(high / low)
    k = int(np.clip(round(cells), 1, many - 2))  # from the largest weight, exactly, to 1
    grid = np.exp(np.log(high) / k * (k - np.arange(many)))
    check_horizon(mdp, behavior)
    mu, control = _tables(mdp, pi, behavior, grid)
    prices = PriceGrid(high**-2.0, high ** (2.0 / k), many)

    def looked_up(t: int, here: Ints, _: Estimates) -> Floats:
        return np.array(mu[t, here].transpose(1, 0, 2), order="C")

    swept = sweep_prices(mdp, pi, control_table(mdp, control), prices, looked_up)
    variance, cost = float(swept.variance[k]), float(swept.cost[k])
    point = Point(1.0, variance, cost, variance / (own.variance or 1.0), cost / (own.cost or 1.0))
    return WeightedDesign(
        point, prices.prices, mu, pi, control, floor=0.0, cap=np.inf, gamma=mdp.gamma
    )


def _cap(behavior: Behavior) -> float:
    """The largest weight, where the behavior policy becomes the target."""
    cap = largest_weight(behavior)
    return cap if 1.0 < cap < np.inf else USUAL_CAP


def _tables(
    mdp: TabularMDP, pi: Floats, behavior: Behavior, weights: Floats
) -> tuple[Floats, Floats | None]:
    """Mu [T, S, U, A] and b [T, S, A] or None; mu is pi where no episode can be."""
    _, S, A = pi.shape
    every, actions = np.arange(S), np.arange(A)
    mu, controls = np.repeat(pi[:, :, None], len(weights), axis=2), []
    for t, states in enumerate(visited(mdp)):
        here = np.flatnonzero(states)
        rows = np.repeat(here, len(weights))
        offered = Candidates(np.broadcast_to(actions, (len(rows), A)), pi[t, rows])
        now = weights * mdp.gamma ** (-0.5 * t)  # of the prices on the grid
        state = EpisodeState.of_weights(np.tile(now, len(here)))
        found = behavior.weigh(offered, rows, t, state)
        probs = check_probs("behavior", found.probs, axes=("s",))
        mu[t, here] = probs.reshape(len(here), len(weights), A)
        if found.control is not None:
            offered = Candidates(np.broadcast_to(actions, (S, A)), pi[t])
            whole = behavior.weigh(offered, every, t, EpisodeState.start(S, 1)).control
            controls.append(np.zeros((S, A)) if whole is None else whole)
    return mu, np.stack(controls) if controls else None

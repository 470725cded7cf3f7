"""Weight-aware behavior policies as tables: to assess and to simulate them on a finite MDP."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scopeval.arrays import Floats, check_probs, check_whole, is_number
from scopeval.errors import InputError
from scopeval.exact.assessment import assess
from scopeval.exact.model import TabularMDP
from scopeval.exact.tables import AnyPolicy, control_table, policy_table
from scopeval.exact.weight_aware import pose, sweep
from scopeval.exact.weighted_design import Point, WeightedDesign
from scopeval.policies.protocols import Candidates, WeightedBehavior

__all__ = ["tabulate"]


def tabulate(
    mdp: TabularMDP,
    target: AnyPolicy,
    behavior: WeightedBehavior,
    *,
    points: int = 60,
    weights: tuple[float, float] = (1e-3, 1e2),
) -> WeightedDesign:
    """Any weight-aware behavior policy on a grid of weights, and what it is worth.

    The recursion of `scopeval.exact.weight_aware` with mu given: `predicted` holds the variance
    and the cost of running the behavior policy, up to the interpolation between weights, and
    `scopeval.simulate` can run the table.

    Args:
        mdp: the model.
        target: pi.
        behavior: such as a `BehaviorPolicy` of a learned frontier.
        points: number of weights, evenly spaced in their logarithm; one of them is 1.
        weights: smallest and largest; beyond them the end of the grid stands for all.
    """
    many = check_whole("points", points, 4, " of weights")
    low, high = weights
    if not (is_number(low) and is_number(high) and 0.0 < low < 1.0 < high):
        raise InputError(f"weights: got {weights!r}, expected smallest < 1 < largest")
    pi = policy_table(mdp, "target", target)
    own = assess(mdp, pi, pi, None)
    width = np.log(high / low) / (many - 1)
    k = int(np.clip(round(np.log(high) / width), 1, many - 2))  # from the largest weight on
    grid = np.exp(width * (k - np.arange(many)))
    mu, control = _uncounted(mdp, pi, behavior, grid)
    swept = sweep(
        pose(mdp, pi, control_table(mdp, control)),
        grid**-2.0,
        np.zeros(many),
        repetitions=0,
        tolerance=0.0,
        start=mu,
    )
    variance, cost = float(swept.variance[k]), float(swept.cost[k])
    point = Point(1.0, variance, cost, variance / (own.variance or 1.0), cost / (own.cost or 1.0))
    return WeightedDesign(point, grid**-2.0, mu, pi, control, floor=0.0, cap=np.inf)


def _uncounted(
    mdp: TabularMDP, pi: Floats, behavior: WeightedBehavior, weights: Floats
) -> tuple[Floats, Floats | None]:
    """`_tables`; these are no decisions in operation, so that a learned behavior forgets them."""
    from scopeval.behavior.policy import BehaviorPolicy  # loads numba: only where it is needed

    if not isinstance(behavior, BehaviorPolicy):
        return _tables(mdp, pi, behavior, weights)
    if behavior.recipe.horizon < mdp.horizon:
        raise InputError(
            f"behavior: designed for horizon {behavior.recipe.horizon}, expected at least "
            f"{mdp.horizon}"
        )
    before = replace(behavior.counts)
    try:
        return _tables(mdp, pi, behavior, weights)
    finally:
        behavior.counts = before


def _tables(
    mdp: TabularMDP, pi: Floats, behavior: WeightedBehavior, weights: Floats
) -> tuple[Floats, Floats | None]:
    """Mu [T, S, U, A] and b [T, S, A] or None."""
    T, S, A = pi.shape
    every, actions = np.arange(S), np.broadcast_to(np.arange(A), (S, A))
    mu, controls = np.empty((T, S, len(weights), A)), []
    for t in range(T):
        offered = Candidates(actions, pi[t])
        for k, weight in enumerate(weights):
            found = behavior.weigh_at(offered, every, t, np.full(S, weight))
            mu[t, :, k] = check_probs("behavior", found.probs, axes=("s",))
        if found.control is not None:
            controls.append(found.control)
    return mu, np.stack(controls) if controls else None

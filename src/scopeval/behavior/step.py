"""Line 6 of Algorithm 1: behavior probabilities at a batch of states, for every method.

With w_a = pi_a sqrt(X_a), the program of a state is

    minimize sum_a w_a^2 / mu_a   subject to   sum_a mu_a q^c_a <= delta

(`scopeval.solver`), and its answer is mixed with a share of the target policy, the floor. Wherever
an estimate is missing, not finite, or leaves the program without an answer, mu falls back to the
target policy, and the row says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import fan_out
from scopeval.arrays import Floats
from scopeval.behavior.methods import Method, StepFunction
from scopeval.errors import InputError

if TYPE_CHECKING:
    from scopeval.models.protocols import Estimates

__all__ = ["Recipe", "StepResult", "Weigher", "weigh_rows"]

#: Estimates larger than this (or not a number) are not believed: squares would overflow.
LARGEST = 1e150

#: Rows that are weighed together: what they need fits into the cache.
TOGETHER = 4096


def _own_step(
    step: StepFunction, pi: Floats, second_moment: Floats, cost: Floats, budget: Floats
) -> Floats:
    """A user's own line 6; rows that are not distributions are pi."""
    mu = np.array(step(pi, second_moment, cost, budget), np.float64)
    if mu.shape != pi.shape:
        raise InputError(f"step: returned shape {mu.shape}, expected {pi.shape}, as pi")
    total = mu.sum(axis=1)
    valid = (mu >= 0.0).all(axis=1) & (np.abs(total - 1.0) < 1e-6)
    mu[valid] /= total[valid, None]
    mu[~valid] = np.nan  # counted, and replaced by pi
    return mu


@dataclass(frozen=True)
class Recipe:
    """How mu follows from a critic's estimates; stored with the policy.

    Attributes:
        method: its name.
        epsilon: the promise: the expected cost is at most (1 + epsilon) times the target's. What
            was asked for; of a point that was chosen by its variance, its own cost with the doubt.
        horizon: T.
        gamma: discount.
        floor: share of the target policy that is mixed in.
        margin: part of the cost budget that is left unspent, relative to the target's cost.
        constraint: whose cost-to-go the budget is spent on, "behavior" or "target".
        limit: an absolute limit on the cost-to-go instead of (1 + epsilon) times the target's.
        share: of how q differs between the actions of a state that the control variate takes over:
            b = v + share (q - v).
        budget: "state"; "episode": cost has a price instead of a budget in every state;
            "weighted": a price that depends on the weight of the episode so far.
        price: that price.
        cap: the weight of an episode never exceeds it ("weighted" only).
        prices: the grid of prices that the critics know: first, ratio, number ("weighted" only).
    """

    method: str
    epsilon: float
    horizon: int
    gamma: float
    floor: float
    margin: float
    constraint: str
    limit: float | None
    share: float = 1.0
    budget: str = "state"
    price: float = 0.0
    cap: float | None = None
    prices: tuple[float, float, int] | None = None

    def __post_init__(self) -> None:
        if self.prices is not None:  # a file holds a list
            object.__setattr__(self, "prices", tuple(self.prices))


class StepResult(NamedTuple):
    """What line 6 makes of B rows: mu [B, A], the control variate b [B, A], bits of `Why` [B]."""

    mu: Floats
    control: Floats
    why: NDArray[np.uint8]


def weigh_rows(
    method: Method,
    recipe: Recipe,
    pi: Floats,
    e: Estimates,
) -> StepResult:
    """Mu, b and why from estimates: the program, then the floor, pi wherever in doubt.

    Whatever the numbers are, the rows of mu are distributions and b is finite.
    """
    return Weigher(method, recipe).rows(pi, e)


class Weigher:
    """Line 6 for one method and recipe. What does not depend on the state is computed once."""

    def __init__(self, method: Method, recipe: Recipe) -> None:
        from scopeval.behavior import _step_kernel as kernel

        self._kernel, self._step = kernel, method.step
        priced = method.constrained and recipe.budget == "episode"
        spend = min(1.0 + recipe.epsilon - recipe.margin, LARGEST)
        limit = np.nan
        if recipe.limit is not None:
            limit = min(recipe.limit, LARGEST) * (1.0 - recipe.margin)
        # plain tuples, fields of `Rule` and `Kind`: compiled code takes named ones more slowly
        self._settings = (
            float(recipe.share) if method.control_variate else -1.0,
            (spend, limit, LARGEST),
            (
                method.constrained,
                method.tilted,
                method.follows_behavior,
                float(recipe.price) if priced else -1.0,
            ),
            recipe.floor,
        )
        #: Whether the variance to come is the behavior policy's own, or the target policy's.
        self.follows = method.follows_behavior
        #: Whether the cost in the constraint is the behavior policy's own, or the target policy's.
        self.own_cost = recipe.constraint == "behavior"

    def rows(self, pi: Floats, e: Estimates) -> StepResult:
        """Mu, b and why from estimates; see `weigh_rows`."""
        if len(pi) <= TOGETHER:
            return self._block(pi, e)
        out = StepResult(np.empty(pi.shape), np.empty(pi.shape), np.empty(len(pi), np.uint8))

        def work(start: int) -> None:
            rows = slice(start, start + TOGETHER)
            out.mu[rows], out.control[rows], out.why[rows] = self._block(pi[rows], e.select(rows))

        fan_out(work, range(0, len(pi), TOGETHER))
        return out

    def _block(self, pi: Floats, e: Estimates) -> StepResult:
        """Mu, b and why of rows that fit into the cache; see `_step_kernel.programs`.

        Actions that are not known keep pi, and the program is solved over the others with the
        probability and the budget that pi leaves them.
        """
        parts = np.empty((5, *pi.shape))
        parts[0], parts[1] = e.q, e.noise
        parts[2] = e.carried[..., -1 if self.follows else 0]
        parts[3] = e.cost_target
        parts[4] = e.cost_behavior[..., -1] if self.own_cost else e.cost_target
        kernel = self._kernel
        # copies: for arrays that may not be written, kernels would be compiled once more
        known, pi = np.array(e.known), np.array(pi, np.float64, order="C")
        if self._step is None:
            mu, why = kernel.weigh(parts, known, pi, *self._settings)
        else:
            share, rule, _, floor = self._settings
            program = kernel.programs(parts, known, pi, share, kernel.Rule(*rule), False)
            mu = _own_step(self._step, pi, program.second_moment, program.cost, program.budget)
            ended = np.zeros(len(pi), np.int8), np.zeros(len(pi))
            why = kernel.settle(mu, *ended, program, pi, floor)
        return StepResult(mu, parts[0], why)

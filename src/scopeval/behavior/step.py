"""Line 6 of Algorithm 1: behavior probabilities at a batch of states, for every method.

With w_a = pi_a sqrt(X_a), the program of a state is

    minimize sum_a w_a^2 / mu_a   subject to   sum_a mu_a q^c_a <= delta

(`scopeval.solver`), and its answer is mixed with a share of the target policy, the floor. Wherever
an estimate is missing, not finite, or leaves the program without an answer, mu falls back to the
target policy, and the row says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import fan_out
from scopeval.arrays import Floats, is_number
from scopeval.behavior.methods import Method, StepFunction
from scopeval.behavior.thresholds import FLOOR
from scopeval.errors import InputError

if TYPE_CHECKING:
    from scopeval.models.protocols import Estimates

__all__ = ["BUDGETS", "Recipe", "StepResult", "check_budget", "check_epsilon", "weigh_rows"]

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
    """What a design is asked for, and then how mu follows from a critic's estimates.

    Attributes:
        method: which control variate, recursion and constraint.
        horizon: T.
        gamma: discount.
        epsilon: the promise: the expected cost is at most (1 + epsilon) times the target's. What
            was asked for; of a point that was chosen by its variance, its own cost with the doubt.
        limit: an absolute limit on the cost-to-go instead of (1 + epsilon) times the target's.
        floor: share of the target policy that is mixed in.
        margin: part of the cost budget that is left unspent, relative to the target's cost.
        share: of how q differs between the actions of a state that the control variate takes over:
            b = v + share (q - v).
        budget: "state"; "episode": cost has a price instead of a budget in every state;
            "weighted": a price that depends on the weight of the episode so far.
        price: that price.
        cap: the weight of an episode never exceeds it ("weighted" only).
        prices: the grid of prices that the critics know: first, ratio, number ("weighted" only).
    """

    method: Method
    horizon: int
    gamma: float = 1.0
    epsilon: float = 0.0
    limit: float | None = None
    floor: float = FLOOR
    margin: float = 0.0
    share: float = 1.0
    budget: str = "state"
    price: float = 0.0
    cap: float | None = None
    prices: tuple[float, float, int] | None = None

    def __post_init__(self) -> None:
        if self.prices is not None:  # a file holds a list
            object.__setattr__(self, "prices", tuple(self.prices))

    def record(self) -> dict[str, Any]:
        """The fields as a file holds them."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return fields | {"method": self.method.name, "constraint": self.method.constraint}


#: What the promise is about: the rest of the episode from every state on, or whole episodes.
BUDGETS = ("state", "episode")


def check_budget(budget: str, limit: object = None, constraint: str = "behavior") -> str:
    """What the promise is about; some settings are for every state's own budget only."""
    if not isinstance(budget, str) or budget not in BUDGETS:
        raise InputError(f"budget: got {budget!r}, expected {' or '.join(map(repr, BUDGETS))}")
    if budget == "episode" and limit is not None:
        raise InputError(
            f"limit: got {limit!r} with budget='episode', but a limit is for every state; "
            "try budget='state', or leave limit out"
        )
    if budget == "episode" and constraint != "behavior":
        raise InputError(
            f"constraint: got {constraint!r} with budget='episode', expected 'behavior': what an "
            "episode costs is what the behavior policy spends"
        )
    return budget


def check_epsilon(epsilon: float) -> float:
    """How much more than the target policy the behavior policy may cost."""
    if not (is_number(epsilon) and epsilon >= 0):
        raise InputError(
            f"epsilon: got {epsilon!r}, expected a finite number >= 0 (0: no more expensive than "
            "the target policy; 0.1: at most 10 % more)"
        )
    return float(epsilon)


class StepResult(NamedTuple):
    """What line 6 makes of B rows: mu [B, A], the control variate b [B, A], bits of `Why` [B]."""

    mu: Floats
    control: Floats
    why: NDArray[np.uint8]


def weigh_rows(recipe: Recipe, pi: Floats, e: Estimates) -> StepResult:
    """Mu, b and why from estimates: the program, then the floor, pi wherever in doubt.

    Whatever the numbers are, the rows of mu are distributions and b is finite.
    """
    if len(pi) <= TOGETHER:
        return _weigh_some(recipe, pi, e)
    out = StepResult(np.empty(pi.shape), np.empty(pi.shape), np.empty(len(pi), np.uint8))

    def work(start: int) -> None:
        rows = slice(start, start + TOGETHER)
        out.mu[rows], out.control[rows], out.why[rows] = _weigh_some(
            recipe, pi[rows], e.select(rows)
        )

    fan_out(work, range(0, len(pi), TOGETHER))
    return out


def _weigh_some(recipe: Recipe, pi: Floats, e: Estimates) -> StepResult:
    """`weigh_rows` for rows that fit into the cache; see `_step_kernel.programs`.

    Actions that are not known keep pi, and the program is solved over the others with the
    probability and the budget that pi leaves them.
    """
    from scopeval.behavior import _step_kernel as kernel

    method = recipe.method
    spend = min(1.0 + recipe.epsilon - recipe.margin, LARGEST)
    limit = np.nan
    if recipe.limit is not None:
        limit = min(recipe.limit, LARGEST) * (1.0 - recipe.margin)
    priced = method.constrained and recipe.budget == "episode"
    # plain tuples, fields of `Rule` and `Kind`: compiled code takes named ones more slowly
    share, rule, floor = (
        float(recipe.share) if method.control_variate else -1.0,
        (spend, limit, LARGEST),
        recipe.floor,
    )
    kind = (
        method.constrained,
        method.tilted,
        method.follows_behavior,
        float(recipe.price) if priced else -1.0,
    )
    parts = np.empty((5, *pi.shape))
    parts[0], parts[1] = e.q, e.noise
    # the variance to come, and the cost in the constraint: the behavior policy's or the target's
    parts[2] = e.carried[..., -1 if method.follows_behavior else 0]
    parts[3] = e.cost_target
    parts[4] = e.cost_behavior[..., -1] if method.constraint == "behavior" else e.cost_target
    # copies: for arrays that may not be written, kernels would be compiled once more
    known, pi = np.array(e.known), np.array(pi, np.float64, order="C")
    if method.step is None:
        mu, why = kernel.weigh(parts, known, pi, share, rule, kind, floor)
    else:
        program = kernel.programs(parts, known, pi, share, kernel.Rule(*rule), False)
        mu = _own_step(method.step, pi, program.second_moment, program.cost, program.budget)
        ended = np.zeros(len(pi), np.int8), np.zeros(len(pi))
        why = kernel.settle(mu, *ended, program, pi, floor)
    return StepResult(mu, parts[0], why)

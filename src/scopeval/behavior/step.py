"""Line 6 of Algorithm 1: behavior probabilities at a batch of states, for every method.

With w_a = pi_a sqrt(X_a), the program of a state is

    minimize sum_a w_a^2 / mu_a   subject to   sum_a mu_a q^c_a <= delta

(`scopeval.solver`), and its answer is mixed with a share of the target policy, the floor. `tilt`
takes exact values; `weigh_rows` takes what critics estimate, and falls back to the target policy
wherever an estimate is missing, not finite, or leaves the program without an answer. Both build and
solve the same program (`_step_kernel`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import fan_out
from scopeval.arrays import Bools, Floats
from scopeval.behavior.methods import Method, StepFunction
from scopeval.errors import InputError
from scopeval.solver.program import Status

if TYPE_CHECKING:
    from scopeval.critics.protocols import Estimates

__all__ = ["Counts", "Recipe", "Tilt", "Weigher", "budget", "tilt", "weigh_rows"]

#: Estimates larger than this (or not a number) are not believed: squares would overflow.
LARGEST = 1e150

#: Rows that are weighed together: what they need fits into the cache.
TOGETHER = 4096


# -- exact values ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tilt:
    """mu [B, A] of one step, how each row ended (`Status`), and where the budget binds."""

    mu: Floats
    status: NDArray[np.int8]
    binding: Bools


def tilt(
    method: Method,
    target: Floats,
    second_moment: Floats,
    cost: Floats | None = None,
    budget: Floats | None = None,
    price: float | None = None,
) -> Tilt:
    """Behavior probabilities at B states (paper: Eq. "optimization object rl"; Alg. 1, line 6).

    Args:
        method: which program.
        target: pi, [B, A].
        second_moment: X, [B, A], at least 0.
        cost: q^c, [B, A], and
        budget: delta, [B]; needed by constrained methods, or instead
        price: of cost, where the budget is not each state's own.

    Returns:
        Rows where the program has no answer (infeasible) hold pi. Where every second moment is zero
        all actions are as good, and methods with a cost budget take the cheapest, with a small
        share of pi; such rows are INDIFFERENT.
    """
    rows = len(target)
    if not method.tilted:
        return Tilt(target, np.zeros(rows, np.int8), np.zeros(rows, np.bool_))
    from scopeval.behavior import _step_kernel as kernel

    pi = np.ascontiguousarray(target, np.float64)
    charged = np.zeros_like(pi) if cost is None else np.ascontiguousarray(cost, np.float64)
    limits = np.zeros(rows) if budget is None else np.ascontiguousarray(budget, np.float64)
    mu, multiplier, status = np.empty(pi.shape), np.zeros(rows), np.zeros(rows, np.int8)
    tied = np.zeros(rows, np.bool_)
    if method.step is not None:
        mu = _own_step(method.step, pi, second_moment, charged, limits)
        status[np.isnan(mu[:, 0])] = Status.INFEASIBLE
    else:
        kind = _kind(method, price)
        weight = pi * np.sqrt(second_moment)
        for i in np.flatnonzero(weight.max(axis=1) < 1e-100):
            kernel.rescale(weight, i, price is not None)
        everything = np.ones(rows), np.ones(pi.shape, np.bool_)
        out = mu, multiplier, status
        refused = kernel.solve_step(weight, charged, limits, *everything, pi, kind, out)
        if refused >= 0:
            raise InputError(
                f"row {refused}: got weights {weight[refused]}, costs {charged[refused]}, budget "
                f"{limits[refused]:g}; expected finite numbers below 1e100, try other units"
            )
        tied = ~(weight > 0.0).any(axis=1) & (status == Status.SOLVED)
    mu[status != Status.SOLVED] = pi[status != Status.SOLVED]
    status[tied] = Status.INDIFFERENT
    binding = (status == Status.SOLVED) & (multiplier > 0.0)
    return Tilt(mu, status, np.asarray(binding))


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


def _kind(method: Method, price: float | None) -> Any:
    from scopeval.behavior._step_kernel import Kind

    priced = method.constrained and price is not None
    return Kind(
        method.constrained,
        method.tilted,
        method.follows_behavior,
        float(price) if priced and price is not None else -1.0,
    )


# -- estimates -------------------------------------------------------------------------------------


@dataclass
class Counts:
    """How often a behavior policy was asked, and why it fell back to the target policy."""

    asked: int = 0
    unseen: int = 0
    infeasible: int = 0
    not_finite: int = 0

    def add(self, other: Counts) -> None:
        """Count another's as well."""
        self.asked += other.asked
        self.unseen += other.unseen
        self.infeasible += other.infeasible
        self.not_finite += other.not_finite

    def add_doubts(self, doubts: tuple[int, int, int]) -> None:
        """Count how often something was unseen, infeasible, not finite."""
        self.unseen += doubts[0]
        self.infeasible += doubts[1]
        self.not_finite += doubts[2]


@dataclass(frozen=True)
class Recipe:
    """How mu follows from a critic's estimates; stored with the policy.

    Attributes:
        method: its name.
        epsilon: the expected cost may be (1 + epsilon) times the target's.
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


def weigh_rows(
    method: Method,
    recipe: Recipe,
    pi: Floats,
    e: Estimates,
    *,
    counts: Counts | None = None,
) -> tuple[Floats, Floats]:
    """Mu and b from a critic's estimates: the program, then the floor, pi wherever in doubt.

    Whatever the numbers are, the rows of mu are distributions and b is finite.
    """
    return Weigher(method, recipe).rows(pi, e, counts)


class Weigher:
    """Line 6 for one method and recipe. What does not depend on the state is computed once."""

    def __init__(self, method: Method, recipe: Recipe) -> None:
        from scopeval.behavior import _step_kernel as kernel
        from scopeval.behavior._act_kernel import act_by_model

        self._kernel, self._act = kernel, act_by_model
        self._step = method.step
        self._share = float(recipe.share) if method.control_variate else -1.0
        # plain tuples: compiled code takes named ones more slowly
        self._rule = tuple(rule_of(recipe))
        self._kind = tuple(_kind(method, recipe.price if recipe.budget == "episode" else None))
        self._floor = recipe.floor
        #: Whether the variance to come is the behavior policy's own, or the target policy's.
        self.follows = method.follows_behavior
        #: Whether the cost in the constraint is the behavior policy's own, or the target policy's.
        self.own_cost = recipe.constraint == "behavior"
        rest = (self._share, self._rule, self._kind, self._floor)
        self._how = (self.follows, self.own_cost, *rest)

    def rows(self, pi: Floats, e: Estimates, counts: Counts | None) -> tuple[Floats, Floats]:
        """Mu and b from estimates; see `weigh_rows`."""
        if len(pi) <= TOGETHER:
            return self._some(pi, e, counts)
        mu, b = np.empty(pi.shape), np.empty(pi.shape)

        def work(start: int) -> Counts:
            some, found = slice(start, start + TOGETHER), Counts()
            mu[some], b[some] = self._some(pi[some], e.select(some), found)
            return found

        for found in fan_out(work, range(0, len(pi), TOGETHER)):
            if counts is not None:
                counts.add(found)
        return mu, b

    def _some(self, pi: Floats, e: Estimates, counts: Counts | None) -> tuple[Floats, Floats]:
        parts = np.empty((5, *pi.shape))
        parts[0], parts[1] = e.q, e.noise
        parts[2] = e.carried[..., -1 if self.follows else 0]
        parts[3] = e.cost_target
        parts[4] = e.cost_behavior[..., -1] if self.own_cost else e.cost_target
        return self.parts(pi, parts, np.array(e.known), counts)

    def parts(
        self, pi: Floats, parts: Floats, known: Bools, counts: Counts | None
    ) -> tuple[Floats, Floats]:
        """Mu and b from the five arrays that matter: see `_step_kernel.programs`.

        Actions that are not known keep pi, and the program is solved over the others with the
        probability and the budget that pi leaves them.
        """
        kernel = self._kernel
        pi = np.ascontiguousarray(pi, np.float64)
        if self._step is None:
            mu, found = kernel.weigh(
                parts, known, pi, self._share, self._rule, self._kind, self._floor
            )
        else:
            rule = kernel.Rule(*self._rule)
            program = kernel.programs(parts, known, pi, self._share, rule, False)
            mu = _own_step(self._step, pi, program.second_moment, program.cost, program.budget)
            found = kernel.settle(mu, np.zeros(len(pi), np.int8), program, pi, self._floor)
        if counts is not None:
            counts.add_doubts(found)
        return mu, parts[0]

    def draw(
        self, pi: Floats, given: tuple[Any, ...], uniform: float, counts: Counts
    ) -> tuple[int, float, float, float, Floats] | None:
        """One action for one row by learned dynamics: what `rows` and a draw would give, sooner.

        Args:
            pi: [1, K].
            given: `critics.fast_estimates.model_inputs` of the observation.
            uniform: which action is drawn.
            counts: of doubts.

        Returns:
            The action's number, its mu, pi and b, and b [K]; None if line 6 is a user's own.
        """
        if self._step is not None:
            return None
        pi = np.ascontiguousarray(pi, np.float64)
        k, mu, own, b, every, doubts = self._act(given, pi, uniform, self._how)
        counts.add_doubts(doubts)
        return k, mu, own, b, every


def budget(recipe: Recipe, pi: Floats, cost_target: Floats, cost: Floats, known: Bools) -> Floats:
    """Delta per unit of the known actions' probability.

    Relative: (1 + eps - margin) times what pi's known actions cost. Absolute: the limit, less what
    pi's unknown actions are thought to cost.
    """
    from scopeval.behavior import _step_kernel as kernel

    tables = (np.ascontiguousarray(x, np.float64) for x in (pi, cost_target, cost))
    return np.asarray(kernel.allowances(*tables, np.array(known), rule_of(recipe)))


def rule_of(recipe: Recipe) -> Any:
    """How much a row may cost, for the compiled part."""
    from scopeval.behavior._step_kernel import Rule

    share = min(1.0 + recipe.epsilon - recipe.margin, LARGEST)
    if recipe.limit is None:
        return Rule(share, np.nan, LARGEST)
    return Rule(share, min(recipe.limit, LARGEST) * (1.0 - recipe.margin), LARGEST)

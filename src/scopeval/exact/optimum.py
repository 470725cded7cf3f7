r"""The optimal weight-blind behavior policy, by dynamic programming (Algorithm 1, exact values).

`improve_blind` tells what knowing the weight of the episode is worth: it has the least variance +
price * cost over all mu_t(a | s). With d_t(s) = P_mu(S_t = s) and e_t(s) = E_mu[W_t^2; S_t = s],
what mu_t contributes in s is

    gamma^{2t} e_t(s) sum_a pi^2/mu [X + gamma^2 E A_{t+1}] + price gamma^t d_t(s) sum_a mu q^c

so that the best mu_t, all others given, solves the priced program of `design_at_price` with the
price of this state, price * d / (gamma^t e). Going backwards in time, what precedes t is unchanged
and what follows it is up to date: each pass minimizes over one mu_t after the other, and never
makes the sum larger. The problem is not convex; the answer is where such passes end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import Bools, Floats, check_whole, is_number
from scopeval.behavior.methods import Method, method_named
from scopeval.behavior.price import find_price
from scopeval.behavior.step import Recipe, check_budget
from scopeval.errors import InputError
from scopeval.exact.assessment import assess
from scopeval.exact.model import TabularMDP
from scopeval.exact.tables import AnyPolicy, limit_table, policy_table
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import (
    Candidates,
    EpisodeState,
    Observations,
    Time,
    Weighing,
    Why,
)
from scopeval.question.promise import Promise

if TYPE_CHECKING:
    from scopeval.behavior.sweep import Swept
    from scopeval.models.protocols import Estimates, Points

__all__ = ["Design", "design", "design_at_price", "improve_blind"]

#: A state that only actions without target probability lead to has this multiple of the price.
MOST = 1e9

#: (t, estimates) -> the estimates that line 6 sees instead.
Pose = Callable[[int, "Estimates"], "Estimates"]


class Design(TabularPolicy):
    """An optimal behavior policy, with what it was computed from.

    Attributes:
        method: the `Method`.
        control: b [T, S, A], or None for b = 0.
        status: [T, S] how each program ended.
        binding: [T, S] where the budget costs something.
    """

    def __init__(
        self, probs: Floats, method: Method, control: Floats | None, status: Any, binding: Bools
    ) -> None:
        super().__init__(probs)
        self.method = method
        self.control = control
        self.status = status
        self.binding = binding

    def weigh(
        self,
        offered: Candidates,
        obs: Observations,
        t: Time,
        state: EpisodeState | None = None,
    ) -> Weighing:
        """This policy's probabilities, with the control variate that they were designed for.

        With b = q, mu may leave out actions whose outcome is certain: without b that is a bias.
        """
        control = self.control
        if control is not None:
            control = np.asarray(control[np.asarray(t), np.asarray(obs)])
        return Weighing(self.probs(obs, t), control)


def design(
    mdp: TabularMDP,
    target: AnyPolicy,
    method: str | Method = "scope-dr",
    *,
    promise: Promise | None = None,
    constraint: str = "behavior",
    limits: ArrayLike | None = None,
) -> Design:
    """The optimal behavior policy, by dynamic programming (Algorithm 1 with exact values).

    Args:
        mdp: the model.
        target: pi.
        method: "scope-dr", "scope" (the paper's), "odi", "dopt" or "on-policy".
        promise: of at least the target's own cost: from every state on (the paper's, and the
            default) or, with ``per="episode"``, for whole episodes; cost has one price then, at
            which the budget is just spent. What is saved in one state is spent in another, usually
            for far less variance; where it is not less, the answer is the paper's. Less cost, or a
            promise about another policy's: `scopeval.design`, which takes a known model too.
        constraint: whose cost-to-go the budget is spent on: "behavior" (q^c under mu, the paper's
            program) or "target" (q^c under pi, as its Algorithm 1 lists; more cautious at the
            target's own cost).
        limits: absolute thresholds instead of a promise, [S] or [T, S]; for one number try
            ``Promise(limit=..., per="state")``. Such a program can be infeasible by nature: the
            target is kept there and `status` says so.
    """
    promised = Promise() if promise is None else promise
    if not isinstance(promised, Promise) or (promise is not None and limits is not None):
        raise InputError(
            f"promise: got {promise!r:.60}, limits: got {limits!r:.40}, expected Promise(...) or "
            "limits, one of them"
        )
    number = promised.limit
    if (
        promised.at_most < 1.0
        or promised.compared == "reference"
        or (number is not None and promised.per != "state")
    ):
        raise InputError(
            f"promise: got {promised!r:.60}, expected the target policy's own cost or more, or a "
            "limit with per='state'; others are for scopeval.design(mdp, policy, promise=...)"
        )
    return optimal(
        mdp, target, method, promised.epsilon, constraint=constraint,
        limit=number if limits is None else limits, budget=promised.per or "state",
    )  # fmt: skip


def optimal(
    mdp: TabularMDP,
    target: AnyPolicy,
    method: str | Method,
    epsilon: float = 0.0,
    *,
    constraint: str = "behavior",
    limit: ArrayLike | None = None,
    budget: str = "state",
) -> Design:
    """`design`, with the terms of a promise; the cost may be any multiple of the target's."""
    known = KnownDesigns(mdp, policy_table(mdp, "target", target), method_named(method))
    if constraint not in ("behavior", "target"):
        raise InputError(f"constraint: got {constraint!r}, expected 'behavior' or 'target'")
    recipe = known.recipe(epsilon, constraint=constraint)
    if check_budget(budget, limit, constraint) == "episode" and known.method.constrained:
        return known.design(_priced(known, replace(recipe, budget="episode")))
    if limit is None:
        return known.design(recipe)
    limits = limit_table(mdp, limit)

    def pose(t: int, e: Estimates) -> Estimates:
        """The program is told that the target costs just the limit."""
        charged = e.cost_target if constraint == "target" else e.cost_behavior[..., 1]
        return replace(
            e,
            cost_target=np.repeat(limits[t][:, None], mdp.actions, axis=1),
            cost_behavior=np.stack([e.cost_target, charged], axis=-1),
        )

    return known.design(known.recipe(), pose)


def design_at_price(
    mdp: TabularMDP, target: AnyPolicy, price: float, method: str | Method = "scope-dr"
) -> Design:
    """The design with one price of cost in every state and step, which knows no weights.

    Backwards in time, each step minimizes sum_a pi^2/mu X + price * sum_a mu q^c. That is what
    `design` for whole episodes searches with; `frontier` has the optimum among all designs.

    Args:
        mdp: the model.
        target: pi.
        price: of cost, in units of variance, at least 0.
        method: "scope" (b = 0) or "scope-dr" (b = q).
    """
    if not (is_number(price) and price >= 0):
        raise InputError(f"price: got {price!r}, expected a number >= 0")
    known = KnownDesigns(mdp, policy_table(mdp, "target", target), method_named(method))
    return known.design(known.recipe(price=float(price)))


def _priced(known: KnownDesigns, recipe: Recipe) -> Recipe:
    """The price at which a whole episode costs what it may; or the paper's, if that is better."""
    plain = replace(recipe, budget="state")
    swept = known.sweep(plain, replace(recipe, price=0.0))
    allowed = (1.0 + recipe.epsilon) * swept.cost[0]
    if swept.cost[2] <= allowed:
        return replace(recipe, price=0.0)
    price = find_price(
        lambda some: known.sweep(*(replace(recipe, price=one) for one in some)).cost[1:].tolist(),
        float(allowed),
        float(swept.variance[0] / swept.cost[0]),
        rounds=40,
    )
    if price is None:
        return plain
    priced = replace(recipe, price=price)
    return priced if known.sweep(priced).variance[1] < swept.variance[1] else plain


@dataclass(frozen=True)
class KnownDesigns:
    """A known MDP, a target and a method."""

    mdp: TabularMDP
    pi: Floats
    method: Method

    def recipe(
        self, epsilon: float = 0.0, *, constraint: str = "behavior", price: float | None = None
    ) -> Recipe:
        """Line 6 with exact values: no floor, no margin."""
        return Recipe(
            replace(self.method, constraint=constraint),
            self.mdp.horizon,
            self.mdp.gamma,
            epsilon,
            floor=0.0,
            budget="state" if price is None else "episode",
            price=price or 0.0,
        )

    def sweep(self, *recipes: Recipe) -> Swept:
        """Variance and cost of the target and of what each recipe makes."""
        from scopeval.behavior.sweep import Kind, line_6, sweep
        from scopeval.exact.known import KnownMDP

        kinds = [Kind(recipe) for recipe in recipes]
        return sweep(KnownMDP(self.mdp).data(self.pi), line_6(kinds), 1 + len(kinds), keep=False)

    def design(self, recipe: Recipe, pose: Pose | None = None) -> Design:
        """The tables of what a recipe makes, from estimates that `pose` has changed."""
        from scopeval.behavior.step import weigh_rows
        from scopeval.behavior.sweep import Followed, followed_target, sweep
        from scopeval.exact.known import KnownMDP

        mu, control = np.empty(self.pi.shape), np.empty(self.pi.shape)
        why = np.zeros(mu.shape[:2], np.uint8)

        def follow(t: int, points: Points, pi: Floats, e: Estimates) -> list[Followed]:
            mu[t], control[t], why[t] = weigh_rows(recipe, pi, e if pose is None else pose(t, e))
            mine = Followed(mu[t], control[t], e.carried[..., 1], e.cost_behavior[..., 1])
            return [followed_target(pi, e), mine]

        sweep(KnownMDP(self.mdp).data(self.pi), follow, 2, keep=False)
        status = np.where(why & Why.INDIFFERENT, np.int8(1), np.int8(0))
        status[(why & (Why.INFEASIBLE | Why.NOT_FINITE)) > 0] = 2
        b = control if self.method.control_variate else None
        return Design(mu, self.method, b, status, (why & Why.BINDING) > 0)


def improve_blind(
    mdp: TabularMDP,
    target: AnyPolicy,
    price: float,
    method: str | Method = "scope-dr",
    *,
    start: Design | None = None,
    rounds: int = 30,
    tolerance: float = 1e-4,
) -> Design:
    """The weight-blind design of least variance + price * cost, by repeated passes.

    Args:
        mdp: the model.
        target: pi.
        price: of cost, in units of variance, more than 0.
        method: "scope" (b = 0) or "scope-dr" (b = q).
        start: where to begin; default: `design_at_price`.
        rounds: passes at most.
        tolerance: relative improvement at which they end.
    """
    if not (is_number(price) and price > 0):
        raise InputError(f"price: got {price!r}, expected a number > 0")
    check_whole("rounds", rounds, 1)
    known = KnownDesigns(mdp, policy_table(mdp, "target", target), method_named(method))
    best = start if start is not None else design_at_price(mdp, known.pi, price, known.method)
    least = _total(known, best, price)
    for _ in range(rounds):
        design = _pass(known, price, best.table(mdp.horizon))
        total = _total(known, design, price)
        if total < least:
            best = design
        if not total < (1.0 - tolerance) * least:
            break
        least = total
    return best


def _total(known: KnownDesigns, design: Design, price: float) -> float:
    assessed = assess(known.mdp, known.pi, design)
    return assessed.variance + price * assessed.cost


def _pass(known: KnownDesigns, price: float, mu: Floats) -> Design:
    """The best mu_t given the others, for t = T-1 .. 0."""
    factors = _price_factors(known.mdp, known.pi, mu)

    def pose(t: int, e: Estimates) -> Estimates:
        """Only differences of costs count, at the price of this state."""
        spent = e.cost_behavior - e.cost_behavior.min(axis=1, keepdims=True)
        return replace(e, cost_behavior=factors[t][:, None, None] * spent)

    return known.design(known.recipe(price=price), pose)


def _price_factors(mdp: TabularMDP, pi: Floats, mu: Floats) -> Floats:
    """Factors d / (gamma^t e) [T, S]; 1 in states that no episode reaches."""
    chance = square = mdp.initial
    factors = np.ones(pi.shape[:2])
    for t in range(mdp.horizon):
        reached = chance > 0
        with np.errstate(divide="ignore", over="ignore"):
            factors[t, reached] = np.minimum(
                chance[reached] / (mdp.gamma**t * square[reached]), MOST
            )
        ratio = np.divide(pi[t], mu[t], out=np.zeros_like(pi[t]), where=mu[t] > 0)
        taken = chance[:, None] * mu[t], square[:, None] * pi[t] * ratio
        chance, square = (np.asarray(mdp.transition.T @ x.ravel()) for x in taken)
    return factors

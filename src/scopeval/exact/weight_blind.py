r"""The best behavior policies that do not know the weight of the episode: what knowing it is worth.

The least variance + price * cost over all mu_t(a | s). With d_t(s) = P_mu(S_t = s) and
e_t(s) = E_mu[W_t^2; S_t = s], what mu_t contributes in s is

    gamma^{2t} e_t(s) sum_a pi^2/mu [X + gamma^2 E A_{t+1}] + price gamma^t d_t(s) sum_a mu q^c

so that the best mu_t, all others given, solves the priced program of `design_at_price` with the
price of this state, price * d / (gamma^t e). Going backwards in time, what precedes t is unchanged
and what follows it is up to date: each pass minimizes over one mu_t after the other, and never
makes the sum larger. The problem is not convex; the answer is where such passes end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from scopeval.arrays import Floats, check_whole, is_number
from scopeval.behavior.methods import Method, method_named
from scopeval.errors import InputError
from scopeval.exact.assessment import assess
from scopeval.exact.model import TabularMDP
from scopeval.exact.optimum import Design, KnownDesigns, design_at_price
from scopeval.exact.tables import AnyPolicy, policy_table

if TYPE_CHECKING:
    from scopeval.models.protocols import Estimates

__all__ = ["improve_blind"]

#: A state that only actions without target probability lead to has this multiple of the price.
MOST = 1e9


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

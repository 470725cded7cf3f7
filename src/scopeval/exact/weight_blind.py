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

import numpy as np

from scopeval.arrays import Floats, check_whole, is_number
from scopeval.behavior.methods import Method, method_named
from scopeval.behavior.step import tilt
from scopeval.errors import InputError
from scopeval.exact.assessment import assess
from scopeval.exact.model import TabularMDP
from scopeval.exact.optimum import Design, design_at_price
from scopeval.exact.recursions import backward, outcome, weighted
from scopeval.exact.tables import AnyPolicy, policy_table

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
    how = method_named(method)
    pi = policy_table(mdp, "target", target)
    best = start if start is not None else design_at_price(mdp, pi, price, how)
    least = _total(mdp, pi, best, price)
    for _ in range(rounds):
        found = _pass(mdp, pi, how, price, best.table(mdp.horizon))
        total = _total(mdp, pi, found, price)
        if total < least:
            best = found
        if not total < (1.0 - tolerance) * least:
            break
        least = total
    return best


def _total(mdp: TabularMDP, pi: Floats, design: Design, price: float) -> float:
    found = assess(mdp, pi, design, design.control)
    return found.variance + price * found.cost


def _pass(mdp: TabularMDP, pi: Floats, how: Method, price: float, mu: Floats) -> Design:
    """The best mu_t given the others, for t = T-1 .. 0."""
    q, v = (x := backward(mdp, "reward", pi)).q, x.v
    b = q if how.control_variate else np.zeros_like(q)
    factors = _price_factors(mdp, pi, mu)
    new = np.empty_like(pi)
    status = np.zeros(pi.shape[:2], np.int8)
    binding = np.zeros(pi.shape[:2], np.bool_)
    variance, cost = np.zeros(mdp.states), np.zeros(mdp.states)
    for t in reversed(range(mdp.horizon)):
        residual, noise = outcome(mdp, t, v[t + 1], variance, b[t])
        spent = mdp.at("cost", t) + mdp.gamma * mdp.expect(cost)
        charged = factors[t][:, None] * (spent - spent.min(axis=1, keepdims=True))
        step = tilt(how, pi[t], residual**2 + noise, charged, None, price)
        new[t], status[t], binding[t] = step.mu, step.status, step.binding
        cost = (new[t] * spent).sum(axis=1)
        variance = weighted(pi[t], new[t], residual, noise)[1]
    return Design(new, how, q if how.control_variate else None, status, binding)


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

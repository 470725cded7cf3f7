"""The optimal weight-blind behavior policy, by dynamic programming (Algorithm 1, exact values)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import Bools, Floats, is_number
from scopeval.behavior.methods import Method, method_named
from scopeval.behavior.price import find_price
from scopeval.behavior.settings import check_budget, check_epsilon
from scopeval.behavior.step import tilt
from scopeval.errors import InputError
from scopeval.exact.assessment import Assessment, assess
from scopeval.exact.model import TabularMDP
from scopeval.exact.recursions import backward, outcome, weighted
from scopeval.exact.tables import AnyPolicy, limit_table, policy_table
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import Candidates, Observations, Time, Weighing

__all__ = ["Design", "design", "design_at_price"]


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

    def weigh(self, offered: Candidates, obs: Observations, t: Time) -> Weighing:
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
    method: str | Method = "scope",
    epsilon: float = 0.0,
    *,
    constraint: str = "behavior",
    limit: ArrayLike | None = None,
    budget: str = "state",
) -> Design:
    """The optimal behavior policy, by dynamic programming (Algorithm 1 with exact values).

    Args:
        mdp: the model.
        target: pi.
        method: "scope", "scope-dr", "odi", "dopt" or "on-policy".
        epsilon: the cost may be (1+epsilon) times the target's, at every state and time.
        constraint: whose cost-to-go the budget is spent on: "behavior" (q^c under mu, the paper's
            program) or "target" (q^c under pi, as its Algorithm 1 lists; more cautious at
            epsilon = 0).
        limit: an absolute threshold instead of (1+epsilon) v^c: a number, [S] or [T, S]. Such a
            program can be infeasible by nature: the target is kept there and `status` says so.
        budget: "state": the promise holds from every state on (the paper's). "episode": it holds
            for whole episodes; cost has one price, at which the budget is just spent. What is saved
            in one state is then spent in another, usually for far less variance; where it is not
            less, the answer is the paper's.
    """
    how = method_named(method)
    check_epsilon(epsilon)
    if check_budget(budget, limit, constraint) == "episode" and how.constrained:
        return _priced(mdp, target, how, epsilon)
    return _design(mdp, target, how, epsilon, constraint, limit)


def design_at_price(
    mdp: TabularMDP, target: AnyPolicy, price: float, method: str | Method = "scope-dr"
) -> Design:
    """The design with one price of cost in every state and step, which knows no weights.

    Backwards in time, each step minimizes sum_a pi^2/mu X + price * sum_a mu q^c. That is what
    `design(budget="episode")` searches with; `frontier` has the optimum among all designs.

    Args:
        mdp: the model.
        target: pi.
        price: of cost, in units of variance, at least 0.
        method: "scope" (b = 0) or "scope-dr" (b = q).
    """
    if not (is_number(price) and price >= 0):
        raise InputError(f"price: got {price!r}, expected a number >= 0")
    return _design(mdp, target, method_named(method), 0.0, "behavior", None, float(price))


def _priced(
    mdp: TabularMDP,
    target: AnyPolicy,
    how: Method,
    epsilon: float,
) -> Design:
    """The price at which a whole episode costs what it may; or the paper's, if that is better."""
    pi = policy_table(mdp, "target", target)

    def at(price: float | None) -> tuple[Design, Assessment]:
        found = _design(mdp, target, how, epsilon, "behavior", None, price)
        return found, assess(mdp, pi, found, found.control)

    own, plain, free = assess(mdp, pi, pi), at(None), at(0.0)
    allowed = (1.0 + epsilon) * own.cost
    if free[1].cost <= allowed:
        return free[0]
    unit = own.variance / own.cost
    price = find_price(lambda some: [at(one)[1].cost for one in some], allowed, unit, rounds=40)
    priced = plain if price is None else at(price)
    return priced[0] if priced[1].variance < plain[1].variance else plain[0]


def _design(
    mdp: TabularMDP,
    target: AnyPolicy,
    how: Method,
    epsilon: float,
    constraint: str,
    limit: ArrayLike | None,
    price: float | None = None,
) -> Design:
    if constraint not in ("behavior", "target"):
        raise InputError(f"constraint: got {constraint!r}, expected 'behavior' or 'target'")
    pi = policy_table(mdp, "target", target)
    q, v = (x := backward(mdp, "reward", pi)).q, x.v
    cost_pi = backward(mdp, "cost", pi)
    delta = (1.0 + epsilon) * cost_pi.v[:-1] if limit is None else limit_table(mdp, limit)
    b = q if how.control_variate else np.zeros_like(q)

    mu = np.empty_like(pi)
    status = np.zeros(pi.shape[:2], np.int8)
    binding = np.zeros(pi.shape[:2], np.bool_)
    variance = np.zeros((mdp.horizon + 1, mdp.states))
    cost_mu = np.zeros(mdp.states)
    for t in reversed(range(mdp.horizon)):
        residual, noise = outcome(mdp, t, v[t + 1], variance[t + 1], b[t])
        spent = mdp.at("cost", t) + mdp.gamma * mdp.expect(cost_mu)  # q^c under mu
        charged = cost_pi.q[t] if constraint == "target" else spent
        step = tilt(how, pi[t], residual**2 + noise, charged, delta[t], price)
        mu[t], status[t], binding[t] = step.mu, step.status, step.binding
        cost_mu = (mu[t] * spent).sum(axis=1)
        ahead = mu[t] if how.follows_behavior else pi[t]
        variance[t] = weighted(pi[t], ahead, residual, noise)[1]
    return Design(mu, how, q if how.control_variate else None, status, binding)

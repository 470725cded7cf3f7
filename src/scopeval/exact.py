r"""Finite MDPs whose model is known: values, variance, cost and the optimal design, exactly.

This is the ground truth of the library. Everything learned from data is judged against it.

With a control variate b and bbar = sum_a pi b, every estimator of the family is

    G_t = bbar_t(S) + rho_t (R + gamma G_{t+1} - b_t(S, A))    b = 0: PDIS, b = q: doubly robust

and its conditional mean m_t(s) and variance V_t(s) under a behavior policy mu follow backwards:

    X_t(s,a) = E[(R + gamma m_{t+1}(S') - b_t(s,a))^2 | s,a] + gamma^2 E[V_{t+1}(S') | s,a]
    m_t(s)   = bbar_t(s) + sum_{a: mu>0} pi (r + gamma E[m_{t+1}(S')] - b_t(s,a))
    V_t(s)   = sum_{a: mu>0} pi^2 / mu X_t(s,a) - (m_t(s) - bbar_t(s))^2

(paper: Lemma "recursive-var" and Eq. "variance r - v", there for b = 0, gamma = 1 and rewards that
are a function of (s, a); X is then its extended reward r~). Where mu covers pi, m = v. The sums
skip actions that mu never takes, so that the recursion is right for any mu, and `Assessment.bias`
shows what a mu without coverage loses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import (
    Bools,
    Floats,
    as_floats,
    check_cost,
    check_probs,
    check_whole,
    is_number,
    where_first,
)
from scopeval.behavior.methods import Method, check_budget, check_epsilon, method_named
from scopeval.behavior.price import find_price
from scopeval.behavior.step import tilt
from scopeval.errors import InputError
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import Candidates, Observations, Time, Weighing

__all__ = [
    "Assessment",
    "Design",
    "TabularMDP",
    "Values",
    "assess",
    "cost_values",
    "design",
    "values",
]


class TabularMDP:
    """A finite MDP with costs and a fixed horizon.

    Early termination is an absorbing state with zero reward and cost.

    Args:
        initial: [S] distribution of the first state.
        transition: [S, A, S] dense, or a scipy sparse matrix [S*A, S] whose row s*A + a holds
            p(. | s, a).
        reward: [S, A], or [T, S, A] when it depends on time: the mean reward.
        cost: same shapes, at least 0.
        horizon: number of steps T.
        gamma: discount in (0, 1], of rewards and costs alike.
        reward_variance: [S, A] or [T, S, A]: variance of the reward given (s, a), independent of
            the next state given (s, a). Default 0.
    """

    def __init__(
        self,
        initial: ArrayLike,
        transition: Any,
        reward: ArrayLike,
        cost: ArrayLike,
        horizon: int,
        *,
        gamma: float = 1.0,
        reward_variance: ArrayLike | None = None,
    ) -> None:
        self.horizon = check_whole("horizon", horizon, 1, " of steps")
        if not (is_number(gamma) and 0.0 < gamma <= 1.0):
            raise InputError(f"gamma: got {gamma!r}, expected a discount in (0, 1]")
        self.gamma = float(gamma)
        self.initial = check_probs("initial", initial)
        if self.initial.ndim != 1:
            raise InputError(f"initial: got shape {self.initial.shape}, expected [S]")
        axes = ("t", "s", "a")
        self.reward = self._table("reward", as_floats("reward", reward, axes=axes))
        self.states, self.actions = (int(n) for n in self.reward.shape[-2:])
        if len(self.initial) != self.states:
            raise InputError(
                f"initial: got {len(self.initial)} states, reward has {self.states}; "
                "expected the same number"
            )
        self.cost = self._table("cost", check_cost("cost", cost, axes=axes))
        self.reward_variance = (
            np.zeros((self.states, self.actions))
            if reward_variance is None
            else self._table(
                "reward_variance", check_cost("reward_variance", reward_variance, axes=axes)
            )
        )
        self.transition = self._matrix(transition)

    def _table(self, name: str, table: Floats) -> Floats:
        if table.ndim not in (2, 3) or 0 in table.shape:
            raise InputError(f"{name}: got shape {table.shape}, expected [S, A] or [T, S, A]")
        known = getattr(self, "reward", table)
        if table.shape[-2:] != known.shape[-2:]:
            raise InputError(
                f"{name}: got [S, A] = {table.shape[-2:]}, expected reward's {known.shape[-2:]}"
            )
        if table.ndim == 3 and table.shape[0] != self.horizon:
            raise InputError(
                f"{name}: got {table.shape[0]} time steps, expected the horizon {self.horizon}"
            )
        return table

    def _matrix(self, transition: Any) -> Any:
        """P as a sparse [S*A, S] matrix with rows that sum to one."""
        from scipy import sparse

        S, A = self.states, self.actions
        if sparse.issparse(transition):
            p = sparse.csr_array(transition, dtype=np.float64)
        else:
            dense = as_floats("transition", transition, axes=("s", "a", "s'"))
            if dense.ndim == 3:
                if dense.shape != (S, A, S):
                    raise InputError(
                        f"transition: got shape {dense.shape}, expected [S, A, S] = {(S, A, S)}"
                    )
                dense = dense.reshape(S * A, S)
            p = sparse.csr_array(dense)
        if p.shape != (S * A, S):
            raise InputError(f"transition: got shape {p.shape}, expected [S*A, S] = {(S * A, S)}")
        bad = ~(np.isfinite(p.data) & (p.data >= 0))
        if bad.any():
            entry = int(np.argmax(bad))
            s, a = divmod(int(np.searchsorted(p.indptr, entry, side="right")) - 1, A)
            raise InputError(
                f"transition: probability {p.data[entry]:.6g} at s={s}, a={a}, "
                f"s'={p.indices[entry]}; expected finite numbers >= 0"
            )
        total = np.asarray(p.sum(axis=1)).ravel()
        bad = np.abs(total - 1.0) > 1e-8
        if bad.any():
            place = where_first(bad.reshape(S, A), ("s", "a"))
            raise InputError(
                f"transition: probabilities sum to {total[bad][0]:.6g} {place}; expected 1"
            )
        return sparse.csr_array(p.multiply(1.0 / total[:, None]))

    def expect(self, value: Floats) -> Floats:
        """E[value(S') | s, a] as [S, A], for value [S]."""
        return np.asarray(self.transition @ value).reshape(self.states, self.actions)

    def spread(self, value: Floats) -> Floats:
        """Var[value(S') | s, a] as [S, A], by deviations: a large mean takes no digits away.

        Spreads that rounding explains (a standard deviation of 1e-13 of the values) are zero.
        """
        p = self.transition
        ahead = np.asarray(p @ value)
        gap = value[p.indices] - np.repeat(ahead, np.diff(p.indptr))
        square = np.add.reduceat(p.data * gap**2, p.indptr[:-1])
        square[square <= 1e-26 * ahead**2] = 0.0
        return np.asarray(square).reshape(self.states, self.actions)

    def at(self, name: str, t: int) -> Floats:
        """The table `reward`, `cost` or `reward_variance` at time t, [S, A]."""
        table: Floats = getattr(self, name)
        return table[t] if table.ndim == 3 else table

    def __repr__(self) -> str:
        return f"TabularMDP(states={self.states}, actions={self.actions}, horizon={self.horizon})"


@dataclass(frozen=True)
class Values:
    """Action values q [T, S, A] and state values v [T+1, S] of a policy; v[T] = 0."""

    q: Floats
    v: Floats


@dataclass(frozen=True)
class Assessment:
    """What a behavior policy is worth, exactly.

    Attributes:
        value: J(pi).
        expectation: mean of the estimator; equal to `value` where the behavior covers the target.
        variance: variance of one episode's estimate.
        cost: expected cost of one episode, J^c(mu).
        variances: V, [T+1, S].
        second_moments: X, [T, S, A].
    """

    value: float
    expectation: float
    variance: float
    cost: float
    variances: Floats
    second_moments: Floats

    @property
    def bias(self) -> float:
        """Mean of the estimator minus J(pi)."""
        return self.expectation - self.value


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


def values(mdp: TabularMDP, policy: ArrayLike | TabularPolicy) -> Values:
    """Q and v of a policy: q_t = r_t + gamma E[v_{t+1}(S')], v_t = sum_a pi q_t."""
    return _backward(mdp, "reward", policy_table(mdp, "policy", policy))


def cost_values(mdp: TabularMDP, policy: ArrayLike | TabularPolicy) -> Values:
    """q^c and v^c of a policy: the same for costs."""
    return _backward(mdp, "cost", policy_table(mdp, "policy", policy))


def assess(
    mdp: TabularMDP,
    target: ArrayLike | TabularPolicy,
    behavior: ArrayLike | TabularPolicy,
    control_variate: ArrayLike | None = None,
) -> Assessment:
    """Value, variance and cost of evaluating `target` by running `behavior`.

    Args:
        mdp: the model.
        target: pi.
        behavior: mu.
        control_variate: b, [S, A] or [T, S, A]; None is b = 0 (PDIS).
    """
    pi = policy_table(mdp, "target", target)
    mu = policy_table(mdp, "behavior", behavior)
    b = control_table(mdp, control_variate)
    mean = np.zeros((mdp.horizon + 1, mdp.states))
    variance = np.zeros_like(mean)
    second = np.empty((mdp.horizon, mdp.states, mdp.actions))
    for t in reversed(range(mdp.horizon)):
        residual, noise = _outcome(mdp, t, mean[t + 1], variance[t + 1], b[t])
        second[t] = residual**2 + noise
        lead, variance[t] = _weighted(pi[t], mu[t], residual, noise)
        mean[t] = (pi[t] * b[t]).sum(axis=1) + lead
    start = mdp.initial
    expectation = float(start @ mean[0])
    spread = float(start @ (mean[0] - expectation) ** 2)
    return Assessment(
        value=float(start @ _backward(mdp, "reward", pi).v[0]),
        expectation=expectation,
        variance=float(start @ variance[0]) + spread,
        cost=float(start @ _backward(mdp, "cost", mu).v[0]),
        variances=variance,
        second_moments=second,
    )


def design(
    mdp: TabularMDP,
    target: ArrayLike | TabularPolicy,
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


def _priced(
    mdp: TabularMDP,
    target: ArrayLike | TabularPolicy,
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
    target: ArrayLike | TabularPolicy,
    how: Method,
    epsilon: float,
    constraint: str,
    limit: ArrayLike | None,
    price: float | None = None,
) -> Design:
    if constraint not in ("behavior", "target"):
        raise InputError(f"constraint: got {constraint!r}, expected 'behavior' or 'target'")
    pi = policy_table(mdp, "target", target)
    q, v = (x := _backward(mdp, "reward", pi)).q, x.v
    cost_pi = _backward(mdp, "cost", pi)
    delta = (1.0 + epsilon) * cost_pi.v[:-1] if limit is None else _limit(mdp, limit)
    b = q if how.control_variate else np.zeros_like(q)

    mu = np.empty_like(pi)
    status = np.zeros(pi.shape[:2], np.int8)
    binding = np.zeros(pi.shape[:2], np.bool_)
    variance = np.zeros((mdp.horizon + 1, mdp.states))
    cost_mu = np.zeros(mdp.states)
    for t in reversed(range(mdp.horizon)):
        residual, noise = _outcome(mdp, t, v[t + 1], variance[t + 1], b[t])
        spent = mdp.at("cost", t) + mdp.gamma * mdp.expect(cost_mu)  # q^c under mu
        charged = cost_pi.q[t] if constraint == "target" else spent
        step = tilt(how, pi[t], residual**2 + noise, charged, delta[t], price)
        mu[t], status[t], binding[t] = step.mu, step.status, step.binding
        cost_mu = (mu[t] * spent).sum(axis=1)
        ahead = mu[t] if how.follows_behavior else pi[t]
        variance[t] = _weighted(pi[t], ahead, residual, noise)[1]
    return Design(mu, how, q if how.control_variate else None, status, binding)


def _backward(mdp: TabularMDP, table: str, policy: Floats) -> Values:
    q = np.empty((mdp.horizon, mdp.states, mdp.actions))
    v = np.zeros((mdp.horizon + 1, mdp.states))
    for t in reversed(range(mdp.horizon)):
        q[t] = mdp.at(table, t) + mdp.gamma * mdp.expect(v[t + 1])
        v[t] = (policy[t] * q[t]).sum(axis=1)
    return Values(q, v)


def _outcome(
    mdp: TabularMDP, t: int, mean_next: Floats, variance_next: Floats, b: Floats
) -> tuple[Floats, Floats]:
    """Mean and variance of R + gamma G_{t+1} - b given (s, a), [S, A] each; X = mean^2 + variance.

    Kept apart, because their sum would lose the variance next to a large mean.
    """
    mean = mdp.at("reward", t) + mdp.gamma * mdp.expect(mean_next) - b
    noise = mdp.gamma**2 * (mdp.spread(mean_next) + mdp.expect(variance_next))
    return mean, mdp.at("reward_variance", t) + noise


def _weighted(pi: Floats, mu: Floats, mean: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Mean and variance over actions drawn from mu of rho times an outcome, [S] each.

    sum pi^2/mu X - lead^2 = sum mu (rho mean - lead)^2 + sum pi^2/mu noise: nothing cancels.
    """
    ratio = np.divide(pi, mu, out=np.zeros_like(pi), where=mu > 0)
    lead = (np.where(mu > 0, pi, 0.0) * mean).sum(axis=1)
    scatter = mu * (ratio * mean - lead[:, None]) ** 2
    return lead, (scatter + pi * ratio * noise).sum(axis=1)


def policy_table(mdp: TabularMDP, name: str, policy: ArrayLike | TabularPolicy) -> Floats:
    """The policy as [T, S, A], checked against the MDP; `name` is for the message."""
    table = policy if isinstance(policy, TabularPolicy) else TabularPolicy(policy)
    if (table.states, table.actions) != (mdp.states, mdp.actions):
        raise InputError(
            f"{name}: got a policy over {table.states} states and {table.actions} actions, "
            f"expected {mdp.states} and {mdp.actions}"
        )
    return table.table(mdp.horizon)


def control_table(mdp: TabularMDP, control: ArrayLike | None) -> Floats:
    """The control variate b as [T, S, A]; zeros for None."""
    shape = (mdp.horizon, mdp.states, mdp.actions)
    if control is None:
        return np.broadcast_to(np.float64(0.0), shape)
    b = as_floats("control_variate", control, ndim=(2, 3), axes=("t", "s", "a"))
    if b.shape not in (shape, shape[1:]):
        raise InputError(f"control_variate: got shape {b.shape}, expected {shape} or {shape[1:]}")
    return np.broadcast_to(b, shape)


def _limit(mdp: TabularMDP, limit: ArrayLike) -> Floats:
    shape = (mdp.horizon, mdp.states)
    value = as_floats("limit", limit, axes=("t", "s"))
    if value.shape not in ((), shape[1:], shape):
        raise InputError(f"limit: got shape {value.shape}, expected a number, [S] or [T, S]")
    return np.broadcast_to(value, shape)

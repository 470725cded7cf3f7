r"""A design that judges several policies at a cost that their mixture would exceed.

Weight-blind (the estimator's weight is taken to be 1 inside of the design), with control variates
b_k = q_k, the covariances of the policies' values obey the paper's recursion with a matrix for each
action:

    X_ij = Cov(R + gamma v_i(S'), R + gamma v_j(S') | s, a) + gamma^2 E[C_ij(S')]
    C_ij = sum_a pi_i pi_j / mu X_ij

(with b_k = q_k the terms (q_i - b_i)(q_j - b_j) and (v_i - sum_a pi_i b_i)(...) are 0). For
contrasts L with G = L'L the variance to be small is sum_ij G_ij C_ij, so that line 6 is the row
program with the weight

    W_a^2 = sum_ij G_ij pi_i(a) pi_j(a) X_ij(s, a)

and a price of cost, which is such that a whole episode costs what it may. Every X is a covariance
matrix plus expectations of such, and so positive semi-definite; rounding is cut off.

The design is run as one more component of the mixture of episodes, with the share p_0: the weights
of the policies stay below 1 / p_k, and no action of theirs is ever left out. Which share is best is
simulated (`foreseen_variance`).

`affordable` decides what is run where a promise is made about the cost: the mixture, or one with
such a design in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scopeval.arrays import Bools, Floats
from scopeval.collection.environments import open_environments
from scopeval.collection.simulated import TabularFleet
from scopeval.comparison.counted_model import learned_model, value_tables
from scopeval.comparison.estimators import Controls, TableControls, doubly_robust
from scopeval.comparison.mixture import MixtureRollout
from scopeval.comparison.policy_set import PolicySet
from scopeval.errors import InputError
from scopeval.exact import TabularMDP
from scopeval.logs.transitions import Transitions
from scopeval.models.rows import Rows
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import Observations, Policy, Time
from scopeval.question.promise import Promise
from scopeval.solver.program import solve_priced

__all__ = [
    "DESIGN_SHARES",
    "Affordable",
    "DesignPolicy",
    "JointDesign",
    "affordable",
    "contrast_variance",
    "foreseen_variance",
    "joint_design",
    "outcome_covariance",
]

#: Shares that a design may have in the mixture; the policies have equal parts of the rest. The less
#: the more the policies themselves show, but the less may the design cost.
DESIGN_SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
#: The highest price, relative to variance over cost: what is then run is the cheapest.
HIGHEST = 1e9


@dataclass(frozen=True)
class JointDesign:
    """A behavior policy for contrasts of several policies.

    Attributes:
        mu: its probabilities [T, S, A].
        cost: its expected cost of an episode, by the model.
        variance: of the contrasts' sum, weight-blind, by the model.
        price: of cost, in units of variance.
        shares: of the policies in the mixture, [K]; the design has the rest.
        mixture_cost: expected cost of an episode of the mixture with these shares.
        baseline_cost: of an episode of the baseline.
    """

    mu: Floats
    cost: float
    variance: float
    price: float
    shares: Floats
    mixture_cost: float
    baseline_cost: float


def outcome_covariance(mdp: TabularMDP, v: Floats, t: int) -> Floats:
    """Covariance of the policies' outcomes R + gamma v_k(S') given (s, a), [S, A, K, K].

    Args:
        mdp: the model.
        v: values of the policies, [K, T + 1, S].
        t: the time step.
    """
    p, K, ahead = mdp.transition, len(v), mdp.gamma * v[:, t + 1].T  # [S, K]
    landed = ahead[p.indices]
    if (added := mdp.next_reward_at(t)) is not None:
        landed = landed + added[:, None]
    rows = np.diff(p.indptr)
    mean = np.add.reduceat(p.data[:, None] * landed, p.indptr[:-1], axis=0)
    gap = landed - np.repeat(mean, rows, axis=0)
    square = p.data[:, None, None] * gap[:, :, None] * gap[:, None, :]
    covariance = np.add.reduceat(square, p.indptr[:-1], axis=0)
    covariance = covariance.reshape(mdp.states, mdp.actions, K, K)
    return np.asarray(covariance + mdp.at("reward_variance", t)[:, :, None, None])


class _Sweep:
    """The recursion for a given model and policies.

    Args:
        mdp: the model.
        policies: [K, T, S, A].
        contrasts: L [M, K].
    """

    def __init__(self, mdp: TabularMDP, policies: Floats, contrasts: Floats) -> None:
        self.mdp, self.pi = mdp, policies
        self.G = contrasts.T @ contrasts
        self._L = contrasts
        self.v = np.stack([value_tables(mdp, "reward", pi)[1] for pi in policies])  # [K, T+1, S]
        self._noise = [outcome_covariance(mdp, self.v, t) for t in range(policies.shape[1])]

    def run(self, price: float | None, mu: Floats | None = None) -> tuple[Floats, float, float]:
        """A pass backwards: mu at this price (or the given one), its cost, and its variance."""
        mdp, (K, T, S, A) = self.mdp, self.pi.shape
        made = np.empty((T, S, A))
        C, cost = np.zeros((S, K, K)), np.zeros(S)
        for t in reversed(range(T)):
            X = self._noise[t] + mdp.gamma**2 * mdp.expect(C.reshape(S, K * K)).reshape(S, A, K, K)
            pi = np.moveaxis(self.pi[:, t], 0, 2)  # [S, A, K]
            both = pi[:, :, :, None] * pi[:, :, None, :] * X  # pi_i pi_j X_ij
            spent = mdp.at("cost", t) + mdp.gamma * mdp.expect(cost)
            if mu is None:
                assert price is not None
                square = np.einsum("ij,saij->sa", self.G, both)
                made[t] = _row_program(np.sqrt(np.maximum(square, 0.0)), spent, price, pi)
            else:
                made[t] = mu[t]
            share = made[t]
            inverse = np.where(share > 0, 1.0 / np.where(share > 0, share, 1.0), 0.0)
            C = np.einsum("sa,saij->sij", inverse, both)
            cost = (share * spent).sum(axis=1)
        start = mdp.initial
        total = float(start @ np.einsum("ij,sij->s", self.G, C))
        first = self.v[:, 0].T @ self._L.T  # [S, M]: values of the contrasts
        total += float((start @ (first - start @ first) ** 2).sum())
        return made, float(start @ cost), total


def _row_program(weight: Floats, cost: Floats, price: float, pi: Floats) -> Floats:
    """Mu [S, A] of least sum W^2 / mu + price * cost.

    Where no action matters for the contrasts (all weights are 0) the cheapest action of those that
    a policy takes is taken.
    """
    weight = np.where(weight > 1e-9 * weight.max(initial=0.0), weight, 0.0)
    mu = np.array(solve_priced(weight, cost, price).mu)
    none: Bools = weight.max(axis=1) <= 0
    if none.any():
        taken = np.where(pi[none].max(axis=2) > 0, cost[none], np.inf)
        mu[none] = np.eye(cost.shape[1])[np.argmin(taken, axis=1)]
    return mu


def contrast_variance(
    mdp: TabularMDP, policies: Floats, contrasts: Floats, mu: Floats
) -> tuple[float, float]:
    """Variance of the contrasts (their sum) and cost when mu runs, with b_k = q_k: exact."""
    _, cost, variance = _Sweep(mdp, policies, contrasts).run(None, mu)
    return variance, cost


def joint_design(
    mdp: TabularMDP,
    policies: Floats,
    baseline: int,
    at_most: float,
    *,
    share: float = 0.9,
    margin: float = 0.0,
) -> JointDesign:
    """The design of least variance with which the mixture costs at most so much.

    Args:
        mdp: a known model, or one that was learned.
        policies: [K, T, S, A].
        baseline: number of the policy that the cost is compared with.
        at_most: the mixture may cost so many times the baseline's.
        share: of the design in the mixture; the policies have equal parts of the rest.
        margin: part of it that is left unspent.

    Raises:
        InputError: nothing costs so little; with the least cost at which there is a design.
    """
    K = len(policies)
    costs = np.array([float(mdp.initial @ value_tables(mdp, "cost", pi)[1][0]) for pi in policies])
    shares = np.full(K, (1.0 - share) / K)
    base = float(costs[baseline])
    allowed = ((at_most - margin) * base - float(shares @ costs)) / share
    contrasts = np.delete(np.eye(K) - np.eye(K)[baseline], baseline, axis=0)
    sweep = _Sweep(mdp, policies, contrasts)
    free = sweep.run(0.0)
    found, price = free, 0.0
    if free[1] > allowed:
        unit = max(free[2], 1e-300) / max(free[1], 1e-300)
        least = sweep.run(HIGHEST * unit)[1]
        if least > allowed:
            lowest = (share * least + float(shares @ costs)) / base + margin
            raise InputError(
                f"promise: got at most {at_most:.4g} times the baseline's cost, at which the "
                "question is not answerable: the cheapest way to act that still tells the policies "
                f"apart costs {lowest:.4g} times as much; try Promise(at_most={lowest + 0.005:.2f})"
            )
        price = _price(lambda price: sweep.run(price)[1], allowed, unit)
        found = sweep.run(price)
    mixture = share * found[1] + float(shares @ costs)
    return JointDesign(found[0], found[1], found[2], price, shares, mixture, base)


def _price(cost: Callable[[float], float], allowed: float, unit: float) -> float:
    """The price at which an episode costs what is allowed, or a little less."""
    from scipy.optimize import brentq

    def excess(log_price: float) -> float:
        return cost(unit * math.exp(log_price)) - allowed

    low, high = -20.0, math.log(HIGHEST)
    if excess(low) <= 0.0:
        return unit * math.exp(low)
    root = float(brentq(excess, low, high, xtol=1e-3))
    while excess(root) > 0.0 and root < high:  # on the side that keeps the promise
        root += 1e-3
    return unit * math.exp(root)


# -- what is run -----------------------------------------------------------------------------------


#: A mixture that costs so much more than promised, by the model, keeps the promise.
SLACK = 1e-6


@dataclass(frozen=True)
class DesignPolicy:
    """A design by state numbers; where the logs have shown nothing, the mean of the policies.

    Attributes:
        mu: [T, S, A].
        known: [S] states that the model knows.
        policies: that it was designed for.
    """

    mu: Floats
    known: Bools
    policies: tuple[Policy, ...]

    def probs(self, obs: Observations, t: Time) -> Floats:
        """[B, A]."""
        states = np.asarray(obs)
        inside = (states >= 0) & (states < len(self.known))
        at = np.where(inside, states, 0)
        probs = self.mu[np.minimum(t, len(self.mu) - 1), at]
        strange = ~(inside & self.known[at])
        if strange.any():
            each = [np.asarray(p.probs(states[strange], t), np.float64) for p in self.policies]
            probs[strange] = np.mean(each, axis=0)
        return np.asarray(probs)


@dataclass(frozen=True)
class Affordable:
    """What is run.

    Attributes:
        policies: with the design as the last one, if there is one.
        shares: of all of them.
        words: what it is.
        controls: exact action values, of a known MDP that a design was made for; None: they are
            learned.
    """

    policies: PolicySet
    shares: Floats
    words: str
    controls: Controls | None = None


def affordable(
    policies: PolicySet,
    shares: Floats,
    promise: Promise | None,
    env: Any,
    logs: Transitions | None,
    *,
    horizon: int,
    gamma: float,
) -> Affordable:
    """The mixture if it keeps the promise, as far as a model can tell, else one with a design.

    Without a promise, or without a model (neither a known one nor logs of state numbers), it is the
    mixture, and the guard watches it.

    Raises:
        InputError: nothing that answers the question costs so little.
    """
    words = f"a mixture of episodes ({policies.in_words(shares)})"
    plain = Affordable(policies, shares, words)
    if promise is None or policies.continuous:
        return plain
    model = _model(policies, env, logs, horizon, gamma)
    if model is None:
        return plain
    tables = _tables(policies, model.mdp, model.known)
    costs = np.array(
        [float(model.mdp.initial @ value_tables(model.mdp, "cost", pi)[1][0]) for pi in tables]
    )
    base = float(costs[policies.baseline])
    if base <= 0:
        return plain
    at_most = promise.at_most if promise.limit is None else promise.limit / base
    ratio = float(shares @ costs) / base
    if ratio <= at_most * (1.0 + SLACK):
        return plain
    margin = 0.0
    if model.rows is not None:
        margin = _margin(policies, model.rows, model.mdp, horizon, gamma, at_most)
    made = _best_share(model.mdp, tables, policies.baseline, at_most, margin)
    known = tuple(p for p in policies.policies if isinstance(p, Policy))
    inside = policies.with_design(DesignPolicy(made.mu, model.known, known))
    parts = np.append(made.shares, 1.0 - made.shares.sum())
    words = (
        f"a design for this question in a mixture of episodes ({inside.in_words(parts)}), because "
        f"the policies alone would cost {ratio:.3g} times the baseline's, and at most "
        f"{at_most:.4g} times was promised"
    )
    controls = None
    if model.rows is None:
        every = (*tables, made.mu)
        controls = TableControls.of_policies(model.mdp, every)
    return Affordable(inside, parts, words, controls)


def _best_share(
    mdp: TabularMDP, tables: Floats, baseline: int, at_most: float, margin: float
) -> JointDesign:
    """The design with the share of least variance, by simulation in the model.

    Raises:
        InputError: none keeps the promise; that of the largest share, which could cost the least.
    """
    best, least = None, np.inf
    for share in DESIGN_SHARES:
        try:
            made = joint_design(mdp, tables, baseline, at_most, share=share, margin=margin)
        except InputError:
            if best is None and share == DESIGN_SHARES[-1]:
                raise
            continue
        shares = np.append(made.shares, share)
        variance = foreseen_variance(mdp, tables, made.mu, shares, baseline)
        if variance > least:
            break  # the more of it the worse
        best, least = made, variance
    assert best is not None
    return best


@dataclass(frozen=True)
class _Model:
    """A model of the world by state numbers.

    Attributes:
        mdp: known, or learned.
        known: [S] states that it knows.
        rows: that it was learned from; None: it is the world itself.
    """

    mdp: TabularMDP
    known: Bools
    rows: Rows | None


def _model(
    policies: PolicySet, env: Any, logs: Transitions | None, horizon: int, gamma: float
) -> _Model | None:
    if isinstance(env, TabularMDP):
        mdp = env if env.horizon == horizon else env.shortened(horizon)
        return _Model(mdp, np.ones(mdp.states, np.bool_), None)
    if logs is None or logs.obs.ndim != 1 or logs.action.ndim != 1:
        return None
    rows = Rows.of(logs.select(logs.has_next))
    states = 1 + int(max(rows.obs.max(), rows.next_obs.max()))
    mdp = learned_model(rows, states, policies.actions_at(rows.obs[:1]), horizon, gamma)
    known = np.append(np.bincount(rows.obs, minlength=states) > 0, False)
    return _Model(mdp, known, rows)


def _tables(policies: PolicySet, mdp: TabularMDP, known: Bools) -> Floats:
    """Probabilities [K, T, S, A] of all policies; uniform where the model knows nothing."""
    shape = mdp.states, mdp.actions
    tables, reason = policies.tables(mdp.horizon, np.flatnonzero(known), shape)
    if reason:
        raise InputError(reason)
    return tables


def _margin(
    policies: PolicySet, rows: Rows, mdp: TabularMDP, horizon: int, gamma: float, at_most: float
) -> float:
    """How much more a design costs by logs that it was not made from: the mean of two halves."""
    episode = np.cumsum(rows.t == 0) % 2
    halves = [
        learned_model(rows.select(episode == half), mdp.states - 1, mdp.actions, horizon, gamma)
        for half in (0, 1)
    ]
    seen = [np.append(np.bincount(rows.obs, minlength=mdp.states - 1) > 0, False)] * 2
    tables = _tables(policies, mdp, seen[0])
    excess = []
    for made_from, judged_by in ((0, 1), (1, 0)):
        try:
            made = joint_design(halves[made_from], tables, policies.baseline, at_most)
        except InputError:
            continue  # so few logs know no cheaper way
        excess.append(_ratio(halves[judged_by], made, tables, policies.baseline) - at_most)
    return max(float(np.mean(excess)), 0.0) if excess else 0.0


def _ratio(mdp: TabularMDP, made: JointDesign, tables: Floats, baseline: int) -> float:
    """Cost of the mixture with this design relative to the baseline's, by a model."""
    K = len(tables)
    costs = np.array([float(mdp.initial @ value_tables(mdp, "cost", pi)[1][0]) for pi in tables])
    _, own = contrast_variance(mdp, tables, np.eye(K), made.mu)
    mixture = (1.0 - made.shares.sum()) * own + float(made.shares @ costs)
    return mixture / float(costs[baseline]) if costs[baseline] > 0 else 1.0


# -- how well a mixture will answer ---------------------------------------------------------------

#: Simulated episodes: the variance is known to 5 to 10 %, and kinds of mixtures meet the same luck.
SIMULATED = 1000


def foreseen_variance(
    mdp: TabularMDP, policies: Floats, mu: Floats, shares: Floats, baseline: int
) -> float:
    """Variance of an episode's differences to the baseline (their sum), with b_k = q_k.

    Args:
        mdp: the model.
        policies: [K, T, S, A].
        mu: of the design, [T, S, A].
        shares: of the policies and the design, [K + 1].
        baseline: number of the policy that the others are compared with.
    """
    K = len(policies)
    both = PolicySet({f"policy {k}": TabularPolicy(pi) for k, pi in enumerate(policies)})
    both = both.with_design(TabularPolicy(mu))
    controls = TableControls.of_policies(mdp, (*policies, mu))
    with open_environments(TabularFleet(mdp, SIMULATED), cost="none") as pool:
        rollout = MixtureRollout(pool, both, horizon=mdp.horizon, seed=0)
        episodes = rollout.run(0, SIMULATED, shares)
    y = doubly_robust(episodes, mdp.gamma, *controls.over(episodes))
    return float((y[:, :K] - y[:, [baseline]]).var(axis=0).sum())

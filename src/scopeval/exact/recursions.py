"""The backward recursions: values of a policy, and the moments of one weighted step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scopeval.arrays import Floats
from scopeval.exact.model import TabularMDP
from scopeval.exact.tables import AnyPolicy, policy_table

__all__ = ["Values", "backward", "cost_values", "outcome", "values", "weighted"]


@dataclass(frozen=True)
class Values:
    """Action values q [T, S, A] and state values v [T+1, S] of a policy; v[T] = 0."""

    q: Floats
    v: Floats


def values(mdp: TabularMDP, policy: AnyPolicy) -> Values:
    """Q and v of a policy: q_t = r_t + gamma E[v_{t+1}(S')], v_t = sum_a pi q_t."""
    return backward(mdp, "reward", policy_table(mdp, "policy", policy))


def cost_values(mdp: TabularMDP, policy: AnyPolicy) -> Values:
    """q^c and v^c of a policy: the same for costs."""
    return backward(mdp, "cost", policy_table(mdp, "policy", policy))


def backward(mdp: TabularMDP, table: str, policy: Floats) -> Values:
    """Values of the table `reward` or `cost` of the MDP, for a policy [T, S, A]."""
    q = np.empty((mdp.horizon, mdp.states, mdp.actions))
    v = np.zeros((mdp.horizon + 1, mdp.states))
    for t in reversed(range(mdp.horizon)):
        q[t] = mdp.at(table, t) + mdp.gamma * mdp.expect(v[t + 1])
        v[t] = (policy[t] * q[t]).sum(axis=1)
    return Values(q, v)


def outcome(
    mdp: TabularMDP, t: int, mean_next: Floats, variance_next: Floats, b: Floats
) -> tuple[Floats, Floats]:
    """Mean and variance of R + gamma G_{t+1} - b given (s, a), [S, A] each; X = mean^2 + variance.

    Kept apart, because their sum would lose the variance next to a large mean.
    """
    mean = mdp.at("reward", t) + mdp.gamma * mdp.expect(mean_next) - b
    step = mdp.next_reward_at(t)
    added = None if step is None else step / mdp.gamma
    noise = mdp.gamma**2 * (mdp.spread(mean_next, added) + mdp.expect(variance_next))
    return mean, mdp.at("reward_variance", t) + noise


def weighted(pi: Floats, mu: Floats, mean: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Mean and variance over actions drawn from mu of rho times an outcome, [S] each.

    sum pi^2/mu X - lead^2 = sum mu (rho mean - lead)^2 + sum pi^2/mu noise: nothing cancels.
    """
    ratio = np.divide(pi, mu, out=np.zeros_like(pi), where=mu > 0)
    lead = (np.where(mu > 0, pi, 0.0) * mean).sum(axis=1)
    gap = ratio * mean - lead[:, None]
    with np.errstate(over="ignore"):
        scatter = mu * gap**2
    if not np.isfinite(scatter).all():  # mu below 1e-150: its square is beyond the largest number
        scatter = (mu * gap) * gap
    return lead, (scatter + pi * ratio * noise).sum(axis=1)

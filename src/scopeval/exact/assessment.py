"""What a behavior policy is worth: value, variance and cost of running it, exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import Floats
from scopeval.exact.model import TabularMDP
from scopeval.exact.recursions import backward, outcome, weighted
from scopeval.exact.tables import (
    AnyBehavior,
    AnyPolicy,
    behavior_tables,
    control_table,
    policy_table,
)

__all__ = ["Assessment", "assess"]


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


def assess(
    mdp: TabularMDP,
    target: AnyPolicy,
    behavior: AnyBehavior,
    control_variate: ArrayLike | None = "own",
) -> Assessment:
    """Value, variance and cost of evaluating `target` by running `behavior`.

    Args:
        mdp: the model.
        target: pi, a table or any finite policy.
        behavior: mu: a table, a policy, or a behavior such as `Design` or `BehaviorPolicy`.
        control_variate: b, [S, A] or [T, S, A]; None is b = 0 (PDIS); "own" is the behavior's
            own, the one it was designed for, which is b = 0 for a plain policy.
    """
    pi = policy_table(mdp, "target", target)
    mu, own = behavior_tables(mdp, pi, behavior)
    if isinstance(control_variate, str) and control_variate == "own":
        control_variate = own
    b = control_table(mdp, control_variate)
    mean = np.zeros((mdp.horizon + 1, mdp.states))
    variance = np.zeros_like(mean)
    second = np.empty((mdp.horizon, mdp.states, mdp.actions))
    for t in reversed(range(mdp.horizon)):
        residual, noise = outcome(mdp, t, mean[t + 1], variance[t + 1], b[t])
        second[t] = residual**2 + noise
        lead, variance[t] = weighted(pi[t], mu[t], residual, noise)
        mean[t] = (pi[t] * b[t]).sum(axis=1) + lead
    start = mdp.initial
    expectation = float(start @ mean[0])
    spread = float(start @ (mean[0] - expectation) ** 2)
    return Assessment(
        value=float(start @ backward(mdp, "reward", pi).v[0]),
        expectation=expectation,
        variance=float(start @ variance[0]) + spread,
        cost=float(start @ backward(mdp, "cost", mu).v[0]),
        variances=variance,
        second_moments=second,
    )

"""Values of a policy in a known MDP."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scopeval.arrays import Floats
from scopeval.exact.model import TabularMDP
from scopeval.exact.tables import AnyPolicy, policy_table

__all__ = ["Values", "cost_values", "values"]


@dataclass(frozen=True)
class Values:
    """Action values q [T, S, A] and state values v [T+1, S] of a policy; v[T] = 0."""

    q: Floats
    v: Floats


def values(mdp: TabularMDP, policy: AnyPolicy) -> Values:
    """Q and v of a policy: q_t = r_t + gamma E[v_{t+1}(S')], v_t = sum_a pi q_t."""
    return _values(mdp, policy, "q")


def cost_values(mdp: TabularMDP, policy: AnyPolicy) -> Values:
    """q^c and v^c of a policy: the same for costs."""
    return _values(mdp, policy, "cost_target")


def _values(mdp: TabularMDP, policy: AnyPolicy, name: str) -> Values:
    from scopeval.exact.known import known_steps

    pi = policy_table(mdp, "policy", policy)
    q, v = np.empty(pi.shape), np.zeros((mdp.horizon + 1, mdp.states))
    for step in known_steps(mdp, pi, lambda *_: [], 0):
        q[step.t] = getattr(step.estimates, name)
        v[step.t] = (step.pi * q[step.t]).sum(axis=1)
    return Values(q, v)

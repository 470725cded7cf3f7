"""Policies, control variates and cost limits as tables that match an MDP."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import Floats, as_floats
from scopeval.errors import InputError
from scopeval.exact.model import TabularMDP
from scopeval.policies.adapters import TabularPolicy

__all__ = ["control_table", "limit_table", "policy_table"]


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


def limit_table(mdp: TabularMDP, limit: ArrayLike) -> Floats:
    """An absolute cost limit as [T, S]."""
    shape = (mdp.horizon, mdp.states)
    value = as_floats("limit", limit, axes=("t", "s"))
    if value.shape not in ((), shape[1:], shape):
        raise InputError(f"limit: got shape {value.shape}, expected a number, [S] or [T, S]")
    return np.broadcast_to(value, shape)

"""Policies, control variates and cost limits as tables that match an MDP."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import Floats, as_floats, check_probs
from scopeval.errors import InputError
from scopeval.exact.model import TabularMDP
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import (
    Behavior,
    Candidates,
    EpisodeState,
    LearnedBehavior,
    Policy,
    weigh,
    weight_aware,
)

__all__ = [
    "AnyBehavior",
    "AnyPolicy",
    "behavior_tables",
    "check_horizon",
    "control_table",
    "limit_table",
    "policy_table",
]

#: A finite policy: a table [S, A] or [T, S, A], or an object that answers ``probs(obs, t)``.
AnyPolicy = ArrayLike | Policy
#: The same, or a behavior policy that re-weighs what the target offers.
AnyBehavior = ArrayLike | Policy | Behavior


def policy_table(mdp: TabularMDP, name: str, policy: AnyPolicy) -> Floats:
    """The policy as [T, S, A], checked against the MDP; `name` is for the message."""
    if isinstance(policy, Policy) and not isinstance(policy, TabularPolicy):
        every = np.arange(mdp.states)
        policy = np.stack([policy.probs(every, t) for t in range(mdp.horizon)])
    table = policy if isinstance(policy, TabularPolicy) else TabularPolicy(policy)
    if (table.states, table.actions) != (mdp.states, mdp.actions):
        raise InputError(
            f"{name}: got a policy over {table.states} states and {table.actions} actions, "
            f"expected {mdp.states} and {mdp.actions}"
        )
    return table.table(mdp.horizon)


def behavior_tables(
    mdp: TabularMDP, target: Floats, behavior: AnyBehavior
) -> tuple[Floats, Floats | None]:
    """Mu [T, S, A] of any behavior policy, and its own control variate b [T, S, A] or None.

    Args:
        mdp: the model.
        target: pi [T, S, A], what a behavior re-weighs.
        behavior: a table, a policy, or a behavior such as `Design` or `BehaviorPolicy`.
    """
    if not isinstance(behavior, Behavior):
        return policy_table(mdp, "behavior", behavior), None
    if weight_aware(behavior):
        raise InputError(
            "behavior: it depends on the weight of the episode, so that no table [T, S, A] holds "
            "it; try exact.tabulate(mdp, target, behavior)"
        )
    check_horizon(mdp, behavior)
    if isinstance(behavior, TabularPolicy):
        policy_table(mdp, "behavior", behavior)  # says what does not fit
    every, state = np.arange(mdp.states), EpisodeState.start(mdp.states, 1)
    actions = np.broadcast_to(np.arange(mdp.actions), target.shape[1:])
    found = [
        weigh(behavior, Candidates(actions, target[t]), every, t, state) for t in range(mdp.horizon)
    ]
    mu = np.stack([part.probs for part in found])
    check_probs("behavior", mu, axes=("t", "s"))
    controls = [part.control for part in found if part.control is not None]
    return mu, np.stack(controls) if controls else None


def check_horizon(mdp: TabularMDP, behavior: Behavior) -> None:
    """Refuse a learned behavior policy that was designed for fewer steps than the MDP has."""
    if isinstance(behavior, LearnedBehavior) and behavior.recipe.horizon < mdp.horizon:
        raise InputError(
            f"behavior: designed for horizon {behavior.recipe.horizon}, expected at least "
            f"{mdp.horizon}"
        )


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
    value = as_floats("limits", limit, axes=("t", "s"))
    if value.shape not in ((), shape[1:], shape):
        raise InputError(f"limits: got shape {value.shape}, expected a number, [S] or [T, S]")
    return np.broadcast_to(value, shape)

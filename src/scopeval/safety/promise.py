"""Whose cost the behavior policy must not exceed: the target's, another policy's, or a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from scopeval.arrays import is_number
from scopeval.behavior.promised_cost import PromisedCost
from scopeval.collection.episodes import Episodes
from scopeval.errors import InputError
from scopeval.policies.adapters import as_policy
from scopeval.policies.protocols import ContinuousPolicy, Policy, probs_of

__all__ = ["TARGET", "Promise", "StatesPromise", "Whose", "promise_of", "promise_with"]

Whose = Literal["target", "reference", "limit"]


@dataclass(frozen=True)
class Promise:
    """An episode of the behavior policy costs no more, in expectation, than this.

    Attributes:
        whose: cost: the target's, that of a reference policy, or a limit.
        reference: that policy.
        limit: that limit, per episode, discounted as costs are.
        epsilon: what the behavior policy was designed for, relative to this cost; None: unknown.
        note: a warning for the user; None: there is none.
    """

    whose: Whose = "target"
    reference: Policy | None = None
    limit: float = math.nan
    epsilon: float | None = None
    note: str | None = None

    def reweighted(self, episodes: Episodes, target: Policy | None) -> tuple[Episodes, bool]:
        """The same episodes as evidence about the reference policy, and whether they cover it.

        The behavior policy takes every action of the target. Where the reference policy takes
        others, its cost is underestimated.

        Args:
            episodes: finished.
            target: the target policy; None: coverage is not checked.
        """
        assert self.reference is not None
        if episodes.action.ndim != 2 or not np.issubdtype(episodes.action.dtype, np.integer):
            raise InputError("reference: needs a finite action set, the episodes have vectors")
        probs, covered = np.ones_like(episodes.target_prob), True
        for t in range(episodes.horizon):
            rows = np.flatnonzero(episodes.length > t)
            if not len(rows):
                break
            obs = episodes.obs[rows, t]
            table = probs_of(self.reference, obs, t)
            probs[rows, t] = table[np.arange(len(rows)), episodes.action[rows, t]]
            if target is not None:
                covered &= not ((table > 0) & (probs_of(target, obs, t) <= 0)).any()
        none = np.zeros(len(episodes), np.bool_)
        changed = replace(episodes, target_prob=probs, control=None, baseline=None, by_target=none)
        return changed, covered


TARGET = Promise()


@runtime_checkable
class StatesPromise(Protocol):
    """A behavior policy that knows whose cost it was designed not to exceed."""

    @property
    def promised(self) -> PromisedCost | None:
        """None: the target policy's."""
        ...

    def recognizes_reference(self, reference: Policy) -> bool | None:
        """Whether it was designed for the cost of this policy; None: it cannot be told."""
        ...


def promise_with(behavior: Any, reference: Any, cost_limit: float | None) -> Promise:
    """From what a user states, and what the behavior policy was designed for.

    Raises:
        InputError: as `promise_of`; or it was designed for a reference policy, which is missing.
    """
    stated = promise_of(reference, cost_limit)
    made = behavior.promised if isinstance(behavior, StatesPromise) else None
    if made is None:
        return stated
    if stated.whose == "target" and made.whose == "limit" and made.limit is not None:
        return Promise("limit", limit=made.limit, epsilon=made.epsilon)
    if stated.whose == "target":
        raise InputError(
            "reference: the behavior policy was designed for the cost of a reference policy, "
            "expected that policy; or try reference=target to judge it by the target's own cost"
        )
    if stated.whose != made.whose:
        return stated
    if stated.reference is None or behavior.recognizes_reference(stated.reference):
        return replace(stated, epsilon=made.epsilon)
    return replace(
        stated,
        note="the reference policy is not recognized as the one whose cost the behavior policy was "
        "designed for; the certificate judges the one that was given",
    )


def promise_of(reference: Any, cost_limit: float | None) -> Promise:
    """From what a user states; the target's own cost when nothing is stated.

    Raises:
        InputError: both are given, or the reference policy has continuous actions.
    """
    if reference is None and cost_limit is None:
        return TARGET
    if reference is not None and cost_limit is not None:
        raise InputError("reference and cost_limit: got both, expected one of them")
    if cost_limit is not None:
        if not (is_number(cost_limit) and cost_limit > 0):
            raise InputError(f"cost_limit: got {cost_limit!r}, expected a number above 0")
        return Promise("limit", limit=float(cost_limit))
    policy = as_policy(reference)
    if isinstance(policy, ContinuousPolicy):
        raise InputError("reference: has continuous actions, expected finitely many")
    return Promise("reference", policy)

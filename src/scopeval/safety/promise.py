"""Whose cost the behavior policy must not exceed: the target's, another policy's, or a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from scopeval.behavior.promised_cost import PromisedCost
from scopeval.collection.episodes import Episodes
from scopeval.errors import InputError
from scopeval.policies.protocols import ContinuousPolicy, LearnedBehavior, Policy, probs_of
from scopeval.question.baseline import Baseline
from scopeval.question.promise import Promise

__all__ = ["TARGET", "Judged", "Whose", "judged_promise"]

Whose = Literal["target", "reference", "limit"]


@dataclass(frozen=True)
class Judged:
    """What the expected cost of an episode of the behavior policy is compared with.

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


TARGET = Judged()


def judged_promise(behavior: Any, stated: Promise | None, baseline: Baseline | None) -> Judged:
    """From what a user states, and what the behavior policy was designed for.

    Args:
        behavior: what is run.
        stated: the user's; None: what the behavior policy was designed for.
        baseline: what runs today, if that is known.

    Raises:
        InputError: the behavior policy was designed for the cost of another policy, which is
            missing; or a promise about every state, which episodes cannot show.
    """
    made = behavior.promised if isinstance(behavior, LearnedBehavior) else None
    found = _stated(Promise() if stated is None else stated, baseline)
    if made is None or stated is not None:
        epsilon = None if stated is None else stated.epsilon
        return _recognized(replace(found, epsilon=epsilon), behavior, made)
    if made.whose == "limit" and made.limit is not None:
        return Judged("limit", limit=made.limit, epsilon=made.epsilon)
    if found.reference is None:
        raise InputError(
            "baseline: the behavior policy was designed for the cost of another policy, expected "
            "that policy as baseline; or try promise=Promise(of='target') to judge it by the "
            "target's own cost"
        )
    return _recognized(replace(found, epsilon=made.epsilon), behavior, made)


def _stated(promise: Promise, baseline: Baseline | None) -> Judged:
    """Whose cost a promise is about."""
    if promise.limit is not None:
        if promise.per == "state":
            raise InputError(
                "promise.limit: got it for every state, which a design keeps and episodes cannot "
                "show; expected a limit of whole episodes, Promise(limit=...)"
            )
        if not promise.limit > 0:
            raise InputError(f"promise.limit: got {promise.limit!r}, expected a number above 0")
        return Judged("limit", limit=float(promise.limit))
    other = promise.of
    if other is None and baseline is not None:
        other = baseline.policy
    if other is None or other == "target":
        return Judged()
    if isinstance(other, ContinuousPolicy):
        raise InputError("baseline: has continuous actions, expected finitely many")
    return Judged("reference", other)


def _recognized(found: Judged, behavior: Any, made: PromisedCost | None) -> Judged:
    """A note where the other policy is not the one of the design."""
    if made is None or made.whose != "reference" or found.reference is None:
        return found
    if behavior.recognizes_reference(found.reference):
        return found
    return replace(
        found,
        note="the baseline is not recognized as the policy whose cost the behavior policy was "
        "designed for; the certificate judges the one that was given",
    )

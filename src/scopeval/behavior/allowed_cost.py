"""How much a design may cost when the budget is that of another policy, or a limit.

A design spends a multiple of the target's expected cost. Where the promise is about a reference
policy, or a limit per episode, that multiple follows from expected costs that are estimated from
the same logs: the critics of the design "on-policy" for either policy, at the starts of episodes.
What comes out is as good as these estimates; the certificate judges the promise itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.promised_cost import PromisedCost, promised_reference
from scopeval.errors import InputError
from scopeval.logs.transitions import Transitions
from scopeval.policies.adapters import as_policy
from scopeval.policies.protocols import ContinuousPolicy, Policy

__all__ = ["AllowedCost", "check_allowed", "expected_cost", "noted"]


@dataclass(frozen=True)
class AllowedCost:
    """What an episode of the behavior policy may cost.

    Attributes:
        epsilon: relative to the target: 1 + epsilon times its cost.
        words: how it follows from the logs.
        stated: epsilon as it was given, relative to the reference policy's cost or the limit.
        limit: the limit; None: it is a reference policy's cost.
        reference: that policy.
    """

    epsilon: float
    words: str
    stated: float
    limit: float | None
    reference: Policy | None

    def refused(self, error: InputError) -> InputError:
        """Why there is no design below the target policy's own cost."""
        return InputError(
            f"promise: {self.words}, and no such design can be made from these logs: {error}. "
            "Running the target policy would cost more than is allowed"
        )


def noted(behavior: BehaviorPolicy, allowed: AllowedCost | None) -> BehaviorPolicy:
    """The design with its promise, and a note in its summary, if there is one to make."""
    if allowed is not None:
        report, horizon = behavior.report, behavior.recipe.horizon
        promise = PromisedCost("limit", allowed.stated, allowed.limit)
        if allowed.reference is not None:
            mark = behavior.fingerprint
            promise = promised_reference(allowed.reference, allowed.stated, mark, horizon)
        notes = (*report.notes, allowed.words)
        behavior.report = replace(report, notes=notes, promise=promise)
    return behavior


def check_allowed(
    reference: Policy | None, limit: float | None, *, logged: object, target: object
) -> None:
    """Refuse settings that contradict each other."""
    if limit is not None and not limit > 0:
        raise InputError(f"promise.limit: got {limit!r}, expected a number above 0")
    if any(
        isinstance(as_policy(x), ContinuousPolicy) for x in (target, reference) if x is not None
    ):
        raise InputError(
            "promise: the cost of another policy, or a limit, needs finitely many actions; leave "
            "it out, and let evaluate(promise=Promise(limit=...)) judge the design"
        )
    if not isinstance(logged, Transitions):
        raise InputError(
            "logs: a promise about another policy's cost, or a limit, reads them several times; "
            "expected Transitions, try read_logs instead of stream_logs"
        )


def expected_cost(behavior: BehaviorPolicy, logged: Transitions) -> float:
    """The target's expected cost of an episode, by a design's critics at the logged starts."""
    starts = np.asarray(logged.obs)[np.asarray(logged.t) == 0]
    if not len(starts):
        raise InputError(
            "logged: has no step with t = 0, so that the cost of whole episodes is not known; "
            "expected a promise about the target's own cost, try Promise(of='target')"
        )
    costs = behavior.cost_to_go(starts, 0)
    pi = behavior.target.probs(starts, 0)  # type: ignore[union-attr]
    found = float((pi * costs).sum(axis=1).mean())
    if not (math.isfinite(found) and found > 0):
        raise InputError(
            f"logged: the expected cost of an episode is estimated as {found:g}; a budget relative "
            "to it needs costs above 0"
        )
    return found

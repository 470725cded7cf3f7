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

from scopeval.arrays import is_number
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.data.transitions import Transitions
from scopeval.errors import InputError

__all__ = ["AllowedCost", "check_allowed", "expected_cost", "noted"]


@dataclass(frozen=True)
class AllowedCost:
    """What an episode of the behavior policy may cost.

    Attributes:
        epsilon: relative to the target: 1 + epsilon times its cost.
        words: how it follows from the logs.
    """

    epsilon: float
    words: str


def noted(behavior: BehaviorPolicy, allowed: AllowedCost | None) -> BehaviorPolicy:
    """The design with a note in its summary, if there is one to make."""
    if allowed is not None:
        report = behavior.report
        behavior.report = replace(report, notes=(*report.notes, allowed.words))
    return behavior


def check_allowed(
    reference: object,
    cost_limit: float | None,
    *,
    epsilon: float,
    limit: float | None,
    logged: object,
) -> None:
    """Refuse settings that contradict each other."""
    if reference is not None and cost_limit is not None:
        raise InputError("reference and cost_limit: got both, expected one of them")
    if cost_limit is not None and not (is_number(cost_limit) and cost_limit > 0):
        raise InputError(f"cost_limit: got {cost_limit!r}, expected a number above 0")
    if limit is not None:
        raise InputError("limit: it is for every state; with reference or cost_limit, leave it out")
    if not (is_number(epsilon) and epsilon > -1):
        raise InputError(f"epsilon: got {epsilon!r}, expected a finite number above -1")
    if not isinstance(logged, Transitions):
        raise InputError(
            "logged: reference and cost_limit read the logs several times; expected Transitions, "
            "try read_logged instead of stream_logged"
        )


def expected_cost(behavior: BehaviorPolicy, logged: Transitions) -> float:
    """The target's expected cost of an episode, by a design's critics at the logged starts."""
    starts = np.asarray(logged.obs)[np.asarray(logged.t) == 0]
    if not len(starts):
        raise InputError(
            "logged: has no step with t = 0, so that the cost of whole episodes is not known; "
            "leave reference and cost_limit out"
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

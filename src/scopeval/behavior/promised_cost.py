"""What a design promises about its cost, where that is not the target policy's own.

A design spends a multiple of the target's expected cost. Where the promise is about a reference
policy, or a limit per episode, that multiple follows from expected costs that are estimated from
the same logs: the critics of the design "on-policy" for either policy, at the starts of episodes.
What comes out is as good as these estimates; the certificate judges the promise itself.

A reference policy is recognized like the target: by its answers at the stored observations of the
target's fingerprint, and a table also by its hash.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from scopeval.arrays import is_number
from scopeval.errors import InputError
from scopeval.logs.transitions import Transitions
from scopeval.policies.adapters import as_policy
from scopeval.policies.fingerprint import TOLERANCE, Fingerprint, table_hash, take_answers
from scopeval.policies.protocols import ContinuousPolicy, Policy

if TYPE_CHECKING:
    from scopeval.behavior.policy import BehaviorPolicy

__all__ = [
    "AllowedCost",
    "PromisedCost",
    "check_allowed",
    "check_promised",
    "expected_cost",
    "noted",
    "promised_reference",
]

#: Most numbers of a reference policy's answers that are kept.
MOST_ANSWERS = 4096


@dataclass(frozen=True)
class PromisedCost:
    """An episode costs at most 1 + epsilon times a reference policy's, or times a limit.

    Attributes:
        whose: "reference" or "limit".
        epsilon: relative to that cost.
        limit: expected cost of an episode ("limit" only).
        answers: of the reference policy, at the observations of the target's fingerprint; None:
            not kept.
        table: hash of the reference policy's table, if it is one.
    """

    whose: str
    epsilon: float
    limit: float | None = None
    answers: tuple[tuple[float, ...], ...] | None = None
    table: str | None = None

    def recognizes(self, reference: Policy, mark: Fingerprint | None, horizon: int) -> bool | None:
        """Whether this is the reference policy of the design; None: it cannot be told.

        Args:
            reference: the policy in question.
            mark: the fingerprint of the design's target, whose observations are asked about.
            horizon: T.
        """
        if self.table is not None:
            return self.table == table_hash(reference, horizon)
        if self.answers is None or mark is None:
            return None
        try:
            found = take_answers(reference, mark.obs, mark.t)
        except Exception:  # it cannot even be asked: another policy
            return False
        kept = np.array(self.answers, np.float64)
        return found.shape == kept.shape and bool(np.abs(found - kept).max() <= TOLERANCE)


def promised_reference(
    reference: Policy, epsilon: float, mark: Fingerprint | None, horizon: int
) -> PromisedCost:
    """The promise about a reference policy's cost, with what recognizes that policy."""
    answers: tuple[tuple[float, ...], ...] | None = None
    if mark is not None:
        found = take_answers(reference, mark.obs, mark.t)
        if found.size <= MOST_ANSWERS and np.isfinite(found).all():
            answers = tuple(tuple(float(x) for x in row) for row in found)
    table = table_hash(reference, horizon)
    return PromisedCost("reference", epsilon, None, answers, table)


def check_promised(promised: PromisedCost) -> None:
    """Refuse a promise from a file that `design` would never make.

    Raises:
        ValueError: names the field.
    """
    limit, answers = promised.limit, promised.answers
    numbers = () if answers is None else tuple(x for row in answers for x in row)
    for name, holds in (
        ("whose", promised.whose in ("reference", "limit")),
        ("epsilon", is_number(promised.epsilon) and promised.epsilon > -1.0),
        ("limit", (limit is not None) == (promised.whose == "limit")),
        ("limit", limit is None or (is_number(limit) and limit > 0)),
        ("answers", len(numbers) <= MOST_ANSWERS and all(math.isfinite(x) for x in numbers)),
        ("answers", answers is None or len({len(row) for row in answers}) == 1),
    ):
        if not holds:
            raise ValueError(f"promise: {name} is out of range")


# -- what that allows, relative to the target policy's own cost ------------------------------------


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


def noted(behavior: BehaviorPolicy, allowed: AllowedCost) -> BehaviorPolicy:
    """The design with its promise, and a note in its summary."""
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

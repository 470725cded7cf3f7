"""What a design promises about its cost, where that is not the target policy's own.

A reference policy is recognized like the target: by its answers at the stored observations of the
target's fingerprint, and a table also by its hash.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scopeval.arrays import is_number
from scopeval.policies.fingerprint import TOLERANCE, Fingerprint, table_hash, take_answers
from scopeval.policies.protocols import Policy

__all__ = ["PromisedCost", "check_promised", "promised_reference"]

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

    def recognizes(
        self, reference: Policy, fingerprint: Fingerprint | None, horizon: int
    ) -> bool | None:
        """Whether this is the reference policy of the design; None: it cannot be told.

        Args:
            reference: the policy in question.
            fingerprint: the fingerprint of the design's target, whose observations are asked about.
            horizon: T.
        """
        if self.table is not None:
            return self.table == table_hash(reference, horizon)
        if self.answers is None or fingerprint is None:
            return None
        try:
            answers = take_answers(reference, fingerprint.obs, fingerprint.t)
        except Exception:  # it cannot even be asked: another policy
            return False
        kept = np.array(self.answers, np.float64)
        return answers.shape == kept.shape and bool(np.abs(answers - kept).max() <= TOLERANCE)


def promised_reference(
    reference: Policy, epsilon: float, fingerprint: Fingerprint | None, horizon: int
) -> PromisedCost:
    """The promise about a reference policy's cost, with what recognizes that policy."""
    answers: tuple[tuple[float, ...], ...] | None = None
    if fingerprint is not None:
        given = take_answers(reference, fingerprint.obs, fingerprint.t)
        if given.size <= MOST_ANSWERS and np.isfinite(given).all():
            answers = tuple(tuple(float(x) for x in row) for row in given)
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

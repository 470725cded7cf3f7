"""What the behavior policy would have done while an incumbent ran."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from scopeval.campaign import schema

__all__ = ["ShadowReport", "shadow_report"]


@dataclass(frozen=True)
class ShadowReport:
    """A summary of all decisions in shadow episodes.

    Attributes:
        decisions: how many.
        distance: mean share of decisions that the behavior policy changes against the target
            policy (total variation).
        agreement: mean probability of the incumbent's action under the behavior policy; None:
            continuous actions.
        target_agreement: the same under the target policy.
        fallbacks: decisions in which the behavior policy fell back, by reason.
    """

    decisions: int
    distance: float | None
    agreement: float | None
    target_agreement: float | None
    fallbacks: Mapping[str, int] = field(default_factory=dict)


def shadow_report(connection: sa.Connection) -> ShadowReport:
    """The summary of what is in the journal."""
    table = schema.steps
    texts = connection.execute(sa.select(table.c.would).where(table.c.would.is_not(None)))
    rows = [json.loads(text) for (text,) in texts]

    def mean(name: str) -> float | None:
        known = [row[name] for row in rows if row[name] is not None]
        return sum(known) / len(known) if known else None

    reasons = Counter(row["fallback"] for row in rows if row["fallback"] is not None)
    return ShadowReport(
        decisions=len(rows),
        distance=mean("distance"),
        agreement=mean("probability"),
        target_agreement=mean("target_probability"),
        fallbacks=dict(reasons),
    )

"""Draws every decision of a campaign again, and compares it with the journal.

The random numbers of a decision are a function of the campaign's seed, its episode and its step. So
the journal, the target and the designs determine what must have been decided.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval.campaign import schema
from scopeval.campaign.designs import Designs
from scopeval.campaign.journal import decode
from scopeval.campaign.terms import Terms
from scopeval.collection.counter_streams import CounterStreams

__all__ = ["Verification", "verify_decisions"]

#: How far probabilities may be off, for networks round differently from machine to machine.
SLACK = 1e-6
#: Most differences that are named.
NAMED = 20


@dataclass(frozen=True)
class Verification:
    """What the comparison found.

    Attributes:
        decisions: that were drawn again.
        different: how many of them are not as the journal says.
        holes: steps that are missing in the middle of an episode.
        first: the first differences, in words.
    """

    decisions: int
    different: int
    holes: int
    first: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether nothing is different and nothing is missing."""
        return not self.different and not self.holes


def verify_decisions(connection: sa.Connection, terms: Terms, designs: Designs) -> Verification:
    """Draw all decisions again, episode by episode."""
    table, steps = schema.episodes, schema.steps
    streams = CounterStreams(terms.seed)
    decisions = different = holes = 0
    first: list[str] = []
    shown = (table.c.number, table.c.design, table.c.share)
    chosen = sa.select(*shown).where(table.c.shadow.is_(False)).order_by(table.c.number)
    for episode in connection.execute(chosen).all():
        decider = designs.decider(episode.design)
        weight = 1.0
        rows = connection.execute(
            sa.select(steps).where(steps.c.episode == episode.number).order_by(steps.c.step)
        ).all()
        for expected, row in enumerate(rows):
            holes += row.step != expected
            found = decider.choose(
                decode(row.obs),
                row.step,
                streams.now_at(episode.number, row.step),
                weight=weight,
                share=episode.share,
                chooser="behavior" if row.chooser.startswith("fallback:") else row.chooser,
            )
            weight *= row.target_probability / row.probability
            decisions += 1
            said = _difference(found.action, found.probability, found.target_probability, row)
            if said is not None:
                different += 1
                first.append(f"episode {episode.number}, step {row.step}: {said}")
    return Verification(decisions, different, holes, tuple(first[:NAMED]))


def _difference(action: Any, mu: float, pi: float, row: sa.Row[Any]) -> str | None:
    kept = np.asarray(json.loads(row.action))
    if np.shape(action) != kept.shape or np.abs(action - kept).max() > SLACK:
        return f"the action is {row.action:.60}, drawn again it is {action!r:.60}"
    off = max(abs(mu - row.probability), abs(pi - row.target_probability))
    return None if off <= SLACK else f"its probabilities are off by {off:.2g}"

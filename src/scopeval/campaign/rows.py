"""Rows of the journal as episodes, and the numbers of one finished episode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval.campaign import schema
from scopeval.campaign.journal import decode
from scopeval.collection.episodes import EpisodeRecord, Episodes, LostEpisode, discounts
from scopeval.evaluation.sources import Batch, summarize
from scopeval.safety.episode_costs import EpisodeCosts

__all__ = [
    "batch_of",
    "numbers_of",
    "read_episodes",
    "read_lost",
    "read_numbers",
    "record_of",
    "signals_of",
]

#: The numbers of a finished episode that an evaluation is made of.
NUMBERS = ("value", "returned", "weight", "spent", "target_spent")


def record_of(number: int, by_target: bool, rows: Sequence[sa.Row[Any]]) -> EpisodeRecord:
    """A recorded episode from its observed steps, in order."""
    choosers = [row.chooser for row in rows]
    return EpisodeRecord(
        index=number,
        obs=[decode(row.obs) for row in rows] + [decode(row.next_obs) for row in rows[-1:]],
        action=[decode(row.action) for row in rows],
        reward=[row.reward for row in rows],
        cost=[row.cost for row in rows],
        probs=[(row.probability, row.target_probability) for row in rows],
        controls=[(row.control, row.baseline) for row in rows],
        terminated=bool(rows and rows[-1].terminated),
        by_target=by_target,
        fallbacks=sum(chooser == "fallback:failed" for chooser in choosers),
        guarded=sum(chooser == "guard" for chooser in choosers),
    )


def signals_of(rows: Sequence[sa.Row[Any]], gamma: float) -> dict[str, list[float]]:
    """Of every signal three sums over the episode: plain, discounted, and weighted.

    The weighted one has the mean of the target policy's discounted one.
    """
    readings = [json.loads(row.signals) if row.signals else {} for row in rows]
    ratios = np.array([row.target_probability / row.probability for row in rows])
    factors = discounts(gamma, len(rows)) if rows else np.empty(0)
    weights = np.cumprod(ratios) * factors
    found = {}
    for name in sorted({name for reading in readings for name in reading}):
        x = np.array([reading.get(name, 0.0) for reading in readings])
        found[name] = [float(x.sum()), float(x @ factors), float(x @ weights)]
    return found


def numbers_of(
    number: int, by_target: bool, rows: Sequence[sa.Row[Any]], horizon: int, gamma: float
) -> dict[str, Any]:
    """The numbers of a finished episode, ready for JSON."""
    record = record_of(number, by_target, rows)
    episode = Episodes.of_records([record], horizon, controlled=True)
    batch = summarize(episode, gamma, "mc" if by_target and not _controlled(rows) else "dr")
    found: dict[str, Any] = {
        "value": float(batch.value[0]),
        "returned": float(batch.returned[0]),
        "weight": float(batch.weight[0]),
        **{name: float(column[0]) for name, column in batch.costs.columns().items()},
        "spent": float(batch.spent[0]),
        "target_spent": float(batch.target_spent[0]),
    }
    choosers = [row.chooser for row in rows]
    reasons = [c.removeprefix("fallback:") for c in choosers if c.startswith("fallback:")]
    return found | {
        "by_target": by_target,
        "controlled": _controlled(rows),
        "length": len(rows),
        "asked": sum(c == "behavior" or c.startswith("fallback:") for c in choosers),
        "fallbacks": {reason: reasons.count(reason) for reason in sorted(set(reasons))},
        "guarded": record.guarded,
        "signals": signals_of(rows, gamma),
    }


def _controlled(rows: Sequence[sa.Row[Any]]) -> bool:
    return any(row.control or row.baseline for row in rows)


def batch_of(numbers: Sequence[dict[str, Any]], lost: Sequence[LostEpisode]) -> Batch:
    """The numbers of finished episodes, as an evaluation takes them in."""
    columns = {name: np.array([one[name] for one in numbers], np.float64) for name in NUMBERS}
    return Batch(
        value=columns["value"],
        returned=columns["returned"],
        weight=columns["weight"],
        costs=EpisodeCosts.of_columns(numbers),
        spent=columns["spent"],
        target_spent=columns["target_spent"],
        by_target=np.array([one["by_target"] for one in numbers], np.bool_),
        controlled=any(one["controlled"] for one in numbers),
        fallbacks=sum(one["fallbacks"].get("failed", 0) for one in numbers),
        guarded=sum(one["guarded"] for one in numbers),
        steps=sum(one["length"] for one in numbers),
        lost=tuple(lost),
    )


def read_lost(connection: sa.Connection) -> list[LostEpisode]:
    """Lost and dropped episodes, in the order of their numbers."""
    table = schema.episodes
    rows = connection.execute(
        sa.select(table)
        .where(table.c.state.in_(("lost", "dropped")), table.c.shadow.is_(False))
        .order_by(table.c.number)
    )
    return [LostEpisode(r.number, r.length, r.reason or "no reason given", r.spent) for r in rows]


def read_numbers(connection: sa.Connection) -> list[dict[str, Any]]:
    """The numbers of all finished episodes, with and in the order of the episodes' numbers."""
    table = schema.episodes
    rows = connection.execute(
        sa.select(table.c.number, table.c.numbers)
        .where(table.c.state == "finished", table.c.shadow.is_(False))
        .order_by(table.c.number)
    )
    return [{"number": number, **json.loads(text)} for number, text in rows]


def read_episodes(
    connection: sa.Connection, horizon: int, *, shadow: bool = False, plant: str | None = None
) -> Episodes:
    """All finished episodes, in the order of their numbers; lost ones are listed with them."""
    table = schema.episodes
    chosen = sa.and_(table.c.state == "finished", table.c.shadow.is_(shadow))
    if plant is not None:
        chosen = sa.and_(chosen, table.c.plant == plant)
    rows = connection.execute(sa.select(table.c.number, table.c.by_target).where(chosen))
    whose = {row.number: row.by_target for row in rows}
    query = (
        sa.select(schema.steps)
        .join(table, table.c.number == schema.steps.c.episode)
        .where(chosen, schema.steps.c.reward.is_not(None))
        .order_by(schema.steps.c.episode, schema.steps.c.step)
    )
    grouped: dict[int, list[sa.Row[Any]]] = {number: [] for number in sorted(whose)}
    for row in connection.execute(query):
        grouped[row.episode].append(row)
    records = [record_of(number, whose[number], some) for number, some in grouped.items()]
    controlled = any(np.any(record.controls) for record in records)
    found = Episodes.of_records(records, horizon, controlled=controlled)
    return found if plant is not None else replace(found, lost=tuple(read_lost(connection)))

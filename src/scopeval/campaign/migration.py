"""Journals of older formats are brought to today's, in one transaction, when they are opened."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from scopeval.campaign import schema
from scopeval.campaign.audit import terms_digest
from scopeval.campaign.store import START, Event, Store, chained, reading_row
from scopeval.errors import DataError

__all__ = ["migrate"]


def migrate(store: Store, clock: Callable[[], float]) -> None:
    """Bring the tables to `schema.FORMAT`; nothing is changed where they have it.

    Raises:
        DataError: a newer format, or none that is known.
    """
    with store.read() as connection:
        kind = store.fact(connection, "format")
    if kind == schema.FORMAT:
        return
    newer = isinstance(kind, int) and kind > schema.FORMAT
    if newer or kind not in _STEPS:
        remedy = "try a newer scopeval" if newer else "it is damaged, or was never released"
        raise DataError(
            f"{store.name}: written in format {kind!r:.60}, expected {schema.FORMAT} or "
            f"{', '.join(map(str, _STEPS))}; {remedy}"
        )
    with store.transaction() as connection:
        store.order(connection)
        now = store.fact(connection, "format")  # another process may have been faster
        while now != schema.FORMAT:
            _STEPS[now](store, connection, clock())
            now += 1
            facts = schema.facts
            connection.execute(
                facts.update().where(facts.c.name == "format").values(value=str(now))
            )


def _from_1(store: Store, connection: sa.Connection, now: float) -> None:
    """Format 2 has hashes of events, states of decisions, leases, and tokens that expire."""
    _rebuild_tokens(connection)  # its names were unique
    there = set(sa.inspect(connection).get_table_names())
    schema.tables.create_all(connection)
    for table in schema.tables.sorted_tables:
        if table.name in there:
            schema.add_columns(connection, table)
    _rewrite_terms(store, connection)
    events, before, number = schema.events, START, 0
    for row in connection.execute(sa.select(events).order_by(events.c.number)).all():
        before, number = chained(before, dict(row._mapping)), row.number
        chosen = events.update().where(events.c.number == number)
        connection.execute(chosen.values(hash=before))
    text = connection.execute(
        sa.select(schema.facts.c.value).where(schema.facts.c.name == "terms")
    ).scalar_one()
    designs = connection.execute(
        sa.select(schema.designs.c.number, schema.designs.c.fingerprint)
    ).all()
    data: dict[str, Any] = {"terms": terms_digest(text)}
    data["designs"] = {str(row.number): row.fingerprint for row in designs}
    event = Event("migrated", "the journal was brought from format 1 to 2", data=data)
    store.add_event(connection, event, number + 1, now, before)


def _rewrite_terms(store: Store, connection: sa.Connection) -> None:
    """Settings of stages had other names."""
    terms = store.fact(connection, "terms")
    refit = terms.get("refit")
    if refit is None or "learn" in refit:
        return
    with reading_row(store.name, "facts", "terms"):
        learn: dict[str, Any] | None = None
        tables = {"features": refit.pop("features"), "time_varying": refit.pop("time_varying")}
        regression = refit.pop("regression")
        if regression == "model":
            learn = {"kind": "Networks"}
        elif regression == "table" or any(tables.values()):
            learn = {"kind": "Table"} | tables
        check = {"floor": refit.pop("floor"), "least_gain": refit.pop("least_gain")}
        refit |= {"learn": learn, "check": {k: v for k, v in check.items() if v is not None}}
        refit |= {"per": refit.pop("budget"), "promise_of": refit.pop("promise")}
    facts = schema.facts
    chosen = facts.update().where(facts.c.name == "terms")
    connection.execute(chosen.values(value=json.dumps(terms)))


def _rebuild_tokens(connection: sa.Connection) -> None:
    """Names of tokens may be used again after a revocation."""
    name = schema.tokens.name
    if not sa.inspect(connection).has_table(name):
        return
    connection.exec_driver_sql(f"ALTER TABLE {name} RENAME TO {name}_1")
    schema.tokens.create(connection)
    columns = "key, name, role, plants, hash, made, revoked"
    connection.exec_driver_sql(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {name}_1")
    connection.exec_driver_sql(f"DROP TABLE {name}_1")


_STEPS: dict[Any, Callable[[Store, sa.Connection, float], None]] = {1: _from_1}

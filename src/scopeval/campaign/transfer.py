"""A whole campaign as one file, to keep it or to move it to another database.

The file is gzipped JSON, one row a line: first a header, then the rows of every table, last a line
with their number and a checksum. It is written whole or not at all, and read row by row. Journals
of older formats are brought to today's, in one transaction, when they are opened (`migrate`).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from scopeval._files import check_place, now, replace_file
from scopeval.arrays import is_number
from scopeval.campaign import schema
from scopeval.campaign.audit import terms_digest
from scopeval.campaign.store import START, Event, Store, chained, reading_row
from scopeval.errors import DataError, InputError

__all__ = ["backup_campaign", "export_campaign", "import_campaign", "migrate", "prune_campaign"]

KIND = "scopeval campaign"
#: In an order in which rows refer to earlier ones only.
TABLES = (
    schema.facts, schema.designs, schema.logs, schema.plants, schema.episodes, schema.steps,
    schema.events, schema.tokens, schema.audit, schema.deliveries,
)  # fmt: skip
#: Longest line that is read, and rows that are written together.
LONGEST, TOGETHER = 1 << 30, 500


def backup_campaign(store: Store, path: str | os.PathLike[str]) -> Path:
    """A copy of a campaign while it runs: a SQLite file of its own, which can be opened.

    In PostgreSQL it is an export.

    Raises:
        DataError: the file is there, or cannot be written.
    """
    goal = check_place(path)
    if store.engine.dialect.name != "sqlite":
        return export_campaign(store, path)
    if os.path.exists(goal):
        raise DataError(f"{goal}: is there already; expected a new file")
    try:
        os.close(os.open(goal, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with sqlite3.connect(goal) as copy, store.engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.backup(copy)
        copy.close()
    except (OSError, sqlite3.Error) as error:
        raise DataError(f"{goal}: cannot be written ({error})") from error
    return goal


def export_campaign(store: Store, path: str | os.PathLike[str]) -> Path:
    """Write all rows of a campaign to a file.

    Raises:
        DataError: the file cannot be written.
    """
    goal = check_place(path)

    def write(file: IO[bytes]) -> None:
        seen, rows = hashlib.sha256(), 0
        with (
            gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed,
            store.read() as connection,
        ):
            head = {"kind": KIND, "format": schema.FORMAT, "written": now()}
            packed.write(json.dumps(head).encode() + b"\n")
            for table in TABLES:
                order = sa.select(table).order_by(*table.primary_key.columns)
                for row in connection.execution_options(yield_per=TOGETHER).execute(order):
                    values = {name: _plain(value) for name, value in row._mapping.items()}
                    line = json.dumps([table.name, values]).encode() + b"\n"
                    seen.update(line)
                    packed.write(line)
                    rows += 1
            end = {"rows": rows, "sha256": seen.hexdigest()}
            packed.write(json.dumps(end).encode() + b"\n")

    return replace_file(goal, write)


def prune_campaign(store: Store, days: float, clock: Callable[[], float]) -> dict[str, int]:
    """Delete what no result and no audit of decisions needs: refused calls, and dead tokens.

    Episodes, steps, events, and what operators did stay: they are the evidence. That something was
    deleted is written into the audit log.

    Args:
        store: of the campaign.
        days: what is older goes.
        clock: seconds since 1970.

    Returns:
        How many rows of each.
    """
    if not (is_number(days) and days > 0):
        raise InputError(f"days: got {days!r}, expected a number above 0")
    now = clock()
    before, audit, tokens = now - 86_400.0 * days, schema.audit, schema.tokens
    with store.transaction() as connection:
        refused = audit.delete().where(audit.c.outcome.like("refused%"), audit.c.time < before)
        dead = tokens.delete().where(sa.or_(tokens.c.revoked < before, tokens.c.expires < before))
        counts = {
            "refused calls": connection.execute(refused).rowcount,
            "dead tokens": connection.execute(dead).rowcount,
        }
        said = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        row = {"time": now, "who": "this machine", "role": "", "address": "", "verb": "prune"}
        reason = f"{said} older than {days:g} days"
        connection.execute(audit.insert().values(**row, reason=reason, outcome="done"))
    return counts


def import_campaign(path: str | os.PathLike[str], where: str | os.PathLike[str]) -> None:
    """Write a file of `export_campaign` to a new database; all of it or nothing.

    Raises:
        DataError: not such a file, or damaged; or the database holds a campaign already.
    """
    if not os.path.isfile(path):
        raise DataError(f"{path}: no such file")
    store = Store(where, create=True)
    try:
        with store.transaction() as connection:
            store.order(connection)
            store.create_tables(connection)
            if store.fact(connection, "format") is not None:
                raise DataError(f"{store.name}: holds a campaign already; choose another place")
            for table, rows in _grouped(path):
                connection.execute(table.insert(), rows)
    except (sa.exc.StatementError, DBAPIError) as error:
        raise DataError(f"{path}: a row that does not fit the tables ({error.orig})") from error
    finally:
        store.close()


def _grouped(path: str | os.PathLike[str]) -> Iterator[tuple[sa.Table, list[dict[str, Any]]]]:
    """Rows of one table, some at a time."""
    waiting: list[dict[str, Any]] = []
    current: sa.Table | None = None
    for table, row in _rows(path):
        if current is not None and (table is not current or len(waiting) >= TOGETHER):
            yield current, waiting
            waiting = []
        current = table
        waiting.append(row)
    if current is not None:
        yield current, waiting


def _rows(path: str | os.PathLike[str]) -> Iterator[tuple[sa.Table, dict[str, Any]]]:
    """The checked rows of a file."""
    tables = {table.name: table for table in TABLES}
    seen, count, ended = hashlib.sha256(), 0, False
    try:
        with gzip.open(path, "rb") as file:
            head = json.loads(file.readline(LONGEST))
            if head["kind"] != KIND or head["format"] != schema.FORMAT:
                raise ValueError(f"kind {head['kind']!r:.40}, format {head['format']!r:.40}")
            while line := file.readline(LONGEST):
                content = json.loads(line)
                if isinstance(content, dict):
                    if content != {"rows": count, "sha256": seen.hexdigest()}:
                        raise ValueError("the checksum does not fit")
                    ended = True
                    break
                name, values = content
                if set(values) != set(tables[name].c.keys()):
                    raise ValueError(f"columns of the table {name!r}")
                seen.update(line)
                count += 1
                yield tables[name], _row(tables[name], values)
        if not ended:
            raise ValueError("it ends too early")
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{path}: not a campaign that scopeval exported, or damaged ({error}); expected a file "
            "of scopeval campaign export"
        ) from error


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _row(table: sa.Table, values: dict[str, Any]) -> dict[str, Any]:
    """A row in the types of its columns."""
    row = dict(values)
    for column in table.c:
        value = row[column.name]
        if value is None:
            continue
        kind = column.type.python_type
        if kind is bytes:
            row[column.name] = base64.b64decode(value, validate=True)
        elif kind is float and isinstance(value, int) and not isinstance(value, bool):
            row[column.name] = float(value)
        elif type(value) is not kind:
            raise ValueError(f"{table.name}.{column.name} holds {value!r:.40}")
    return row


# -- journals of older formats ---------------------------------------------------------------------


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

"""A whole campaign as one file, to keep it or to move it to another database.

The file is gzipped JSON, one row a line: first a header, then the rows of every table, last a line
with their number and a checksum. It is written whole or not at all, and read row by row. Journals
of older formats are brought to today's, in one transaction, when they are opened (`migrate`).
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import io
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from scopeval import __version__
from scopeval._archive import open_archive, pack, reading
from scopeval._files import check_place, now, replace_file, versions
from scopeval.arrays import is_number
from scopeval.campaign.store import (
    AUDIT,
    DELIVERIES,
    DESIGNS,
    EPISODES,
    EVENTS,
    FACTS,
    FORMAT,
    LOGS,
    METADATA,
    PLANTS,
    START,
    STEPS,
    TOKENS,
    Event,
    Store,
    chained,
    reading_row,
)
from scopeval.campaign.terms import terms_digest
from scopeval.comparison.mixture import Failure, MixtureEpisodes
from scopeval.context.history import History
from scopeval.errors import DataError, InputError
from scopeval.logs.transitions import Transitions

__all__ = [
    "backup_campaign",
    "bytes_of_episodes",
    "bytes_of_logs",
    "check_history",
    "episodes_of_bytes",
    "export_campaign",
    "import_campaign",
    "keep_history",
    "keep_logs",
    "kept_history",
    "kept_logs",
    "logs_of_bytes",
    "migrate",
    "packed",
    "prune_campaign",
    "unpacked",
]

KIND = "scopeval campaign"
#: Formats whose files are imported; what differs in them is brought up at opening.
SAME_TABLES = (2, FORMAT)
#: In an order in which rows refer to earlier ones only.
TABLES = (
    FACTS, DESIGNS, LOGS, PLANTS, EPISODES, STEPS,
    EVENTS, TOKENS, AUDIT, DELIVERIES,
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
            head = {"kind": KIND, "format": FORMAT, "written": now()}
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
    before = now - 86400.0 * days
    with store.transaction() as connection:
        refused = AUDIT.delete().where(AUDIT.c.outcome.like("refused%"), AUDIT.c.time < before)
        dead = TOKENS.delete().where(sa.or_(TOKENS.c.revoked < before, TOKENS.c.expires < before))
        counts = {
            "refused calls": connection.execute(refused).rowcount,
            "dead tokens": connection.execute(dead).rowcount,
        }
        said = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        row = {"time": now, "who": "this machine", "role": "", "address": "", "verb": "prune"}
        reason = f"{said} older than {days:g} days"
        connection.execute(AUDIT.insert().values(**row, reason=reason, outcome="done"))
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
            if head["kind"] != KIND or head["format"] not in SAME_TABLES:
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
    """Bring the tables to `FORMAT`; nothing is changed where they have it.

    Raises:
        DataError: a newer format, or none that is known.
    """
    with store.read() as connection:
        kind, wrote = store.fact(connection, "format"), store.fact(connection, "versions")
    if kind == FORMAT:
        return
    expected = f"scopeval {__version__} reads formats 1 to {FORMAT}"
    if isinstance(kind, int) and kind > FORMAT:
        needed = wrote.get("scopeval", "?") if isinstance(wrote, dict) else "?"
        raise DataError(
            f"{store.name}: written in format {kind} by scopeval {needed:.40}, and {expected}; try "
            f"scopeval {needed:.40} or a newer one"
        )
    if kind not in _STEPS:
        raise DataError(
            f"{store.name}: written in format {kind!r:.60}, and {expected}; it is damaged, or was "
            "never released"
        )
    with store.transaction() as connection:
        store.order(connection)
        now = store.fact(connection, "format")  # another process may have been faster
        while now != FORMAT:
            _STEPS[now](store, connection, clock())
            now += 1
        store.change_fact(connection, "format", now)
        store.change_fact(connection, "versions", versions("numpy", "sqlalchemy"))


def _from_1(store: Store, connection: sa.Connection, now: float) -> None:
    """Format 2 has hashes of events, states of decisions, leases, and tokens that expire."""
    _rebuild_tokens(connection)  # its names were unique
    there = set(sa.inspect(connection).get_table_names())
    METADATA.create_all(connection)
    for table in METADATA.sorted_tables:
        if table.name in there:
            add_columns(connection, table)
    _rewrite_terms(store, connection)
    before, number = START, 0
    for row in connection.execute(sa.select(EVENTS).order_by(EVENTS.c.number)).all():
        before, number = chained(before, dict(row._mapping)), row.number
        chosen = EVENTS.update().where(EVENTS.c.number == number)
        connection.execute(chosen.values(hash=before))
    text = connection.execute(sa.select(FACTS.c.value).where(FACTS.c.name == "terms")).scalar_one()
    designs = connection.execute(sa.select(DESIGNS.c.number, DESIGNS.c.fingerprint)).all()
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
    store.change_fact(connection, "terms", terms)


def _rebuild_tokens(connection: sa.Connection) -> None:
    """Names of tokens may be used again after a revocation."""
    name = TOKENS.name
    if not sa.inspect(connection).has_table(name):
        return
    connection.exec_driver_sql(f"ALTER TABLE {name} RENAME TO {name}_1")
    TOKENS.create(connection)
    columns = "key, name, role, plants, hash, made, revoked"
    connection.exec_driver_sql(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {name}_1")
    connection.exec_driver_sql(f"DROP TABLE {name}_1")


def _from_2(store: Store, connection: sa.Connection, now: float) -> None:
    """Format 3 says in the terms which interval is reported; where they do not, it is as it was."""


_STEPS: dict[Any, Callable[[Store, sa.Connection, float], None]] = {1: _from_1, 2: _from_2}


# -- logs, histories and episodes as bytes ---------------------------------------------------------


def packed(columns: Mapping[str, Any]) -> bytes:
    """Arrays by name, compressed."""
    buffer = io.BytesIO()
    pack(buffer, columns)
    return buffer.getvalue()


@contextlib.contextmanager
def unpacked(name: str, what: str, content: bytes, names: Sequence[str]) -> Iterator[Any]:
    """What `packed` was given, for the block that makes something of it.

    Raises:
        DataError: other bytes, or bytes that would unpack to far more than they are; or the block
            can make nothing of them.
    """
    with (
        reading(name, what),
        open_archive(name, io.BytesIO(content), len(content), names=names) as archive,
    ):
        yield {one: archive.read(one) for one in archive.headers}


_COLUMNS = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated", "has_next")


def bytes_of_logs(logs: Transitions) -> bytes:
    """The columns, compressed."""
    return packed(logs.stored_columns())


def keep_logs(connection: sa.Connection, logs: Transitions) -> None:
    """Keep the logs that a campaign begins with, for later designs and looks."""
    connection.execute(LOGS.insert(), {"name": _FIRST, "content": bytes_of_logs(logs)})


def kept_logs(connection: sa.Connection) -> Transitions | None:
    """What `keep_logs` wrote; None: the campaign has none."""
    chosen = sa.select(LOGS.c.content).where(LOGS.c.name == _FIRST)
    content = connection.execute(chosen).scalar()
    return None if content is None else logs_of_bytes(content)


def logs_of_bytes(content: bytes) -> Transitions:
    """What `bytes_of_logs` made."""
    with unpacked("logs", "the columns of Transitions", content, _COLUMNS) as columns:
        pass
    return Transitions(**columns)


# -- the history of exogenous inputs ---------------------------------------------------------------


#: Names of the logs that a campaign began with, and of the history beside them.
_FIRST, _CONTEXT = "first", "context"
_OF_HISTORY = ("paths", "names", "numbers", "about")


def check_history(context: History | None, *, bounded: bool) -> History | None:
    """See that a database can hold it.

    Raises:
        InputError: another kind, or one with functions.
    """
    if context is None:
        return None
    if not isinstance(context, History):
        raise InputError(
            f"context: got {type(context).__name__}, expected a History, such as "
            'History(paths, "demand")'
        )
    if bounded:
        raise InputError(
            "context: got return_bound too, whose interval is from bets on plain returns and has "
            "no control variate; leave one of them out"
        )
    if callable(context.columns) or context.features is not None:
        raise InputError(
            "context: got a function of yours, which no database can hold; expected "
            "History(paths, names or numbers of columns)"
        )
    if context.source is not None or context.chance is not None:
        raise InputError(
            "context: got starts that a simulator makes; expected History.starts(observations)"
        )
    return context


def keep_history(connection: sa.Connection, history: History) -> None:
    """Write it."""
    numbers = () if history.signals or history.columns is None else history.columns
    columns = {
        "paths": history.paths,
        "names": np.array(history.signals, np.str_),
        "numbers": np.atleast_1d(np.asarray(numbers, np.int64)),
        "about": np.array([json.dumps({"law": history.law, "block": history.block})]),
    }
    connection.execute(LOGS.insert(), {"name": _CONTEXT, "content": packed(columns)})


def kept_history(connection: sa.Connection) -> History | None:
    """What `keep_history` wrote; None: the campaign has none."""
    content = connection.execute(sa.select(LOGS.c.content).where(LOGS.c.name == _CONTEXT)).scalar()
    if content is None:
        return None
    with unpacked(_CONTEXT, "the history of a campaign", content, _OF_HISTORY) as columns:
        paths, names, numbers, about = (columns[name] for name in _OF_HISTORY)
        kept = json.loads(str(about[0]))
        chosen: Any = [str(x) for x in names] or [int(x) for x in numbers] or None
        return History(paths, chosen, law=kept["law"], block=kept["block"])


_EPISODE_COLUMNS = (
    "obs", "action", "reward", "cost", "weights", "shares", "length", "last_obs", "terminated",
    "index", "failed", "back",
)  # fmt: skip


def bytes_of_episodes(episodes: MixtureEpisodes) -> bytes:
    """The columns, compressed."""
    return packed({name: np.asarray(getattr(episodes, name)) for name in _EPISODE_COLUMNS})


def episodes_of_bytes(content: bytes) -> MixtureEpisodes:
    """What `bytes_of_episodes` made; without what was lost, and reasons of failures."""
    what = "the episodes of a campaign over several policies"
    with unpacked("episodes", what, content, _EPISODE_COLUMNS) as columns:
        rows = {len(columns[name]) for name in _EPISODE_COLUMNS}
        if len(rows) != 1 or columns["weights"].ndim != 3 or columns["reward"].ndim != 2:
            raise ValueError(f"columns of {sorted(rows)} rows")
    failed = np.flatnonzero(columns["failed"].any(axis=0))
    failures = tuple(Failure(int(k), -1, 0, "no answer") for k in failed)
    return MixtureEpisodes(**columns, failures=failures)


def add_columns(connection: sa.Connection, table: sa.Table) -> None:
    """Add the columns that an older table lacks; they may be empty there."""
    there = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
    for column in table.c:
        if column.name in there:
            continue
        kind = column.type.compile(connection.dialect)
        default = "" if column.nullable else " NOT NULL DEFAULT " + (
            "0" if column.server_default is not None else "''"
        )  # fmt: skip
        connection.exec_driver_sql(
            f"ALTER TABLE {table.name} ADD COLUMN {column.name} {kind}{default}"
        )

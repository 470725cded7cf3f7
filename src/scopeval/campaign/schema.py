"""The tables of a campaign, the same in SQLite and PostgreSQL, and how a database is opened.

One database holds one campaign: a SQLite file, or a PostgreSQL database. What was
decided and observed is never changed afterwards; what happened is in `events`, in order, each with
a hash of all before it.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

from scopeval.errors import DataError, InputError, MissingExtraError

try:
    import sqlalchemy as sa
except ImportError as missing:
    raise MissingExtraError("sqlalchemy", "campaign", "A campaign") from missing

__all__ = [
    "FORMAT",
    "PATIENCE",
    "add_columns",
    "audit",
    "deliveries",
    "designs",
    "episodes",
    "events",
    "facts",
    "logs",
    "open_engine",
    "plants",
    "steps",
    "tables",
    "tokens",
]

#: Version of these tables; `migration` brings older ones here.
FORMAT = 2

#: How long a call waits for another process's transaction, in seconds.
PATIENCE = 5.0

tables = sa.MetaData()

#: Settings and other facts that hold for the whole campaign, as JSON.
facts = sa.Table(
    "facts",
    tables,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

#: Every behavior policy that was ever used; number 0 is the first, -1 the baseline.
designs = sa.Table(
    "designs",
    tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),  # "target", "design", "table" or "own"
    sa.Column("fingerprint", sa.Text),
    sa.Column("content", sa.LargeBinary),
    sa.Column("made", sa.Double, nullable=False),
    sa.Column("about", sa.Text, nullable=False),  # JSON: versions, predictions, why
)

#: Logs that the campaign began with, where later designs need them.
logs = sa.Table(
    "logs",
    tables,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

plants = sa.Table(
    "plants",
    tables,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("seen", sa.Double, nullable=False),
    sa.Column("holder", sa.Text),  # the controller that has started or resumed an episode last
)

episodes = sa.Table(
    "episodes",
    tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("plant", sa.Text, nullable=False),
    sa.Column("request", sa.Text, unique=True),  # of the caller, so that a repeated start is one
    sa.Column("design", sa.Integer, sa.ForeignKey("designs.number"), nullable=False),
    sa.Column("share", sa.Double, nullable=False),  # of the behavior policy in the mixture
    sa.Column("by_target", sa.Boolean, nullable=False),
    sa.Column("shadow", sa.Boolean, nullable=False),  # what runs today decides: no evidence
    sa.Column("state", sa.Text, nullable=False),  # "open", "finished", "lost" or "dropped"
    sa.Column("started", sa.Double, nullable=False),
    sa.Column("ended", sa.Double),
    sa.Column("length", sa.Integer, nullable=False),
    sa.Column("spent", sa.Double, nullable=False),  # cost so far, not discounted
    sa.Column("terminated", sa.Boolean, nullable=False),
    sa.Column("reason", sa.Text),  # why it was lost or dropped
    sa.Column("numbers", sa.Text),  # JSON: the summary of a finished episode
    sa.Index("episodes_by_state", "state"),
    sa.Index("episodes_by_plant", "plant", "number"),
)

steps = sa.Table(
    "steps",
    tables,
    sa.Column("episode", sa.Integer, sa.ForeignKey("episodes.number"), primary_key=True),
    sa.Column("step", sa.Integer, primary_key=True),
    sa.Column("obs", sa.Text, nullable=False),  # JSON: a whole number, or a row of numbers
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("probability", sa.Double, nullable=False),
    sa.Column("target_probability", sa.Double, nullable=False),
    sa.Column("control", sa.Double, nullable=False),
    sa.Column("baseline", sa.Double, nullable=False),
    sa.Column("chooser", sa.Text, nullable=False),
    sa.Column("would", sa.Text),  # JSON: what the behavior policy would do, in shadow
    sa.Column("decided", sa.Double, nullable=False),
    sa.Column("reward", sa.Double),
    sa.Column("cost", sa.Double),
    sa.Column("signals", sa.Text),  # JSON: other readings by name
    sa.Column("next_obs", sa.Text),
    sa.Column("terminated", sa.Boolean),
    sa.Column("observed", sa.Double),
    # what the decision depended on beyond the observation; NULL in journals of format 1
    sa.Column("log_weights", sa.Text),  # JSON [K]: log of the running weight of every policy
    sa.Column("returned", sa.Double),  # sum of the rewards before
    sa.Column("target_probabilities", sa.Text),  # JSON [K] of the action; NULL: one policy
)

#: What happened, in the order of commitment. The state of a campaign is a function of this table.
events = sa.Table(
    "events",
    tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("plant", sa.Text),
    sa.Column("episode", sa.Integer),
    sa.Column("who", sa.Text),
    sa.Column("data", sa.Text, nullable=False),  # JSON
    sa.Column("hash", sa.Text, nullable=False),  # of this row and the hash before it
)

#: Who may call a service. The secret of a token is not kept, only its hash. Revoked ones stay.
tokens = sa.Table(
    "serve_tokens",
    tables,
    sa.Column("key", sa.Text, primary_key=True),  # the public part of a token
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("plants", sa.Text),  # JSON: names of plants; NULL: any
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("made", sa.Double, nullable=False),
    sa.Column("revoked", sa.Double),
    sa.Column("expires", sa.Double),  # NULL: never
    sa.Column("used", sa.Double),  # last, within a minute; NULL: never
    sa.Index("serve_tokens_by_name", "name"),
)

#: What operators did, what callers were refused, and what was done to tokens.
audit = sa.Table(
    "serve_audit",
    tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("verb", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("request", sa.Text, unique=True),  # of the caller, so that a repeated call is one
    sa.Column("outcome", sa.Text, nullable=False),
)

#: The last event that was delivered to each webhook.
deliveries = sa.Table(
    "serve_deliveries",
    tables,
    sa.Column("url", sa.Text, primary_key=True),  # its hash: an address may hold a secret
    sa.Column("event", sa.Integer, nullable=False),
    sa.Column("failed", sa.Integer, nullable=False, server_default="0"),  # events given up
)


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


def open_engine(where: str | os.PathLike[str], *, create: bool, patience: float) -> sa.Engine:
    """The database of a campaign.

    Args:
        where: a SQLite file, or a URL postgresql://user@host/database.
        create: whether a SQLite file may be created.
        patience: seconds that a call waits for another process's transaction.

    Raises:
        InputError: another kind of database.
        DataError: the file is not there, or the database cannot be reached.
        MissingExtraError: the driver for PostgreSQL is not installed.
    """
    text = os.fspath(where)
    scheme = re.match(r"([a-zA-Z][\w+.-]*)://", text)
    if scheme is None:
        return _sqlite(text, create, patience)
    if scheme[1] not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise InputError(
            f"where: got a URL of kind {scheme[1]!r}, expected the path of a SQLite file or "
            "postgresql://user@host/database"
        )
    return _postgresql("postgresql+psycopg://" + text[scheme.end() :], patience)


def _sqlite(path: str, create: bool, patience: float) -> sa.Engine:
    if not os.path.isfile(path):
        if not create:
            raise DataError(f"{path}: no such file; expected a campaign, try Campaign.create")
        with contextlib.suppress(OSError):  # observations and hashes of tokens: not for everybody
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    url = sa.URL.create("sqlite", database=path)
    engine = sa.create_engine(url, connect_args={"timeout": patience})

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions are begun by the store, not by the driver
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    return engine


def _postgresql(url: str, patience: float) -> sa.Engine:
    try:
        import psycopg  # noqa: F401  (the driver)
    except ImportError as missing:
        raise MissingExtraError("psycopg", "postgres", "A campaign in PostgreSQL") from missing
    options = {"options": f"-c lock_timeout={int(1000 * patience)}", "connect_timeout": 10}
    return sa.create_engine(url, pool_pre_ping=True, connect_args=options)

"""The tables of a campaign, the same in SQLite and PostgreSQL, and how a database is opened.

One database holds one campaign: a SQLite file, or a PostgreSQL database. What was
decided and observed is never changed afterwards; what happened is in `events`, in order.
"""

from __future__ import annotations

import os
import re
from typing import Any

from scopeval.errors import DataError, InputError, MissingExtraError

try:
    import sqlalchemy as sa
except ImportError as missing:
    raise MissingExtraError("sqlalchemy", "serve", "A campaign") from missing

__all__ = [
    "BEGUN",
    "FORMAT",
    "designs",
    "episodes",
    "events",
    "facts",
    "logs",
    "open_engine",
    "plants",
    "steps",
    "tables",
]

FORMAT = 1

#: How long a process waits for another one's transaction, in seconds.
PATIENCE = 30.0

#: Option of a connection whose transaction was begun by the driver.
BEGUN = "begun"

tables = sa.MetaData()

#: Settings and other facts that hold for the whole campaign, as JSON.
facts = sa.Table(
    "facts",
    tables,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

#: Every behavior policy that was ever used; number 0 is the first.
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
    sa.Column("shadow", sa.Boolean, nullable=False),
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
)


def open_engine(where: str | os.PathLike[str], *, create: bool) -> sa.Engine:
    """The database of a campaign.

    Args:
        where: a SQLite file, or a URL postgresql://user:password@host/database.
        create: whether a SQLite file may be created.

    Raises:
        InputError: another kind of database.
        DataError: the file is not there, or the database cannot be reached.
        MissingExtraError: the driver for PostgreSQL is not installed.
    """
    text = os.fspath(where)
    scheme = re.match(r"([a-zA-Z][\w+.-]*)://", text)
    if scheme is None:
        return _sqlite(text, create)
    if scheme[1] not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise InputError(
            f"where: got a URL of kind {scheme[1]!r}, expected the path of a SQLite file or "
            "postgresql://user:password@host/database"
        )
    return _postgresql("postgresql+psycopg://" + text[scheme.end() :])


def _sqlite(path: str, create: bool) -> sa.Engine:
    if not create and not os.path.isfile(path):
        raise DataError(f"{path}: no such file; expected a campaign, try Campaign.create")
    url = sa.URL.create("sqlite", database=path)
    engine = sa.create_engine(url, connect_args={"timeout": PATIENCE})

    @sa.event.listens_for(engine, "connect")
    def settle(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions begin below, and not by the driver
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        options = connection.get_execution_options()
        if not options.get(BEGUN, False):
            connection.exec_driver_sql(
                "BEGIN" if options.get("reads", False) else "BEGIN IMMEDIATE"
            )

    return engine


def _postgresql(url: str) -> sa.Engine:
    try:
        import psycopg  # noqa: F401  (the driver)
    except ImportError as missing:
        raise MissingExtraError("psycopg", "serve", "A campaign in PostgreSQL") from missing
    return sa.create_engine(url, pool_pre_ping=True)

"""The journal of a campaign: transactions, events in a chain of hashes, and rows as JSON.

Everything is on disk when a `transaction` has ended. Events are numbered in the order of their
commitment: whoever writes one holds the lock of `order` until then. Beside a SQLite file the head
of the chain is noted in a file of its own, so that a lost or damaged -wal is noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.exc import DBAPIError, IntegrityError

from scopeval.errors import DataError, InputError, MissingExtraError, ScopevalError

try:
    import sqlalchemy as sa
except ImportError as missing:
    raise MissingExtraError("sqlalchemy", "campaign", "A campaign") from missing


__all__ = [
    "AUDIT",
    "DAMAGED",
    "DELIVERIES",
    "DESIGNS",
    "EPISODES",
    "EVENTS",
    "FACTS",
    "FORMAT",
    "LOGS",
    "METADATA",
    "PLANTS",
    "START",
    "STEPS",
    "TOKENS",
    "Event",
    "Store",
    "chained",
    "decode",
    "encode",
    "kept_digests",
    "open_engine",
    "reading_row",
]

#: Version of these tables and of the terms; `transfer.migrate` brings older ones here. It grows
#: with every new term, so that an older scopeval says which version it takes to read them.
FORMAT = 3

#: How long a call waits for another process's transaction, in seconds.
PATIENCE = 5.0

METADATA = sa.MetaData()
#: Settings and other facts that hold for the whole campaign, as JSON.
FACTS = sa.Table(
    "facts",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

#: Every behavior policy that was ever used; number 0 is the first, -1 the baseline.
DESIGNS = sa.Table(
    "designs",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),  # "target", "design", "table" or "own"
    sa.Column("fingerprint", sa.Text),
    sa.Column("content", sa.LargeBinary),
    sa.Column("made", sa.Double, nullable=False),
    sa.Column("about", sa.Text, nullable=False),  # JSON: versions, predictions, why
)

#: Logs that the campaign began with, where later designs need them.
LOGS = sa.Table(
    "logs",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

PLANTS = sa.Table(
    "plants",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("seen", sa.Double, nullable=False),
    sa.Column("holder", sa.Text),  # the controller that has started or resumed an episode last
)

EPISODES = sa.Table(
    "episodes",
    METADATA,
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

STEPS = sa.Table(
    "steps",
    METADATA,
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
EVENTS = sa.Table(
    "events",
    METADATA,
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
TOKENS = sa.Table(
    "serve_tokens",
    METADATA,
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
AUDIT = sa.Table(
    "serve_audit",
    METADATA,
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
DELIVERIES = sa.Table(
    "serve_deliveries",
    METADATA,
    sa.Column("url", sa.Text, primary_key=True),  # its hash: an address may hold a secret
    sa.Column("event", sa.Integer, nullable=False),
    sa.Column("failed", sa.Integer, nullable=False, server_default="0"),  # events given up
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


#: Key of the lock in PostgreSQL under which events are numbered.
ORDER_LOCK = 0x5C09E

#: The hash before the first event.
START = "0" * 64

#: Name of the file beside a SQLite file that holds the head of the chain.
HEAD = "{}-head"

#: What rows cause that were damaged or edited.
DAMAGED = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError),
    *(OverflowError, RecursionError, MemoryError),
)

_events_after = (
    sa.select(EVENTS).where(EVENTS.c.number > sa.bindparam("after")).order_by(EVENTS.c.number)
)
_add_event = sa.insert(EVENTS)
_order_lock = sa.select(sa.func.pg_advisory_xact_lock(sa.bindparam("key", type_=sa.BigInteger)))


def encode(value: NDArray[Any]) -> str:
    """A whole number or a row of numbers as JSON; decoding gives the same bits."""
    plain = value.tolist()
    return str(plain) if type(plain) is int else json.dumps(plain)


def decode(text: str) -> NDArray[Any]:
    """What `encode` made."""
    return np.asarray(json.loads(text))


@contextlib.contextmanager
def reading_row(place: str, table: str, row: object) -> Iterator[None]:
    """Turn whatever a damaged or edited row causes into a `DataError` that names it.

    Args:
        place: of the campaign.
        table: of the database.
        row: its key.
    """
    try:
        yield
    except ScopevalError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{place}: table {table}, row {row!r}: {error}") from error
    except DAMAGED as error:
        text = str(error) or "?"
        raise DataError(
            f"{place}: table {table}, row {row!r}: damaged ({type(error).__name__}: {text:.200}); "
            "expected what scopeval wrote, try a copy from before"
        ) from error


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes:
        kind: what, in one word or two.
        text: in words.
        plant: where; None: everywhere.
        episode: in which; None: in none.
        who: name of an operator, or of the token of a plant; None: the campaign itself, or a
            program of its machine.
        data: numbers that belong to it.
        number: its place in the order of events.
        time: in seconds since 1970.
        hash: of this event and the hash of the one before it.
    """

    kind: str
    text: str
    plant: str | None = None
    episode: int | None = None
    who: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    time: float = 0.0
    hash: str = ""


def chained(before: str, row: Mapping[str, Any]) -> str:
    """The hash of an event's row after the one with the hash `before`."""
    names = ("number", "time", "kind", "text", "plant", "episode", "who", "data")
    content = json.dumps([before, *(row[name] for name in names)], ensure_ascii=False)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def kept_digests(connection: sa.Connection, design: int | None = None) -> dict[str, str]:
    """Hashes of the rows that are written once and then only read, by table and key.

    These are the designs, the logs and the fingerprint of the target; the terms have their own.

    Args:
        connection: of a view or a transaction.
        design: the number of the only one; None: all rows.
    """
    digests = {}
    rows = [
        (DESIGNS, sa.select(DESIGNS)),
        (LOGS, sa.select(LOGS)),
        (FACTS, sa.select(FACTS).where(FACTS.c.name == "target")),
    ]
    if design is not None:  # logs may be large, and plants wait
        rows = [(DESIGNS, sa.select(DESIGNS).where(DESIGNS.c.number == design))]
    for table, chosen in rows:
        for row in connection.execute(chosen):
            digest = hashlib.sha256()
            for value in row:
                content = value if isinstance(value, bytes) else json.dumps(value).encode()
                digest.update(hashlib.sha256(content).digest())
            digests[f"{table.name} {row[0]}"] = digest.hexdigest()
    return digests


class _Group(threading.local):
    """The transaction of a `Store.group`; every thread has its own.

    Attributes:
        connection: None: there is no group.
        current: the events of other processes were read in this group.
        ordered: the lock of `order` is held to its end.
        head: number and hash of the last event that it has written; None: it has written none.
    """

    connection: sa.Connection | None = None
    current: bool = False
    ordered: bool = False
    head: tuple[int, str] | None = None


def _identity(path: str) -> tuple[int, int] | None:
    """Which file a path leads to; None: to none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _tell(connection: sa.Connection, words: str) -> None:
    """Begin or end a part of a transaction: words of the driver, at every call."""
    cursor = connection.connection.cursor()
    cursor.execute(words)
    cursor.close()


class Store:
    """The database of one campaign.

    Args:
        where: a SQLite file, or a PostgreSQL URL.
        create: the tables will be made; else they must be there.
        patience: seconds that a call waits for another process's transaction; None: PATIENCE.
    """

    def __init__(
        self, where: str | os.PathLike[str], *, create: bool, patience: float | None = None
    ) -> None:
        self.where = os.fspath(where)
        wait = PATIENCE if patience is None else patience
        self.engine = open_engine(where, create=create, patience=wait)
        self._server = self.engine.dialect.name == "postgresql"
        self._dbapi_error: type[Exception] = self.engine.dialect.loaded_dbapi.Error
        self._group = _Group()
        self._file = None if self._server else _identity(self.where)
        if create:
            return  # `create_tables` follows, in the transaction of the first facts
        with self.read() as connection:  # which does not wait for those who write
            there = sa.inspect(connection).has_table("facts")
        if not there:
            self.close()
            raise DataError(f"{self.name}: holds no campaign; expected one, try Campaign.create")

    def create_tables(self, connection: sa.Connection) -> None:
        """Make the tables that are not there yet."""
        METADATA.create_all(connection)

    @property
    def name(self) -> str:
        """The place, without a password."""
        return str(self.engine.url.render_as_string(hide_password=True)).removeprefix("sqlite:///")

    # -- transactions --------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """All that is written in the block is on disk afterwards, or nothing.

        Inside a `group` it is a part of that transaction, which can be taken back alone.
        """
        outer = self._group.connection
        if outer is None:
            with self.group() as connection:
                yield connection
            return
        head = self._group.head
        with self._translated():
            _tell(outer, "SAVEPOINT part")
            try:
                yield outer
            except BaseException:
                self._group.ordered = False  # a lock that was taken in this part is given back
                self._group.head = head
                _tell(outer, "ROLLBACK TO SAVEPOINT part")
                _tell(outer, "RELEASE SAVEPOINT part")
                raise
            _tell(outer, "RELEASE SAVEPOINT part")

    @contextlib.contextmanager
    def group(self) -> Iterator[sa.Connection]:
        """One transaction around all that this thread reads and writes inside the block.

        A group inside another one is a part of it, which can be taken back alone.
        """
        group = self._group
        if group.connection is not None:
            with self.transaction() as connection:
                yield connection
            return
        self._check_file()
        with self._translated():
            with self.engine.begin() as connection:
                if not self._server:
                    _tell(connection, "BEGIN IMMEDIATE")
                group.connection = connection
                group.current = group.ordered = False
                group.head = None
                try:
                    yield connection
                finally:
                    group.connection = None
            self._note_head()  # what was written is on disk

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A consistent view."""
        if self._group.connection is not None:
            yield self._group.connection
            return
        self._check_file()
        with self._translated(), self.engine.begin() as connection:
            if not self._server:
                _tell(connection, "BEGIN")
            yield connection

    def _check_file(self) -> None:
        """See that the file that was opened is still there: all that goes to another one is lost.

        Raises:
            DataError: it was deleted, or replaced, as where a backup was restored.
        """
        if self._file is not None and _identity(self.where) != self._file:
            raise DataError(
                f"{self.name}: the file that was opened is not there any more, or another one lies "
                "in its place; nothing of this call was recorded. Was a backup restored? Then end "
                "all that uses it, and open it again"
            )

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of the database in the words of this package."""
        try:
            yield
        except IntegrityError:
            raise  # the caller knows which row was there already
        except (DBAPIError, self._dbapi_error) as error:
            text = str(error.orig if isinstance(error, DBAPIError) else error).strip()
            reason = text.splitlines()[0] if text else "?"
            raise DataError(
                f"{self.name}: the database refused ({reason}); nothing of this call was recorded, "
                "try it again"
            ) from error

    def order(self, connection: sa.Connection) -> None:
        """Be the only one to number events and episodes until the transaction ends."""
        if not self._server or self._group.ordered:  # SQLite has one writer at a time anyway
            return
        self._group.current = False
        connection.execute(_order_lock, {"key": ORDER_LOCK})
        self._group.ordered = True

    # -- facts ---------------------------------------------------------------------------------

    def set_fact(self, connection: sa.Connection, name: str, value: Any) -> str:
        """Keep a fact; returns it as it is kept."""
        text = json.dumps(value)
        connection.execute(FACTS.insert().values(name=name, value=text))
        return text

    def change_fact(self, connection: sa.Connection, name: str, value: Any) -> None:
        """Keep another value of a fact."""
        chosen = FACTS.update().where(FACTS.c.name == name)
        connection.execute(chosen.values(value=json.dumps(value)))

    def fact(self, connection: sa.Connection, name: str) -> Any:
        """A fact; None: it is not there."""
        text = connection.execute(sa.select(FACTS.c.value).where(FACTS.c.name == name)).scalar()
        with reading_row(self.name, "facts", name):
            return None if text is None else json.loads(text)

    # -- events --------------------------------------------------------------------------------

    def add_event(
        self, connection: sa.Connection, event: Event, number: int, time: float, before: str
    ) -> Event:
        """Write an event, whose number is the next one; the lock of `order` is held.

        Args:
            connection: of the transaction.
            event: without number, time and hash.
            number: of the event.
            time: seconds since 1970.
            before: hash of the last event.
        """
        row: dict[str, Any] = {
            "number": number,
            "time": time,
            "kind": event.kind,
            "text": event.text,
            "plant": event.plant,
            "episode": event.episode,
            "who": event.who,
            "data": json.dumps(dict(event.data)),
        }
        row["hash"] = chained(before, row)
        connection.execute(_add_event, row)
        self._group.head = number, row["hash"]
        return Event(
            *(event.kind, event.text, event.plant, event.episode, event.who, event.data),
            number,
            time,
            row["hash"],
        )

    def events_after(
        self,
        connection: sa.Connection,
        number: int,
        most: int | None = None,
        *,
        kinds: Sequence[str] | None = None,
        last: bool = False,
    ) -> list[Event]:
        """Events after one, in order.

        Args:
            connection: of a view or a transaction.
            number: of the event before the first.
            most: at most so many; None: all.
            kinds: only these; None: all.
            last: the last ones, where there are more than `most`.
        """
        chosen = _events_after
        if kinds is not None:
            chosen = chosen.where(EVENTS.c.kind.in_(tuple(kinds)))
        if last:
            chosen = chosen.order_by(None).order_by(EVENTS.c.number.desc())
        rows = connection.execute(chosen if most is None else chosen.limit(most), {"after": number})
        events = self._read_events(rows)
        return events[::-1] if last else events

    def _read_events(self, rows: Iterable[Sequence[Any]]) -> list[Event]:
        events, number = [], 0
        try:
            for row in rows:
                number = row[0]
                events.append(_event(row))
        except DAMAGED:
            with reading_row(self.name, "events", number):
                raise
        return events

    def news_after(self, connection: sa.Connection, number: int, head: str) -> list[Event]:
        """Events after one; inside a group they are read once.

        Nobody else can write in between (SQLite), or it is seen by the next group (PostgreSQL).

        Raises:
            DataError: that one is not there, or another: an older journal was put in its place.
        """
        if self._group.connection is not None and self._group.current:
            return []
        self._group.current = True
        events = self.events_after(connection, number - 1)
        if number and (not events or (events[0].number, events[0].hash) != (number, head)):
            raise DataError(
                f"{self.name}: event {number}, which was there, is not, or is another one; nothing "
                "of this call was recorded. Was a backup restored? Then end all that uses the "
                "campaign, and open it again"
            )
        return events[1:] if number else events

    # -- the head of the chain, beside a SQLite file ---------------------------------------------

    def _head_path(self) -> str | None:
        return None if self._server else HEAD.format(self.where)

    def _note_head(self) -> None:
        """Note the last event, after it is on disk. It is not waited for that this is."""
        path = self._head_path()
        if path is None or self._group.head is None:
            return
        number, mark = self._group.head
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.pwrite(file, f"{number:>20} {mark}\n".encode(), 0)
            finally:
                os.close(file)

    def forget_head(self) -> None:
        """Delete the note of another campaign that was here before."""
        if (path := self._head_path()) is not None:
            with contextlib.suppress(OSError):
                os.remove(path)

    def check_head(self, connection: sa.Connection) -> None:
        """See that the last event that was noted is in the journal.

        Raises:
            DataError: it is not: committed rows are missing.
        """
        path = self._head_path()
        try:
            text = Path(path).read_text("ascii") if path else "0 -"
            number, mark = text.split()
            noted = int(number)
        except (OSError, ValueError):
            return  # a copy without it, or the note was cut
        if noted < 1:
            return
        kept = connection.execute(sa.select(EVENTS.c.hash).where(EVENTS.c.number == noted)).scalar()
        if kept == mark:
            return
        last = connection.execute(sa.select(sa.func.max(EVENTS.c.number))).scalar() or 0
        what = f"is another one here (the last is {last})" if kept else f"but the last is {last}"
        raise DataError(
            f"{self.name}: event {noted} was committed, {what}: rows are missing, as where the "
            f"file {os.path.basename(self.where)}-wal was lost, damaged or not copied; bring it "
            f"back, or a backup. To go on without these rows, delete {path}"
        )

    def checkpoint(self) -> None:
        """Bring all that is committed into the one file (SQLite)."""
        if self._server:
            return
        problems = DBAPIError, self._dbapi_error  # the disk is full, or another process reads
        with contextlib.suppress(*problems), self.engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()


def _event(row: Sequence[Any]) -> Event:
    """Of a row of the table of events, whose columns are in this order."""
    number, time, kind, text, plant, episode, who, data, mark = row
    return Event(kind, text, plant, episode, who, json.loads(data), number, time, mark)

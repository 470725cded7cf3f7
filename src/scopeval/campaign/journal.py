"""The journal of a campaign: transactions, events, episodes and steps as rows.

Everything is on disk when a `write` block has ended. Events are numbered in the order of their
commitment: whoever writes one holds the lock of `order` until then.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.exc import DBAPIError, IntegrityError

from scopeval.campaign import schema, statements
from scopeval.campaign.direct_steps import DirectSteps
from scopeval.errors import DataError

__all__ = ["Event", "Journal", "decode", "encode"]

#: Key of the lock in PostgreSQL under which events are numbered.
ORDER_LOCK = 0x5C09E


def encode(value: NDArray[Any]) -> str:
    """A whole number or a row of numbers as JSON; decoding gives the same bits."""
    plain = value.tolist()
    return str(plain) if type(plain) is int else json.dumps(plain)


def decode(text: str) -> NDArray[Any]:
    """What `encode` made."""
    return np.asarray(json.loads(text))


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes:
        kind: what, in one word or two.
        text: in words.
        plant: where; None: everywhere.
        episode: in which; None: in none.
        who: an operator's name; None: the campaign itself.
        data: numbers that belong to it.
        number: its place in the order of events.
        time: in seconds since 1970.
    """

    kind: str
    text: str
    plant: str | None = None
    episode: int | None = None
    who: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    time: float = 0.0


class _Grouped(threading.local):
    """The transaction of a `Journal.group`; every thread has its own.

    Attributes:
        connection: None: there is no group.
        current: the events of other processes were read in this group.
        ordered: the lock of `order` is held to its end.
        decisions, outcomes, lengths: rows that are written before anything else is.
        broken: why the group cannot be committed; None: it can.
    """

    connection: sa.Connection | None = None
    current: bool = False
    ordered: bool = False

    def __init__(self) -> None:
        self.decisions: list[dict[str, Any]] = []
        self.outcomes: list[dict[str, Any]] = []
        self.lengths: list[dict[str, Any]] = []
        self.broken: Exception | None = None

    def forget_rows(self) -> None:
        """Forget rows that were not written."""
        for rows in (self.decisions, self.outcomes, self.lengths):
            rows.clear()


class Journal:
    """The database of one campaign.

    Args:
        where: a SQLite file, or a PostgreSQL URL.
        create: the tables will be made; else they must be there.
    """

    def __init__(self, where: str | os.PathLike[str], *, create: bool) -> None:
        self.where = os.fspath(where)
        self.engine = schema.open_engine(where, create=create)
        self._ordered = self.engine.dialect.name == "postgresql"
        self._grouped = _Grouped()
        self._direct = DirectSteps(self.engine) if not self._ordered else None
        if create:
            return  # `create_tables` follows, in the transaction of the first facts
        with self.read() as connection:  # which does not wait for those who write
            known = sa.inspect(connection).has_table("facts")
        if not known:
            self.close()
            raise DataError(f"{self.name}: holds no campaign; expected one, try Campaign.create")

    def create_tables(self, connection: sa.Connection) -> None:
        """Make the tables that are not there yet."""
        schema.tables.create_all(connection)

    @property
    def name(self) -> str:
        """The place, without a password."""
        return str(self.engine.url.render_as_string(hide_password=True)).removeprefix("sqlite:///")

    @contextlib.contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """One transaction: all of it is on disk afterwards, or nothing.

        Inside a `group` it is a part of that transaction, which can be taken back alone.
        """
        group = self._grouped.connection
        if group is not None:
            with self._translated(), self._part_of(group):
                yield group
            return
        with self._translated(), self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def append(self) -> Iterator[sa.Connection]:
        """A `write` of nothing but decisions and outcomes.

        Inside a `group` these rows are collected, and written together. One thread at a time.
        """
        if self._grouped.connection is not None:
            yield self._grouped.connection
        elif self._direct is not None:
            with self._translated(), self._direct.transaction() as connection:
                yield connection
        else:
            with self.write() as connection:
                yield connection

    def _directly(self, connection: sa.Connection) -> DirectSteps | None:
        """What writes steps on a connection without SQLAlchemy; None: SQLAlchemy does."""
        direct = self._direct
        return direct if direct is not None and connection is direct.connection else None

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """One transaction around all that this thread reads and writes inside the block.

        A group inside another one is a part of it, which can be taken back alone.
        """
        if self._grouped.connection is not None:
            with self.write():
                yield
            return
        with self._translated(), self.engine.begin() as connection:
            grouped = self._grouped
            grouped.connection, grouped.broken = connection, None
            grouped.current = grouped.ordered = False
            try:
                yield
                self.settle(connection)
                if grouped.broken is not None:
                    raise grouped.broken
            finally:
                grouped.connection = None
                grouped.forget_rows()

    @contextlib.contextmanager
    def _part_of(self, group: sa.Connection) -> Iterator[None]:
        """A part of a group that is taken back alone where it fails."""
        self.settle(group)  # of calls before: they stay whatever happens here
        group.exec_driver_sql("SAVEPOINT part")
        try:
            yield
        except BaseException:
            self._grouped.forget_rows()
            self._grouped.ordered = False  # a lock that was taken in this part is given back
            group.exec_driver_sql("ROLLBACK TO SAVEPOINT part")
            group.exec_driver_sql("RELEASE SAVEPOINT part")
            raise
        group.exec_driver_sql("RELEASE SAVEPOINT part")

    @contextlib.contextmanager
    def append_together(self) -> Iterator[None]:
        """Several appends inside a group, all or none; nothing else may be written between them."""
        grouped = self._grouped
        lists = (grouped.decisions, grouped.outcomes, grouped.lengths)
        before = [len(rows) for rows in lists]
        try:
            yield
        except BaseException:
            for rows, n in zip(lists, before, strict=True):
                del rows[n:]
            raise

    def settle(self, connection: sa.Connection) -> None:
        """Write what a group has collected; where that fails, the group is not committed."""
        grouped = self._grouped
        try:
            with self._translated():
                whole = self._settled(connection)
        except IntegrityError:
            whole = False
        except Exception as error:
            grouped.broken = error
            raise
        finally:
            grouped.forget_rows()
        if not whole:
            grouped.broken = DataError(
                f"{self.name}: another process has recorded one of these steps; nothing of this "
                "group was recorded, fetch its episodes again"
            )
            raise grouped.broken

    def _settled(self, connection: sa.Connection) -> bool:
        """Write the rows; False: one of the outcomes was there already."""
        grouped = self._grouped
        if grouped.decisions:
            connection.execute(statements.add_decision, grouped.decisions)
        if not grouped.outcomes:
            return True
        written = self._write_outcomes(connection)
        connection.execute(statements.set_length, grouped.lengths)
        return written == len(grouped.outcomes)

    def _write_outcomes(self, connection: sa.Connection) -> int:
        """How many rows were changed."""
        rows = self._grouped.outcomes
        if connection.dialect.supports_sane_multi_rowcount:
            return connection.execute(statements.add_outcome, rows).rowcount
        return sum(connection.execute(statements.add_outcome, row).rowcount for row in rows)

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A consistent view."""
        if self._grouped.connection is not None:
            self.settle(self._grouped.connection)
            yield self._grouped.connection
            return
        with self._translated(), self.engine.connect() as connection:
            viewed = connection.execution_options(reads=True)
            with viewed.begin():
                yield viewed

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of the database in the words of this package."""
        try:
            yield
        except IntegrityError:
            raise  # the caller knows which row was there already
        except DBAPIError as error:
            reason = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else "?"
            raise DataError(
                f"{self.name}: the database refused ({reason}); nothing of this call was recorded, "
                "try it again"
            ) from error

    def order(self, connection: sa.Connection) -> None:
        """Be the only one to number events and episodes until the transaction ends."""
        if not self._ordered or self._grouped.ordered:  # SQLite has one writer at a time anyway
            return
        self._grouped.current = False
        connection.execute(statements.order_lock, {"key": ORDER_LOCK})
        self._grouped.ordered = self._grouped.connection is not None

    # -- facts ---------------------------------------------------------------------------------

    def set_fact(self, connection: sa.Connection, name: str, value: Any) -> None:
        """Keep a fact."""
        text = json.dumps(value)
        connection.execute(schema.facts.insert().values(name=name, value=text))

    def fact(self, connection: sa.Connection, name: str) -> Any:
        """A fact; None: it is not there."""
        table = schema.facts
        text = connection.execute(sa.select(table.c.value).where(table.c.name == name)).scalar()
        return None if text is None else json.loads(text)

    # -- events --------------------------------------------------------------------------------

    def add_event(self, connection: sa.Connection, event: Event, number: int, time: float) -> Event:
        """Write an event, whose number is the next one; the lock of `order` is held."""
        row = {
            "number": number,
            "time": time,
            "kind": event.kind,
            "text": event.text,
            "plant": event.plant,
            "episode": event.episode,
            "who": event.who,
            "data": json.dumps(dict(event.data)),
        }
        connection.execute(statements.add_event, row)
        return Event(
            event.kind, event.text, event.plant, event.episode, event.who, event.data, number, time
        )

    def events_after(
        self, connection: sa.Connection, number: int, most: int | None = None
    ) -> list[Event]:
        """Events after one, in order; at most so many."""
        chosen = statements.events_after
        direct = self._directly(connection) if most is None else None
        if direct is not None:
            return [_event(row) for row in direct.events_after(number)]
        rows = connection.execute(chosen if most is None else chosen.limit(most), {"after": number})
        return [_event(row) for row in rows]

    def news_after(self, connection: sa.Connection, number: int) -> list[Event]:
        """Events after one; inside a group they are read once.

        Nobody else can write in between (SQLite), or it is seen by the next group (PostgreSQL).
        """
        if self._grouped.connection is not None and self._grouped.current:
            return []
        self._grouped.current = True
        return self.events_after(connection, number)

    # -- steps ---------------------------------------------------------------------------------

    def add_decision(self, connection: sa.Connection, row: dict[str, Any]) -> None:
        """Write a decision.

        Raises:
            IntegrityError: the step was decided already; not inside a group.
        """
        if self._grouped.connection is not None:
            self._grouped.decisions.append(row)
        elif (direct := self._directly(connection)) is not None:
            direct.add_decision(row)
        else:
            connection.execute(statements.add_decision, row)

    def add_outcome(
        self, connection: sa.Connection, outcome: dict[str, Any], length: dict[str, Any]
    ) -> bool:
        """Write the outcome of a step, and the new length of its episode.

        Returns:
            False: it was written already; not inside a group.
        """
        if self._grouped.connection is not None:
            self._grouped.outcomes.append(outcome)
            self._grouped.lengths.append(length)
            return True
        if (direct := self._directly(connection)) is not None:
            return direct.add_outcome(outcome, length)
        if connection.execute(statements.add_outcome, outcome).rowcount != 1:
            return False
        connection.execute(statements.set_length, length)
        return True

    def close(self) -> None:
        """Give the connections back."""
        if self._direct is not None:
            self._direct.close()
        self.engine.dispose()


def _event(row: Sequence[Any]) -> Event:
    """Of a row of the table of events, whose columns are in this order."""
    number, time, kind, text, plant, episode, who, data = row
    return Event(kind, text, plant, episode, who, json.loads(data), number, time)

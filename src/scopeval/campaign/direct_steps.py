"""The statements of a step by the driver of SQLite itself, on a connection that stays open.

SQLAlchemy takes longer over such a statement than the disk does, so the text that it makes of each
one is kept. The statements, their order and the rows are the same either way.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.sql.compiler import SQLCompiler

from scopeval.campaign import statements
from scopeval.campaign.schema import BEGUN

__all__ = ["DirectSteps"]


class _Statement:
    """A statement as the driver takes it.

    Args:
        text: of SQLite, with a question mark for every value.
        names: of the values, in order.
    """

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        self.text, self._names = text, names

    @classmethod
    def of(
        cls, statement: sa.Executable, dialect: sa.Dialect, names: tuple[str, ...] | None = None
    ) -> _Statement:
        """Of SQLAlchemy's; names: the columns that an insertion fills."""
        assert isinstance(statement, sa.ClauseElement)
        compiled = statement.compile(dialect=dialect, column_keys=names)
        assert isinstance(compiled, SQLCompiler)
        assert compiled.positiontup is not None
        return cls(str(compiled), tuple(compiled.positiontup))

    def values(self, row: Mapping[str, Any]) -> list[Any]:
        """The values in their order."""
        return [row[name] for name in self._names]


class DirectSteps:
    """Writes decisions and outcomes, and reads what others have told.

    Only one thread at a time may use it.

    Args:
        engine: of SQLite.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self.connection: sa.Connection | None = None
        self._driver: sqlite3.Connection | None = None
        dialect = engine.dialect
        self._decision = _Statement.of(statements.add_decision, dialect, statements.OF_DECISION)
        self._outcome = _Statement.of(statements.add_outcome, dialect)
        self._length = _Statement.of(statements.set_length, dialect)
        self._events = _Statement.of(statements.events_after, dialect)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """One transaction; what is executed on the connection belongs to it.

        Raises:
            DBAPIError: as SQLAlchemy would.
        """
        connection, driver = self._opened()
        try:
            driver.execute("BEGIN IMMEDIATE")
            yield connection
            self._commit(connection, driver)
        except BaseException as error:
            connection.rollback()
            driver.rollback()
            if isinstance(error, sqlite3.Error):
                raise _translated(error) from error
            raise

    def _opened(self) -> tuple[sa.Connection, sqlite3.Connection]:
        if self.connection is None or self._driver is None:
            self.connection = self._engine.connect().execution_options(**{BEGUN: True})
            driver = self.connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            self._driver = driver
        return self.connection, self._driver

    def _commit(self, connection: sa.Connection, driver: sqlite3.Connection) -> None:
        if connection.in_transaction():  # something else was executed on it: let it know
            connection.commit()
        else:
            driver.commit()

    def add_decision(self, row: Mapping[str, Any]) -> None:
        """Write a decision."""
        self._execute(self._decision, row)

    def add_outcome(self, outcome: Mapping[str, Any], length: Mapping[str, Any]) -> bool:
        """Write an outcome and the length of its episode; False: it was written already."""
        if self._execute(self._outcome, outcome).rowcount != 1:
            return False
        self._execute(self._length, length)
        return True

    def events_after(self, number: int) -> list[Any]:
        """Rows of events, in the order of the table's columns."""
        return self._execute(self._events, {"after": number}).fetchall()

    def _execute(self, statement: _Statement, row: Mapping[str, Any]) -> sqlite3.Cursor:
        assert self._driver is not None
        return self._driver.execute(statement.text, statement.values(row))

    def close(self) -> None:
        """Give the connection back; the next transaction opens another one."""
        if self.connection is not None:
            self.connection.close()
        self.connection = self._driver = None


def _translated(error: sqlite3.Error) -> DBAPIError:
    """As SQLAlchemy would raise it."""
    kind = IntegrityError if isinstance(error, sqlite3.IntegrityError) else DBAPIError
    return kind(None, None, error)

"""The audit log: what operators did and what they were refused, with who, when and from where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from scopeval.campaign.journal import Journal
from scopeval.serve.tables import audit

__all__ = ["AuditEntry", "AuditLog"]


@dataclass(frozen=True)
class AuditEntry:
    """One action of an operator.

    Attributes:
        who: name of the token.
        role: of the token.
        address: of the caller.
        verb: what was asked for.
        reason: why, in the operator's words.
        outcome: "done", or why it was refused.
        request: the caller's word for it.
        number: its place in the log.
        time: seconds since 1970.
    """

    who: str
    role: str
    address: str
    verb: str
    reason: str
    outcome: str
    request: str | None = None
    number: int = 0
    time: float = 0.0


class AuditLog:
    """Entries are added and read, never changed.

    Args:
        journal: of the campaign; the table is there.
        clock: seconds since 1970.
    """

    def __init__(self, journal: Journal, clock: Callable[[], float]) -> None:
        self._journal, self._clock = journal, clock

    def add(self, entry: AuditEntry) -> None:
        """Write an entry; inside a group it is in the same transaction as the action."""
        with self._journal.write() as connection:
            connection.execute(
                audit.insert().values(
                    time=self._clock(),
                    who=entry.who,
                    role=entry.role,
                    address=entry.address,
                    verb=entry.verb,
                    reason=entry.reason,
                    request=entry.request,
                    outcome=entry.outcome,
                )
            )

    def has(self, request: str) -> AuditEntry | None:
        """The entry of a call that was made before."""
        with self._journal.read() as connection:
            row = connection.execute(
                sa.select(audit).where(audit.c.request == request)
            ).one_or_none()
        return None if row is None else _entry(row)

    def last(self, many: int = 100) -> list[AuditEntry]:
        """The last entries, the newest first."""
        with self._journal.read() as connection:
            rows = connection.execute(
                sa.select(audit).order_by(audit.c.number.desc()).limit(many)
            ).all()
        return [_entry(row) for row in rows]


def _entry(row: sa.Row[tuple[object, ...]]) -> AuditEntry:
    return AuditEntry(
        who=row.who,
        role=row.role,
        address=row.address,
        verb=row.verb,
        reason=row.reason,
        outcome=row.outcome,
        request=row.request,
        number=row.number,
        time=row.time,
    )

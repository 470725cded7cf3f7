"""The parts of a running service, and how its routes find them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from scopeval.campaign import schema
from scopeval.campaign.local import LocalBackend
from scopeval.errors import ScopevalError
from scopeval.serve.auth import Access, AuditLog, Sessions, Token
from scopeval.serve.limits import Limits
from scopeval.serve.live import LivePage
from scopeval.serve.metrics import Counts, Metrics
from scopeval.serve.service import CampaignService, OverloadedError, Viewer, WriteQueue
from scopeval.serve.webhooks import Webhooks

__all__ = ["AppState", "OperatorCaller", "State", "ViewerCaller", "get_state"]


@dataclass
class AppState:
    """What a service is made of.

    Attributes:
        backend: for what is written, by `queue` only.
        service: the verbs that write.
        queue: runs them.
        viewer: looks.
        live: the live page.
        access: who may.
        sessions: of browsers.
        audit: the audit log.
        metrics: what is counted.
        hooks: who is told about events.
        limits: what callers may use.
        title: of the page.
    """

    backend: LocalBackend
    service: CampaignService
    queue: WriteQueue
    viewer: Viewer
    live: LivePage
    access: Access
    sessions: Sessions
    audit: AuditLog
    metrics: Metrics
    hooks: Webhooks
    limits: Limits
    title: str
    checked: tuple[float, str | None] = (-1e9, None)

    def counts(self) -> Counts:
        """What the parts have counted."""
        queue = self.queue
        return Counts(
            totals={
                "decisions": self.service.decisions,
                "transactions": queue.groups,
                "written_calls": queue.calls,
                "database_errors": queue.failures,
                "webhook_failures": self.hooks.failed,
            },
            waiting=queue.waiting,
            webhook_waiting=self.hooks.waiting,
            refused=dict(self.access.refused),
        )

    async def readiness(self) -> str | None:
        """Why nothing can be recorded now; None: it can. Tried at most once a second."""
        now = time.monotonic()
        if now - self.checked[0] < 1.0:
            return self.checked[1]
        why = None
        try:
            await self.queue.do(self._probe)
        except OverloadedError:
            why = "the database does not answer in time"
        except ScopevalError:
            why = "the database takes nothing"
        self.checked = (now, why)
        return why

    def _probe(self) -> None:
        """Write a row, which needs the lock and space on the disk."""
        facts, now = schema.facts, json.dumps(self.backend.clock())
        with self.backend.store.transaction() as connection:
            chosen = facts.update().where(facts.c.name == "probe").values(value=now)
            if not connection.execute(chosen).rowcount:
                connection.execute(facts.insert().values(name="probe", value=now))


def get_state(request: Request) -> AppState:
    """The parts of the service that a request came to."""
    state = request.app.state.parts
    assert isinstance(state, AppState)
    return state


async def _state(request: Request) -> AppState:
    return get_state(request)


async def _viewer(request: Request) -> Token:
    return get_state(request).access.authorize(request, "viewer")


async def _operator(request: Request) -> Token:
    return get_state(request).access.authorize(request, "operator")


State = Annotated[AppState, Depends(_state)]
ViewerCaller = Annotated[Token, Depends(_viewer)]
OperatorCaller = Annotated[Token, Depends(_operator)]

"""The parts of a running service, and how its routes find them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from scopeval.campaign.campaign import Campaign
from scopeval.serve.access import Access, Sessions
from scopeval.serve.audit import AuditLog
from scopeval.serve.desk import PlantDesk
from scopeval.serve.group_writer import GroupWriter
from scopeval.serve.limits import Limits
from scopeval.serve.live_view import LivePage
from scopeval.serve.metrics import Metrics
from scopeval.serve.tokens import Token
from scopeval.serve.viewer import Viewer

__all__ = ["OperatorCaller", "Parts", "ServiceParts", "ViewerCaller", "parts_of"]

Answer = TypeVar("Answer")


@dataclass
class ServiceParts:
    """What a service is made of.

    Attributes:
        campaign: for what is written, by `writer` only.
        desk: the verbs that write.
        writer: runs them.
        viewer: the verbs that look.
        live: the live page.
        access: who may.
        sessions: of browsers.
        audit: the audit log.
        metrics: what is counted.
        limits: what callers may use.
        title: of the page.
    """

    campaign: Campaign
    desk: PlantDesk
    writer: GroupWriter
    viewer: Viewer
    live: LivePage
    access: Access
    sessions: Sessions
    audit: AuditLog
    metrics: Metrics
    limits: Limits
    title: str

    async def write(self, work: Callable[[], Answer]) -> Answer:
        """Run a verb that writes; it is on disk when this returns."""
        return await self.writer.do(work)


def parts_of(request: Request) -> ServiceParts:
    """The parts of the service that a request came to."""
    parts = request.app.state.parts
    assert isinstance(parts, ServiceParts)
    return parts


async def _parts(request: Request) -> ServiceParts:
    return parts_of(request)


async def _viewer(request: Request) -> Token:
    return parts_of(request).access.caller(request, "viewer")


async def _operator(request: Request) -> Token:
    return parts_of(request).access.caller(request, "operator")


Parts = Annotated[ServiceParts, Depends(_parts)]
ViewerCaller = Annotated[Token, Depends(_viewer)]
OperatorCaller = Annotated[Token, Depends(_operator)]

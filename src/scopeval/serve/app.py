"""The application: routes, limits, errors and headers put together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scopeval import __version__
from scopeval.campaign.campaign import Campaign
from scopeval.errors import ScopevalError
from scopeval.serve import page_routes, plant_routes, view_routes
from scopeval.serve.access import Access, Sessions, is_loopback
from scopeval.serve.answers import TOLD, answer_to
from scopeval.serve.audit import AuditLog
from scopeval.serve.desk import PlantDesk
from scopeval.serve.group_writer import GroupWriter, OverloadedError
from scopeval.serve.limits import BodyLimit, Limits
from scopeval.serve.live_view import LivePage
from scopeval.serve.metrics import Metrics
from scopeval.serve.models import Problem
from scopeval.serve.short_way import ROUTE, ShortWay
from scopeval.serve.state import ServiceParts
from scopeval.serve.tokens import TokenBook
from scopeval.serve.viewer import Viewer
from scopeval.serve.webhooks import Webhook, Webhooks

__all__ = ["Settings", "create_app"]

log = logging.getLogger("scopeval.serve")

#: Headers of every answer.
_PROTECTION = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)

#: Seconds after which a token that was made or revoked elsewhere is known.
TOKENS_EVERY = 2.0


@dataclass(frozen=True)
class Settings:
    """How a service runs.

    Attributes:
        local: only this machine can connect.
        limits: what callers may use.
        title: of the page.
        webhooks: who is told about events.
        silence_every: seconds after which plants are looked at again that may have fallen silent.
        clock: seconds since 1970.
    """

    local: bool = True
    limits: Limits = field(default_factory=Limits)
    title: str = "Campaign"
    webhooks: Sequence[Webhook] = ()
    silence_every: float = 10.0
    clock: Callable[[], float] = time.time


def create_app(campaign: Campaign, viewing: Campaign, settings: Settings) -> ASGIApp:
    """The service of a campaign.

    Args:
        campaign: for all that is written; nothing else may use this object.
        viewing: the same campaign, opened a second time, for all that looks.
        settings: how it runs.
    """
    tokens = TokenBook(campaign.journal, settings.clock)
    audit = AuditLog(campaign.journal, settings.clock)
    desk = PlantDesk(campaign, settings.limits, audit)
    viewer = Viewer(viewing)
    parts = ServiceParts(
        campaign=campaign,
        desk=desk,
        writer=GroupWriter(campaign, settings.limits.waiting, desk.forget),
        viewer=viewer,
        live=LivePage(viewer, settings.clock),
        access=Access(tokens, settings.limits, local=settings.local),
        sessions=Sessions(),
        audit=audit,
        metrics=Metrics(),
        limits=settings.limits,
        title=settings.title,
    )
    hooks = Webhooks(viewing, settings.webhooks)
    tasks = (lambda: _reread(tokens), lambda: _tell_silence(parts, settings.silence_every))
    app = FastAPI(
        title="scopeval",
        version=__version__,
        description="The verbs of a campaign. Every call may be repeated after a lost answer.",
        docs_url=None,  # the usual pages load scripts from elsewhere; /docs is our own
        redoc_url=None,
        lifespan=lambda app: _running(parts, hooks, tasks),
        responses={
            code: {"model": Problem} for code in (401, 403, 404, 408, 409, 413, 422, 429, 503)
        },
    )
    app.state.parts = parts
    for routes in (plant_routes, view_routes, page_routes):
        app.include_router(routes.router)
    _tell_errors(app)
    return Gate(BodyLimit(ShortWay(app), settings.limits), parts)


@contextlib.asynccontextmanager
async def _running(
    parts: ServiceParts, hooks: Webhooks, tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]]
) -> AsyncIterator[None]:
    parts.writer.start()
    hooks.start()
    running = [asyncio.create_task(task()) for task in tasks]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.to_thread(hooks.stop)
        await asyncio.to_thread(parts.writer.stop)


async def _reread(tokens: TokenBook) -> None:
    while True:
        await asyncio.sleep(TOKENS_EVERY)
        try:
            await asyncio.to_thread(tokens.refresh)
        except ScopevalError as error:
            log.warning("tokens could not be read: %s", error)


async def _tell_silence(parts: ServiceParts, every: float) -> None:
    """An event for every plant that falls silent, so that the page and webhooks tell it."""
    while True:
        await asyncio.sleep(every)
        try:
            await parts.writer.do(parts.campaign.tell_silence)
        except (ScopevalError, OverloadedError) as error:
            log.warning("silent plants could not be told: %s", error)


def _tell_errors(app: FastAPI) -> None:
    """Errors as answers, also of calls that take the long way."""

    async def told(request: Request, error: Exception) -> Response:
        return answer_to(error)

    for kind in TOLD:
        app.add_exception_handler(kind, told)


class Gate:
    """The outermost layer: checks the host, adds headers, measures.

    Args:
        app: the application.
        parts: of the service.
    """

    def __init__(self, app: ASGIApp, parts: ServiceParts) -> None:
        self._app, self._parts = app, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _protect(message)
            await send(message)

        try:
            if self._parts.access.open and not _own_host(scope):
                answer = JSONResponse({"detail": "this service is for localhost only"}, 421)
                await answer(scope, receive, sending)
                return
            await self._app(scope, receive, sending)
        finally:
            route = scope.get("route")
            name = scope.get(ROUTE) or (route.path if isinstance(route, Route) else "other")
            self._parts.metrics.count(name, status, time.perf_counter() - began)


def _protect(message: Message) -> None:
    """Add the headers that every answer has, where the answer has none of its own."""
    headers: list[tuple[bytes, bytes]] = message["headers"]
    there = {key.lower() for key, _ in headers}
    message["headers"] = [*headers, *(one for one in _PROTECTION if one[0] not in there)]


def _own_host(scope: Scope) -> bool:
    """Whether the name that was asked for is this machine's: another page cannot pretend it is."""
    hosts = [value for key, value in scope["headers"] if key == b"host"]
    if len(hosts) != 1:
        return False
    name = hosts[0].decode("latin-1")
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return is_loopback(name)

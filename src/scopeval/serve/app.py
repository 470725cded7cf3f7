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
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scopeval import __version__
from scopeval.campaign.campaign import Campaign
from scopeval.errors import DataError, ScopevalError
from scopeval.serve import page_routes, plant_routes, view_routes
from scopeval.serve.access import Access, Sessions, is_loopback
from scopeval.serve.audit import AuditLog
from scopeval.serve.desk import PlantDesk, problem_of
from scopeval.serve.group_writer import GroupWriter, OverloadedError
from scopeval.serve.limits import BodyLimit, Limits
from scopeval.serve.live_view import LivePage
from scopeval.serve.metrics import Metrics
from scopeval.serve.models import Problem
from scopeval.serve.state import ServiceParts
from scopeval.serve.tokens import TokenBook
from scopeval.serve.viewer import Viewer
from scopeval.serve.webhooks import Webhook, Webhooks

__all__ = ["Settings", "create_app"]

log = logging.getLogger("scopeval.serve")

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


def create_app(campaign: Campaign, viewing: Campaign, settings: Settings) -> FastAPI:
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
    app.add_middleware(BodyLimit, limits=settings.limits)
    app.add_middleware(Gate, parts=parts)
    return app


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
    """Errors as answers: what was wrong, and never where in the program or on the disk."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"detail": _said(error)}, 422)

    @app.exception_handler(OverloadedError)
    async def busy(request: Request, error: OverloadedError) -> JSONResponse:
        text = "too many calls wait for the database; try again"
        return JSONResponse({"detail": text}, 429, {"Retry-After": "1"})

    @app.exception_handler(ScopevalError)
    async def refused(request: Request, error: ScopevalError) -> JSONResponse:
        problem = problem_of(error)
        if problem is not None:
            return JSONResponse({"detail": problem[1]}, problem[0])
        kind = "the database" if isinstance(error, DataError) else "the service"
        log.error("%s", error)
        text = f"{kind} failed; nothing of this call was recorded, try it again"
        return JSONResponse({"detail": text}, 503, {"Retry-After": "1"})


def _said(error: RequestValidationError) -> str:
    """The first few problems of a body; the body itself is not repeated."""
    found = []
    for one in list(error.errors())[:3]:
        place = ".".join(str(part)[:60] for part in one.get("loc", ())[1:4])
        found.append(f"{place}: {one.get('msg', 'not valid')}" if place else str(one.get("msg")))
    return "; ".join(found)[:500]


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
                _protect(MutableHeaders(scope=message))
            await send(message)

        try:
            if self._parts.access.open and not _own_host(scope):
                answer = JSONResponse({"detail": "this service is for localhost only"}, 421)
                await answer(scope, receive, sending)
                return
            await self._app(scope, receive, sending)
        finally:
            route = scope.get("route")
            name = route.path if isinstance(route, Route) else "other"
            self._parts.metrics.count(name, status, time.perf_counter() - began)


def _protect(headers: MutableHeaders) -> None:
    headers["X-Content-Type-Options"] = "nosniff"
    headers.setdefault("Referrer-Policy", "no-referrer")
    headers.setdefault("Cache-Control", "no-store")
    headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")


def _own_host(scope: Scope) -> bool:
    """Whether the name that was asked for is this machine's: another page cannot pretend it is."""
    hosts = [value for key, value in scope["headers"] if key == b"host"]
    if len(hosts) != 1:
        return False
    name = hosts[0].decode("latin-1")
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return is_loopback(name)

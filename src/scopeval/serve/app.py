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
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scopeval import __version__
from scopeval.campaign.local import LocalBackend
from scopeval.errors import DataError, ScopevalError
from scopeval.serve import page, routes
from scopeval.serve.auth import Access, AuditLog, Sessions, TokenStore, is_loopback
from scopeval.serve.limits import LARGEST_HEAD, BodyLimit, Limits, refuse
from scopeval.serve.live import LivePage
from scopeval.serve.metrics import Metrics
from scopeval.serve.service import (
    CampaignService,
    OverloadedError,
    Viewer,
    WriteQueue,
    problem_of,
)
from scopeval.serve.state import AppState
from scopeval.serve.webhooks import Webhook, Webhooks

__all__ = ["Settings", "create_app"]

log = logging.getLogger("scopeval.serve")
access_log = logging.getLogger("scopeval.access")

#: Headers of every answer.
_PROTECTION = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)

#: Of every answer over HTTPS: browsers do not try HTTP for half a year.
_STRICT = (b"strict-transport-security", b"max-age=15552000")

#: Seconds after which a token that was made or revoked elsewhere is known.
TOKENS_EVERY = 2.0

#: Errors that have an answer of their own; any other one is a fault of the service, a 500.
HANDLED_ERRORS = (HTTPException, RequestValidationError, OverloadedError, ScopevalError)

#: Codes of answers that are given by their status.
CODES = {401: "unauthorized", 403: "forbidden", 404: "not_found", 422: "invalid", 429: "rate"}


@dataclass(frozen=True)
class Settings:
    """How a service runs.

    Attributes:
        local: only this machine can connect.
        limits: what callers may use.
        title: of the page.
        webhooks: who is told about events.
        silence_every: seconds after which plants are looked at again that may have fallen silent.
        access_log: write every call into the log.
        clock: seconds since 1970.
    """

    local: bool = True
    limits: Limits = field(default_factory=Limits)
    title: str = "Campaign"
    webhooks: Sequence[Webhook] = ()
    silence_every: float = 10.0
    access_log: bool = False
    clock: Callable[[], float] = time.time


def create_app(backend: LocalBackend, viewing: LocalBackend, settings: Settings) -> ASGIApp:
    """The service of a campaign.

    Args:
        backend: for all that is written; nothing else may use this object.
        viewing: the same campaign, opened a second time, for all that looks.
        settings: how it runs.
    """
    tokens = TokenStore(backend.store, settings.clock)
    audit = AuditLog(backend.store, settings.clock)
    security = AuditLog(viewing.store, settings.clock)
    service = CampaignService(backend, settings.limits, audit)
    viewer, hooks = Viewer(viewing), Webhooks(viewing, settings.webhooks)
    backend.on_look = viewing.on_look  # so that plants do not wait for it

    def refused(entry: Any) -> None:
        asyncio.get_running_loop().run_in_executor(None, security.add_refusal, entry)

    state = AppState(
        backend=backend,
        service=service,
        queue=WriteQueue(backend, settings.limits, service.forget),
        viewer=viewer,
        live=LivePage(viewer, settings.clock, hooks.problems),
        access=Access(tokens, settings.limits, local=settings.local, refused=refused),
        sessions=Sessions(),
        audit=audit,
        metrics=Metrics(),
        hooks=hooks,
        limits=settings.limits,
        title=settings.title,
    )
    tasks = (lambda: _reread(tokens), lambda: _tell_silence(state, settings.silence_every))
    app = FastAPI(
        title="scopeval",
        version=__version__,
        description="The verbs of a campaign. Every call may be repeated after a lost answer.",
        docs_url=None,  # the usual pages load scripts from elsewhere; /docs is our own
        redoc_url=None,
        redirect_slashes=False,  # it would repeat the caller's Host
        lifespan=lambda app: _running(state, tasks),
    )
    app.state.parts = state
    for router in (routes.plants, routes.viewers, page.router):
        app.router.routes.extend(router.routes)  # one list: an included router is searched twice
    _describe_security(app)
    _handle_errors(app)
    return SecurityMiddleware(BodyLimit(app, settings.limits), state, settings.access_log)


@contextlib.asynccontextmanager
async def _running(
    state: AppState, tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]]
) -> AsyncIterator[None]:
    state.queue.start()
    state.hooks.start()
    running = [asyncio.create_task(task()) for task in tasks]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.to_thread(state.hooks.stop)
        await asyncio.to_thread(state.queue.stop)


async def _reread(tokens: TokenStore) -> None:
    while True:
        await asyncio.sleep(TOKENS_EVERY)
        try:
            await asyncio.to_thread(tokens.note_use)
            await asyncio.to_thread(tokens.refresh)
        except ScopevalError as error:
            log.warning("tokens could not be read: %s", error)


async def _tell_silence(state: AppState, every: float) -> None:
    """An event for every plant that falls silent, so that the page and webhooks tell it."""
    while True:
        await asyncio.sleep(every)
        try:
            await state.queue.do(state.backend.tell_silence)
        except (ScopevalError, OverloadedError) as error:
            log.warning("silent plants could not be told: %s", error)


def _describe_security(app: FastAPI) -> None:
    """The description says that calls need a token, but for those that do not."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        description = plain()
        scheme = {"type": "http", "scheme": "bearer", "description": "scopeval serve-token create"}
        description["components"].setdefault("securitySchemes", {})["token"] = scheme
        description["security"] = [{"token": []}]
        for path in ("/healthz", "/readyz"):
            call = description["paths"][path]["get"]
            call["security"] = []
            for code in ("401", "403"):
                call["responses"].pop(code, None)
        return description

    app.openapi = described  # type: ignore[method-assign]


def _handle_errors(app: FastAPI) -> None:
    """Errors as answers."""

    async def respond(request: Request, error: Exception) -> Response:
        return error_response(error)

    for kind in HANDLED_ERRORS:
        app.add_exception_handler(kind, respond)


def error_response(error: Exception) -> Response:
    """The answer to a call that has raised one of `HANDLED_ERRORS`.

    It says what was wrong, and never where in the program or on the disk.
    """
    again = {"Retry-After": "1"}
    if isinstance(error, RequestValidationError):
        return _problem(422, "invalid", _validation_text(error))
    if isinstance(error, OverloadedError):
        return _problem(503, "overloaded", f"{error}; try again", again)
    if isinstance(error, HTTPException):
        code = CODES.get(error.status_code, "refused")
        return _problem(error.status_code, code, str(error.detail), error.headers)
    problem = problem_of(error)
    if problem is not None:
        return _problem(*problem)
    database = isinstance(error, DataError)
    log.error("%s", error)
    name = "the database" if database else "the service"
    text = f"{name} failed; nothing of this call was recorded, try it again"
    return _problem(503, "database" if database else "service", text, again)


def _problem(status: int, code: str, text: str, headers: Any = None) -> Response:
    return JSONResponse({"detail": text, "code": code}, status, headers)


def _validation_text(error: RequestValidationError) -> str:
    """The first few problems of a body; the body itself is not repeated."""
    problems = []
    for one in list(error.errors())[:3]:
        place = ".".join(str(part)[:60] for part in one.get("loc", ())[1:4])
        problems.append(f"{place}: {one.get('msg', 'not valid')}" if place else str(one.get("msg")))
    return "; ".join(problems)[:500]


class SecurityMiddleware:
    """The outermost layer: checks the host, adds headers, measures.

    Args:
        app: the application.
        state: of the service.
        log_calls: write every call into the log.
    """

    def __init__(self, app: ASGIApp, state: AppState, log_calls: bool) -> None:
        self._app, self._state, self._log_calls = app, state, log_calls

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
                _protect(message, strict=scope["scheme"] == "https")
            await send(message)

        try:
            if sum(len(key) + len(value) for key, value in scope["headers"]) > LARGEST_HEAD:
                why = f"the headers have more than {LARGEST_HEAD} bytes"
                await refuse(431, "too_large", why, sending, scope)
                return
            if self._state.access.open and not _own_host(scope):
                why = "this service is for localhost only"
                await refuse(421, "wrong_host", why, sending, scope)
                return
            await self._app(scope, receive, sending)
        finally:
            route, seconds = scope.get("route"), time.perf_counter() - began
            name = route.path if isinstance(route, Route) else "other"
            self._state.metrics.count(name, status, seconds)
            if self._log_calls:
                client = (scope.get("client") or ("?", 0))[0]
                called = scope["method"], scope["path"][:200].encode("unicode_escape").decode()
                access_log.info("%s %s %s %d %.1f ms", client, *called, status, 1000 * seconds)


def _protect(message: Message, *, strict: bool) -> None:
    """Add the headers that every answer has, where the answer has none of its own."""
    headers: list[tuple[bytes, bytes]] = message["headers"]
    there = {key.lower() for key, _ in headers}
    wanted = (*_PROTECTION, _STRICT) if strict else _PROTECTION
    message["headers"] = [*headers, *(one for one in wanted if one[0] not in there)]


def _own_host(scope: Scope) -> bool:
    """Whether the name that was asked for is this machine's: another page cannot pretend it is."""
    hosts = [value for key, value in scope["headers"] if key == b"host"]
    if len(hosts) != 1:
        return False
    name = hosts[0].decode("latin-1")
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return is_loopback(name)

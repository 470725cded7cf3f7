"""The application: routes, limits, errors and headers put together; and how it is run.

Addresses, connections that take too long, starting and stopping.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from scopeval import __version__
from scopeval.campaign.campaign import LocalBackend, open_local
from scopeval.campaign.designs import Policies
from scopeval.errors import DataError, InputError, PlantError, ScopevalError
from scopeval.serve import page, routes
from scopeval.serve.auth import FIRST, Access, AuditLog, Sessions, TokenStore, is_loopback
from scopeval.serve.live import LivePage
from scopeval.serve.models import LARGEST_HEAD, BodyLimit, Limits, refuse
from scopeval.serve.routes import AppState
from scopeval.serve.service import (
    CampaignService,
    Metrics,
    OverloadedError,
    Viewer,
    WriteQueue,
    problem_of,
)
from scopeval.serve.webhooks import Webhook, Webhooks

__all__ = ["Service", "Settings", "create_app", "serve", "serving"]

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


# -- running ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Service:
    """What is served, and where.

    Attributes:
        where: the campaign: a SQLite file or a PostgreSQL URL.
        target: the target policy, or several by name.
        behavior: needed where the campaign cannot hold it.
        host: the address to listen at.
        port: 0: any that is free.
        settings: of the application.
        certificate: for HTTPS; None: HTTP.
        key: of the certificate.
        target_name: "module:attribute" of a target that is no table, for new designs.
        baseline: what runs today, where the campaign cannot hold it.
        proxies: addresses of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed.
    """

    where: str | os.PathLike[str]
    target: Any
    behavior: Any = None
    host: str = "127.0.0.1"
    port: int = 8321
    settings: Settings = Settings()
    certificate: Path | None = None
    key: Path | None = None
    target_name: str | None = None
    baseline: Any = None
    proxies: tuple[str, ...] = ()


def serve(service: Service, announce: Callable[[str], None] = print) -> None:
    """Serve until the process is told to end: by SIGTERM or SIGINT, and then all is closed.

    Args:
        service: what is served.
        announce: is given what an operator must know once it serves, and the first token.

    Raises:
        InputError: an address that others can reach, and no token; or it is in use.
    """
    _raise_file_limit()
    with (
        logging_to_stderr(access=service.settings.access_log),
        _handling_signals(),
        _bound(service) as bound,
        _opened(service) as (config, first),
    ):
        bound.listen()  # who calls from now on waits, and is not refused
        announce(f"Serving at {_address(service, bound)}/ (Ctrl-C ends)")
        if first is not None:
            announce(f"There was no token. This one is an operator's, and is shown once:\n{first}")
        uvicorn.Server(config).run(sockets=[bound])


@contextlib.contextmanager
def _handling_signals() -> Iterator[None]:
    """After its own shutdown uvicorn raises the signal again: then the campaign must be closed."""

    def noted(number: int, frame: object) -> None:
        logging.getLogger("scopeval.serve").info("ended by %s", signal.Signals(number).name)

    before = {n: signal.signal(n, noted) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextlib.contextmanager
def logging_to_stderr(*, access: bool) -> Iterator[None]:
    """Lines with time, level and name on the standard error while the block runs."""
    handler = logging.StreamHandler(sys.stderr)
    text = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
    formatter = logging.Formatter(text, "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    levels = {
        "scopeval.serve": logging.INFO,
        "scopeval.access": logging.INFO if access else logging.WARNING,
        "uvicorn.error": logging.WARNING,
        "asyncio": logging.ERROR,
    }
    loggers = {logging.getLogger(name): level for name, level in levels.items()}
    before = [(one, one.handlers[:], one.level, one.propagate) for one in loggers]
    for logger, level in loggers.items():
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
    try:
        yield
    finally:  # the stream may be closed soon
        for logger, handlers, level, propagate in before:
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)


def _raise_file_limit() -> None:
    """Allow as many open files as the system lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _connections(limits: Limits) -> Limits:
    """Fewer connections than files may be open: the rest is for the database and the files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections=max(min(limits.connections, soft - 128), 1))


def _address(service: Service, bound: socket.socket) -> str:
    scheme = "http" if service.certificate is None else "https"
    name = f"[{service.host}]" if ":" in service.host else service.host
    return f"{scheme}://{name}:{bound.getsockname()[1]}"


@contextlib.contextmanager
def serving(service: Service) -> Iterator[str]:
    """Serve in a thread while the block runs; gives the address."""
    with _bound(service) as bound, _opened(service, first=False) as (config, _):
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [bound]}, name="scopeval-serve", daemon=True
        )
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise PlantError("the service could not be started; see its log")
                thread.join(0.01)
            yield _address(service, bound)
        finally:
            server.should_exit = True
            thread.join()


@contextlib.contextmanager
def _opened(service: Service, *, first: bool = True) -> Iterator[tuple[uvicorn.Config, str | None]]:
    """The configuration while the campaign is open, and the first token where one was made."""
    _check_files(service)
    local, settings = is_loopback(service.host), service.settings
    policies = Policies.of(service.target, service.behavior, service.baseline, service.target_name)
    with (
        _closing(open_local(service.where, policies, check=True, clock=settings.clock)) as backend,
        _closing(open_local(service.where, policies, check=False, clock=settings.clock)) as viewing,
    ):
        tokens = TokenStore(backend.store, settings.clock)
        _check_address(service, tokens)
        made = None
        if first and not len(tokens):
            made = tokens.create(FIRST, "operator")
        with backend.store.transaction() as connection:  # refused where it cannot be written
            connection.exec_driver_sql("UPDATE facts SET value = value WHERE name = 'format'")
        limits = _connections(settings.limits)
        app = create_app(backend, viewing, replace(settings, local=local, limits=limits))
        config = uvicorn.Config(
            app,
            http=_protocol(limits),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(service.proxies),
            forwarded_allow_ips=list(service.proxies),
            timeout_keep_alive=60,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=LARGEST_HEAD,
            ssl_certfile=service.certificate,
            ssl_keyfile=service.key,
        )
        yield config, made


@contextlib.contextmanager
def _closing(backend: LocalBackend) -> Iterator[LocalBackend]:
    try:
        yield backend
    finally:
        backend.close()


def _check_files(service: Service) -> None:
    """The certificate and its key are there."""
    if service.key is not None and service.certificate is None:
        raise InputError("tls-key: got a key without a certificate; expected --tls-certificate too")
    for name, path in (("tls-certificate", service.certificate), ("tls-key", service.key)):
        if path is not None and not os.access(path, os.R_OK):
            raise InputError(f"{name}: {path} cannot be read; expected a PEM file")


def _check_address(service: Service, tokens: TokenStore) -> None:
    now = service.settings.clock()
    if not is_loopback(service.host) and not any(one.valid(now) for one in tokens.all()):
        raise InputError(
            f"host: {service.host} can be reached by other machines, and nobody has a token; make "
            "one with scopeval serve-token create, or use 127.0.0.1"
        )


@contextlib.contextmanager
def _bound(service: Service) -> Iterator[socket.socket]:
    kind = socket.AF_INET6 if ":" in service.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named
    with socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((service.host, service.port))
        except OSError as error:
            raise InputError(
                f"host, port: cannot listen at {service.host}, {service.port} ({error.strerror})"
            ) from error
        yield bound


def _protocol(limits: Limits) -> type[H11Protocol]:
    """HTTP that ends connections whose head takes too long, and refuses too many of them.

    uvicorn limits how long a connection is idle between requests, and not how long a head may take.
    """
    by_address: Counter[str] = Counter()

    class HeadTimeoutProtocol(H11Protocol):
        """One connection."""

        _head: asyncio.TimerHandle | None = None
        _peer = ""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._peer = str((transport.get_extra_info("peername") or ("?",))[0])
            by_address[self._peer] += 1
            many = len(self.connections) > limits.connections
            if many or by_address[self._peer] > limits.per_address:
                transport.abort()
                return
            self._await_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:
                self._await_head()
            else:
                self._have_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._have_head()
            by_address[self._peer] -= 1
            if not by_address[self._peer]:
                del by_address[self._peer]
            super().connection_lost(exc)

        def _await_head(self) -> None:
            if self._head is None and not self.transport.is_closing():
                self._head = self.loop.call_later(limits.head_seconds, self.transport.abort)

        def _have_head(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

    return HeadTimeoutProtocol

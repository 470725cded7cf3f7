"""Runs the application: addresses, connections that take too long, starting and stopping."""

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from scopeval.campaign.local import LocalBackend, Policies, open_local
from scopeval.errors import InputError, PlantError
from scopeval.serve.app import Settings, create_app
from scopeval.serve.auth import FIRST, TokenStore, is_loopback
from scopeval.serve.limits import LARGEST_HEAD, Limits

__all__ = ["Service", "serve", "serving"]


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
    settings: Settings = Settings()  # noqa: RUF009  (frozen)
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

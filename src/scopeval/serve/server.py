"""Runs the application: addresses, connections that take too long, starting and stopping."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from scopeval.campaign.campaign import Campaign
from scopeval.errors import InputError, PlantError
from scopeval.serve.access import is_loopback
from scopeval.serve.app import Settings, create_app
from scopeval.serve.joined_transport import JoinedTransport
from scopeval.serve.limits import Limits
from scopeval.serve.tokens import TokenBook

__all__ = ["Service", "prefer_answers", "serve", "serving"]

#: Most bytes of the head of a request.
LARGEST_HEAD = 16_384


@dataclass(frozen=True)
class Service:
    """What is served, and where.

    Attributes:
        where: the campaign: a SQLite file or a PostgreSQL URL.
        target: the target policy.
        behavior: needed where the campaign cannot hold it.
        host: the address to listen at.
        port: 0: any that is free.
        settings: of the application.
        certificate: for HTTPS; None: HTTP.
        key: of the certificate.
        target_name: "module:attribute" of a target that is no table, for new designs.
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


def serve(service: Service) -> None:
    """Serve until the process is told to end.

    Raises:
        InputError: an address that others can reach, and no token; or it is in use.
    """
    prefer_answers()
    with _opened(service) as config, _bound(service) as bound:
        uvicorn.Server(config).run(sockets=[bound])


def prefer_answers() -> None:
    """Let threads of this process take turns more often.

    The thread that answers gives Python's lock away with every answer, and would wait 5 ms (the
    default) for the thread that writes to give it back.
    """
    sys.setswitchinterval(0.0002)


@contextlib.contextmanager
def serving(service: Service) -> Iterator[str]:
    """Serve in a thread while the block runs; gives the address."""
    with _opened(service) as config, _bound(service) as bound:
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
            scheme = "http" if service.certificate is None else "https"
            name = f"[{service.host}]" if ":" in service.host else service.host
            yield f"{scheme}://{name}:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextlib.contextmanager
def _opened(service: Service) -> Iterator[uvicorn.Config]:
    """The configuration, while the campaign is open."""
    local = is_loopback(service.host)
    arguments: dict[str, Any] = {
        "behavior": service.behavior,
        "clock": service.settings.clock,
        "target_name": service.target_name,
    }
    with (
        Campaign.open(service.where, service.target, **arguments) as campaign,
        Campaign.open(service.where, service.target, check=False, **arguments) as viewing,
    ):
        _check_address(service, campaign)
        app = create_app(campaign, viewing, replace(service.settings, local=local))
        yield uvicorn.Config(
            app,
            http=_protocol(service.settings.limits),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=LARGEST_HEAD,
            ssl_certfile=service.certificate,
            ssl_keyfile=service.key,
        )


def _check_address(service: Service, campaign: Campaign) -> None:
    tokens = TokenBook(campaign.journal, service.settings.clock)
    valid = [token for token in tokens.all() if token.revoked is None]
    if not is_loopback(service.host) and not valid:
        raise InputError(
            f"host: {service.host} can be reached by other machines, and nobody has a token; make "
            "one with scopeval serve-token create, or use 127.0.0.1"
        )


@contextlib.contextmanager
def _bound(service: Service) -> Iterator[socket.socket]:
    kind = socket.AF_INET6 if ":" in service.host else socket.AF_INET
    with socket.socket(kind) as bound:
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

    class Patient(H11Protocol):
        """One connection."""

        _head: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(JoinedTransport(transport, self.loop))
            if len(self.connections) > limits.connections:
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
            super().connection_lost(exc)

        def _await_head(self) -> None:
            if self._head is None and not self.transport.is_closing():
                self._head = self.loop.call_later(limits.head_seconds, self.transport.abort)

        def _have_head(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

    return Patient

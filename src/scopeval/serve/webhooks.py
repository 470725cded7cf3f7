"""Events are sent to addresses that the operator of the service has configured.

A thread of its own for each address sends them, at least once. An event that is not taken is tried
again later, and those after it do not wait for it. What was delivered is kept in the database, so a
restart goes on there. It never follows a redirect, and an address has a few seconds in all.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import sqlalchemy as sa

from scopeval._files import versions
from scopeval.campaign.campaign import LocalBackend
from scopeval.campaign.store import DELIVERIES, Event
from scopeval.errors import InputError, ScopevalError
from scopeval.serve.client import to_wire

__all__ = ["DEFAULT_KINDS", "Webhook", "Webhooks", "check_url", "send"]

log = logging.getLogger("scopeval.serve")

#: Kinds of events that are sent by default; those of single episodes are many.
DEFAULT_KINDS = (
    *("alarm", "silent", "lost", "dropped", "pause", "resume", "hand over", "stop", "live"),
    *("fallback", "stage", "design", "refit failed"),
    *("policy failed", "policy dropped", "decided"),
)

#: Seconds that an address has for an answer in all.
TIMEOUT = 5.0

#: Seconds until an event is tried again, after its first failure and so on; then it is given up.
WAITS = (1.0, 5.0, 30.0, 120.0, 600.0, 3600.0)

#: Most events that wait for another try; the oldest is given up.
MOST_WAITING = 1_000


@dataclass(frozen=True)
class Webhook:
    """Who is sent what.

    Attributes:
        url: the address.
        kinds: of events.
        secret: signs what is sent, with HMAC-SHA256 in X-Scopeval-Signature; None: nothing does.
    """

    url: str
    kinds: tuple[str, ...] = DEFAULT_KINDS
    secret: str | None = None

    @property
    def host(self) -> str:
        """For the log: the rest of the address may hold a secret."""
        return urlsplit(self.url).hostname or "?"


def check_url(url: str) -> str:
    """An address of a webhook.

    Raises:
        InputError: it is none, or has a user and a password, which are not sent.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        raise InputError(f"webhook: got {url!r:.100}, expected http://host/path or https://...")
    if parts.username is not None or parts.password is not None:
        raise InputError(
            f"webhook: got a user or a password for {parts.hostname}, which are not sent; expected "
            "a secret path, or SCOPEVAL_WEBHOOK_SECRET, which signs what is sent"
        )
    return url


def send(hook: Webhook, event: Event) -> str | None:
    """Send one event. Returns None, or why it failed."""
    parts = urlsplit(hook.url)
    body = json.dumps(to_wire(event)).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"scopeval/{versions()['scopeval']}",
        "X-Scopeval-Event": str(event.number),
        "X-Scopeval-Head": f"{event.number}:{event.hash}",
    }
    if hook.secret is not None:
        sign = hmac.new(hook.secret.encode(), body, hashlib.sha256).hexdigest()
        headers["X-Scopeval-Signature"] = f"sha256={sign}"
    assert parts.hostname is not None
    place = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    line: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        line = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=TIMEOUT, context=context
        )
    else:
        line = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)
    ended: list[bool] = []
    # the timeout above is that of one packet
    late = threading.Timer(TIMEOUT, _shut, (line, ended))
    late.daemon = True
    late.start()
    try:
        line.request("POST", place, body, headers)
        status = line.getresponse().status
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
        return type(error).__name__
    finally:
        late.cancel()
        line.close()
    if ended:
        return f"no answer within {TIMEOUT:g} seconds"
    return None if 200 <= status < 300 else f"status {status}"


def _shut(line: http.client.HTTPConnection, ended: list[bool]) -> None:
    """End a connection that takes too long."""
    ended.append(True)
    with contextlib.suppress(OSError, AttributeError):
        line.sock.shutdown(socket.SHUT_RDWR)


@dataclass
class _Late:
    """An event that was not taken."""

    event: Event
    tries: int
    due: float


class Webhooks:
    """Sends events to all webhooks.

    Args:
        backend: whose events; read only, but for what was delivered.
        hooks: who is sent what.
        wait: called with seconds between looks; returns True when it is time to end.
        every: seconds between looks at the journal.
        clock: seconds.
    """

    def __init__(
        self,
        backend: LocalBackend,
        hooks: Sequence[Webhook],
        *,
        wait: Callable[[float], bool] | None = None,
        every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend, self._hooks, self._every = backend, tuple(hooks), every
        self._clock = clock
        self._ended = threading.Event()
        self._wait = wait or self._ended.wait
        self._late: dict[str, list[_Late]] = {hook.url: [] for hook in self._hooks}
        self._threads = [
            threading.Thread(
                target=self._run, args=(hook,), name=f"scopeval-webhook-{k}", daemon=True
            )
            for k, hook in enumerate(self._hooks)
        ]
        self.failed = 0

    @property
    def waiting(self) -> int:
        """Events that wait for another try."""
        return sum(len(late) for late in self._late.values())

    def problems(self) -> list[str]:
        """What somebody should see to."""
        problems = []
        if self.failed:
            problems.append(f"{self.failed} events were not taken by webhooks, and given up")
        if self.waiting:
            problems.append(f"{self.waiting} events wait for webhooks that do not take them")
        return problems

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; what was not delivered is sent after the next start."""
        self._ended.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(2 * TIMEOUT)

    # -- in the threads ------------------------------------------------------------------------

    def _run(self, hook: Webhook) -> None:
        last: int | None = None
        while not self._ended.is_set():
            try:
                if last is None:
                    last = self.delivered(hook)
                last = self.send_news(hook, last)
            except ScopevalError as error:
                log.warning("webhook %s: %s", hook.host, error)
            except Exception:  # a webhook must not end because of one bad event
                log.exception("webhook %s", hook.host)
            if self._wait(self._every):
                return

    def send_news(self, hook: Webhook, last: int) -> int:
        """Send all events after one, and those again that are due; returns the last of them."""
        late = self._late[hook.url]
        for event in self._backend.events(last, most=1_000):
            if self._ended.is_set():
                break
            last = event.number
            if event.kind in hook.kinds:
                self._try(hook, _Late(event, 0, 0.0))
                self._keep(hook, last)
        now = self._clock()
        for one in [one for one in late if one.due <= now]:
            late.remove(one)
            self._try(hook, one)
            self._keep(hook, last)
        return last

    def _try(self, hook: Webhook, one: _Late) -> None:
        """Send an event; where it is not taken it waits, or is given up."""
        why = send(hook, one.event)
        if why is None:
            return
        late, number = self._late[hook.url], one.event.number
        if one.tries < len(WAITS):
            one.due = self._clock() + WAITS[one.tries]
            one.tries += 1
            late.append(one)
            log.warning("webhook %s: event %d was not taken (%s)", hook.host, number, why)
            if len(late) <= MOST_WAITING:
                return
            number = late.pop(0).event.number
        self.failed += 1
        log.error("webhook %s: event %d was not taken (%s): given up", hook.host, number, why)
        with self._backend.store.transaction() as connection:
            chosen = DELIVERIES.update().where(DELIVERIES.c.url == _mark(hook))
            connection.execute(chosen.values(failed=DELIVERIES.c.failed + 1))

    def delivered(self, hook: Webhook) -> int:
        """The last event that was sent; a new webhook is sent only what happens from now on."""
        store = self._backend.store
        with store.read() as connection:
            row = connection.execute(
                sa.select(DELIVERIES).where(DELIVERIES.c.url == _mark(hook))
            ).one_or_none()
        if row is not None:
            self.failed += row.failed
            return int(row.event)
        last = self._backend.status().last_event
        with store.transaction() as connection:
            connection.execute(DELIVERIES.insert().values(url=_mark(hook), event=last))
        return last

    def _keep(self, hook: Webhook, last: int) -> None:
        """Write down the last event before all that must be sent (again) after a restart."""
        late = self._late[hook.url]
        number = min([one.event.number - 1 for one in late], default=last)
        with self._backend.store.transaction() as connection:
            chosen = DELIVERIES.update().where(DELIVERIES.c.url == _mark(hook))
            connection.execute(chosen.values(event=number))


def _mark(hook: Webhook) -> str:
    return hashlib.sha256(hook.url.encode()).hexdigest()

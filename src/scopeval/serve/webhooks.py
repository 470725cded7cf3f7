"""Events are told to addresses that the operator of the service has configured.

A thread of its own sends them, in order, at least once: what was delivered is kept in the database,
so a restart goes on there. It never follows a redirect, and waits a few seconds only.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import logging
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import sqlalchemy as sa

from scopeval._files import versions
from scopeval.campaign.campaign import Campaign
from scopeval.campaign.journal import Event
from scopeval.errors import InputError, ScopevalError
from scopeval.serve.tables import deliveries
from scopeval.serve.wire import to_wire

__all__ = ["TOLD", "Webhook", "Webhooks", "check_url", "send"]

log = logging.getLogger("scopeval.serve")

#: Kinds of events that are told by default; those of single episodes are many.
TOLD = (
    "alarm",
    "silent",
    "lost",
    "dropped",
    "pause",
    "resume",
    "hand over",
    "stop",
    "stage",
    "design",
)

#: Seconds that an address has for an answer, and that are waited between attempts.
TIMEOUT, WAITS = 5.0, (1.0, 5.0, 30.0, 120.0)


@dataclass(frozen=True)
class Webhook:
    """Who is told what.

    Attributes:
        url: the address.
        kinds: of events.
        secret: signs what is sent, with HMAC-SHA256 in X-Scopeval-Signature; None: nothing does.
    """

    url: str
    kinds: tuple[str, ...] = TOLD
    secret: str | None = None


def check_url(url: str) -> str:
    """An address of a webhook.

    Raises:
        InputError: it is none.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        raise InputError(f"webhook: got {url!r:.100}, expected http://host/path or https://...")
    return url


def send(hook: Webhook, event: Event) -> str | None:
    """Tell one event; None: it was taken, else why it was not."""
    parts = urlsplit(hook.url)
    body = json.dumps(to_wire(event)).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"scopeval/{versions()['scopeval']}",
        "X-Scopeval-Event": str(event.number),
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
    try:
        line.request("POST", place, body, headers)
        status = line.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        line.close()
    return None if 200 <= status < 300 else f"status {status}"


class Webhooks:
    """Tells events to all webhooks.

    Args:
        campaign: whose events; read only, but for what was delivered.
        hooks: who is told.
        wait: called with seconds between attempts; returns True when it is time to end.
        every: seconds between looks at the journal.
    """

    def __init__(
        self,
        campaign: Campaign,
        hooks: Sequence[Webhook],
        *,
        wait: Callable[[float], bool] | None = None,
        every: float = 1.0,
    ) -> None:
        self._campaign, self._hooks, self._every = campaign, tuple(hooks), every
        self._ended = threading.Event()
        self._wait = wait or self._ended.wait
        self._threads = [
            threading.Thread(
                target=self._run, args=(hook,), name=f"scopeval-webhook-{k}", daemon=True
            )
            for k, hook in enumerate(self._hooks)
        ]
        self.failed = 0

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; what was not delivered is told after the next start."""
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
                last = self.tell(hook, last)
            except ScopevalError as error:
                log.warning("webhook: %s", error)
            except Exception:  # a webhook must not end because of one bad event
                log.exception("webhook")
            if self._wait(self._every):
                return

    def tell(self, hook: Webhook, last: int) -> int:
        """Tell all events after one; returns the last that needs no telling any more."""
        for event in self._campaign.events(last, most=1_000):
            if event.kind in hook.kinds:
                if not self._deliver(hook, event):
                    return last
                self._keep(hook, event.number)
            last = event.number
        return last

    def _deliver(self, hook: Webhook, event: Event) -> bool:
        """Try several times; an event that is never taken is given up, and that is logged."""
        for pause in (*WAITS, None):
            why = send(hook, event)
            if why is None:
                return True
            if pause is None:
                self.failed += 1
                log.error("webhook: event %d was not taken (%s): given up", event.number, why)
                return True
            if self._wait(pause):
                return False
        return False

    def delivered(self, hook: Webhook) -> int:
        """The last event that was told; a new webhook is told only what happens from now on."""
        with self._campaign.journal.read() as connection:
            found = connection.execute(
                sa.select(deliveries.c.event).where(deliveries.c.url == _mark(hook))
            ).scalar()
        if found is not None:
            return int(found)
        last = self._campaign.status().last_event
        with self._campaign.journal.write() as connection:
            connection.execute(deliveries.insert().values(url=_mark(hook), event=last))
        return last

    def _keep(self, hook: Webhook, number: int) -> None:
        with self._campaign.journal.write() as connection:
            connection.execute(
                deliveries.update().where(deliveries.c.url == _mark(hook)).values(event=number)
            )


def _mark(hook: Webhook) -> str:
    return hashlib.sha256(hook.url.encode()).hexdigest()

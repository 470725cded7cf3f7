"""Calls over HTTP that are repeated until they are answered."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from scopeval import __version__
from scopeval.errors import CampaignError, InputError, ScopevalError, ServiceError

__all__ = ["Line"]

#: Answers after which a call is repeated: nothing was recorded, or it is safe to record it again.
AGAIN = (408, 429, 502, 503, 504)

#: Seconds between attempts: doubled each time up to the last.
FIRST_WAIT, LAST_WAIT = 0.1, 5.0

#: Most bytes of an answer.
LARGEST = 2**31


class Line:
    """A line to a service; every thread has a connection of its own.

    Args:
        url: of the service.
        token: shown with every call; None: none is.
        timeout: seconds for one attempt.
        patience: seconds for which a call is repeated.
        sleep: waits.
        chance: a number in [0, 1), so that many callers do not repeat at the same moment.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout: float,
        patience: float,
        sleep: Callable[[float], None],
        chance: Callable[[], float],
    ) -> None:
        try:
            parts = urlsplit(url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname)
            self._port = parts.port
        except ValueError:
            good = False
        if not good or parts.username is not None:
            raise InputError(f"url: got {url!r:.100}, expected http://host:port or https://...")
        if token is not None and not token.isascii():
            raise InputError("token: expected the text that scopeval serve-token printed")
        self.url = url.rstrip("/")
        self._host, self._root = parts.hostname or "", parts.path.rstrip("/")
        self._context = ssl.create_default_context() if parts.scheme == "https" else None
        self._timeout, self._patience = timeout, patience
        self._sleep, self._chance = sleep, chance
        self._own = _Own()
        self._headers = {"User-Agent": f"scopeval/{__version__}", "Accept": "*/*"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def get(self, place: str) -> Any:
        """What is at a place, decoded."""
        return json.loads(self._call("GET", place, None))

    def get_bytes(self, place: str) -> bytes:
        """What is at a place."""
        return self._call("GET", place, None)

    def post(self, place: str, body: dict[str, Any]) -> Any:
        """The answer to a call; None: it has no content."""
        content = self._call("POST", place, json.dumps(body).encode())
        return json.loads(content) if content else None

    def close(self) -> None:
        """Close this thread's connection."""
        if self._own.connection is not None:
            self._own.connection.close()
            self._own.connection = None

    def _call(self, method: str, place: str, body: bytes | None) -> bytes:
        until = time.monotonic() + self._patience
        wait = FIRST_WAIT
        while True:
            asked: float | None = None
            try:
                status, content, asked = self._attempt(method, place, body)
                if 200 <= status < 300:
                    return content
                if status not in AGAIN:
                    raise _error(status, content)
                why = f"status {status}"
            except (OSError, http.client.HTTPException) as error:
                self.close()
                why = f"{type(error).__name__}: {error}"
            pause = max(wait * (0.5 + self._chance()), asked or 0.0)
            if time.monotonic() + pause > until:
                raise ServiceError(
                    f"{self.url}: no answer for {self._patience:g} seconds ({why}); the call is "
                    "safe to repeat"
                )
            self._sleep(pause)
            wait = min(2 * wait, LAST_WAIT)

    def _attempt(
        self, method: str, place: str, body: bytes | None
    ) -> tuple[int, bytes, float | None]:
        """Status, content, and the seconds that the service asks to wait."""
        if self._own.connection is None:
            self._own.connection = self._connect()
        headers = self._headers
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
        self._own.connection.request(method, self._root + place, body, headers)
        answer = self._own.connection.getresponse()
        content = answer.read(LARGEST)
        later = answer.headers.get("Retry-After", "")
        return answer.status, content, float(later) if later.isdecimal() else None

    def _connect(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout, context=self._context
        )


class _Own(threading.local):
    """The connection of a thread."""

    connection: http.client.HTTPConnection | None = None


def _error(status: int, content: bytes) -> ScopevalError:
    """An answer that is not to be repeated, as an exception."""
    try:
        told = str(json.loads(content)["detail"])
    except (ValueError, KeyError, TypeError):
        told = f"status {status}"
    if status in (401, 403):
        return InputError(f"token: refused ({told})")
    if status == 409:
        return CampaignError(told)
    if 400 <= status < 500:
        return InputError(told)
    return ServiceError(f"the service failed ({told}); see its log")

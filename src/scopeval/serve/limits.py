"""Limits of the service: on the rate of a caller, on bodies, and on how long a body may take."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scopeval.arrays import check_whole, is_number
from scopeval.errors import InputError

__all__ = ["LARGEST_HEAD", "BodyLimit", "Limits", "RateLimit", "refuse"]

#: Most bytes of the head of a request.
LARGEST_HEAD = 16_384


@dataclass(frozen=True)
class Limits:
    """What a caller may use.

    Attributes:
        body: most bytes of a request's body.
        rate: calls a second that a token may make, on average; twice as many at once.
        failures: wrong tokens a second from one address, likewise.
        open_episodes: most episodes that are open at a time.
        waiting: most calls that wait for the database.
        answer_seconds: longest time that a call waits for the database.
        connections: most connections at a time, and
        per_address: from one address.
        head_seconds: longest time until the head of a request is complete.
        body_seconds: longest time until its body is complete.
    """

    body: int = 65_536
    rate: float = 100.0
    failures: float = 1.0
    open_episodes: int = 1_000
    waiting: int = 10_000
    answer_seconds: float = 10.0
    connections: int = 2_000
    per_address: int = 500
    head_seconds: float = 10.0
    body_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("body", "open_episodes", "waiting", "connections", "per_address"):
            check_whole(name, getattr(self, name), 1)
        for name in ("rate", "failures", "answer_seconds", "head_seconds", "body_seconds"):
            value = getattr(self, name)
            if not (is_number(value) and value > 0):
                raise InputError(f"{name}: got {value!r}, expected a number above 0")


class RateLimit:
    """A bucket for every caller: it fills at `rate`, and holds `burst` calls.

    Args:
        rate: calls a second.
        burst: calls at once; at least 1.
        most: callers that are remembered; the one that called longest ago is forgotten.
        clock: seconds.
    """

    def __init__(
        self,
        rate: float,
        burst: float,
        most: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate, self._burst, self._most, self._clock = rate, max(burst, 1.0), most, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, who: str) -> bool:
        """Whether a call is within the rate; counts it if so."""
        level = self._level(who)
        allowed = level >= 1.0
        self._buckets[who] = (level - 1.0 if allowed else level, self._clock())
        self._buckets.move_to_end(who)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return allowed

    def empty(self, who: str) -> bool:
        """Whether nothing is left; counts nothing."""
        return self._level(who) < 1.0

    def _level(self, who: str) -> float:
        now = self._clock()
        level, last = self._buckets.get(who, (self._burst, now))
        return min(self._burst, level + self._rate * (now - last))


class BodyLimit:
    """Reads a body before anything else sees it: 413 where it is too large, 408 where too slow.

    Args:
        app: the application.
        limits: the limits.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._large = f"the body has more than {limits.body} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if "content-length" in headers and "transfer-encoding" in headers:
            why = "the body has two lengths: Content-Length and Transfer-Encoding"
            await refuse(400, "invalid", why, send, scope)
            return
        if not length.isdecimal() or int(length[:20]) > self._limits.body:
            await refuse(413, "too_large", self._large, send, scope)
            return
        if length == "0" and "transfer-encoding" not in headers:
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                body = await self._read(receive)
        except TimeoutError:
            seconds = self._limits.body_seconds
            why = f"the body took longer than {seconds:g} seconds"
            await refuse(408, "too_slow", why, send, scope)
            return
        if body is None:
            await refuse(413, "too_large", self._large, send, scope)
            return
        await self._app(scope, _given(body, receive), send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The whole body; None: it is too large."""
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b""
            part = message.get("body", b"")
            size += len(part)
            if size > self._limits.body:
                return None
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)


def _given(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read, then what the server says."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def refuse(status: int, code: str, why: str, send: Send, scope: Scope) -> None:
    """Answer a request whose body is not read, and close the connection."""
    content = {"detail": why, "code": code}
    answer = JSONResponse(content, status, headers={"connection": "close"})

    async def nothing() -> Message:
        return {"type": "http.disconnect"}

    await answer(scope, nothing, send)

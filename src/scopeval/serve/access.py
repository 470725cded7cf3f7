"""Who is calling, and whether they may: tokens in headers, sessions of browsers, rates."""

from __future__ import annotations

import functools
import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import HTTPException
from starlette.requests import HTTPConnection

from scopeval.serve.limits import Limits, RateLimit
from scopeval.serve.tokens import Role, Token, TokenBook

__all__ = [
    "LOCAL",
    "Access",
    "Session",
    "Sessions",
    "address_of",
    "check_form",
    "is_loopback",
    "is_own_origin",
    "may",
]

#: Everybody on this machine, where no token was ever made and only this machine can connect.
LOCAL = Token("local", "local", "operator", None, 0.0, None)


@functools.lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may lead anywhere
        return False


def may(token: Token, role: Role) -> bool:
    """Whether a token is enough for what needs a role. Operators may look; no role runs plants
    but that of a plant."""  # noqa: D205, D209
    if token is LOCAL or token.role == role:
        return True
    return role == "viewer" and token.role == "operator"


def address_of(connection: HTTPConnection) -> str:
    """Where a call comes from."""
    return connection.client.host if connection.client is not None else "unknown"


class Access:
    """Decides about every call.

    Args:
        tokens: the tokens.
        limits: of the service.
        local: only this machine can connect.
        clock: seconds, for rates.
    """

    def __init__(
        self,
        tokens: TokenBook,
        limits: Limits,
        *,
        local: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tokens, self._local = tokens, local
        self._rates = RateLimit(limits.rate, 2 * limits.rate, clock=clock)
        self._failures = RateLimit(limits.failures, 10 * limits.failures, clock=clock)
        self.refused = 0
        self.limited = 0

    @property
    def open(self) -> bool:
        """Whether no token is needed: none was ever made, and only this machine can connect."""
        return self._local and not len(self.tokens)

    def caller(self, connection: HTTPConnection, role: Role) -> Token:
        """The token of a call by a program.

        Raises:
            HTTPException: 401 without a valid token, 403 for another role, 429 over the rate.
        """
        kind, _, text = connection.headers.get("authorization", "").partition(" ")
        if not kind and self.open:
            return self.admit(LOCAL, role)
        token = self.tokens.find(text.strip()) if kind.lower() == "bearer" else None
        if token is None:
            raise self.unknown(connection)
        return self.admit(token, role)

    def unknown(self, connection: HTTPConnection) -> HTTPException:
        """The answer to a wrong token."""
        self.refused += 1
        if not self._failures.allow(address_of(connection)):
            return HTTPException(429, "too many wrong tokens; wait", {"Retry-After": "10"})
        why = "a valid token is needed: Authorization: Bearer scopeval_..."
        return HTTPException(401, why, {"WWW-Authenticate": "Bearer"})

    def admit(self, token: Token, role: Role) -> Token:
        """See that a token is enough, and count the call."""
        if not self._rates.allow(token.key):
            self.limited += 1
            raise HTTPException(429, "too many calls with this token; wait", {"Retry-After": "1"})
        if not may(token, role):
            self.refused += 1
            raise HTTPException(403, f"this needs the role {role}, the token's is {token.role}")
        return token


@dataclass(frozen=True)
class Session:
    """A browser that has shown a token.

    Attributes:
        number: secret; the cookie.
        form: secret; in every form, so that only our own pages can send one.
        key: of the token.
        until: when it ends, by the clock.
    """

    number: str
    form: str
    key: str
    until: float


class Sessions:
    """Sessions of browsers. They are kept in memory only: a restart ends them.

    Args:
        hours: how long one lasts.
        most: how many; the oldest ends first.
        clock: seconds.
    """

    def __init__(
        self, hours: float = 12.0, most: int = 1_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds, self._most, self._clock = 3600 * hours, most, clock
        self._open: OrderedDict[str, Session] = OrderedDict()

    def begin(self, token: Token) -> Session:
        """Begin a session."""
        until = self._clock() + self._seconds
        one = Session(secrets.token_urlsafe(32), secrets.token_urlsafe(32), token.key, until)
        self._open[one.number] = one
        while len(self._open) > self._most:
            self._open.popitem(last=False)
        return one

    def find(self, number: str | None) -> Session | None:
        """A session that has not ended."""
        one = self._open.get(number or "")
        if one is None or one.until < self._clock():
            self._open.pop(number or "", None)
            return None
        return one

    def end(self, one: Session) -> None:
        """End a session."""
        self._open.pop(one.number, None)


def is_own_origin(connection: HTTPConnection) -> bool:
    """Whether a form was sent by a page of this service, as far as the browser tells."""
    origin = connection.headers.get("origin")
    return origin is None or origin.partition("://")[2] == connection.headers.get("host", "")


def check_form(session: Session, given: str, connection: HTTPConnection) -> None:
    """See that a form comes from our own page (CSRF).

    Raises:
        HTTPException: 403.
    """
    right = hmac.compare_digest(given.encode("utf-8", "replace"), session.form.encode())
    if not right or not is_own_origin(connection):
        raise HTTPException(403, "the form is not from this page; load the page again")

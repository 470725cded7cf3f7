"""Who may call: tokens, roles, sessions of browsers, rates, and the log of who did what.

A token is ``scopeval_<key>_<secret>``. The key finds its row; of the secret, 256 random bits, only
the SHA-256 is kept, and it is compared in constant time.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import ipaddress
import json
import logging
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import sqlalchemy as sa
from fastapi import HTTPException
from starlette.requests import HTTPConnection

from scopeval.arrays import is_number
from scopeval.campaign.store import AUDIT, TOKENS, Store
from scopeval.errors import InputError, ScopevalError
from scopeval.serve.models import Limits, RateLimit

__all__ = [
    "LOCAL",
    "ROLES",
    "Access",
    "AuditEntry",
    "AuditLog",
    "Role",
    "Session",
    "Sessions",
    "Token",
    "TokenStore",
    "address_of",
    "check_form",
    "has_role",
    "is_loopback",
    "is_own_origin",
]

log = logging.getLogger("scopeval.serve")

#: A plant runs episodes; a viewer looks; an operator looks and commands.
Role = Literal["plant", "viewer", "operator"]
ROLES: tuple[Role, ...] = get_args(Role)

#: Compared with where there is no such key, so that this takes as long.
_DUMMY_HASH = hashlib.sha256(b"nobody").hexdigest()

#: The operator's token that a service makes where there is no token at all.
FIRST = "first operator"

#: Headers by which a proxy says that a call comes from elsewhere.
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")

#: Seconds within which the last use of a token is right, and most refusals that are in the audit
#: log in so many seconds; all are counted.
USED_EVERY, LOGGED, LOGGED_EVERY = 60.0, 20, 60.0


@dataclass(frozen=True)
class Token:
    """A token without its secret.

    Attributes:
        key: its public part.
        name: of its owner; in the audit log.
        role: what it may do.
        plants: the only plants it may run episodes on; None: any.
        made: seconds since 1970.
        revoked: likewise; None: it was not.
        expires: likewise; None: never.
        used: likewise, last, within a minute; None: never.
    """

    key: str
    name: str
    role: Role
    plants: tuple[str, ...] | None
    made: float
    revoked: float | None = None
    expires: float | None = None
    used: float | None = None

    def valid(self, now: float) -> bool:
        """Whether it is taken."""
        return self.revoked is None and (self.expires is None or now < self.expires)


#: Everybody on this machine may look, where nobody has made a token.
LOCAL = Token("local", "local", "viewer", None, 0.0)


class TokenStore:
    """The tokens of a campaign.

    Args:
        store: of the campaign.
        clock: seconds since 1970.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._by_key: dict[str, tuple[Token, str]] = {}
        self._used: dict[str, float] = {}
        self._lock = threading.Lock()
        self.refresh()

    def refresh(self) -> None:
        """Read the table: another process may have made or revoked a token."""
        with self._store.read() as connection:
            rows = connection.execute(sa.select(TOKENS).order_by(TOKENS.c.made)).all()
        tokens_by_key = {}
        for row in rows:
            plants = None if row.plants is None else tuple(json.loads(row.plants))
            token = Token(
                key=row.key,
                name=row.name,
                role=row.role,
                plants=plants,
                made=row.made,
                revoked=row.revoked,
                expires=row.expires,
                used=row.used,
            )
            tokens_by_key[row.key] = (token, row.hash)
        self._by_key = tokens_by_key

    @property
    def open(self) -> bool:
        """Whether nobody has made a token yet, but for the first one."""
        return all(token.name == FIRST for token, _ in self._by_key.values())

    def __len__(self) -> int:
        """How many there ever were."""
        return len(self._by_key)

    def all(self) -> list[Token]:
        """Every token, revoked ones too."""
        return [token for token, _ in self._by_key.values()]

    def create(
        self,
        name: str,
        role: Role,
        plants: Sequence[str] | None = None,
        *,
        days: float | None = None,
    ) -> str:
        """Make a token; its text is returned here and never again.

        Args:
            name: of its owner. One that is revoked or has expired can be used again.
            role: what it may do.
            plants: the only plants it may run episodes on; None: any.
            days: after which it expires; None: never.

        Raises:
            InputError: no such role, a name that is taken, or plants without the role.
        """
        if role not in ROLES:
            raise InputError(f"role: got {role!r:.60}, expected one of {', '.join(ROLES)}")
        if not name.strip() or len(name) > 100 or not name.isprintable():
            raise InputError(f"name: got {name!r:.60}, expected up to 100 printable characters")
        if plants is not None and role != "plant":
            raise InputError(f"plants: given for the role {role}, expected the role plant")
        if days is not None and not (is_number(days) and days > 0):
            raise InputError(f"days: got {days!r}, expected a number above 0")
        key, secret, now = secrets.token_hex(6), secrets.token_hex(32), self._clock()
        row = {
            "key": key,
            "name": name,
            "role": role,
            "plants": None if plants is None else json.dumps(list(plants)),
            "hash": _hash(secret),
            "made": now,
            "expires": None if days is None else now + 86_400.0 * days,
        }
        with self._store.transaction() as connection:
            self._store.order(connection)
            same = sa.select(TOKENS.c.revoked, TOKENS.c.expires).where(TOKENS.c.name == name)
            for other in connection.execute(same):
                if other.revoked is None and (other.expires is None or now < other.expires):
                    raise InputError(
                        f"name: there is a valid token of the name {name!r}; choose another one, "
                        "or try scopeval serve-token rotate or revoke"
                    )
            connection.execute(TOKENS.insert().values(**row))
            until = "" if days is None else f" for {days:g} days"
            self._note(connection, f"token made: {name} ({role}){until}")
        self.refresh()
        return f"scopeval_{key}_{secret}"

    def rotate(self, name: str, *, grace: float = 0.0) -> str:
        """Make another token with the name, role and plants of one, which then expires.

        Args:
            name: of its owner.
            grace: seconds for which the old one is still taken.

        Raises:
            InputError: there is no valid token of that name.
        """
        old, now = self._valid(name), self._clock()
        left = None if old.expires is None else (old.expires - now) / 86_400.0
        with self._store.group() as connection:
            chosen = TOKENS.update().where(TOKENS.c.key == old.key)
            values: dict[str, object] = {"expires": now + max(grace, 0.0)}
            if grace > 0:  # the name is that of the new one
                values["name"] = f"{name} (rotated, key {old.key})"
            connection.execute(chosen.values(values))
            text = self.create(name, old.role, old.plants, days=left)
        self.refresh()
        return text

    def revoke(self, name: str) -> None:
        """Refuse a token from now on.

        Raises:
            InputError: there is none of that name, or it is revoked already.
        """
        self._valid(name)
        with self._store.transaction() as connection:
            connection.execute(
                TOKENS.update()
                .where(TOKENS.c.name == name, TOKENS.c.revoked.is_(None))
                .values(revoked=self._clock())
            )
            self._note(connection, f"token revoked: {name}")
        self.refresh()

    def _valid(self, name: str) -> Token:
        self.refresh()
        now = self._clock()
        named = (token for token in self.all() if token.name == name and token.valid(now))
        valid = next(named, None)
        if valid is None:
            raise InputError(f"name: got {name!r:.100}, there is no valid token of that name")
        return valid

    def _note(self, connection: sa.Connection, text: str) -> None:
        """Write into the audit log what was done to a token, on this machine."""
        connection.execute(
            AUDIT.insert().values(
                time=self._clock(),
                who="this machine",
                role="",
                address="",
                verb="token",
                reason=text,
                outcome="done",
            )
        )

    def find(self, text: str) -> Token | None:
        """The token, if it is valid."""
        parts = text.split("_")
        key, secret = (parts[1], parts[2]) if len(parts) == 3 else ("", "")
        token, kept = self._by_key.get(key, (None, _DUMMY_HASH))
        right = hmac.compare_digest(_hash(secret), kept)
        if token is None or not right or parts[0] != "scopeval":
            return None
        return self._taken(token)

    def by_key(self, key: str) -> Token | None:
        """A valid token by its public part, for a browser that has shown the secret before."""
        token, _ = self._by_key.get(key, (None, _DUMMY_HASH))
        return None if token is None else self._taken(token)

    def _taken(self, token: Token) -> Token | None:
        now = self._clock()
        if not token.valid(now):
            return None
        self._used[token.key] = now
        return token

    def note_use(self) -> None:
        """Write when tokens were used last."""
        with self._lock:
            used, self._used = self._used, {}
        there = self._by_key  # a token that was pruned meanwhile is not
        used = {key: moment for key, moment in used.items() if key in there}
        late = {k: t for k, t in used.items() if t - (there[k][0].used or 0.0) > USED_EVERY}
        if not late:
            return
        with self._store.transaction() as connection:
            for key, moment in late.items():
                connection.execute(TOKENS.update().where(TOKENS.c.key == key).values(used=moment))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


# -- the log of who did what -----------------------------------------------------------------------


@dataclass(frozen=True)
class AuditEntry:
    """What somebody did, or was refused.

    Attributes:
        who: name of the token.
        role: of the token.
        address: of the caller.
        verb: what was asked for.
        reason: why, in the operator's words.
        outcome: "done", or why it was refused.
        request: the caller's idempotency key.
        number: its place in the log.
        time: seconds since 1970.
    """

    who: str
    role: str
    address: str
    verb: str
    reason: str
    outcome: str
    request: str | None = None
    number: int = 0
    time: float = 0.0


class AuditLog:
    """Entries are added and read, never changed.

    Args:
        store: of the campaign.
        clock: seconds since 1970.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._logged: tuple[float, int] = (0.0, 0)

    def add(self, entry: AuditEntry) -> None:
        """Write an entry; inside a group it is in the same transaction as the action."""
        with self._store.transaction() as connection:
            connection.execute(
                AUDIT.insert().values(
                    time=self._clock(),
                    who=entry.who,
                    role=entry.role,
                    address=entry.address,
                    verb=entry.verb,
                    reason=entry.reason,
                    request=entry.request,
                    outcome=entry.outcome,
                )
            )

    def add_refusal(self, entry: AuditEntry) -> None:
        """Write a call that was refused: at most LOGGED of them in LOGGED_EVERY seconds."""
        now = self._clock()
        since, count = self._logged
        if not 0.0 <= now - since < LOGGED_EVERY:
            since, count = now, 0
        self._logged = (since, count + 1)
        log.warning(
            "refused: %s %s, %s (%s) from %s",
            *(entry.outcome, entry.verb, entry.who, entry.role, entry.address),
        )
        if count < LOGGED:
            with contextlib.suppress(ScopevalError):  # the caller is refused all the same
                self.add(entry)

    def has(self, request: str) -> AuditEntry | None:
        """The entry of a call that was made before."""
        with self._store.read() as connection:
            row = connection.execute(
                sa.select(AUDIT).where(AUDIT.c.request == request)
            ).one_or_none()
        return None if row is None else _entry(row)

    def last(self, count: int = 100, *, before: int | None = None) -> list[AuditEntry]:
        """The last entries, the newest first; those before a number."""
        chosen = sa.select(AUDIT).order_by(AUDIT.c.number.desc()).limit(count)
        if before is not None:
            chosen = chosen.where(AUDIT.c.number < before)
        with self._store.read() as connection:
            return [_entry(row) for row in connection.execute(chosen).all()]


def _entry(row: sa.Row[tuple[object, ...]]) -> AuditEntry:
    names = ("who", "role", "address", "verb", "reason", "outcome", "request", "number", "time")
    return AuditEntry(*(getattr(row, name) for name in names))


# -- calls -----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may lead anywhere
        return False


def has_role(token: Token, role: Role) -> bool:
    """Whether a token is enough for what needs a role.

    Operators may look; no role runs plants but that of a plant.
    """
    return token.role == role or (role == "viewer" and token.role == "operator")


def address_of(connection: HTTPConnection) -> str:
    """Where a call comes from."""
    return connection.client.host if connection.client is not None else "unknown"


class Access:
    """Decides about every call.

    Args:
        tokens: the tokens.
        limits: of the service.
        local: only this machine can connect.
        refused: called with what was refused.
        clock: seconds, for rates.
    """

    def __init__(
        self,
        tokens: TokenStore,
        limits: Limits,
        *,
        local: bool,
        refused: Callable[[AuditEntry], None] = lambda entry: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tokens, self._local, self._tell = tokens, local, refused
        self._rates = RateLimit(limits.rate, 2 * limits.rate, clock=clock)
        self._failures = RateLimit(limits.failures, 10 * limits.failures, clock=clock)
        self.refused: Counter[int] = Counter()  # by status

    @property
    def open(self) -> bool:
        """Whether this machine may look without a token: nobody has made one."""
        return self._local and self.tokens.open

    def anonymous(self, connection: HTTPConnection) -> bool:
        """Whether a call without a token may look: it comes from here, and not by a proxy."""
        direct = not any(name in connection.headers for name in FORWARDED)
        return self.open and direct

    def authorize(self, connection: HTTPConnection, role: Role) -> Token:
        """The token of a call by a program.

        Raises:
            HTTPException: 401 without a valid token, 403 for another role, 429 over the rate.
        """
        kind, _, text = connection.headers.get("authorization", "").partition(" ")
        if not kind and role == "viewer" and self.anonymous(connection):
            return self.check(LOCAL, role, connection)
        token = self.tokens.find(text.strip()) if kind.lower() == "bearer" else None
        if token is None:
            raise self.unauthorized(connection)
        return self.check(token, role, connection)

    def unauthorized(self, connection: HTTPConnection) -> HTTPException:
        """The answer to a wrong token."""
        if not self._failures.allow(address_of(connection)):
            self.refused[429] += 1
            return HTTPException(429, "too many wrong tokens; wait", {"Retry-After": "10"})
        self._count(connection, 401, "?", "", "no valid token")
        why = "a valid token is needed: Authorization: Bearer scopeval_..."
        return HTTPException(401, why, {"WWW-Authenticate": "Bearer"})

    def check(self, token: Token, role: Role, connection: HTTPConnection) -> Token:
        """See that a token is enough, and count the call."""
        if not self._rates.allow(token.key):
            self.refused[429] += 1
            raise HTTPException(429, "too many calls with this token; wait", {"Retry-After": "1"})
        if not has_role(token, role):
            why = f"this needs the role {role}, the token's is {token.role}"
            self._count(connection, 403, token.name, token.role, why)
            raise HTTPException(403, why)
        return token

    def _count(
        self, connection: HTTPConnection, status: int, who: str, role: str, why: str
    ) -> None:
        self.refused[status] += 1
        verb = f"{connection.scope.get('method', '')} {connection.url.path}"[:200]
        outcome = f"refused ({status}): {why}"
        self._tell(AuditEntry(who, role, address_of(connection), verb, "", outcome))


@dataclass(frozen=True)
class Session:
    """A browser that has shown a token.

    Attributes:
        number: secret; the cookie.
        csrf_token: secret; in every form, so that only our own pages can send one.
        key: of the token.
        until: when it ends, by the clock.
    """

    number: str
    csrf_token: str
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
    right = hmac.compare_digest(given.encode("utf-8", "replace"), session.csrf_token.encode())
    if not right or not is_own_origin(connection):
        raise HTTPException(403, "the form is not from this page; load the page again")

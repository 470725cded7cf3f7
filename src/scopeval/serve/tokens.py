"""Tokens: who may call, and as what.

A token is ``scopeval_<key>_<secret>``. The key finds its row; of the secret, 256 random bits, only
the SHA-256 is kept, and it is compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from scopeval.campaign.journal import Journal
from scopeval.errors import InputError
from scopeval.serve.tables import tables, tokens

__all__ = ["ROLES", "Role", "Token", "TokenBook"]

#: A plant runs episodes; a viewer looks; an operator looks, pauses, hands over and stops.
Role = Literal["plant", "viewer", "operator"]
ROLES: tuple[Role, ...] = get_args(Role)

#: Compared with where there is no such key, so that this takes as long.
_NOBODY = hashlib.sha256(b"nobody").hexdigest()


@dataclass(frozen=True)
class Token:
    """A token without its secret.

    Attributes:
        key: its public part.
        name: whose it is; in the audit log.
        role: what it may do.
        plants: the only plants it may run episodes on; None: any.
        made: seconds since 1970.
        revoked: likewise; None: it is valid.
    """

    key: str
    name: str
    role: Role
    plants: tuple[str, ...] | None
    made: float
    revoked: float | None


class TokenBook:
    """The tokens of a campaign.

    Args:
        journal: of the campaign; the tables are made where they are missing.
        clock: seconds since 1970.
    """

    def __init__(self, journal: Journal, clock: Callable[[], float]) -> None:
        self._journal, self._clock = journal, clock
        tables.create_all(journal.engine)
        self._known: dict[str, tuple[Token, str]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the table: another process may have made or revoked a token."""
        with self._journal.read() as connection:
            rows = connection.execute(sa.select(tokens).order_by(tokens.c.made)).all()
        known = {}
        for row in rows:
            plants = None if row.plants is None else tuple(json.loads(row.plants))
            token = Token(row.key, row.name, row.role, plants, row.made, row.revoked)
            known[row.key] = (token, row.hash)
        self._known = known

    def __len__(self) -> int:
        """How many there ever were."""
        return len(self._known)

    def all(self) -> list[Token]:
        """Every token, revoked ones too."""
        return [token for token, _ in self._known.values()]

    def create(self, name: str, role: Role, plants: Sequence[str] | None = None) -> str:
        """Make a token; its text is returned here and never again.

        Raises:
            InputError: no such role, a name that is taken, or plants without the role.
        """
        if role not in ROLES:
            raise InputError(f"role: got {role!r:.60}, expected one of {', '.join(ROLES)}")
        if not name.strip() or len(name) > 100 or not name.isprintable():
            raise InputError(f"name: got {name!r:.60}, expected up to 100 printable characters")
        if plants is not None and role != "plant":
            raise InputError(f"plants: given for the role {role}, expected the role plant")
        key, secret = secrets.token_hex(6), secrets.token_hex(32)
        row = {
            "key": key,
            "name": name,
            "role": role,
            "plants": None if plants is None else json.dumps(list(plants)),
            "hash": _hash(secret),
            "made": self._clock(),
        }
        try:
            with self._journal.write() as connection:
                connection.execute(tokens.insert().values(**row))
        except IntegrityError as error:
            raise InputError(
                f"name: there is a token of the name {name!r}; choose another one, a name is used "
                "once so that the audit log is clear"
            ) from error
        self.refresh()
        return f"scopeval_{key}_{secret}"

    def revoke(self, name: str) -> None:
        """Refuse a token from now on.

        Raises:
            InputError: there is none of that name, or it is revoked already.
        """
        with self._journal.write() as connection:
            done = connection.execute(
                tokens.update()
                .where(tokens.c.name == name, tokens.c.revoked.is_(None))
                .values(revoked=self._clock())
            )
        if not done.rowcount:
            raise InputError(f"name: got {name!r:.100}, there is no valid token of that name")
        self.refresh()

    def find(self, text: str) -> Token | None:
        """The token, if it is valid."""
        parts = text.split("_")
        key, secret = (parts[1], parts[2]) if len(parts) == 3 else ("", "")
        token, kept = self._known.get(key, (None, _NOBODY))
        right = hmac.compare_digest(_hash(secret), kept)
        if token is None or not right or parts[0] != "scopeval" or token.revoked is not None:
            return None
        return token

    def by_key(self, key: str) -> Token | None:
        """A valid token by its public part, for a browser that has shown the secret before."""
        token, _ = self._known.get(key, (None, _NOBODY))
        return None if token is None or token.revoked is not None else token


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()

"""The behavior policies of a campaign: every one is kept, with its fingerprint.

A design (`scopeval.design`) is kept as its file, a table as its numbers. Any other object cannot be
kept; it is recognized by name only, and must be passed again to `Campaign.open`.
"""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval._files import versions
from scopeval.behavior.file import load
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.campaign import schema
from scopeval.campaign.journal import Journal
from scopeval.collection.choice import Decider, Target
from scopeval.errors import DataError, InputError
from scopeval.policies.adapters import TabularPolicy, as_behavior
from scopeval.policies.protocols import Behavior, Policy

__all__ = ["DesignRecord", "Designs"]


@dataclass(frozen=True)
class DesignRecord:
    """A behavior policy that was used in a campaign.

    Attributes:
        number: its place among them.
        kind: "target" (none: the target itself), "design", "table" or "own".
        fingerprint: hash of it; None: it cannot be recognized.
        made: seconds since 1970.
        about: versions, predictions, and why it was made.
    """

    number: int
    kind: str
    fingerprint: str | None
    made: float
    about: Mapping[str, Any]


class Designs:
    """Keeps behavior policies in the journal, and brings them back.

    Args:
        journal: of the campaign.
        target: pi.
        own: a behavior policy that cannot be kept.
    """

    def __init__(self, journal: Journal, target: Target, own: object = None) -> None:
        self._journal, self._target = journal, target
        self._own = as_behavior(own)
        self._loaded: dict[int, Behavior | Policy | None] = {}
        self._deciders: dict[int, Decider] = {}

    def keep(
        self, connection: sa.Connection, number: int, behavior: object, made: float, why: str
    ) -> None:
        """Write a behavior policy; None is the target itself."""
        policy = as_behavior(behavior)
        kind, content, fingerprint = _packed(policy)
        about: dict[str, Any] = {"why": why, "versions": versions("numpy", "torch", "numba")}
        if isinstance(policy, BehaviorPolicy):
            p = policy.predicted
            about |= {
                "method": policy.recipe.method,
                "epsilon": policy.recipe.epsilon,
                "predicted_variance": p.variance,
                "predicted_cost": p.cost,
                "falls_back": policy.falls_back,
            }
        connection.execute(
            schema.designs.insert().values(
                number=number,
                kind=kind,
                fingerprint=fingerprint,
                content=content,
                made=made,
                about=json.dumps(about),
            )
        )
        self._loaded[number] = policy
        self._deciders.pop(number, None)

    def behavior(self, number: int) -> Behavior | Policy | None:
        """A behavior policy by number; None: the target itself."""
        if number not in self._loaded:
            self._loaded[number] = self._load(number)
        return self._loaded[number]

    def decider(self, number: int) -> Decider:
        """Decides steps by the target and a behavior policy."""
        if number not in self._deciders:
            self._deciders[number] = Decider(self._target, self.behavior(number))
        return self._deciders[number]

    def records(self, connection: sa.Connection) -> list[DesignRecord]:
        """All of them."""
        table = schema.designs
        chosen = (table.c.number, table.c.kind, table.c.fingerprint, table.c.made, table.c.about)
        rows = connection.execute(sa.select(*chosen).order_by(table.c.number))
        return [
            DesignRecord(r.number, r.kind, r.fingerprint, r.made, json.loads(r.about)) for r in rows
        ]

    def _load(self, number: int) -> Behavior | Policy | None:
        table = schema.designs
        with self._journal.read() as connection:
            row = connection.execute(sa.select(table).where(table.c.number == number)).one()
        if row.kind == "target":
            return None
        if row.kind == "own":
            if self._own is None:
                raise InputError(
                    f"behavior: the campaign's design {number} is an object of your own, which no "
                    "database can hold; pass it again, Campaign.open(where, target, behavior=...)"
                )
            return self._own
        name = f"design {number} of {self._journal.name}"
        if hashlib.sha256(row.content).hexdigest() != row.fingerprint:
            raise DataError(f"{name}: damaged, its fingerprint does not fit")
        if row.kind == "table":
            return TabularPolicy(np.load(io.BytesIO(row.content), allow_pickle=False))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"design-{number}.scope")
            path.write_bytes(row.content)
            return load(path, self._target)


def _packed(policy: Behavior | Policy | None) -> tuple[str, bytes | None, str | None]:
    """Kind, content and fingerprint."""
    if policy is None:
        return "target", None, None
    content: bytes | None = None
    if isinstance(policy, TabularPolicy):
        buffer = io.BytesIO()
        table = policy.table(policy.horizon or 1)
        np.save(buffer, table if policy.horizon else table[0], allow_pickle=False)
        kind, content = "table", buffer.getvalue()
    elif isinstance(policy, BehaviorPolicy):
        kind = "design"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "design.scope")
            try:
                policy.save(path)
                content = path.read_bytes()
            except InputError:  # critics of one's own, which no file can hold
                kind = "own"
    else:
        kind = "own"
    return kind, content, None if content is None else hashlib.sha256(content).hexdigest()

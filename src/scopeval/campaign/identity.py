"""Whether the target policy is the one that the campaign was created with.

What is kept of it is its fingerprint (`policies.fingerprint`), where observations are known to ask
it at. In any case it must give the probabilities that were recorded with the last decisions.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval.arrays import PROBABILITY_SLACK
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.campaign import schema
from scopeval.campaign.journal import Journal, decode
from scopeval.campaign.terms import Terms
from scopeval.collection.choice import Target
from scopeval.data.transitions import Transitions
from scopeval.errors import InputError
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.fingerprint import Fingerprint, take_fingerprint
from scopeval.policies.protocols import ContinuousPolicy, probs_of

__all__ = ["check_target", "remember_target"]

#: So many of the last decisions are compared.
COMPARED = 64


def remember_target(
    journal: Journal,
    connection: sa.Connection,
    target: Target,
    horizon: int,
    behavior: Any,
    logs: Transitions | None,
) -> None:
    """Keep the target's fingerprint, where one can be taken."""
    mark = behavior.fingerprint if isinstance(behavior, BehaviorPolicy) else None
    if mark is None and isinstance(target, TabularPolicy):
        states = np.arange(target.states)
        mark = take_fingerprint(target, horizon, lambda t: states)
    if mark is None and logs is not None:
        mark = take_fingerprint(target, horizon, lambda t: logs.obs)
    if mark is None:
        return
    arrays = {name: _packed(array) for name, array in _arrays(mark).items()}
    journal.set_fact(connection, "target", {"table": mark.table, **arrays})


def check_target(journal: Journal, connection: sa.Connection, target: Target, terms: Terms) -> None:
    """See that a policy is the campaign's target.

    Raises:
        InputError: it is another policy.
    """
    kept = journal.fact(connection, "target")
    if kept is not None:
        mark = Fingerprint(
            _unpacked(kept["obs"]), _unpacked(kept["t"]), _unpacked(kept["answers"]), kept["table"]
        )
        mark.check(target, terms.horizon, journal.name)
    if isinstance(target, ContinuousPolicy):
        return  # its probabilities are 1/K for any policy of K candidates
    table = schema.steps
    rows = connection.execute(
        sa.select(table.c.step, table.c.obs, table.c.action, table.c.target_probability)
        .order_by(table.c.decided.desc())
        .limit(COMPARED)
    )
    for row in rows.all():
        probs = probs_of(target, decode(row.obs)[None], row.step)
        action = int(decode(row.action))
        own = float(probs[0, action]) if action < probs.shape[1] else -1.0
        if not abs(own - row.target_probability) <= PROBABILITY_SLACK:
            raise InputError(
                f"target: is not the policy of {journal.name}: its probability of action {action} "
                f"at {row.obs:.60}, t={row.step} is {own:.6g}, recorded is "
                f"{row.target_probability:.6g}; expected the same target"
            )


def _arrays(mark: Fingerprint) -> dict[str, Any]:
    return {"obs": mark.obs, "t": mark.t, "answers": mark.answers}


def _packed(array: Any) -> str:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode()


def _unpacked(text: str) -> Any:
    return np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)

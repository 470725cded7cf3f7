"""Statements of every step, built once: building one takes longer than carrying it out."""

from __future__ import annotations

import sqlalchemy as sa

from scopeval.campaign import schema

__all__ = [
    "OF_DECISION",
    "add_decision",
    "add_event",
    "add_outcome",
    "episode_by_number",
    "events_after",
    "number_by_request",
    "observed_steps",
    "order_lock",
    "set_length",
    "set_seen",
]

_steps, _episodes, _events, _plants = schema.steps, schema.episodes, schema.events, schema.plants

add_decision = sa.insert(_steps)

#: Columns that a decision fills; its outcome fills the others.
OF_DECISION = (
    "episode", "step", "obs", "action", "probability", "target_probability", "control", "baseline",
    "chooser", "would", "decided",
)  # fmt: skip

#: An outcome is written once: `reward` is empty before.
add_outcome = (
    sa.update(_steps)
    .where(
        _steps.c.episode == sa.bindparam("of_episode"),
        _steps.c.step == sa.bindparam("of_step"),
        _steps.c.reward.is_(None),
    )
    .values(
        {
            name: sa.bindparam(name)
            for name in ("reward", "cost", "signals", "next_obs", "terminated", "observed")
        }
    )
)

set_length = (
    sa.update(_episodes)
    .where(_episodes.c.number == sa.bindparam("of_episode"))
    .values({name: sa.bindparam(name) for name in ("length", "spent", "terminated")})
)

events_after = (
    sa.select(_events).where(_events.c.number > sa.bindparam("after")).order_by(_events.c.number)
)
add_event = sa.insert(_events)

order_lock = sa.select(sa.func.pg_advisory_xact_lock(sa.bindparam("key", type_=sa.BigInteger)))
episode_by_number = sa.select(_episodes).where(_episodes.c.number == sa.bindparam("of_episode"))
number_by_request = sa.select(_episodes.c.number).where(
    _episodes.c.request == sa.bindparam("by_request")
)
observed_steps = (
    sa.select(_steps)
    .where(_steps.c.episode == sa.bindparam("of_episode"), _steps.c.reward.is_not(None))
    .order_by(_steps.c.step)
)
set_seen = (
    sa.update(_plants)
    .where(_plants.c.name == sa.bindparam("of_plant"))
    .values(seen=sa.bindparam("seen"))
)

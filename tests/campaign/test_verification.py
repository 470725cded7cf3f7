"""`verify` finds outcomes and numbers that were edited."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pytest
import sqlalchemy as sa
from machine import ACTIONS, HORIZON, STATES, Machine, run_episode, tables

from scopeval import Bound, Campaign, Promise, Transitions
from scopeval.campaign.audit import verify_campaign
from scopeval.campaign.store import METADATA
from scopeval.errors import ScopevalError

TARGET, BEHAVIOR = tables()


@pytest.fixture
def made(place):
    with Campaign.create(
        place / "c",
        TARGET,
        horizon=HORIZON,
        behavior=BEHAVIOR,
        seed=1,
        promise=Promise(bound=Bound(step=3.0)),
    ) as campaign:
        for _ in range(6):
            run_episode(campaign)
        episode, machine = campaign.start(), Machine()
        obs = machine.first(episode.number)
        reward, cost, obs, _ = machine.step(episode.number, 0, obs, episode.act(obs))
        episode.observe(reward, cost, obs)
        episode.lose("a power cut")
        campaign.drop(2, "a broken sensor")
        run_episode(campaign)
        campaign.start().act(0)
    return place / "c"


def verified(where):
    with Campaign.open(where, TARGET) as campaign:
        return campaign.verify()


def edit(where, *statements):
    with sqlite3.connect(where) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0
    connection.close()


def test_a_campaign_that_nobody_edited_is_good(made):
    found = verified(made)
    assert found.good, found.first
    assert found.altered == 0


EDITS = {
    "a reward": "update steps set reward = reward + 500 where episode = 1 and step = 0",
    "all rewards": "update steps set reward = reward + 1 where reward is not null",
    "all costs": "update steps set cost = cost / 2 where cost is not null",
    "an episode's value": "update episodes set numbers = "
    "json_set(numbers, '$.value', 500.0) where number = 1",
    "an event's value": "update events set data = "
    "json_set(data, '$.value', 500.0) where kind = 'ended' and episode = 1",
    "a lost episode's cost": "update episodes set spent = 0 where number = 6",
    "what was seen of it": "update events set data = "
    "json_set(data, '$.seen.cost', 0.0) where kind = 'lost'",
    "a dropped episode": "update steps set reward = 0 where episode = 2",
    "an end made a loss": "update episodes set state = 'lost' where number = 1",
    "a number that is gone": "update episodes set numbers = "
    "json_remove(numbers, '$.weight') where number = 1",
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_outcomes_are_found(made, name):
    edit(made, EDITS[name])
    found = verified(made)
    assert found.altered > 0
    assert not found.good
    assert any("episode" in said for said in found.first)


def test_missing_episodes_and_events_are_found(made):
    edit(
        made,
        "delete from steps where episode = 4",
        "delete from events where episode = 4",
        "delete from episodes where number = 4",
    )
    found = verified(made)
    assert found.holes > 0
    assert "episode 4 is missing" in found.first
    assert json.dumps(found.first).count("events are missing") == 1


# -- every column of every table -------------------------------------------------------------------

#: Columns that no event vouches for, and why that changes no result.
UNSEALED = {
    "facts.name": "the format and the versions of the programs; a wrong format is refused",
    "facts.value": "the same; terms and target have hashes",
    "plants.name": "signs of life and leases",
    "plants.seen": "the same",
    "plants.holder": "the same",
    "episodes.request": "the idempotency key of the call that began it",
    "episodes.started": "the event has the time",
    "episodes.ended": "the event has the time",
    "steps.decided": "the events around it have times",
    "steps.observed": "the same",
}
#: Who may call, what operators were refused, and what webhooks took: no part of the evidence.
OF_THE_SERVICE = ("serve_tokens", "serve_audit", "serve_deliveries")
#: Of a running episode what plants have reported is in no event yet.
REPORTED = ("control", "baseline", "would", "reward", "cost", "signals", "next_obs", "terminated")


def past(n=40):
    """Logs of single steps."""
    rng = np.random.default_rng(0)
    state, action = rng.integers(STATES, size=n), rng.integers(ACTIONS, size=n)
    return Transitions(
        t=np.zeros(n, np.int64),
        obs=state,
        action=action,
        reward=rng.normal(size=n),
        cost=rng.random(n),
        next_obs=state,
        terminated=np.ones(n, np.bool_),
    )


def another(value, kind):
    """A value that is not this one, and as like it as can be."""
    if value is None:
        return {str: "x", bytes: b"x", bool: True}.get(kind, 1)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, bytes):
        return value + b"x"
    if not isinstance(value, str):
        return "x"
    try:
        content = json.loads(value)
    except ValueError:
        return value + "x"
    if isinstance(content, list):
        return json.dumps([content[0] + 1, *content[1:]])
    if isinstance(content, dict):
        name = min(content, default="x")
        return json.dumps(content | {name: another(content.get(name), int)})
    return json.dumps(content + 1)


OPEN = 5


@pytest.mark.parametrize("many", [False, True])
def test_whatever_is_edited_is_found(place, many):
    """Each column of each table, in three rows, alone; what is not found stands above, and why."""
    policies = {"today": TARGET, "new": BEHAVIOR} if many else TARGET
    given = {"behavior": None if many else BEHAVIOR, "logs": past() if many else None}
    with Campaign.create(place / "c", policies, horizon=HORIZON, seed=1, **given) as campaign:
        for _ in range(3):
            run_episode(campaign)
        for lost in (True, False):
            episode = campaign.start(request="abcdefgh" if lost else None)
            for step in range(2):
                episode.act(1)
                if lost or not step:
                    episode.observe(1.0, 2.0, 1)
            if lost:
                episode.lose("a power cut")
                campaign.drop(2, "a broken sensor")
                run_episode(campaign)
        assert episode.number == OPEN
        campaign.pause("lunch", who="ada")
        backend = campaign.backend
        assert campaign.verify().good
        for table in METADATA.sorted_tables:
            if table.name in OF_THE_SERVICE:
                continue
            with backend.store.read() as connection:
                rows = connection.execute(sa.select(table)).all()
            assert rows or table.name == "logs", table.name
            for column in table.c:
                for row in (rows[0], rows[len(rows) // 2], rows[-1]) if rows else ():
                    name = f"{table.name}.{column.name}"
                    reported = name.startswith("steps") and row.episode == OPEN
                    if reported and column.name in REPORTED:
                        continue
                    if not found(backend, table, column, row):
                        assert name in UNSEALED, (name, row)
                        assert table.name != "facts" or row.name not in ("terms", "target")


def found(backend, table, column, row):
    """Whether an audit finds this value changed, or the database or the program refuses it."""

    class UndoneError(Exception):
        """Nothing of it stays."""

    good = True
    key = [c == getattr(row, c.name) for c in table.primary_key.columns]
    try:
        with backend.store.group() as connection:
            value = another(getattr(row, column.name), column.type.python_type)
            connection.execute(table.update().where(*key).values({column.name: value}))
            good = verify_campaign(connection, backend.terms, backend.new_deciding()).good
            raise UndoneError
    except UndoneError:
        return not good
    except (ScopevalError, sa.exc.SQLAlchemyError):
        return True  # it cannot even be read
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return True

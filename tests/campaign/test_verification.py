"""`verify` finds outcomes and numbers that were edited."""

from __future__ import annotations

import json
import sqlite3

import pytest
from machine import HORIZON, Machine, run_episode, tables

from scopeval import Bound, Campaign, Promise

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

"""Single steps on disk: other processes, locked databases, and what is undone together."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing

import pytest
from machine import HORIZON, Machine, run_episode, tables

from scopeval import Campaign, Limit
from scopeval.campaign.store import EPISODES, EVENTS, STEPS
from scopeval.errors import DataError

TARGET, BEHAVIOR = tables()


def ticking():
    """A clock that is the same in every run."""
    moments = itertools.count(1_000)
    return lambda: float(next(moments))


def create(path, **settings):
    return Campaign.create(
        path, TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=3, clock=ticking(), **settings
    )


def contents(path):
    """All rows of episodes, steps and events, with the types that SQLite keeps them in."""
    found = {}
    with closing(sqlite3.connect(path)) as connection:
        for table in (EPISODES, STEPS, EVENTS):
            names = ", ".join(f"{one.name}, typeof({one.name})" for one in table.columns)
            found[table.name] = connection.execute(f"SELECT {names} FROM {table.name}").fetchall()
    return found


def test_a_step_that_another_process_has_decided_has_its_action(place):
    with create(place / "c") as one, Campaign.open(place / "c", TARGET) as other:
        first = one.start("a")
        second = other.episode(first.number)  # at hand, without taking the plant over
        action = first.act(2)
        assert second.number == first.number
        assert second.act(2) == action
        assert len(contents(place / "c")["steps"]) == 1
        first.observe(1.0, 1.0, 3)
        second.observe(1.0, 1.0, 3)
        assert (second.step, second.act(3)) == (1, first.act(3))


def test_a_locked_database_is_told_and_the_call_can_be_repeated(place, monkeypatch):
    with create(place / "undisturbed") as campaign:
        run_episode(campaign)
    monkeypatch.setattr("scopeval.campaign.store.PATIENCE", 0.05)
    with create(place / "c") as campaign:
        episode = campaign.start()
        obs = Machine().first(0)
        with closing(sqlite3.connect(place / "c", isolation_level=None)) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            with pytest.raises(DataError, match=r"refused \(database is locked\).*try it again"):
                episode.act(obs)
            stranger.execute("ROLLBACK")
        assert contents(place / "c")["steps"] == []
        assert episode.decided is None
        episode.act(obs)
        known = contents(place / "undisturbed")["steps"][0]
        assert contents(place / "c")["steps"][0][:18] == known[:18]


def test_what_fails_after_an_alarm_is_undone_with_it(place, monkeypatch):
    with create(place / "c", promise=[Limit(step=0.5, action="tell")]) as campaign:
        episode = campaign.start()
        episode.act(1)
        before = contents(place / "c")

        def fail(*events):
            happen(*events)
            raise RuntimeError("after the alarm")

        happen = campaign.backend.happen
        monkeypatch.setattr(campaign.backend, "happen", fail)
        with pytest.raises(RuntimeError, match="after the alarm"):
            episode.observe(1.0, 2.0, 3)
        assert contents(place / "c") == before
        monkeypatch.setattr(campaign.backend, "happen", happen)
        episode.observe(1.0, 2.0, 3)
        after = contents(place / "c")
        assert len(after["events"]) == len(before["events"]) + 1
        observed = list(STEPS.c.keys()).index("observed")
        assert after["steps"][0][2 * observed + 1] == "real"


def test_a_closed_campaign_opens_its_connection_again(place):
    with create(place / "c") as campaign:
        episode = campaign.start()
        episode.act(1)
        campaign.close()
        episode.observe(1.0, 1.0, 2)
        episode.act(2)
        assert len(contents(place / "c")["steps"]) == 2

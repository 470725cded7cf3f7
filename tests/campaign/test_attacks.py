"""What is done to a campaign from outside while it runs: files, clocks, and two of everything."""

from __future__ import annotations

import os
import shutil
import threading
import time

import pytest
import sqlalchemy as sa

from campaign.machine import HORIZON, run_episode, tables
from scopeval import Campaign, Limit, Stages, Stop
from scopeval.campaign.store import DESIGNS, EPISODES, EVENTS, STEPS, Store
from scopeval.campaign.transfer import backup_campaign
from scopeval.errors import CampaignError, DataError, InputError
from wearing_machine import HORIZON as DAY
from wearing_machine import policy

TARGET, BEHAVIOR = tables()


def create(where, **terms):
    given = {"horizon": HORIZON, "behavior": BEHAVIOR, "seed": 3} | terms
    return Campaign.create(where, TARGET, **given)


# -- a backup is restored while the campaign runs --------------------------------------------------


@pytest.mark.parametrize("gone", [False, True])
def test_a_file_that_was_replaced_takes_no_decision(place, gone):
    """What went on to the file that nobody sees any more would be lost at the next start."""
    where = place / "c.campaign"
    with create(where) as campaign:
        run_episode(campaign)
        backup_campaign(campaign.backend.store, place / "backup")
        run_episode(campaign)
        episode = campaign.start()
        episode.act(1)
        kept = campaign.status().head
        if gone:
            os.remove(where)
        else:
            os.replace(place / "backup", where)
        for call in (campaign.status, campaign.start, lambda: episode.observe(0.0, 1.0, 2)):
            with pytest.raises(DataError, match="another one lies in its place"):
                call()
    if gone:
        return
    for name in ("-wal", "-shm"):  # of the file before
        (place / f"c.campaign{name}").unlink(missing_ok=True)
    with pytest.raises(DataError, match="rows are missing"):  # and who opens it is told
        Campaign.open(where, TARGET)
    (place / "c.campaign-head").unlink()
    with Campaign.open(where, TARGET) as restored:
        assert restored.status().finished == 1
        assert restored.status().head != kept
        run_episode(restored)
        assert restored.verify().good


def test_an_older_journal_under_a_running_campaign_takes_no_decision(where):
    """As where a PostgreSQL database is restored: the last rows are not there any more."""
    with create(where) as campaign:
        for _ in range(2):
            run_episode(campaign)
        episode = campaign.start()
        other = Store(where, create=False)
        with other.transaction() as connection:
            connection.execute(STEPS.delete().where(STEPS.c.episode >= 1))
            connection.execute(EPISODES.delete().where(EPISODES.c.number >= 1))
            connection.execute(EVENTS.delete().where(EVENTS.c.number > 3))
        other.close()
        for call in (lambda: episode.act(1), campaign.start, campaign.status):
            with pytest.raises(DataError, match="which was there, is not"):
                call()
    if isinstance(where, str):
        with Campaign.open(where, TARGET) as restored:
            run_episode(restored)
            assert restored.verify().good


def test_an_event_that_was_changed_under_a_running_campaign_is_noticed(where):
    with create(where) as campaign:
        run_episode(campaign)
        other = Store(where, create=False)
        with other.transaction() as connection:
            last = connection.execute(sa.select(sa.func.max(EVENTS.c.number))).scalar_one()
            connection.execute(EVENTS.update().where(EVENTS.c.number == last).values(hash="0" * 64))
        other.close()
        with pytest.raises(DataError, match="is another one"):
            campaign.start()


def test_a_copy_over_the_file_is_noticed_at_the_next_opening(place):
    """`cp backup hall.campaign` while it runs: until then SQLite goes on from its memory."""
    where = place / "c.campaign"
    with create(where) as campaign:
        run_episode(campaign)
        backup_campaign(campaign.backend.store, place / "backup")
        with campaign.group():
            for _ in range(30):
                run_episode(campaign)
        campaign.backend.store.checkpoint()
        shutil.copyfile(place / "backup", where)
        run_episode(campaign)
    with pytest.raises(DataError):
        Campaign.open(where, TARGET)


# -- a clock that is set ---------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-86_400.0, -3600.0, -5.0, 3600.0, 86_400.0])
def test_a_clock_that_jumps_does_not_end_a_lease(place, jump):
    """Where it ended, another controller would lose the running episode of this one."""
    with create(place / "c", lease=600.0) as campaign:
        episode = campaign.start("hall", resume=True)
        episode.act(1)
        campaign.backend.clock = lambda: time.time() + jump
        with pytest.raises(CampaignError, match="another controller") as refused:
            campaign.backend.start("hall", holder="another one")
        assert refused.value.code == "plant_busy"
        episode.observe(0.0, 1.0, 2)  # and the plant goes on
        assert episode.act(2) in range(3)
        assert campaign.status().open == 1
        assert campaign.verify().good


# -- two of everything -----------------------------------------------------------------------------


def test_two_processes_that_compute_one_design_write_one(place):
    settings = {"horizon": DAY, "stop": Stop(episodes=120), "refit": Stages(first=40, method="odi")}
    with Campaign.create(place / "c", policy(), **settings) as first:
        first.backend.on_refit = None
        with first.group():
            for _ in range(40):
                episode, state = first.start(), 0
                while not episode.over:
                    action = episode.act(state)
                    state = (state + action) % 2
                    episode.observe(float(action), 1.0 + action, state)
                episode.end()
        with Campaign.open(place / "c", policy()) as second:
            done = []
            threads = [
                threading.Thread(target=lambda one=one: done.append(one.refit()))
                for one in (first, second)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(done) == [False, True]
            events = [event.kind for event in second.events()]
            assert events.count("design") == events.count("refit") == 1
            assert first.status().design == second.status().design
            assert second.verify().good
            assert second.status().design == 1
            with second.backend.store.group() as connection:
                new = DESIGNS.update().where(DESIGNS.c.number == 1)
                connection.execute(new.values(about='{"cap": 1.0}'))
            assert second.verify().first == ("designs 1: the row was changed, added or deleted",)


# -- a plant that answers from the future ----------------------------------------------------------


def test_a_plant_that_answers_from_the_future_changes_nothing(place):
    with create(place / "c", promise=[Limit("heat", step=1.0)], behavior=None) as campaign:
        episode = campaign.start()
        before = campaign.status().head
        heat = {"heat": 0.5}
        for step in (1, 7, 10**9):
            with pytest.raises(CampaignError):
                episode.observe(0.0, 1.0, 2, step=step, signals=heat)
            with pytest.raises(CampaignError):
                episode.advance(0.0, 1.0, 2, step=step, signals=heat)
            with pytest.raises(CampaignError):
                episode.act(1, step=step)
        with pytest.raises(CampaignError):
            episode.observe(0.0, 1.0, 2, signals=heat)  # nothing was decided yet
        action = episode.act(1)
        for wrong in ({"step": 1, "signals": heat}, {"signals": {}}, {"signals": {"heat": 1e400}}):
            with pytest.raises((CampaignError, InputError)):
                episode.observe(0.0, 1.0, 2, **wrong)
        assert (episode.step, episode.decided.action) == (0, action)
        assert campaign.status().head == before
        episode.observe(0.0, 1.0, 2, signals=heat)
        assert episode.step == 1

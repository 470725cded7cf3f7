"""Many calls in one transaction: all is recorded or nothing; a refused call is undone alone."""

from __future__ import annotations

import pytest
from machine import HORIZON, Machine, run_episode, tables

from scopeval import Campaign
from scopeval.errors import CampaignError, InputError

TARGET, BEHAVIOR = tables()


@pytest.fixture
def campaign(place):
    with Campaign.create(
        place / "c.campaign", TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=3
    ) as made:
        yield made


def in_vain(campaign, *calls):
    with campaign.group():
        for call in calls:
            call()
        raise RuntimeError("changed my mind")


def test_calls_in_groups_give_what_single_calls_give(campaign, place):
    for plant in "ab":
        run_episode(campaign, plant)
    machine = Machine()
    with Campaign.create(
        place / "d.campaign", TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=3
    ) as other:
        with other.group():
            run_episode(other, "a", machine)
            run_episode(other, "b", machine)
        assert other.result() == campaign.result()
        assert [e.kind for e in other.events()] == [e.kind for e in campaign.events()]


def test_nothing_is_seen_before_the_end_and_all_after(campaign, place):
    with campaign.group():
        episode = campaign.start("a")
        action = episode.act(2)
        with Campaign.open(place / "c.campaign", TARGET) as other:
            assert other.status().started == 0
        assert episode.act(2, step=0) == action  # within the group it is seen
    with Campaign.open(place / "c.campaign", TARGET) as other:
        assert other.resume_episode("a").decided.action == action


def test_a_refused_call_takes_back_only_itself(campaign):
    with campaign.group():
        episode = campaign.start("a")
        with pytest.raises(InputError):
            episode.act(float("nan"))
        with pytest.raises(CampaignError):
            episode.end()
        with pytest.raises(RuntimeError, match="changed my mind"):
            in_vain(campaign, campaign.pause)
        assert campaign.status().state == "running"
        episode.act(1)
    assert campaign.status().state == "running"
    assert campaign.resume_episode("a").decided is not None


def test_a_group_that_fails_leaves_nothing(campaign):
    run_episode(campaign)
    before = campaign.events(), campaign.result()
    with pytest.raises(RuntimeError, match="changed my mind"):
        in_vain(campaign, lambda: run_episode(campaign, "b"), campaign.stop)
    assert (campaign.events(), campaign.result()) == before
    run_episode(campaign, "b")
    assert campaign.status().finished == 2
    assert campaign.status().state == "running"

"""Many calls in one transaction: all is recorded or nothing; a refused call is undone alone."""

from __future__ import annotations

import pytest
from machine import HORIZON, Machine, run_episode, tables

from scopeval import Campaign, Limit
from scopeval.errors import CampaignError, InputError

TARGET, BEHAVIOR = tables()


@pytest.fixture
def campaign(where):
    with Campaign.create(where, TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=3) as made:
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


def test_nothing_is_seen_before_the_end_and_all_after(campaign, where):
    with campaign.group():
        episode = campaign.start("a")
        action = episode.act(2)
        with Campaign.open(where, TARGET) as other:
            assert other.status().started == 0
        assert episode.act(2, step=0) == action  # within the group it is seen
    with Campaign.open(where, TARGET) as other:
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


@pytest.mark.parametrize("verb", ["act", "observe"])
def test_a_step_that_another_process_has_recorded_is_that_of_the_group(campaign, where, verb):
    """The other process's decision wins, and the rest of the group stays."""
    mine, bystander = campaign.start("a"), campaign.start("b")
    if verb == "observe":
        mine.act(1)
    with Campaign.open(where, TARGET) as other:
        theirs = other.episode(mine.number)  # at hand, without taking the plant over
        action = theirs.act(1)
        if verb == "observe":
            theirs.observe(1.0, 2.0, 3)
    record(campaign, mine, bystander, verb)
    assert campaign.resume_episode("b").decided is not None
    again = campaign.resume_episode("a")
    assert (again.step, again.decided is None) == ((1, True) if verb == "observe" else (0, False))
    assert again.act(1, step=0) == action


def record(campaign, mine, bystander, verb):
    with campaign.group():
        bystander.act(2)
        mine.act(1) if verb == "act" else mine.observe(1.0, 2.0, 3)


def test_rows_of_calls_before_stay_when_a_part_is_undone(campaign):
    with campaign.group():
        one, two = campaign.start("a"), campaign.start("b")
        first = one.act(1)
        with pytest.raises(RuntimeError, match="changed my mind"):
            in_vain(campaign, lambda: two.act(2), campaign.pause)
        with pytest.raises(RuntimeError, match="changed my mind"):
            undone(campaign, campaign.episode(two.number))
        one.observe(1.0, 2.0, 3)
        second = one.act(3)
    found = campaign.resume_episode("a")
    assert (found.step, found.act(1, step=0), found.decided.action) == (1, first, second)
    assert campaign.resume_episode("b").decided is None


def undone(campaign, episode):
    with campaign.group():
        episode.act(1)
        episode.observe(1.0, 2.0, 3)
        raise RuntimeError("changed my mind")


def test_limits_on_totals_count_what_the_group_has_recorded(where):
    limit = Limit(total=5.0, action="pause")
    with Campaign.create(where, TARGET, horizon=HORIZON, promise=[limit]) as campaign:
        episodes = [campaign.start(plant) for plant in "abc"]
        with campaign.group():
            for episode in episodes:
                episode.act(1)
            for episode in episodes:
                episode.observe(0.0, 2.0, 1)
        assert campaign.status().state == "paused"
        assert "6" in campaign.status().reason

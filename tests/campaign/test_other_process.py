"""Two processes on one campaign: what one has ended or lost, the other cannot go on with."""

from __future__ import annotations

import pytest
from machine import HORIZON, tables

from scopeval import Campaign
from scopeval.errors import CampaignError

TARGET, BEHAVIOR = tables()


@pytest.mark.parametrize("decided", [False, True])
def test_an_episode_that_another_process_has_lost_takes_no_more_steps(where, decided):
    with (
        Campaign.create(where, TARGET, horizon=HORIZON, behavior=BEHAVIOR) as one,
        Campaign.open(where, TARGET) as other,
    ):
        episode = one.start("a")
        episode.act(1)
        if not decided:
            episode.observe(1.0, 1.0, 2)
        other.start("a", take_over=True)
        events, spent = one.events(), one.status().spent
        with pytest.raises(CampaignError, match="another program took over 'a'"):
            episode.observe(1.0, 5.0, 2) if decided else episode.act(2)
        assert episode.state == "lost"
        assert (one.events(), one.status().spent) == (events, spent)

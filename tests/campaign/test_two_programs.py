"""Two programs that run one plant: one of them is refused, in words that name the other."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from machine import HORIZON, tables

from scopeval import Campaign
from scopeval.campaign.holder import Holder
from scopeval.errors import CampaignError

OTHER = """
import sys, time
import numpy as np
from scopeval import Campaign
campaign = Campaign.open(sys.argv[1], np.load(sys.argv[2]))
episode = campaign.start("a", resume=True)
if episode.decided is None:
    episode.act(1)
print(episode.number, flush=True)
if sys.argv[3] == "close":
    campaign.close()
if sys.argv[3] == "stay":
    time.sleep(600.0)
import os; os._exit(0)  # as if it were killed
"""
TARGET, BEHAVIOR = tables()


@pytest.fixture
def where(tmp_path):
    Campaign.create(
        tmp_path / "c", TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=3, lease=600.0
    ).close()
    return tmp_path / "c"


def other(where, tmp_path, end):
    """Another program, once it has decided a step."""
    np.save(tmp_path / "target.npy", TARGET)
    program = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(where), str(tmp_path / "target.npy"), end],
        stdout=subprocess.PIPE,
        text=True,
    )
    with program.stdout as said:
        assert said.readline().strip() == "0"
    return program


@pytest.mark.parametrize("end", ["close", "die"])
def test_a_program_goes_on_at_once_where_the_one_before_is_gone(where, tmp_path, end):
    other(where, tmp_path, end).wait()
    with Campaign.open(where, TARGET) as campaign:
        episode = campaign.start("a", resume=True)
        assert episode.decided is not None
        episode.observe(0.0, 1.0, 1)


def test_a_program_that_runs_is_not_disturbed_and_not_in_silence(where, tmp_path):
    program = other(where, tmp_path, "stay")
    try:
        with Campaign.open(where, TARGET) as campaign:
            for start in (campaign.start, campaign.resume_episode):
                with pytest.raises(CampaignError, match="two programs would drive one") as refused:
                    start("a", **({"resume": True} if start == campaign.start else {}))
                assert refused.value.code == "plant_busy"
            assert campaign.start("a", resume=True, take_over=True).number == 0
    finally:
        program.kill()
        program.wait()


def test_whoever_has_resumed_last_runs_the_plant(where):
    """In one process, as in a notebook whose cell is run again: at once, the first is fenced."""
    with Campaign.open(where, TARGET) as first, Campaign.open(where, TARGET) as second:
        mine = first.start("a", resume=True)
        mine.act(1)
        theirs = second.start("a", resume=True)
        with pytest.raises(CampaignError, match="observe: another program took over 'a' at ") as no:
            mine.observe(0.0, 1.0, 2)
        assert no.value.code == "taken_over"
        theirs.observe(0.0, 1.0, 2)
        theirs.act(2)
        for call in (
            lambda: mine.act(1, step=0),
            lambda: mine.observe(0.0, 1.0, 2),
            lambda: mine.advance(0.0, 1.0, 2),
            lambda: mine.lose("it is mine"),
        ):
            with pytest.raises(CampaignError, match="another program took over"):
                call()
        assert (theirs.step, second.status().open) == (1, 1)
        assert first.resume_episode("a").step == 1  # now it has been asked for
        with pytest.raises(CampaignError, match="took over"):
            theirs.observe(0.0, 1.0, 2)
        assert second.verify().good


@pytest.mark.parametrize("text", ["abc", "{", "{}", '{"word": 3}', '{"word": "x", "since": "y"}'])
def test_older_and_damaged_words_of_a_holder_are_another_program(text):
    holder = Holder.of_text(text)
    assert not holder.gone
    assert isinstance(holder.at, str)

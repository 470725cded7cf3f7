"""New designs from finished episodes, kept with the campaign and used by later episodes."""

from __future__ import annotations

import numpy as np
import pytest

from scopeval import Campaign, Stages, Stop
from scopeval.errors import InputError
from wearing_machine import ACTIONS, HORIZON, STATES, machine_log, policy, transitions

TARGET = policy()
SETTINGS = Stages(first=40, growth=2.0, method="odi")


def world(seed=0):
    """Chances of the wearing machine, for states that never break; [S, A, S]."""
    step = np.zeros((STATES, ACTIONS, STATES))
    for s in range(STATES):
        for a in range(ACTIONS):
            worse = min(s + 1, STATES - 1)
            step[s, a, worse] += 0.1 + 0.3 * a
            step[s, a, max(s - 1, 0)] += 0.9 - 0.3 * a
    return step


STEP = world()


def run_days(campaign, count):
    with campaign.group():
        for _ in range(count):
            episode = campaign.start()
            rng, state = np.random.default_rng((3, episode.number)), 0
            while not episode.over:
                action = episode.act(state)
                following = int(rng.choice(STATES, p=STEP[state, action]))
                reward = 3.0 * (action == 2) - state + rng.normal()
                episode.observe(reward, 1.0 + action, following)
                state = following
            episode.end()


def made(where, **settings):
    return Campaign.create(
        where, TARGET, horizon=HORIZON, stop=Stop(episodes=200), refit=SETTINGS, **settings
    )


def test_a_design_that_is_due_is_computed_kept_and_used(place):
    with made(place / "c") as campaign:
        campaign.backend.on_refit = None  # here by hand
        assert not campaign.refit()
        run_days(campaign, 40)
        assert campaign.status().refit_due
        run_days(campaign, 5)
        assert campaign.refit()
        assert not campaign.status().refit_due
        assert campaign.status().design == 1
        run_days(campaign, 10)
        first, second = campaign.designs()
        assert (first.kind, second.kind) == ("target", "design")
        assert second.about["method"] == "odi"
        assert "800 steps" in second.about["why"]
        found = campaign.episodes()
        assert found.by_target.tolist() == [True] * 45 + [False] * 10
        assert np.abs(found.ratios[45:] - 1.0).max() > 0.01
        assert campaign.verify().good
    with Campaign.open(place / "c", TARGET) as again:
        assert again.status().design == 1
        run_days(again, 1)
        assert again.verify().good


def test_the_boundaries_are_those_of_evaluate(place):
    with made(place / "c") as campaign:
        campaign.backend.on_refit = None
        for count in (40, 40, 80, 40):
            run_days(campaign, count)
            campaign.refit()
        events = [e for e in campaign.events() if e.kind in ("refit", "design")]
        assert [e.kind for e in events] == ["refit", "design"] * 2  # the rest is too short
        assert [e.data["refit"] for e in events] == [1, 1, 2, 2]


def test_logs_are_kept_for_later_designs_and_dropped_where_they_disagree(place):
    logs = transitions(machine_log(100))  # of another machine than `world`
    with made(place / "c", logs=logs, method="odi") as campaign:
        campaign.backend.on_refit = None
        run_days(campaign, 40)
        campaign.refit()
        event = next(e for e in campaign.events() if e.kind == "design")
        plan = event.data["plan"]
        assert any("the logs were dropped" in warning for warning in plan["warnings"])
        assert plan["rows"] == 40 * HORIZON
        (told,) = campaign.result().learning.changed
        assert told.what == "the logs"


def test_a_process_of_its_own_computes_the_design(place):
    with made(place / "c") as campaign:
        run_days(campaign, 40)
        campaign.backend.on_refit()  # the group was not committed when it was due
        campaign.backend.refitting.wait(300)
        if campaign.status().refit_due:  # it came before the commit
            campaign.backend.refitting.start()
            campaign.backend.refitting.wait(300)
        assert campaign.status().design == 1
        run_days(campaign, 2)
        assert campaign.verify().good


def test_settings_that_cannot_be_kept_are_refused(place):
    from scopeval.behavior.methods import method_named

    with pytest.raises(InputError, match="no database can hold"):
        Campaign.create(
            place / "c", TARGET, horizon=HORIZON, refit=Stages(method=method_named("odi"))
        )

"""Guards, limits, ramp and shadow mode: functions of the journal, shared by all plants."""

from __future__ import annotations

import numpy as np
import pytest
from machine import ACTIONS, HORIZON, Machine, run_episode, tables

from scopeval import Bound, Campaign, Limit, Promise, Ramp, Stop
from scopeval.errors import CampaignError, InputError

TARGET, BEHAVIOR = tables()
EXPENSIVE = 0.6 * TARGET + 0.4 * np.eye(ACTIONS)[-1]  # the action that costs most


def made(place, behavior=BEHAVIOR, **settings):
    return Campaign.create(
        place / "c.campaign", TARGET, horizon=HORIZON, behavior=behavior, **settings
    )


def one_step(episode, cost, **more):
    episode.act(1)
    episode.observe(0.0, cost, 1, **more)


def test_a_limit_acts_within_the_episode_on_all_plants(place):
    with made(place, promise=[Limit(episode=3.0)]) as campaign:
        a, b = campaign.start("a"), campaign.start("b")
        one_step(a, 1.0)
        one_step(b, 1.0)
        one_step(a, 2.5)
        assert campaign.status().state == "handed over"
        one_step(a, 0.0)
        one_step(b, 0.0)
        for episode in (a, b):
            episode.end()
        found = campaign.episodes()
        assert found.guarded.tolist() == [1, 1]
        assert found.ratios[:, 0].tolist() != [1.0, 1.0]
        assert (found.ratios[0, 2], found.ratios[1, 1]) == (1.0, 1.0)
        assert "above the limit of 3" in campaign.status().reason


def test_a_limit_on_all_episodes_counts_running_and_lost_ones(place):
    with made(place, promise=[Limit(total=10.0, action="stop")]) as campaign:
        lost = campaign.start("a")
        one_step(lost, 4.0)
        lost.lose("a power cut")
        a, b = campaign.start("a"), campaign.start("b")
        one_step(a, 3.0)
        one_step(b, 2.9)
        assert campaign.status().state == "running"
        one_step(b, 0.2)
        assert campaign.status().state == "stopped"
        with pytest.raises(CampaignError, match="together"):
            campaign.start("c")


@pytest.mark.parametrize(
    ("action", "state"),
    [("tell", "running"), ("pause", "paused"), ("hand over", "handed over"), ("stop", "stopped")],
)
def test_signals_have_limits_and_actions_of_their_own(place, action, state):
    guards = [Limit("heat", step=80.0, action=action), Limit(episode=100.0)]
    with made(place, promise=guards) as campaign:
        episode = campaign.start()
        episode.act(1)
        with pytest.raises(InputError, match="heat missing"):
            episode.observe(0.0, 1.0, 1)
        episode.observe(0.0, 1.0, 1, signals={"heat": 60.0})
        assert not campaign.status().guards[0].alarm
        one_step(episode, 1.0, signals={"heat": 90.0})
        if action == "stop":
            assert episode.act(1) is None  # control went back to the plant
            with pytest.raises(CampaignError, match="control went back"):
                episode.observe(0.0, 1.0, 1, signals={"heat": 95.0})
        else:
            one_step(episode, 1.0, signals={"heat": 95.0})
        status = campaign.status()
        assert status.state == state
        assert status.guards[0].alarm.startswith("a step had heat 90, above the limit of 80 (")
        assert status.guards[1].alarm is None
        assert sum(event.kind == "alarm" for event in campaign.events()) == 1
    with Campaign.open(place / "c.campaign", TARGET) as again:
        assert again.status().state == state


def test_a_refuted_promise_hands_over_for_good_and_on_every_plant(place):
    with made(place, EXPENSIVE) as campaign:
        running = campaign.start("b")
        one_step(running, 1.0)
        while campaign.status().state == "running":
            run_episode(campaign, "a")
            assert campaign.status().finished < 400
        after = campaign.status().finished
        assert after > 50
    with Campaign.open(place / "c.campaign", TARGET) as again:
        assert again.status().state == "handed over"
        run_episode(again, "a")
        going_on = again.resume_episode("b")
        one_step(going_on, 1.0)
        going_on.end()
        found, result = again.episodes(), again.result()
        assert found.by_target.tolist() == [False] * (after + 1) + [True]
        assert found.guarded[0] == 1
        assert result.guard.state.refuted
        assert result.certificate.verdict in ("refuted", "not enough evidence")
        assert result.guard.switched_after == after
        again.resume()
        assert again.status().state == "handed over"


def test_a_promise_about_another_signal(place):
    """Heat grows with the action as the cost does; the cost itself is not watched."""
    guards = [Promise(signal="heat", action="pause")]
    machine = Machine()
    with made(place, EXPENSIVE, promise=guards) as campaign:
        while campaign.status().state == "running":
            episode = campaign.start()
            obs = machine.first(episode.number)
            while not episode.over:
                action = episode.act(obs)
                reward, cost, obs, ended = machine.step(episode.number, episode.step, obs, action)
                episode.observe(reward, 1.0, obs, terminated=ended, signals={"heat": cost})
            episode.end()
            assert episode.number < 400
        assert campaign.status().guards[0].alarm.startswith("heat: the promise is refuted")
        assert campaign.status().guards[0].low > 0


def test_guards_are_rebuilt_at_opening(place):
    with made(place) as campaign:
        for _ in range(60):
            run_episode(campaign)
        known = campaign.status()
    with Campaign.open(place / "c.campaign", TARGET) as again:
        assert again.status() == known


def test_the_ramp_grows_on_past_episodes_only(place):
    ramp = Ramp((0.0, 0.5, 1.0), episodes=3)
    with made(place, ramp=ramp) as campaign:
        early = campaign.start("slow")
        for _ in range(7):
            run_episode(campaign, "a")
        one_step(early, 1.0)
        early.end()
        run_episode(campaign, "a")
        found = campaign.episodes()
    states, actions = found.obs[:, 0], found.action[:, 0]
    pi, mu = TARGET[states, actions], BEHAVIOR[states, actions]
    share = np.array([0, 0, 0, 0, 0.5, 0.5, 0.5, 1.0, 1.0])
    assert found.behavior_prob[:, 0] == pytest.approx(share * mu + (1 - share) * pi)
    assert [e.data["share"] for e in campaign.events() if e.kind == "stage"] == [0.5, 1.0]


def test_an_alarm_stops_the_ramp(place):
    with made(place, ramp=Ramp((0.1, 1.0), episodes=2), promise=[Limit(step=5.0)]) as campaign:
        episode = campaign.start()
        one_step(episode, 6.0)
        episode.end()
        for _ in range(5):
            run_episode(campaign)
        assert campaign.status().stage == 0


def test_plans_end_a_campaign(place):
    with made(place, stop=Stop(episodes=2)) as campaign:
        run_episode(campaign)
        run_episode(campaign)
        with pytest.raises(CampaignError, match="all 2 episodes"):
            campaign.start()
        assert campaign.result().stopped == "all 2 episodes are finished"


def test_a_plan_of_cost_ends_a_campaign(place):
    with made(place, stop=Stop(cost=10.0)) as campaign:
        while campaign.status().done is None:
            run_episode(campaign)
        assert 10.0 <= campaign.status().spent < 30.0
        with pytest.raises(CampaignError, match="cost budget"):
            campaign.start()


def test_a_silent_plant_is_told(place):
    moment = [1000.0]
    with made(place, silent_after=60.0, clock=lambda: moment[0]) as campaign:
        a = campaign.start("a")
        one_step(a, 1.0)
        moment[0] += 59
        assert [p.silent for p in campaign.status().plants] == [False]
        moment[0] += 2
        assert [p.silent for p in campaign.status().plants] == [True]
        assert (campaign.tell_silence(), campaign.tell_silence()) == (["a"], [])
        assert [e.plant for e in campaign.events() if e.kind == "silent"] == ["a"]
        campaign.heartbeat("a")
        assert campaign.tell_silence() == []
        assert [p.silent for p in campaign.status().plants] == [False]
        moment[0] += 3600
        a.end()
        assert [p.silent for p in campaign.status().plants] == [False]


def test_shadow_mode_records_what_would_be_done(place):
    incumbent = np.random.default_rng(0)
    with made(place, shadow=True) as campaign:
        for _ in range(10):
            episode = campaign.start()
            machine = Machine()
            obs = machine.first(episode.number)
            with pytest.raises(InputError, match="incumbent: needed"):
                episode.act(obs)
            with pytest.raises(InputError, match="number of an action"):
                episode.act(obs, incumbent=ACTIONS)
            while not episode.over:
                own = int(incumbent.integers(ACTIONS))
                assert episode.act(obs, incumbent=own) == own
                reward, cost, obs, ended = machine.step(episode.number, episode.step, obs, own)
                episode.observe(reward, cost, obs, terminated=ended)
            episode.end()
        report, logs = campaign.shadow(), campaign.logs()
        assert report.decisions == len(logs.t)
        assert report.target_agreement == pytest.approx(TARGET[logs.obs, logs.action].mean())
        assert report.agreement == pytest.approx(BEHAVIOR[logs.obs, logs.action].mean())
        gap = 0.5 * np.abs(BEHAVIOR - TARGET).sum(axis=1)
        assert report.distance == pytest.approx(gap[logs.obs].mean())
        assert campaign.status().shadowed == 10
        with pytest.raises(InputError, match="no episode is finished"):
            campaign.result()
        campaign.go_live(who="ada")
        run_episode(campaign)
        assert campaign.result().finished == 1
        assert len(campaign.logs().t) > report.decisions


def test_a_stated_bound_reaches_the_certificate_and_the_guard(place):
    with (
        made(place, promise=Promise(bound=Bound(step=float(ACTIONS)))) as campaign,
        campaign.group(),
    ):
        for _ in range(20):
            run_episode(campaign)
        result = campaign.result()
        assert result.certificate.cost_bound == ACTIONS * HORIZON
        assert result.guard.state.interval.method == "bets"


def test_costs_above_a_stated_bound_are_an_alarm(place):
    with made(place, promise=Promise(bound=Bound(step=1.5))) as campaign:
        episode = campaign.start()
        one_step(episode, 2.0)
        episode.end()
        assert campaign.status().state == "handed over"
        assert "above the stated bound" in campaign.status().reason


def test_a_start_that_is_refused_does_not_lose_the_open_episode(place):
    target, behavior = tables()
    with Campaign.create(place / "c", target, horizon=HORIZON, behavior=behavior) as campaign:
        episode = campaign.start("a")
        episode.act(1)
        campaign.pause("a storm")
        with pytest.raises(CampaignError, match="a storm"):
            campaign.start("a")
        assert campaign.status().lost == 0
        assert campaign.start("a", resume=True).number == episode.number  # which may go on

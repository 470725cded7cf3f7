"""What the live page says, without a browser."""

from __future__ import annotations

from dataclasses import replace

from campaign.machine import HORIZON, run_episode, tables
from scopeval import Campaign, Limit, Promise, Stop
from scopeval.campaign.store import Event
from scopeval.campaign.view import moment
from scopeval.serve.live import LINES, LivePage, _rows, time_figure, view_of
from scopeval.serve.service import COUNTS, Metrics, Viewer


def test_events_that_repeat_themselves_are_one_line():
    """Otherwise an alarm at every step hides who paused the campaign."""
    alarm = [Event("alarm", "too warm", plant="north", time=60.0 * k) for k in range(5)]
    pause = Event("pause", "lunch", who="Ada", time=290.0)
    again = Event("alarm", "too warm", plant="north", time=300.0)
    shown = _rows([again, pause, *reversed(alarm)])
    assert [(line.kind, line.where) for line in shown] == [
        ("alarm", "north"),
        ("pause", "Ada"),
        ("alarm", "north"),
    ]
    assert shown[0].text == "too warm"
    assert shown[2].text == "too warm (5 times since 1970-01-01 00:00:00)"
    assert moment(shown[2].moment) == "1970-01-01 00:04:00"


def test_other_plants_and_texts_stay_apart_and_only_the_last_are_shown():
    events = [Event("alarm", f"step {k}", plant="north") for k in range(2 * LINES)]
    shown = _rows(events)
    assert [line.text for line in shown] == [f"step {k}" for k in range(LINES)]
    apart = _rows([Event("alarm", "warm", plant=plant) for plant in ("north", "south")])
    assert [line.where for line in apart] == ["north", "south"]


def test_a_campaign_is_complete_when_nothing_runs_any_more(tmp_path):
    target, _ = tables()

    def shown():
        found = view_of(campaign.status(), None, [], [], campaign.terms, 0.0)
        return found.state.text, found.reason, found.facts[0].note

    place, stop = tmp_path / "a.campaign", Stop(episodes=2)
    with Campaign.create(place, target, horizon=6, stop=stop) as campaign:
        run_episode(campaign)
        last = campaign.start()
        begins = "too few episodes for an interval, which begins at 50"
        runs = "the target policy itself runs, for there is no other behavior policy"
        assert shown() == ("Running", f"all 2 episodes were started; {runs}", begins)
        last.lose("the sensor broke")
        few = "too few episodes for an interval"  # of a fixed plan, which begins at two
        assert shown() == ("Complete", "all 2 episodes are over, 1 of them lost", few)


def test_several_policies_are_on_the_page(tmp_path):
    """The differences are the headline, each policy has a line, and a failed one is a problem."""
    target, new = tables()

    class Bad:
        left = 40

        def probs(self, obs, t):
            self.left -= 1
            return target[obs] * (1.0 if self.left > 0 else float("nan"))

    policies = {"today": target, "new": new, "bad <b>": Bad()}
    with Campaign.create(
        tmp_path / "a.campaign", policies, horizon=HORIZON, stop=Stop(episodes=60, every=20)
    ) as campaign:
        campaign.backend.on_look = None
        for _ in range(60):
            run_episode(campaign)
            campaign.look()
        status = campaign.status()
        found = view_of(status, None, [], campaign.designs(), campaign.terms, 0.0)
        assert [fact.label for fact in found.facts][:2] == ["new less today", "bad <b> less today"]
        assert found.facts[0].note.startswith("undecided")
        texts = [check.text for check in found.stages]
        assert texts[0].startswith("today: baseline, share of new episodes 0.5")
        assert any("bad <b>: failed" in text for text in texts)
        assert any("bad <b> has failed" in text for text in found.problems)
        assert found.safety.text == "Nothing was promised"
        promised = replace(campaign.terms, guards=(Promise(),))
        for verdict, tone in (("safe", "good"), ("refuted", "bad"), ("not refuted", "open")):
            now = replace(status, safety=(verdict, "It is so."))
            assert view_of(now, None, [], [], promised, 0.0).safety.tone == tone
        viewer = Viewer(campaign.backend)
        page = LivePage(viewer, lambda: 0.0)
        assert page.view().facts[0].value == found.facts[0].value
        key, figures = page.figures()
        assert key == "n60k3"
        assert "less that of today" in figures[0].label
        assert not any("less what is allowed" in figure.label for figure in figures)
        assert viewer.result().differences["new"].n == 60
        text = Metrics().text(status, dict.fromkeys(COUNTS, 0), {}).decode()
        assert 'scopeval_difference{baseline="today",policy="new"}' in text
        assert 'scopeval_policy_share{policy="today"} 0.5' in text
        assert "scopeval_looked_episodes 60.0" in text


def test_alarms_of_one_limit_are_one_line_and_say_where(tmp_path):
    """Every episode costs something else: 36 lines of it would hide all others."""
    target, behavior = tables()
    limits = [Limit(episode=0.5, action="tell"), Limit("heat", step=5.0, action="pause")]
    with Campaign.create(
        tmp_path / "c", target, horizon=HORIZON, behavior=behavior, promise=limits
    ) as campaign:
        for _ in range(2):
            episode = campaign.start("north")
            episode.act(1)
            episode.observe(1.0, 1.0 + episode.number, 1, terminated=True, signals={"heat": 1.0})
            episode.end()
        south = campaign.start("south")
        south.act(1)
        south.observe(1.0, 0.1, 1, signals={"heat": 6.0})
        view = LivePage(Viewer(campaign.backend), lambda: 0.0).view()
        alarms = [(line.text.partition(" (2 times")[0], line.where) for line in view.events[:2]]
        assert alarms == [
            ("a step had heat 6, above the limit of 5 (south, episode 2)", "south"),
            ("an episode cost 2, above the limit of 0.5 (north, episode 1)", "north"),
        ]
        assert view.state.text == "Paused, 2 to see to"
        assert view.state.tone == "bad"


def test_the_axis_of_time_has_a_unit_in_which_its_numbers_can_be_read():
    for seconds, unit in ((30.0, "seconds"), (600.0, "minutes"), (9e4, "hours"), (9e5, "days")):
        assert f"{unit} since 1970-01-01" in time_figure([0.0, seconds]).svg

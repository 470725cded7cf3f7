"""What the live page says, without a browser."""

from __future__ import annotations

from scopeval.campaign.journal import Event
from scopeval.serve.live_view import LINES, _lines


def test_events_that_repeat_themselves_are_one_line():
    """Otherwise an alarm at every step hides who paused the campaign."""
    alarm = [Event("alarm", "too warm", plant="north", time=60.0 * k) for k in range(5)]
    pause = Event("pause", "lunch", who="Ada", time=290.0)
    again = Event("alarm", "too warm", plant="north", time=300.0)
    shown = _lines([again, pause, *reversed(alarm)])
    assert [(line.kind, line.where) for line in shown] == [
        ("alarm", "north"),
        ("pause", "Ada"),
        ("alarm", "north"),
    ]
    assert shown[0].text == "too warm"
    assert shown[2].text == "too warm (5 times since 1970-01-01 00:00:00)"
    assert shown[2].when == "1970-01-01 00:04:00"


def test_other_plants_and_texts_stay_apart_and_only_the_last_are_shown():
    events = [Event("alarm", f"step {k}", plant="north") for k in range(2 * LINES)]
    shown = _lines(events)
    assert [line.text for line in shown] == [f"step {k}" for k in range(LINES)]
    apart = _lines([Event("alarm", "warm", plant=plant) for plant in ("north", "south")])
    assert [line.where for line in apart] == ["north", "south"]

"""A number of episodes that was fixed before has the interval of `evaluate`, once they are over."""

from __future__ import annotations

import math

import numpy as np
import pytest

from campaign.machine import HORIZON, run_episode, tables
from scopeval import Campaign, Inference, Promise, Stages, Stop, estimate
from scopeval.campaign.state import CampaignState
from scopeval.campaign.store import Event
from scopeval.campaign.terms import Terms
from scopeval.errors import CampaignError, InputError

TARGET, BEHAVIOR = tables()
PLANNED = 60


def create(place, **terms):
    given = {"horizon": HORIZON, "behavior": BEHAVIOR, "seed": 3, "episodes": PLANNED} | terms
    return Campaign.create(place / "c.campaign", TARGET, **given)


def run(campaign, episodes):
    with campaign.group():
        for _ in range(episodes):
            run_episode(campaign)


def test_a_fixed_plan_ends_with_the_interval_of_evaluate(place):
    with create(place) as campaign:
        run(campaign, PLANNED - 1)
        for interval in (campaign.status().interval, campaign.result().interval):
            assert interval.method == "asymptotic sequence"  # it may be looked at at any time
        assert "at all times" in campaign.status().value
        run(campaign, 1)
        result, status = campaign.result(), campaign.status()
        wanted = estimate(campaign.episodes(), TARGET, promise=())
    assert result.interval.method == status.interval.method == wanted.interval.method == "t"
    for one in (result, status):
        np.testing.assert_allclose(one.interval.low, wanted.interval.low, rtol=1e-9)
        np.testing.assert_allclose(one.interval.high, wanted.interval.high, rtol=1e-9)
    assert result.stopped == f"all {PLANNED} episodes are finished"
    assert "t, for a number of episodes fixed in advance" in result.summary()
    assert "(t interval of the planned episodes)" in str(status)
    with Campaign.open(place / "c.campaign") as again:  # decided by the journal, not by a process
        assert again.status().interval == status.interval


def lose_one(campaign):
    run(campaign, PLANNED - 1)
    campaign.start().lose("the plant was switched off")


def drop_one(campaign):
    run(campaign, PLANNED)
    campaign.drop(3, "a broken sensor")


def hand_over(campaign):
    run(campaign, PLANNED // 2)
    campaign.hand_over("by an operator")
    run(campaign, PLANNED // 2)


def stop(campaign):
    run(campaign, PLANNED - 1)
    campaign.stop("enough was seen")


@pytest.mark.parametrize(
    ("end", "terms", "why"),
    [
        (lose_one, {}, None),  # accounted for, as in `evaluate`
        (drop_one, {}, "an episode was dropped"),
        (hand_over, {}, "it was handed over"),
        (stop, {}, "stopped"),
        (lambda c: run(c, PLANNED), {"stop": Stop(cost=1e9)}, "not fixed"),
        (lambda c: run(c, PLANNED), {"stop": Stop(precision=1e-9)}, "not fixed"),
        (lambda c: run(c, PLANNED), {"inference": Inference(interval="sequence")}, ""),
        (
            lambda c: run(c, PLANNED),
            {"refit": Stages(first=PLANNED, method="odi"), "behavior": None},
            "later designs depend",
        ),
    ],
)
def test_what_looks_or_cuts_keeps_the_sequence_and_the_result_says_why(place, end, terms, why):
    with create(place, **terms) as campaign:
        end(campaign)
        result, status = campaign.result(), campaign.status()
    if why is None:
        assert result.interval.method == status.interval.method == "t"
        assert "1 of them lost" in result.stopped
        return
    assert result.interval.method == status.interval.method == "asymptotic sequence"
    if why == "not fixed":
        assert "no number of episodes was fixed before" in result.stopped
    else:
        assert why in result.stopped


def test_a_running_episode_keeps_the_sequence(place):
    with create(place) as campaign:
        run(campaign, PLANNED - 1)
        last = campaign.start("other")
        with pytest.raises(CampaignError, match="were started"):
            campaign.start("third")
        assert campaign.result().interval.method == "asymptotic sequence"
        last.lose("the plant was switched off")
        assert campaign.result().interval.method == "t"


def test_a_stated_bound_is_proved_at_any_time(place):
    with create(place, inference=Inference(return_bound=(-50.0, 50.0))) as campaign:
        run(campaign, PLANNED)
        assert campaign.result().interval.method == "bets"


def test_what_a_campaign_cannot_do_is_refused(place):
    for wrong in (Inference(estimator="pdis"), Inference(keep=True), 0.05):
        with pytest.raises(InputError, match="inference: got"):
            create(place, inference=wrong)


def misses(interval, *, campaigns=500, episodes=40, seed=7):
    """Share of campaigns whose last interval misses the mean, in a world of skewed values.

    Nothing is run: the events are made up, and folded by the code that opens a campaign.
    """
    rng = np.random.default_rng(seed)
    terms = Terms(1, guards=(), stop=Stop(episodes=episodes), interval=interval)
    missed = 0
    for _ in range(campaigns):
        state = CampaignState(terms)
        for number, value in enumerate(rng.gamma(4.0, 0.25, episodes)):  # mean 1, skewness 1
            began = {"stage": 0, "shadow": False}
            over = {"spent": 0.0, "signals": {}, "value": value, "weight": 1.0, "by_target": True}
            state.fold(Event("started", "", "plant", number, data=began))
            state.fold(Event("ended", "", "plant", number, data=over))
        missed += not state.interval.low <= 1.0 <= state.interval.high
        assert (state.interval.method == "t") == (interval == "t")
    return missed / campaigns


def test_the_fixed_interval_covers_as_it_says():
    """Within 3 standard errors of .05 (and of what skewness adds, .006): it fails by chance in 3 of
    1,000 seeds. The sequence would not pass: it misses in far fewer."""
    error = 3 * math.sqrt(0.05 * 0.95 / 500)
    assert abs(misses("t") - 0.05) <= error + 0.006
    assert misses("sequence") <= 0.05 - error


def test_the_promise_is_judged_as_in_evaluate(place):
    with create(place, promise=Promise(of="target")) as campaign:
        run(campaign, PLANNED)
        result = campaign.result()
        wanted = estimate(campaign.episodes(), TARGET, promise=Promise(of="target"))
    assert result.certificate.verdict == wanted.certificate.verdict
    np.testing.assert_allclose(result.certificate.ratio.low, wanted.certificate.ratio.low)

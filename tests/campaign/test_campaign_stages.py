"""Stages of a campaign: the weights, the estimate and the designs are those of `evaluate`."""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopeval import Campaign, Check, Inference, Promise, Question, Stages, Stop
from scopeval.campaign.state import Allotment, Expected
from scopeval.campaign.terms import Terms
from scopeval.campaign.transfer import export_campaign, import_campaign
from scopeval.campaign.view import trace_of
from scopeval.errors import InputError
from scopeval.evaluation.batches import summarize
from scopeval.evaluation.stage_design import StageDesigner
from scopeval.evaluation.stages import Shares, expected_variance, stage_part, stage_sizes
from scopeval.evaluation.totals import Totals
from scopeval.report.evaluation_figures import running
from scopeval.serve.live import view_of
from wearing_machine import ACTIONS, HORIZON, STATES, policy

TARGET = policy()
SETTINGS = Stages(first=30, growth=2.0, method="odi", check=Check(least_gain=0.0))
EPISODES = 120
#: Sums of a few hundred numbers in two orders agree so well.
SUMMED = 1e-12


# -- weights ---------------------------------------------------------------------------------------


def terms_of(episodes, first=3):
    return Terms(horizon=1, stop=Stop(episodes=episodes), refit=Stages(first=first))


def start(allotment, number, *, share=1.0, by_target=False):
    weight = allotment.next_weight(share, by_target)
    assert weight == allotment.next_weight(share, by_target)  # asking changes nothing
    allotment.started(number, weight, share, by_target)
    assert allotment.of(number).weight == weight
    return weight


@settings(max_examples=200, deadline=None)
@given(
    episodes=st.integers(1, 60),
    first=st.integers(2, 20),
    arrivals=st.lists(
        st.tuples(st.integers(0, 60), st.floats(0.0, 3.0), st.booleans()), max_size=6
    ),
    ramp=st.integers(0, 60),
    handed_over=st.integers(0, 90),
)
def test_all_weights_together_are_the_plan_whenever_designs_arrive(
    episodes, first, arrivals, ramp, handed_over
):
    allotment = Allotment(terms_of(episodes, first))
    allotment.create(Expected(1.0, False))
    total, left = 0.0, float(episodes)
    for k in range(episodes):
        for when, variance, fell_back in arrivals:
            if when == k:
                allotment.design(Expected(max(variance, 0.05), fell_back))
        share = 1.0 if k >= ramp else 0.3
        weight = start(allotment, k, share=share, by_target=k >= handed_over)
        assert 0.0 < weight <= left / (episodes - k) * (1 + 1e-9)  # never more than those to come
        total, left = total + weight, left - weight
    assert total == pytest.approx(episodes, rel=1e-9)


def test_designs_that_arrive_at_once_have_the_weights_of_evaluate():
    terms, variances = terms_of(500, 30), [1.0, 0.3, 0.9, 0.2, 0.6, 0.1, 0.3, 0.2]
    shares, allotment = Shares(500, terms.refit), Allotment(terms)
    number = 0
    sizes = list(stage_sizes(terms.refit, 500))
    assert len(sizes) == len(variances)
    for k, (size, variance) in enumerate(zip(sizes, variances, strict=True)):
        expected = Expected(variance, k == 2, progress=1.0 + 0.1 * k)
        (allotment.design if k else allotment.create)(expected)
        wanted = shares.next(size, variance, fell_back=k == 2, progress=1.0 + 0.1 * k)
        for _ in range(size):
            assert start(allotment, number) == wanted
            number += 1
    assert [segment.stage for segment in allotment.segments] == list(range(8))


def test_the_estimate_is_exactly_unbiased_though_designs_and_weights_follow_the_values():
    """Over all outcomes of 8 episodes with values -1 and 1; a design arrives late or not at all.

    Weights that are divided by their sum afterwards are not: the test would see it.
    """
    n, mean, divided = 8, 0.0, 0.0
    for values in itertools.product((-1.0, 1.0), repeat=n):
        allotment = Allotment(terms_of(n, 2))
        allotment.create(Expected(1.0, False))
        weights, later = [], []
        for k in range(n):
            seen = sum(values[:k])
            if (k == 3 and seen < 0) or k == 5:
                allotment.design(Expected(0.1 if seen < 0 else 1.5, seen > 1))
            weights.append(start(allotment, k, by_target=k >= 6 and seen > 0))
            later.append(10.0 if allotment.stage and seen < 0 else 1.0)
        assert math.fsum(weights) == pytest.approx(n)
        mean += np.dot(weights, values) / n
        divided += np.dot(later, values) / np.sum(later)
    assert abs(mean) < 1e-9
    assert abs(divided) > 1.0


def test_the_share_of_a_ramp_counts_in_the_weight():
    """A quarter of mu in every decision: between on-policy and mu, geometrically."""
    weights = []
    for variance, share in ((0.1, 0.25), (0.1**0.25, 1.0), (0.1, 1.0)):
        allotment = Allotment(terms_of(20))
        allotment.create(Expected(1.0, False))
        for k in range(3):
            start(allotment, k)
        allotment.design(Expected(variance, False))
        weights.append(start(allotment, 3, share=share))
    assert weights[0] == pytest.approx(weights[1], rel=1e-12)
    assert weights[2] > 1.1 * weights[0]


def test_a_journal_without_weights_counts_all_episodes_alike():
    allotment = Allotment(terms_of(20))
    allotment.create(None)
    for k in range(10):
        allotment.started(k, None, 1.0, False)
    allotment.design(Expected(0.1, False))
    assert allotment.next_weight(1.0, False) == 1.0
    assert allotment.stage == 1


# -- whole campaigns -------------------------------------------------------------------------------


def world():
    """Chances of next states of a machine that wears; [S, A, S]."""
    step = np.zeros((STATES, ACTIONS, STATES))
    for s, a in itertools.product(range(STATES), range(ACTIONS)):
        step[s, a, min(s + 1, STATES - 1)] += 0.1 + 0.3 * a
        step[s, a, max(s - 1, 0)] += 0.9 - 0.3 * a
    return step


STEP = world()


def run_episode(campaign):
    with campaign.group():
        episode = campaign.start()
        rng, state = np.random.default_rng((3, episode.number)), 0
        while not episode.over:
            action = episode.act(state)
            following = int(rng.choice(STATES, p=STEP[state, action]))
            episode.observe(3.0 * (action == 2) - state + rng.normal(), 1.0 + action, following)
            state = following
        episode.end()


def whole(where, *, restarts=0, **more):
    campaign = Campaign.create(
        where, TARGET, horizon=HORIZON, stop=Stop(episodes=EPISODES), refit=SETTINGS, **more
    )
    for k in range(EPISODES):
        campaign.backend.on_refit = None  # here by hand, at once
        run_episode(campaign)
        if campaign.status().refit_due:
            if restarts:
                campaign.close()
                campaign = Campaign.open(where, TARGET)
            campaign.refit()
        if restarts and k % restarts == 0:
            campaign.close()
            campaign = Campaign.open(where, TARGET)
    return campaign


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with whole(tmp_path_factory.mktemp("stages") / "c") as campaign:
        yield campaign


def test_designs_and_estimate_are_those_of_evaluate_on_the_same_episodes(finished):
    result, kept = finished.result(), finished.episodes()
    sizes = list(stage_sizes(SETTINGS, EPISODES))
    assert [stage.episodes for stage in result.stages] == sizes
    designer = StageDesigner(
        Question(finished.backend.target, HORIZON, 1.0),
        Promise(),
        SETTINGS,
        None,
        None,
        0,
    )
    shares = Shares(EPISODES, SETTINGS)
    totals = Totals(
        Inference(interval="sequence"),
        Promise(),
        target_n=EPISODES,
        on_policy=False,
        settings=SETTINGS,
    )
    agreements, begin = [], 0
    for number, size in enumerate(sizes):
        plan = designer.next(EPISODES - begin, 1.0)
        stage = result.stages[number]
        assert (plan.prediction, plan.rows, plan.new) == (
            stage.prediction,
            stage.rows,
            stage.designed,
        )
        weight = shares.next(
            size,
            expected_variance(plan.prediction, SETTINGS),
            fell_back=plan.new and plan.prediction is None,
        )
        totals.begin(weight, 1.0 + plan.epsilon)
        some = kept.select(slice(begin, begin + size))
        totals.add(summarize(some, 1.0, "mc" if plan.behavior is None else "pdis"))
        totals.end(plan, None, covered=True, costs=True)
        level = SETTINGS.significance * stage_part(SETTINGS, EPISODES, number + 1)
        agreements += designer.learn(some, number + 1, level)
        begin += size
    wanted = totals.interval(anytime=True)
    # a campaign adds up one episode after the other, `totals` whole stages: rounded otherwise
    for name, value in asdict(wanted).items():
        near = value if isinstance(value, str) else pytest.approx(value, rel=SUMMED)
        assert getattr(result.interval, name) == near, name
    assert result.estimate == pytest.approx(wanted.estimate, rel=SUMMED)
    assert result.stages[-1].designed
    ours = totals.finished_stages()
    assert [s.share for s in result.stages] == [s.share for s in ours]
    for name in ("estimate", "standard_error"):
        told, wanted_each = ([getattr(s, name) for s in some] for some in (result.stages, ours))
        assert told == pytest.approx(wanted_each, rel=SUMMED)
    assert math.fsum(s.share for s in ours) == pytest.approx(1.0)
    assert result.learning is not None
    assert list(result.learning.agreements) == agreements[: len(result.learning.agreements)]
    assert len(result.learning.agreements) == len(sizes) - 2  # before the last stage; no logs


def test_the_status_says_what_the_result_says(finished):
    now, result = finished.status().interval, finished.result().interval
    for name in ("estimate", "low", "high"):
        assert getattr(now, name) == pytest.approx(getattr(result, name))


def test_the_live_page_draws_the_weighted_mean_and_lists_the_stages(finished):
    with finished.backend.store.read() as connection:
        trace = trace_of(finished.backend.state(connection))
    now, goal = finished.status().interval, round(EPISODES / SETTINGS.prior_variance)
    band = running(trace.value, 0.05, goal, trace.stages)
    assert (band.mean[-1], band.low[-1], band.high[-1]) == pytest.approx(
        (now.estimate, now.low, now.high)
    )
    page = view_of(
        finished.status(), finished.result(), [], finished.designs(), finished.terms, 0.0
    )
    assert sum("of the estimate, share" in check.text for check in page.stages) == 3


def test_a_lower_cost_is_judged_as_asked_and_the_guard_watches_the_targets_own(place):
    """The asked cost is judged by the certificate; the guard does not hand over to a dearer policy.

    A guard at 0.7 would hand over to the target policy, which costs 1.
    """
    campaign = whole(place / "low", promise=Promise(0.7))
    status, result = campaign.status(), campaign.result()
    assert status.guards[0].rule == "expected cost at most 1 times the target policy's"
    assert status.state == "running"
    assert result.certificate.epsilon == -0.3
    assert result.certificate.verdict != "safe"
    assert result.certificate_at_own_cost.epsilon == 0.0
    told = " ".join(result.summary().split())
    assert "0.7 times the target's" in told
    assert "at most the target's" in told
    assert "it guards the target's own cost" in told
    campaign.close()


def test_restarts_change_nothing(finished, place):
    with whole(place / "again", restarts=13) as again:
        theirs, ours = finished.result().to_dict(), again.result().to_dict()
        for found in (theirs, ours):
            del found["learning"]["seconds"]
            for stage in found["stages"]:
                del stage["seconds"]
        assert ours == theirs
        assert again.verify().good


def test_the_report_shows_the_stages(finished, place):
    text = finished.report(place / "report.html").read_text()
    assert "The evaluation ran in stages" in text
    assert "share of the stage" in text


def test_a_dropped_episode_leaves_the_estimate(finished, place):
    export_campaign(finished.backend.store, place / "whole")
    import_campaign(place / "whole", place / "c")
    with Campaign.open(place / "c", TARGET) as campaign:
        before = campaign.result()
        campaign.drop(3, "the sensor was broken")
        after, now = campaign.result(), campaign.status().interval
        assert after.estimate != before.estimate
        assert after.stages[0].episodes == before.stages[0].episodes - 1
        assert now.estimate == pytest.approx(after.estimate)
    with Campaign.open(place / "c", TARGET) as again:
        assert again.result().interval == after.interval
        assert again.status().interval == now


def test_return_bounds_are_refused_with_stages(place):
    with pytest.raises(InputError, match="return_bound"):
        Campaign.create(
            place / "c",
            TARGET,
            horizon=HORIZON,
            refit=True,
            inference=Inference(return_bound=(0.0, 1.0)),
        )


# -- how often it is wrong -------------------------------------------------------------------------


def test_intervals_and_guards_are_rarely_wrong_at_any_time():
    """80 campaigns of made-up events, in which weights and finishing times follow the values.

    Promised is 0.05 each: more than 10 of 80 has probability 0.003, if it were just kept.
    """
    sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
    from campaign_rates import by_events

    found = np.array([by_events(number, 120, 4) for number in range(80)])
    assert found.sum(axis=0).max() <= 10

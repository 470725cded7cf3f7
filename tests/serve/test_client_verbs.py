"""A campaign over HTTP shows what a local one shows."""

from __future__ import annotations

import time

import numpy as np
import pytest

from campaign.machine import Machine, run_episode, tables
from scopeval import Bound, Campaign, Limit, Promise, Stages, Stop, Table, connect
from scopeval.errors import CampaignError, InputError
from scopeval.serve.app import Service, serving

TARGET, BEHAVIOR = tables()


def test_views_are_those_of_a_local_campaign(served, place):
    with connect(served.url, served.tokens["plant"]) as plant:
        for k in range(6):
            run_episode(plant, f"plant-{k % 2}")
        left = plant.start("plant-0")
        left.act(1)
        again = plant.resume_episode("plant-0")
        assert (again.number, again.decided.action) == (left.number, left.decided.action)
        with pytest.raises(CampaignError, match="no episode is open"):
            plant.resume_episode("plant-1")
        with pytest.raises(InputError, match="role"):
            plant.verify()
    with (
        connect(served.url, served.tokens["operator"]) as far,
        Campaign.open(served.where, TARGET) as near,
    ):
        assert far.verify() == near.verify()
        assert far.verify().good
        assert far.shadow() == near.shadow()
        assert list(far.to_frame()["state"]) == ["finished"] * 6 + ["open"]
        assert far.running == near.running == 1
        assert far.terms == near.terms
        assert far.episodes_on("plant-1") == near.episodes_on("plant-1")
        assert far.events(3, most=2) == near.events(3, most=2)
        kept = far.result(keep=True)
        assert len(kept.episodes) == 6
        assert kept.interval == near.result().interval
        theirs, ours = near.logs(), far.logs()
        for name in ("t", "obs", "action", "reward", "cost", "next_obs", "terminated"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        page = far.report(place / "r.html", title="Two halls").read_text()
        assert "Two halls" in page
        assert far.tell_silence() == []
        assert not far.refit()  # there are none


def test_terms_of_all_kinds_arrive(create):
    where, tokens = create(
        promise=[Promise(bound=Bound(step=3.0)), Limit("warmth", step=3.0, action="tell")],
        stop=Stop(episodes=50, precision=0.5),
        refit=Stages(first=20, learn=Table(features=np.eye(4))),
    )
    with serving(Service(where, TARGET, port=0)) as url, connect(url, tokens["viewer"]) as far:
        found = far.terms
    assert found.guards == (
        Promise(of=None, bound=Bound(step=3.0)),
        Limit("warmth", step=3.0, action="tell"),
    )
    assert (found.stop, found.promise.bound.step) == (Stop(episodes=50, precision=0.5), 3.0)
    np.testing.assert_array_equal(found.refit.learn.features, np.eye(4))


def test_shadow_mode_over_http_until_an_operator_goes_live(create):
    where, tokens = create(shadow=True)
    with (
        serving(Service(where, TARGET, port=0)) as url,
        connect(url, tokens["plant"]) as plant,
        connect(url, tokens["operator"]) as operator,
    ):
        machine, episode = Machine(), plant.start("a")
        obs = machine.first(0)
        with pytest.raises(InputError, match="incumbent"):
            episode.act(obs)
        while not episode.over:
            action = episode.act(obs, incumbent=1)
            assert action == 1
            reward, cost, obs, ended = machine.step(0, episode.step, obs, action)
            episode.observe(reward, cost, obs, terminated=ended)
        episode.end()
        assert operator.shadow().decisions == episode.step
        assert operator.status().shadowed == 1
        assert len(operator.logs().t) == episode.step
        operator.go_live("the numbers look right")
        assert operator.status().live
        assert not plant.start("a").shadow
        assert [(e.kind, e.who) for e in operator.events() if e.who] == [
            ("started", "the plant"),
            ("ended", "the plant"),
            ("live", "the operator"),
            ("started", "the plant"),
        ]


def test_stages_over_http_and_a_refit_that_an_operator_asks_for(create):
    where, tokens = create(
        behavior=None, stop=Stop(episodes=40), refit=Stages(first=10, method="odi")
    )
    with Campaign.open(where, TARGET) as campaign, campaign.group():
        campaign.backend.on_refit = None  # the process that would have done it was killed
        for _ in range(10):
            run_episode(campaign)
    with (
        serving(Service(where, TARGET, port=0)) as url,
        connect(url, tokens["operator"]) as operator,
    ):
        assert operator.status().refit_due
        assert operator.refit("by hand")
        until = time.monotonic() + 900  # a process of its own, which compiles: 13 s of computing
        while operator.status().refit_due and time.monotonic() < until:
            time.sleep(0.1)
        assert not operator.status().refit_due
        assert not operator.refit()
        (stage,) = operator.result().stages
        assert (stage.episodes, stage.share) == (10, 1.0)
        with Campaign.open(where, TARGET) as near:
            assert operator.result() == near.result()

"""The client has the verbs of a `Campaign`, with the same arguments, and they do the same."""

from __future__ import annotations

import inspect
import time
import typing

import numpy as np
import pytest

from campaign.machine import Machine, run_episode, tables
from scopeval import Campaign, connect
from scopeval.campaign.episode import CampaignEpisode
from scopeval.campaign.terms import Limit, Plan, Promise
from scopeval.errors import CampaignError, InputError
from scopeval.evaluation.refitting import Refitting
from scopeval.serve.client import RemoteCampaign
from scopeval.serve.remote_episode import RemoteEpisode
from scopeval.serve.server import Service, serving

TARGET, BEHAVIOR = tables()

#: Verbs of a `Campaign` that make no sense on another machine, and why.
LOCAL = {
    "create": "a client does not send policies",
    "open": "`connect` does",
    "group": "a transaction of one process; the service groups calls by itself",
    "start_refit": "`refit` does",
}
#: Of a `CampaignEpisode`: what the campaign itself calls.
INSIDE = {"check_next", "read", "count", "replay"}


def verbs_of(kind):
    return {
        name: value
        for name, value in inspect.getmembers(kind)
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    }


@pytest.mark.parametrize(
    ("near", "far", "left_out"),
    [(Campaign, RemoteCampaign, set(LOCAL)), (CampaignEpisode, RemoteEpisode, INSIDE | {"over"})],
)
def test_the_client_has_all_verbs_with_the_same_arguments(near, far, left_out):
    ours, theirs = verbs_of(far), verbs_of(near)
    assert set(theirs) - set(ours) == left_out
    for name in set(theirs) & set(ours):
        if isinstance(theirs[name], property):
            assert isinstance(ours[name], property)
            continue
        if ours[name] is theirs[name]:  # both inherit it
            continue
        wanted = dict(inspect.signature(theirs[name]).parameters)
        wanted.pop("who", None)  # the name of the token is
        found = inspect.signature(ours[name]).parameters
        missing = {key for key in wanted if key not in found}
        assert not missing, f"{name} lacks {missing}"
        for key, parameter in wanted.items():
            assert found[key].default == parameter.default, f"{name}({key})"
            assert found[key].kind == parameter.kind, f"{name}({key})"
        hints, expected = typing.get_type_hints(ours[name]), typing.get_type_hints(theirs[name])
        if expected["return"] not in (CampaignEpisode, type(None)):
            assert hints["return"] == expected["return"], name


def test_every_attribute_of_a_running_episode_is_there():
    near = {name for name in CampaignEpisode.__dataclass_fields__ if name != "recorder"}
    assert near - set(RemoteEpisode.__dataclass_fields__) == {"weight", "sums", "last_obs"}


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
        guards=[Promise(alpha=0.01), Limit("warmth", step=3.0, action="tell")],
        plan=Plan(episodes=50, precision=0.5),
        refit=Refitting(first=20, features=np.eye(4)),
        step_cost_bound=3.0,
    )
    with serving(Service(where, TARGET, port=0)) as url, connect(url, tokens["viewer"]) as far:
        found = far.terms
    assert found.guards == (Promise(alpha=0.01), Limit("warmth", step=3.0, action="tell"))
    assert (found.plan, found.step_cost_bound) == (Plan(episodes=50, precision=0.5), 3.0)
    np.testing.assert_array_equal(found.refit.features, np.eye(4))


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
        assert [e.kind for e in operator.events() if e.who] == ["live"]


def test_stages_over_http_and_a_refit_that_an_operator_asks_for(create):
    where, tokens = create(
        behavior=None, plan=Plan(episodes=40), refit=Refitting(first=10, method="odi")
    )
    with Campaign.open(where, TARGET) as campaign, campaign.group():
        campaign._recorder.on_refit = None  # the process that would have done it was killed
        for _ in range(10):
            run_episode(campaign)
    with (
        serving(Service(where, TARGET, port=0)) as url,
        connect(url, tokens["operator"]) as operator,
    ):
        assert operator.status().refit_due
        assert operator.refit("by hand")
        for _ in range(600):
            if not operator.status().refit_due:
                break
            time.sleep(0.1)
        assert not operator.status().refit_due
        assert not operator.refit()
        (stage,) = operator.result().stages
        assert (stage.episodes, stage.share) == (10, 1.0)
        with Campaign.open(where, TARGET) as near:
            assert operator.result() == near.result()

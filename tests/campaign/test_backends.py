"""One suite over all backends: a database of this machine, a server's, and a service over HTTP."""

from __future__ import annotations

import time

import numpy as np
import pytest

from campaign.machine import HORIZON, Machine, run_episode, tables
from scopeval import Campaign, Limit, Promise, Stop, connect
from scopeval.errors import CampaignError, InputError, NotFoundError

TARGET, BEHAVIOR = tables()
TODAY = np.eye(3)[[0, 1, 2, 0]]  # a deterministic controller


class OverHttp:
    """A campaign behind a service: plants and operators have tokens of their own."""

    def __init__(self, plant, operator):
        self._plant, self._operator = plant, operator

    def __getattr__(self, name):
        of_plants = ("start", "resume_episode", "episode", "heartbeat")
        return getattr(self._plant if name in of_plants else self._operator, name)


@pytest.fixture(params=["sqlite", "postgresql", "http"])
def create(request, place):
    """Creates a campaign on each backend."""
    opened = []

    def create(policies=TARGET, **terms):
        where = place / f"{len(opened)}.campaign"
        if request.param == "postgresql":
            where = request.getfixturevalue("postgres").url()
        behavior = {} if isinstance(policies, dict) else {"behavior": BEHAVIOR}
        terms = {"horizon": HORIZON, "seed": 3, "lease": 0.0} | behavior | terms
        campaign = Campaign.create(where, policies, **terms)
        opened.append(campaign)
        if request.param != "http":
            return campaign
        pytest.importorskip("fastapi")
        from scopeval.serve.app import Service, serving
        from scopeval.serve.auth import TokenStore

        book = TokenStore(campaign.backend.store, time.time)
        tokens = [book.create(role, role) for role in ("plant", "operator")]
        serves = serving(Service(where, policies, port=0))
        url = serves.__enter__()
        clients = [connect(url, token) for token in tokens]
        opened.extend([*clients, _Exits(serves)])
        return OverHttp(*clients)

    yield create
    for one in reversed(opened):
        one.close()


class _Exits:
    def __init__(self, context):
        self._context = context

    def close(self):
        self._context.__exit__(None, None, None)


def one_step(episode, t, obs=1, **more):
    reward, cost, following, _ = Machine().step(episode.number, t, obs, episode.act(obs))
    episode.observe(reward, cost, following, **more)
    return following


def test_episodes_results_and_audits_are_the_same_on_all(create, place):
    campaign = create()
    for k in range(12):
        run_episode(campaign, f"plant-{k % 2}")
    with Campaign.create(
        place / "plain", TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=3
    ) as plain:
        for k in range(12):
            run_episode(plain, f"plant-{k % 2}")
        assert campaign.result() == plain.result()
        assert np.array_equal(campaign.episodes().action, plain.episodes().action)
    checked = campaign.verify()
    assert checked.good, checked.first
    assert campaign.verify(checked.head).good
    assert campaign.status().head == checked.head.partition(":")[2]
    assert len(campaign.to_frame()) == 12


def test_a_decision_is_resumed_and_repeated(create):
    campaign = create()
    episode = campaign.start("a")
    following = one_step(episode, 0)
    action = episode.act(following)
    again = campaign.start("a", resume=True)
    assert (again.number, again.step) == (episode.number, 1)
    assert again.decided.action == action == again.act(following)
    assert again.decided.by == again.by == "behavior"
    assert int(again.decided.obs) == following
    with pytest.raises(InputError, match="was decided at"):
        again.act((following + 1) % 4)


def test_a_handle_that_is_behind_reads_the_journal_before_it_refuses(create):
    """Two handles of one episode, in turn: each step is decided once, and none is refused."""
    campaign = create()
    handles = [campaign.start("a"), campaign.resume_episode("a")]
    obs, machine = 1, Machine()
    for t in range(HORIZON):
        action = handles[t % 2].act(obs, step=t)
        reward, cost, obs, _ = machine.step(0, t, obs, action)
        handles[(t + 1) % 2].observe(reward, cost, obs, step=t)
    handles[1].end()
    assert campaign.result().finished == 1


def test_advance_is_an_outcome_and_the_next_decision(create):
    campaign = create()
    episode, machine = campaign.start("a"), Machine()
    obs, actions = 1, [episode.act(1)]
    while actions[-1] is not None:
        reward, cost, obs, _ = machine.step(0, episode.step, obs, actions[-1])
        actions.append(episode.advance(reward, cost, obs))
    assert len(actions) == HORIZON + 1
    assert episode.over
    episode.end()
    assert campaign.verify().good


def test_readings_that_cannot_be_right_are_refused_at_their_step(create):
    episode = create().start("a")
    episode.act(1)
    for bad in (99, -1, [1.0, 2.0]):
        with pytest.raises(InputError, match="next_obs"):
            episode.observe(0.0, 1.0, bad)
    with pytest.raises(InputError, match="cost"):
        episode.observe(0.0, -1.0, 2)
    episode.observe(0.0, 1.0, 2)
    with pytest.raises(InputError, match="another outcome"):
        episode.observe(0.0, 2.0, 2, step=0)


def test_names_that_look_alike_are_refused(create):
    campaign = create()
    for name in ("hall-3 ", " hall-3", "", "hall\u202e"):
        with pytest.raises(InputError, match="plant"):
            campaign.start(name)


def test_commands_and_their_codes(create):
    campaign = create()
    episode = campaign.start("a")
    with pytest.raises(CampaignError, match="in order") as refused:
        episode.act(1, step=3)
    assert refused.value.code == "wrong_step"
    campaign.pause("a storm")
    assert campaign.heartbeat("a") == "paused"
    with pytest.raises(CampaignError, match="a storm") as refused:
        campaign.start("b")
    assert refused.value.code == "paused"
    campaign.resume()
    campaign.lose(episode.number, "the plant does not come back")
    assert campaign.status().lost == 1
    number = run_episode(campaign, "b")
    campaign.drop(number, "a broken sensor")
    assert campaign.status().finished == 0
    with pytest.raises(InputError, match="no episode is finished"):
        campaign.result()
    with pytest.raises(NotFoundError, match="there is no episode"):
        campaign.episode(77)
    with pytest.raises(CampaignError, match="is dropped"):
        campaign.drop(number, "again")


def test_a_stop_gives_control_back_at_once(create):
    campaign = create()
    waiting, between = campaign.start("a"), campaign.start("b")
    waiting.act(1)
    one_step(between, 0)
    campaign.stop("smoke")
    assert between.act(2) is None
    assert between.over
    assert (between.state, between.back) == ("lost", 1)
    between.end()  # as the loop of a plant does
    waiting.observe(0.0, 1.5, 2)  # what was carried out is recorded
    assert waiting.over
    waiting.end()
    assert waiting.state == "lost"
    status = campaign.status()
    assert (status.state, status.lost, status.cut, status.open) == ("stopped", 2, 2, 0)
    assert "2 cut by the stop" in str(status)
    assert campaign.heartbeat("a") == "stopped"
    assert campaign.verify().good


def test_the_baseline_takes_the_rest_of_an_episode_above_a_limit(create):
    guards = [Promise(of="target"), Limit("heat", step=80.0, action="fall back")]
    campaign = create(baseline=TODAY, promise=guards)
    episode = campaign.start("a")
    obs = one_step(episode, 0, signals={"heat": 90.0})
    before = episode.weight
    action = episode.act(obs)
    assert action == TODAY[obs].argmax()
    assert (episode.by, episode.back) == ("baseline", 1)
    episode.observe(0.0, 1.0, 2, signals={"heat": 20.0})
    assert episode.weight == before  # ratio 1: on this machine, and not counted over HTTP
    assert campaign.episode(episode.number).back == 1
    episode.end()
    other = campaign.start("a")
    other.act(1)
    assert other.by == "behavior"  # the campaign goes on
    assert campaign.status().state == "running"
    assert campaign.verify().good


def test_a_comparison_is_the_same_on_all(create, place):
    both = {"today": TARGET, "new": BEHAVIOR}
    campaign = create(both, stop=Stop(episodes=60, every=20))
    with Campaign.create(
        place / "plain", both, horizon=HORIZON, seed=3, stop=Stop(episodes=60, every=20)
    ) as plain:
        for one in (campaign, plain):
            for k in range(60):
                run_episode(one, f"plant-{k % 2}")
        while plain.look():
            pass
        found, wanted = campaign.result(keep=True), plain.result(keep=True)
        for name in ("weights", "shares", "action", "reward", "length", "failed", "back"):
            kept = getattr(found.recorded, name), getattr(wanted.recorded, name)
            assert np.array_equal(*kept), name
        assert found.differences == wanted.differences
        assert found.values == wanted.values
    campaign.look()
    for _ in range(1200):
        status = campaign.status()
        if status.looked == 60:
            break
        time.sleep(0.1)  # a service looks by itself as well
    assert status.looked == 60
    assert [one.name for one in status.policies] == ["today", "new"]
    assert status.policies[1].difference == pytest.approx(wanted.differences["new"].estimate)
    assert status.policies[1].low == pytest.approx(wanted.differences["new"].low)
    assert "new" in str(status)
    assert status.word == "complete"
    assert campaign.verify().good
    assert len(campaign.to_frame()) == 60
    assert campaign.report(place / "report.html").read_text().count("new") > 3


def test_an_episode_of_a_mixture_is_resumed(create):
    campaign = create({"today": TARGET, "new": BEHAVIOR})
    episode = campaign.start("a")
    obs = one_step(episode, 0)
    action = episode.act(obs)
    assert episode.by == "mixture"
    again = campaign.start("a", resume=True)
    assert (again.step, again.by, again.decided.action) == (1, "mixture", action)
    again.observe(0.0, 1.0, 2)
    campaign.hand_over("a storm")
    assert campaign.resume_episode("a").act(2) is not None
    assert campaign.resume_episode("a").by == "baseline"
    assert campaign.verify().good

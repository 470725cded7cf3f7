"""A served campaign does what a local one does, and repeated calls have no further effect."""

from __future__ import annotations

import socket
import threading
import time

import numpy as np
import pytest

from campaign.machine import HORIZON, Machine, run_episode, tables
from scopeval import Campaign, connect
from scopeval.errors import CampaignError, InputError, ServiceError
from scopeval.serve.app import Service, Settings, serving
from scopeval.serve.auth import TokenStore
from scopeval.serve.client import HttpBackend

TARGET, BEHAVIOR = tables()


def run_remote(campaign, plant="plant", *, advance=False):
    machine = Machine()
    episode = campaign.start(plant)
    obs = machine.first(episode.number)
    action = episode.act(obs)
    while True:
        reward, cost, obs, ended = machine.step(
            episode.number, episode.step, int(episode.decided.obs), action
        )
        if advance:
            action = episode.advance(reward, cost, obs, terminated=ended)
        else:
            episode.observe(reward, cost, obs, terminated=ended)
            action = None if episode.over else episode.act(obs)
        if action is None:
            break
    assert episode.over
    episode.end()
    return episode.number


@pytest.fixture
def plant(served):
    with connect(served.url, served.tokens["plant"]) as campaign:
        yield campaign


@pytest.fixture
def operator(served):
    with connect(served.url, served.tokens["operator"]) as campaign:
        yield campaign


def test_a_served_campaign_gives_what_a_local_one_gives(served, plant, operator, place):
    for k in range(12):
        run_remote(plant, f"plant-{k % 3}", advance=k % 2 == 0)
    with Campaign.create(
        place / "local.campaign", TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=3
    ) as local:
        for k in range(12):
            run_episode(local, f"plant-{k % 3}")
        assert operator.result() == local.result()
        far, near = operator.episodes(), local.episodes()
        for name in ("obs", "action", "reward", "cost", "behavior_prob", "target_prob"):
            np.testing.assert_array_equal(getattr(far, name), getattr(near, name))
        assert len(operator.episodes(plant="plant-1")) == 4
        status, there = operator.status(), local.status()
        assert (status.finished, status.spent, status.interval) == (
            there.finished,
            there.spent,
            there.interval,
        )
        assert [p.name for p in status.plants] == [p.name for p in there.plants]
        assert [e.kind for e in operator.events()] == [e.kind for e in local.events()]
        assert operator.designs()[0].fingerprint == local.designs()[0].fingerprint
    assert "<html" in operator.report(place / "r.html").read_text()


def test_plants_side_by_side_are_independent(served, operator):
    def work(name):
        with connect(served.url, served.tokens["plant"]) as campaign:
            for _ in range(4):
                run_remote(campaign, name, advance=name.endswith("0"))

    threads = [threading.Thread(target=work, args=(f"plant-{k}",)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    status = operator.status()
    assert (status.finished, status.open, status.lost) == (32, 0, 0)
    episodes = operator.episodes()
    steps = episodes.steps
    assert episodes.behavior_prob[steps] == pytest.approx(
        BEHAVIOR[episodes.obs[steps], episodes.action[steps]]
    )


def test_an_episode_is_resumed_where_it_was(served, plant):
    episode = plant.start("a")
    action = episode.act(2)
    with connect(served.url, served.tokens["plant"]) as again:
        resumed = again.start("a", resume=True, take_over=True)
        assert resumed.number == episode.number
        assert resumed.decided.action == action
        assert int(resumed.decided.obs) == 2
        resumed.observe(1.0, 0.5, 1)
        assert again.episode(episode.number).step == 1
    other = plant.start("a", take_over=True)  # not resumed: the first is lost
    assert other.number != episode.number
    assert plant.episode(episode.number).state == "lost"
    other.lose("the power failed")
    assert other.state == "lost"


def test_errors_are_those_of_a_local_campaign(served, plant, operator):
    episode = plant.start("a")
    with pytest.raises(InputError, match="finite"):
        episode.act(float("nan"))
    with pytest.raises(InputError, match="10000"):
        episode.act(10_000)
    with pytest.raises(CampaignError, match="not decided"):
        episode.observe(1.0, 1.0, 1)
    with pytest.raises(CampaignError, match="no steps"):
        episode.end()
    episode.act(1)
    with pytest.raises(InputError, match="cost"):
        episode.observe(1.0, -1.0, 1)
    with pytest.raises(InputError, match="no episode of that number"):
        plant.episode(999)
    with pytest.raises(InputError, match="role"):
        plant.status()
    with pytest.raises(InputError, match="role"):
        operator.start("a")
    with pytest.raises(InputError, match="no episode is finished"):
        operator.result()
    operator.pause("a storm")
    with pytest.raises(CampaignError, match="a storm"):
        plant.start("b")
    operator.resume()
    plant.start("b")
    plant.heartbeat("b")
    with pytest.raises(InputError, match="has not run an episode"):
        plant.heartbeat("nobody")


def test_operators_are_written_down(served, plant, operator):
    number = run_remote(plant)
    operator.pause("lunch")
    operator.resume("back again")
    operator.drop(number, "a broken sensor")
    operator.hand_over("too warm")
    assert operator.status().state == "handed over"
    with pytest.raises(CampaignError, match="not there"):
        operator.drop(999, "a mistake")
    operator.stop("the end")
    assert [e.kind for e in operator.events()][-1] == "stop"
    _, log, _ = served.call("GET", "/v1/audit", token="operator")
    log = [one for one in log if one["verb"] != "token"]
    assert [(one["verb"], one["reason"]) for one in log] == [
        ("stop", "the end"),
        ("drop 999", "a mistake"),
        ("hand-over", "too warm"),
        (f"drop {number}", "a broken sensor"),
        ("resume", "back again"),
        ("pause", "lunch"),
    ]
    assert [one["outcome"][:7] for one in log] == ["done", "refused"] + ["done"] * 4
    assert {one["who"] for one in log} == {"the operator"}
    assert {one["address"] for one in log} == {"127.0.0.1"}
    assert {e.who for e in operator.events() if e.kind in ("pause", "stop")} == {"the operator"}


def test_a_call_is_repeated_until_it_is_answered(served, monkeypatch):
    """Of every call the first answer is lost; the journal has everything once."""
    attempts = HttpBackend._attempt
    lost = set()

    def unlucky(self, method, place, body):
        answer = attempts(self, method, place, body)
        if (method, place, body) not in lost:
            lost.add((method, place, body))
            self.close()
            raise ConnectionResetError("lost")
        return answer

    monkeypatch.setattr(HttpBackend, "_attempt", unlucky)
    monkeypatch.setattr("scopeval.serve.client.FIRST_WAIT", 0.001)
    with connect(served.url, served.tokens["plant"]) as campaign:
        numbers = [run_remote(campaign, "a", advance=advance) for advance in (False, True)]
    with connect(served.url, served.tokens["operator"]) as campaign:
        campaign.pause("once")
        kinds = [event.kind for event in campaign.events()]
    assert numbers == [0, 1]
    assert kinds == ["created", "started", "ended", "started", "ended", "pause"]
    assert len(lost) > 10


@pytest.mark.parametrize("sent", [b"", b'{"state": "run'], ids=["no body", "a part of it"])
def test_an_answer_that_breaks_off_is_no_answer(sent):
    """The service is killed after the head of its answer: the call is repeated."""
    whole = b'{"state": "running", "control": "campaign"}'
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(whole)}\r\n\r\n".encode()

    def answer(listener):
        for body in (sent, whole):
            line, _ = listener.accept()
            with line:
                line.recv(65536)
                line.sendall(head + body)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,), daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        with connect(f"http://127.0.0.1:{port}", "no token", patience=60.0) as campaign:
            assert campaign.heartbeat("a") == "running"
        thread.join()


def test_patience_ends():
    campaign = connect("http://127.0.0.1:9", patience=0.3, timeout=0.1)
    with pytest.raises(ServiceError, match="safe to repeat"):
        campaign.status()


@pytest.mark.parametrize("url", ["ftp://a", "nowhere", "http://", "http://a:b", "http://u:p@a"])
def test_addresses_are_checked(url):
    with pytest.raises(InputError, match="url"):
        connect(url)


def test_a_campaign_in_postgresql_is_served(postgres, place):
    """Groups of calls there: the result is that of single calls in SQLite."""
    where = postgres.url()
    terms = {"horizon": HORIZON, "behavior": BEHAVIOR, "seed": 3}
    with Campaign.create(where, TARGET, **terms) as campaign:
        book = TokenStore(campaign.backend.store, time.time)
        tokens = {role: book.create(f"the {role}", role) for role in ("plant", "operator")}
    with (
        serving(Service(where, TARGET, port=0)) as url,
        connect(url, tokens["plant"]) as campaign,
        connect(url, tokens["operator"]) as operator,
    ):
        for k in range(6):
            run_remote(campaign, f"plant-{k % 3}", advance=k % 2 == 0)
        operator.pause("a storm")
        with pytest.raises(CampaignError, match="a storm"):
            campaign.start("a")
        found = operator.result()
    with Campaign.create(place / "local.campaign", TARGET, **terms) as local:
        for k in range(6):
            run_episode(local, f"plant-{k % 3}")
        assert found == local.result()


def test_a_plant_that_falls_silent_is_told(create):
    where, tokens = create(silent_after=0.2)
    settings = Settings(silence_every=0.05)
    with (
        serving(Service(where, TARGET, port=0, settings=settings)) as url,
        connect(url, tokens["plant"]) as plant,
        connect(url, tokens["viewer"]) as viewer,
    ):
        plant.start("hall")
        for _ in range(1200):
            told = [event.plant for event in viewer.events() if event.kind == "silent"]
            if told:
                break
            time.sleep(0.1)
    assert told == ["hall"]

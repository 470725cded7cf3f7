"""A service that is operated: it ends cleanly, says when it cannot record, and is not used up."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from urllib.parse import urlsplit

import numpy as np
import pytest
import sqlalchemy
from http_calls import Served

from campaign.machine import HORIZON, run_episode, tables
from scopeval import Campaign, connect
from scopeval.errors import CampaignError, DataError, InputError
from scopeval.serve.app import Service, Settings, serve, serving
from scopeval.serve.auth import TokenStore
from scopeval.serve.models import Limits
from scopeval.serve.service import Viewer

TARGET, BEHAVIOR = tables()
SCOPEVAL = [sys.executable, "-c", "from scopeval.cli import main; main()"]


@pytest.fixture
def started(place):
    """A service in a process of its own; gives its address and the first operator's token."""
    np.save(place / "policy.npy", TARGET)
    where = place / "c.campaign"
    Campaign.create(where, TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=3).close()
    process = subprocess.Popen(
        [*SCOPEVAL, "serve", str(where), "--policy", str(place / "policy.npy"), "--port", "0",
         "--access-log"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "300"},
    )  # fmt: skip
    url = re.search(r"http://[\d.:]+", process.stdout.readline())[0]
    process.stdout.readline()
    token = process.stdout.readline().strip()
    yield process, url, token, where
    process.kill()
    process.communicate()


def soon(holds):
    """Whether something holds before long; a closed line is an answer, too."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if holds():
                return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_closes_the_campaign_with_status_0(started, number):
    """The one file holds everything, as a copy of it after a stop must."""
    process, url, operator, where = started
    with Campaign.open(where, TARGET) as campaign:
        for _ in range(5):
            run_episode(campaign)
        with connect(url, operator) as client:
            client.pause("maintenance")
        process.send_signal(number)
        _, log = process.communicate(timeout=300)
    assert process.returncode == 0, log
    assert not where.with_name("c.campaign-wal").exists()
    shutil.copy(where, where.with_name("copy"))
    with Campaign.open(where.with_name("copy"), TARGET) as copy:
        assert (copy.status().finished, copy.status().state) == (5, "paused")
        assert [e.who for e in copy.events() if e.kind == "pause"] == ["first operator"]
    lines = log.strip().splitlines()
    assert any("POST /v1/commands/pause 200" in line for line in lines), log
    for line in lines:
        assert re.match(r"\d{4}-\d\d-\d\dT[\d:]+\.\d{3}Z (INFO|WARNING|ERROR) ", line), line


def test_a_service_is_not_ready_while_nothing_can_be_recorded(served):
    assert served.call("GET", "/readyz")[:2] == (200, {"status": "ready"})
    with sqlite3.connect(served.where, isolation_level=None) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        answer = lambda: served.call("GET", "/readyz")[:2]  # noqa: E731
        assert soon(lambda: answer()[0] == 503)
        assert answer()[1]["status"] == "not ready"
        assert served.call("GET", "/healthz")[0] == 200
        stranger.execute("ROLLBACK")
    assert soon(lambda: answer()[0] == 200)


def test_act_answers_within_a_limit_while_the_database_is_locked(create):
    where, tokens = create()
    settings = Settings(limits=Limits(answer_seconds=0.5))
    with serving(Service(where, TARGET, port=0, settings=settings)) as url:
        served = Served(where, url, tokens)
        start = {"plant": "a", "request": "12345678"}
        begin = ("POST", "/v1/episodes", start)
        assert soon(lambda: served.call(*begin, token="plant")[0] == 200)
        act = ("POST", "/v1/episodes/0/act", {"step": 0, "obs": 1})
        with sqlite3.connect(where, isolation_level=None) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            status, content, headers = served.call(*act, token="plant")
            stranger.execute("ROLLBACK")
        # "database" would be the database's own patience, which is 10 times as long
        assert (status, content["code"], headers["Retry-After"]) == (503, "overloaded", "1")
        assert soon(
            lambda: served.call(*act, token="plant")[0] == 200
        )  # repeated, it has one answer


def test_two_services_on_one_store_refuse_no_correct_call(create):
    """Calls of one plant go to two services in turn."""
    where, tokens = create()
    settings = Settings(limits=Limits(rate=1e6, answer_seconds=300.0))
    with (
        serving(Service(where, TARGET, port=0, settings=settings)) as one,
        serving(Service(where, TARGET, port=0, settings=settings)) as other,
    ):
        services = [Served(where, url, tokens) for url in (one, other)]
        count = 0

        def call(place, body):
            nonlocal count
            count += 1
            status, content, _ = services[count % 2].call("POST", place, body, token="plant")
            assert status == 200, content
            return content

        for k in range(4):
            start = {"plant": "a", "request": f"request-{k:04}"}
            place = f"/v1/episodes/{call('/v1/episodes', start)['number']}"
            for t in range(HORIZON):
                call(f"{place}/act", {"step": t, "obs": 1})
                outcome = {"step": t, "reward": 1.0, "cost": 1.0, "next_obs": 1}
                call(f"{place}/observe", outcome)
                if t % 2:
                    count += 1  # the order of the services changes
            call(f"{place}/end", {"steps": HORIZON})
        assert count > 40


def test_two_controllers_of_one_plant_do_not_destroy_each_others_episodes(create):
    where, tokens = create(lease=3600.0)  # a busy machine may take seconds between two calls
    with (
        serving(Service(where, TARGET, port=0)) as url,
        connect(url, tokens["plant"]) as first,
        connect(url, tokens["plant"]) as second,
    ):
        episode = first.start("a")
        episode.act(1)
        with pytest.raises(CampaignError, match="another controller runs 'a'") as refused:
            second.start("a")
        assert refused.value.code == "plant_busy"
        with pytest.raises(CampaignError, match="two programs would drive one plant") as refused:
            second.start("a", resume=True)
        assert refused.value.code == "plant_busy"
        going_on = second.start("a", resume=True, take_over=True)
        assert (going_on.number, going_on.decided is None) == (episode.number, False)
        for call in (
            lambda: episode.act(1, step=0),
            lambda: episode.observe(0.0, 1.0, 2),
            lambda: episode.lose("it is mine"),
        ):
            with pytest.raises(CampaignError, match="another program took over 'a' at") as refused:
                call()
            assert refused.value.code == "taken_over"
        going_on.observe(0.0, 1.0, 2)
        assert second.start("a", take_over=True).number != episode.number


def test_an_operator_gives_up_the_episode_of_a_dead_plant(served):
    with connect(served.url, served.tokens["plant"]) as plant:
        episode = plant.start("a")
    with connect(served.url, served.tokens["operator"]) as operator:
        operator.lose(episode.number, "the cable was pulled")
        assert operator.status().lost == 1
        assert operator.events()[-1].who == "the operator"


def test_refused_calls_and_what_is_done_to_tokens_are_in_the_audit_log(served):
    body = {"reason": "a joke", "request": "12345678"}
    assert served.call("POST", "/v1/commands/pause", body, token="viewer")[0] == 403
    assert served.call("GET", "/v1/status", token="nonsense")[0] == 401

    def entries():
        return served.call("GET", "/v1/audit", token="operator")[1]

    # written by a thread, after the answer
    assert soon(lambda: sum(one["outcome"].startswith("refused") for one in entries()) == 2)
    log = entries()
    outcomes = [one["outcome"] for one in log]
    assert any("refused (403)" in text for text in outcomes)
    assert any("refused (401)" in text for text in outcomes)
    assert {one["who"] for one in log if "403" in one["outcome"]} == {"the viewer"}
    assert [one["reason"] for one in log if one["verb"] == "token"][-1].startswith("token made")


def test_connections_of_one_address_are_limited(create):
    where, tokens = create()
    settings = Settings(limits=Limits(per_address=20, head_seconds=600.0))
    with serving(Service(where, TARGET, port=0, settings=settings)) as url:
        address = urlsplit(url).hostname, urlsplit(url).port
        idle = [socket.create_connection(address) for _ in range(20)]
        line = http.client.HTTPConnection(*address, timeout=120)
        with contextlib.suppress(OSError):  # it may be closed already
            line.request("GET", "/healthz")
        with pytest.raises((OSError, http.client.HTTPException)):
            line.getresponse()
        line.close()
        for one in idle:
            one.close()
        assert soon(lambda: Served(where, url, tokens).call("GET", "/healthz")[0] == 200)


def test_a_body_with_two_lengths_is_refused(served):
    parts = urlsplit(served.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=120) as line:
        line.sendall(
            b"POST /v1/heartbeat HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        assert line.recv(100).startswith(b"HTTP/1.1 400")


def test_a_slash_at_the_end_leads_nowhere(served):
    status, _, headers = served.call("GET", "/v1/status/", token="viewer")
    assert status == 404
    assert "location" not in {name.lower() for name in headers}


def test_tokens_expire_rotate_and_remember_their_use(create):
    where, _ = create(tokens=())
    now = [1e9]
    with Campaign.open(where, TARGET) as campaign:
        book = TokenStore(campaign.backend.store, lambda: now[0])
        old = book.create("prom", "viewer", days=2)
        assert book.find(old) is not None
        book.note_use()
        book.refresh()
        assert book.all()[0].used == now[0]
        new = book.rotate("prom", grace=60.0)
        assert book.find(old) is not None
        assert book.find(new).name == "prom"
        now[0] += 61
        assert book.find(old) is None
        assert book.find(new) is not None
        now[0] += 2 * 86_400
        assert book.find(new) is None
        with pytest.raises(InputError, match="no valid token"):
            book.rotate("prom")
        assert book.find(book.create("prom", "viewer")) is not None  # the name is free again


def test_files_are_made_one_at_a_time_and_for_all_who_wait(served, place, monkeypatch):
    """Eight ask at the same time: one file for the first, one for all others; all are right."""
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    made, gate = [], threading.Event()
    plain = Viewer._make

    def make(self, kind, path, about):
        made.append(threading.current_thread())
        gate.wait(60)
        plain(self, kind, path, about)

    monkeypatch.setattr(Viewer, "_make", make)
    with Campaign.open(served.where, TARGET) as campaign:
        run_episode(campaign)
        found = []

        def load():
            with connect(served.url, served.tokens["viewer"], timeout=120.0) as viewer:
                found.append(viewer.episodes())

        threads = [threading.Thread(target=load) for _ in range(8)]
        for thread in threads:
            thread.start()
        assert soon(lambda: len(made) == 1)
        time.sleep(1.0)  # all others wait; one that comes later has a file of its own
        assert len(made) == 1
        run_episode(campaign)
        gate.set()
        for thread in threads:
            thread.join()
        assert 2 <= len(made) <= 8
        assert len(found) == 8
        assert {len(one) for one in found} == {2}  # read when it was made
    assert soon(lambda: not list(place.glob("*/episodes.npz")))  # none is left on the disk


def test_a_large_file_is_made_by_a_process_of_its_own(served, monkeypatch):
    monkeypatch.setattr("scopeval.serve.service.IN_PROCESS", 0)
    here = []
    monkeypatch.setattr("scopeval.serve.service.write_file", lambda *words: here.append(words))
    with Campaign.open(served.where, TARGET) as campaign:
        run_episode(campaign)
        patient = {"timeout": 300.0, "patience": 300.0}
        with connect(served.url, served.tokens["viewer"], **patient) as viewer:
            assert np.array_equal(viewer.episodes().action, campaign.episodes().action)
            assert len(viewer.logs()) == len(campaign.logs())
    assert not here


def test_the_description_says_that_calls_need_a_token(served):
    described = served.call("GET", "/openapi.json")[1]
    assert described["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert described["security"] == [{"token": []}]
    for place in ("/healthz", "/readyz"):
        call = described["paths"][place]["get"]
        assert call["security"] == []
        assert "401" not in call["responses"]
    codes = described["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]
    assert {"paused", "wrong_step", "plant_busy", "database"} <= set(codes)
    file = described["paths"]["/v1/episodes"]["get"]["responses"]["200"]["content"]
    assert "application/octet-stream" in file
    assert json.dumps(described)
    for place, field in (
        ("/v1/status", "finished"), ("/v1/designs", "fingerprint"), ("/v1/audit", "who"),
        ("/v1/shadow", "earned"), ("/v1/verification", "broken"),
    ):  # fmt: skip
        answer = described["paths"][place]["get"]["responses"]["200"]["content"]
        schema = answer["application/json"]["schema"]
        name = schema.get("items", schema)["$ref"].rpartition("/")[2]
        assert field in described["components"]["schemas"][name]["properties"]


def test_wrong_certificates_are_an_error_of_the_command_line(create, place):
    where, _ = create()
    for more in ({"key": place / "key.pem"}, {"certificate": place / "missing.pem"}):
        with pytest.raises(InputError, match="tls-"), serving(Service(where, TARGET, **more)):
            pass


def test_behind_a_proxy_with_https_the_cookie_is_for_https_only(create):
    """The address in the audit log is the caller's, and browsers are told to stay with HTTPS."""
    where, tokens = create()
    forwarded = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
    with serving(Service(where, TARGET, port=0, proxies=("127.0.0.1",))) as url:
        served = Served(where, url, tokens)
        form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": url}
        given = f"token={tokens['operator']}".encode()
        origin = {"Origin": url.replace("http://", "https://")}
        status, _, headers = served.call(
            "POST", "/sign-in", raw=given, headers=form | forwarded | origin
        )
        assert status == 303
        assert "Secure" in headers["set-cookie"]
        assert "max-age" in headers["strict-transport-security"]
        body = {"reason": "a test", "request": "12345678"}
        call = ("POST", "/v1/commands/pause", body)
        assert served.call(*call, token="operator", headers=forwarded)[0] == 200
        audit = served.call("GET", "/v1/audit", token="operator")[1]
        assert "203.0.113.9" in {entry["address"] for entry in audit if entry["verb"] == "pause"}
    with serving(Service(where, TARGET, port=0)) as url:  # nobody is believed
        served = Served(where, url, tokens)
        body = {"reason": "a test", "request": "87654321"}
        headers = served.call("POST", "/v1/commands/resume", body, token="operator",
                              headers=forwarded)[2]  # fmt: skip
        assert "strict-transport-security" not in {name.lower() for name in headers}
        audit = served.call("GET", "/v1/audit", token="operator")[1]
        assert {e["address"] for e in audit if e["verb"] == "resume"} == {"127.0.0.1"}


def test_there_are_never_more_connections_than_files_may_be_open(monkeypatch):
    from scopeval.serve import app

    asked = []
    monkeypatch.setattr(app.resource, "getrlimit", lambda which: (1024, 4096))
    monkeypatch.setattr(app.resource, "setrlimit", lambda which, both: asked.append(both))
    assert app._connections(Limits()).connections == 1024 - 128
    assert app._connections(Limits(connections=50)).connections == 50
    app._raise_file_limit()
    assert asked == [(4096, 4096)]


def test_a_database_that_cannot_be_written_is_told_at_the_start(create, monkeypatch):
    from scopeval.campaign.store import Store

    where, _ = create()
    plain = Store.__init__

    def read_only(self, *given, **more):
        plain(self, *given, **more)
        self.engine.dispose()

        @sqlalchemy.event.listens_for(self.engine, "connect")
        def refuse(connection, record):
            connection.execute("PRAGMA query_only=ON")

    monkeypatch.setattr(Store, "__init__", read_only)
    with pytest.raises(DataError, match=r"readonly|read-only"), serving(Service(where, TARGET)):
        pass


def test_the_address_is_told_when_nobody_is_refused_there_any_more(create):
    where, _ = create()

    class ToldError(Exception):
        pass

    def told(text):
        port = int(re.search(r":(\d+)/", text)[1])
        socket.create_connection(("127.0.0.1", port)).close()
        raise ToldError

    with pytest.raises(ToldError):
        serve(Service(where, TARGET, port=0), told)


def test_a_database_that_lacks_a_column_is_told_at_the_start(create):
    """And not at every call, as something that may pass."""
    where, _ = create()
    with sqlite3.connect(where) as connection:
        connection.execute("ALTER TABLE steps DROP COLUMN chooser")
    connection.close()
    with pytest.raises(DataError, match="chooser"), serving(Service(where, TARGET, port=0)):
        pass


def test_a_page_elsewhere_can_make_nothing_happen_in_open_mode(create):
    where, _ = create(tokens=())
    with serving(Service(where, TARGET, port=0)) as url:
        served = Served(where, url, {})
        before = served.journal()
        for headers in ({}, {"Content-Type": "text/plain", "Origin": "https://evil.example"}):
            assert served.call("POST", "/v1/tell-silence", raw=b"{}", headers=headers)[0] == 401
        assert served.call("GET", "/v1/verification")[0] == 401
        assert served.journal() == before

"""Hostile clients: fuzzed, replayed, reordered, oversized and slow calls change no estimate."""

from __future__ import annotations

import importlib.util
import random
import select
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from http_calls import Served

from campaign.machine import HORIZON, Machine, run_episode, tables
from scopeval import Campaign
from scopeval.serve.app import Service, Settings, serving
from scopeval.serve.models import Limits

TARGET, BEHAVIOR = tables()
FUZZER = Path(__file__).parents[2] / "tools" / "fuzz_service.py"


@pytest.fixture(scope="module")
def fuzzer():
    spec = importlib.util.spec_from_file_location("fuzz_service", FUZZER)
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_service"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["fuzz_service"]


def test_fuzzed_calls_are_refused_and_change_nothing(fuzzer, place):
    """A few hundred here; ``python tools/fuzz_service.py`` makes 10,000."""
    found = fuzzer.run(400, 0, place)
    assert found.wrong == []
    assert sum(found.statuses.values()) == 400
    assert {200, 400, 401, 403, 404, 409, 413, 422} <= set(found.statuses)


def test_the_fuzzer_notices_what_is_wrong(fuzzer, place, monkeypatch):
    """A service that answers with its place, or changes what it refuses, does not pass."""
    from scopeval.errors import InputError
    from scopeval.serve.service import CampaignService

    def bad(self, token, *words):
        self._backend.heartbeat("a")
        raise InputError(f"see {place}")

    for verb in ("start", "act", "observe", "end", "heartbeat"):
        monkeypatch.setattr(CampaignService, verb, bad)
    found = fuzzer.run(150, 0, place)
    assert any("gives away" in text for text in found.wrong)
    assert any("database was changed" in text for text in found.wrong)


def test_what_a_service_writes_by_itself_is_blamed_on_no_call(fuzzer, place, monkeypatch):
    """The last use of tokens is noted by a thread, between any two calls: here all the time."""
    from scopeval.serve import app, auth

    noted = []
    plain = auth.TokenStore.note_use
    monkeypatch.setattr(app, "TOKENS_EVERY", 0.001)
    monkeypatch.setattr(auth, "USED_EVERY", -1.0)
    monkeypatch.setattr(
        auth.TokenStore, "note_use", lambda self: noted.append(len(self._used)) or plain(self)
    )
    found = fuzzer.run(200, 0, place)
    assert found.wrong == []
    assert sum(count > 0 for count in noted) > 10  # written that often; a busy machine does less


class Recorded:
    """Runs an episode by plain calls, and keeps these."""

    def __init__(self, served):
        self.served, self.calls = served, []

    def post(self, place, body):
        self.calls.append((place, body))
        return self.served.call("POST", place, body, token="plant")

    def run(self, plant, between):
        machine = Machine()
        start = {"plant": plant, "request": f"{plant}-12345678"}
        number = self.post("/v1/episodes", start)[1]["number"]
        obs, over, t = machine.first(number), False, 0
        while not over:
            between(self)
            _, told, _ = self.post(f"/v1/episodes/{number}/act", {"step": t, "obs": obs})
            reward, cost, obs, ended = machine.step(number, t, obs, told["action"])
            between(self)
            body = {"step": t, "reward": reward, "cost": cost, "next_obs": obs, "terminated": ended}
            over = self.post(f"/v1/episodes/{number}/observe", body)[1]["over"]
            t += 1
        between(self)
        assert self.post(f"/v1/episodes/{number}/end", {"steps": t})[0] == 200


@pytest.mark.parametrize("seed", range(3))
def test_replayed_and_reordered_calls_change_nothing(served, place, seed):
    """Between the right calls: old ones again, and those of steps that have not come yet."""
    rng = random.Random(seed)

    def disturb(run):
        for _ in range(3):
            place, body = rng.choice(run.calls)
            status, _, _ = served.call("POST", place, body, token="plant")
            assert status == 200, "an old call again has its old answer"
            number = place.split("/")[3] if place != "/v1/episodes" else "0"
            t = rng.randrange(20)
            early = rng.choice(
                [
                    ("end", {"steps": t + 7}),
                    ("act", {"step": t + 7, "obs": 1}),
                    ("observe", {"step": t + 7, "reward": 0.0, "cost": 9.0, "next_obs": 1}),
                    ("advance", {"step": t + 7, "reward": 0.0, "cost": 9.0, "next_obs": 1}),
                ]
            )
            status, _, _ = served.call(
                "POST", f"/v1/episodes/{number}/{early[0]}", early[1], token="plant"
            )
            assert status == 409
            if body.get("next_obs") is not None:  # the same step with another outcome
                other = body | {"cost": body["cost"] + 1.0}
                assert served.call("POST", place, other, token="plant")[0] == 422

    for k in range(3):
        Recorded(served).run(f"plant-{k}", disturb)
    with Campaign.create(
        place / "undisturbed.campaign", TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=3
    ) as quiet:
        for k in range(3):
            run_episode(quiet, f"plant-{k}")
        with Campaign.open(served.where, TARGET) as campaign:
            assert campaign.result() == quiet.result()
            assert [e.kind for e in campaign.events()] == [e.kind for e in quiet.events()]


def test_oversized_bodies_and_heads_are_refused(served):
    before = served.journal()
    for size in (65_537, 10_000_000):
        body = b'{"plant": "' + b"a" * size + b'"}'
        claimed = {"Content-Length": str(len(body))}
        try:
            status, told, _ = served.call(
                "POST", "/v1/episodes", raw=body, token="plant", headers=claimed
            )
            assert status == 413
            assert "65536" in told["detail"]
        except (BrokenPipeError, ConnectionResetError):
            pass  # the answer came, and the line was closed, before all was sent
    chunks = b"POST /v1/episodes HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks += (b"4000\r\n" + b"a" * 0x4000 + b"\r\n") * 8
    assert talk(served, chunks).startswith(b"HTTP/1.1 413")
    head = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 100_000
    assert talk(served, head)[:12] in (b"", b"HTTP/1.1 400")
    assert served.call("GET", "/" + "a" * 60_000)[0] in (400, 404)
    # a whole head in one packet is not counted by h11
    head = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 20_000 + b"\r\n\r\n"
    assert talk(served, head)[:12] in (b"", b"HTTP/1.1 431", b"HTTP/1.1 400")
    headers = {"X": "a" * 20_000}
    assert served.call("GET", "/v1/status", token="viewer", headers=headers)[0] in (400, 431)
    assert served.journal() == before


def talk(served, content):
    parts = urlsplit(served.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=120) as line:
        try:
            line.sendall(content)
            return line.recv(4096)
        except OSError:
            return b""


def closed_while_sending(line):
    """Whether a service closes a line on which one byte comes after the other."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            line.sendall(b"X")
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_slow_clients_are_ended_and_others_do_not_wait(create):
    where, tokens = create()
    limits = Limits(head_seconds=3.0, body_seconds=3.0)
    with serving(Service(where, TARGET, port=0, settings=Settings(limits=limits))) as url:
        served = Served(where, url, tokens)
        parts = urlsplit(url)
        kinds = (b"", b"POST /v1/st", b"POST /v1/stop HTTP/1.1\r\nContent-Length: 50\r\n")
        late = b"POST /v1/stop HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n{"
        lines = [
            socket.create_connection((parts.hostname, parts.port), timeout=120) for _ in range(40)
        ]
        for k, line in enumerate(lines):
            line.sendall((*kinds, late)[k % 4])
        assert served.call("GET", "/v1/status", token="viewer")[0] == 200
        for k, line in enumerate(lines):
            told = line.recv(4096)
            assert told == b"" or (k % 4 == 3 and told.startswith(b"HTTP/1.1 408"))
            line.close()
        # each byte in time, and the whole too late
        with socket.create_connection((parts.hostname, parts.port), timeout=120) as line:
            assert closed_while_sending(line)
        assert served.call("GET", "/v1/status", token="viewer")[0] == 200


def test_no_more_connections_are_kept_than_may_be(create):
    """Those beyond the limit are closed at once; the others wait for the rest of their heads."""
    where, _ = create()
    limits = Limits(head_seconds=3600.0, connections=60)
    with serving(Service(where, TARGET, port=0, settings=Settings(limits=limits))) as url:
        parts = urlsplit(url)
        many = [
            socket.create_connection((parts.hostname, parts.port), timeout=120) for _ in range(90)
        ]
        waiting = set(many)
        until = time.monotonic() + 120
        while len(waiting) > 60 and time.monotonic() < until:
            waiting -= set(select.select(list(waiting), [], [], 1.0)[0])  # closed by the service
        time.sleep(0.5)
        closed, _, _ = select.select(list(waiting), [], [], 0)
        for line in many:
            line.close()
        assert (len(waiting), closed) == (60, [])


def test_a_call_that_is_given_up_by_its_client_is_recorded_once(served):
    """The client hangs up before the answer; repeating the call finds what was decided."""
    _, episode, _ = served.call(
        "POST", "/v1/episodes", {"plant": "a", "request": "12345678"}, token="plant"
    )
    place = f"/v1/episodes/{episode['number']}/act"
    body = b'{"step": 0, "obs": 1}'
    head = (
        f"POST {place} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {served.tokens['plant']}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    parts = urlsplit(served.url)
    for _ in range(5):
        with socket.create_connection((parts.hostname, parts.port)) as line:
            line.sendall(head.encode() + body)
    first = served.call("POST", place, {"step": 0, "obs": 1}, token="plant")
    assert first[0] == 200
    assert served.call("POST", place, {"step": 0, "obs": 1}, token="plant")[1] == first[1]
    assert len(served.journal()["steps"]) == 1

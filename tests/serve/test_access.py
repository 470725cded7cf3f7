"""Who may do what: tokens, roles, plants, rates, hosts, forms; and what the answers give away."""

from __future__ import annotations

import hashlib
import sqlite3
import time

import pytest
from http_calls import Served

from campaign.machine import tables
from scopeval import Campaign
from scopeval.campaign.terms import COMMANDS
from scopeval.errors import InputError
from scopeval.serve.app import Service, Settings, serving
from scopeval.serve.auth import Sessions, TokenStore, is_loopback
from scopeval.serve.models import Limits, RateLimit

TARGET, _ = tables()
START = {"plant": "a", "request": "12345678"}
COMMAND = {"reason": "a test", "request": "12345678"}
OUTCOME = {"step": 0, "reward": 1.0, "cost": 1.0, "next_obs": 1}


def about(name):
    """The episode that a command is about."""
    return {"episode": 0} if COMMANDS[name].about == "episode" else {}


#: Every route for programs, with a body and the roles that may call it.
ROUTES = [
    ("POST", "/v1/episodes", START, {"plant"}),
    ("GET", "/v1/episodes/0", None, {"plant"}),
    ("POST", "/v1/episodes/0/act", {"step": 0, "obs": 1}, {"plant"}),
    ("POST", "/v1/episodes/0/observe", OUTCOME, {"plant"}),
    ("POST", "/v1/episodes/0/advance", OUTCOME, {"plant"}),
    ("POST", "/v1/episodes/0/end", {"steps": 0}, {"plant"}),
    ("POST", "/v1/episodes/0/lose", {"reason": "a test"}, {"plant"}),
    ("POST", "/v1/heartbeat", {"plant": "a"}, {"plant"}),
    ("GET", "/v1/open-episode?plant=a", None, {"plant"}),
    ("GET", "/v1/status", None, {"viewer", "operator"}),
    ("GET", "/v1/result", None, {"viewer", "operator"}),
    ("GET", "/v1/events", None, {"viewer", "operator"}),
    ("GET", "/v1/designs", None, {"viewer", "operator"}),
    ("GET", "/v1/episodes", None, {"viewer", "operator"}),
    ("GET", "/v1/report", None, {"viewer", "operator"}),
    ("GET", "/v1/terms", None, {"viewer", "operator"}),
    ("GET", "/v1/plants/episodes?plant=a", None, {"viewer", "operator"}),
    ("GET", "/v1/shadow", None, {"viewer", "operator"}),
    ("GET", "/v1/logs", None, {"viewer", "operator"}),
    ("GET", "/v1/mixture", None, {"viewer", "operator"}),
    ("GET", "/v1/verification", None, {"operator"}),
    ("GET", "/metrics", None, {"viewer", "operator"}),
    ("GET", "/v1/audit", None, {"operator"}),
    ("POST", "/v1/tell-silence", {}, {"operator"}),
    ("POST", "/v1/look", {}, {"operator"}),
    *(
        ("POST", f"/v1/commands/{name}", COMMAND | about(name), {"operator"})
        for name in ("lose", "drop", "go-live", "pause", "resume", "refit", "hand-over", "stop")
    ),
]


def test_every_route_is_listed_here(served):
    _, described, _ = served.call("GET", "/openapi.json")
    there = {
        (method.upper(), path) for path, methods in described["paths"].items() for method in methods
    }
    assert there - {("GET", "/healthz"), ("GET", "/readyz")} == {
        (method, path.replace("/0", "/{number}").partition("?")[0]) for method, path, _, _ in ROUTES
    }


def test_wrong_tokens_and_wrong_roles_are_refused_and_change_nothing(served):
    before = served.journal()
    key = served.tokens["operator"].split("_")[1]
    wrong = [None, "nonsense", "scopeval_x_y", f"scopeval_{key}_{'0' * 64}", "scopeval__", "é"[:0]]
    for method, path, body, roles in ROUTES:
        for token in wrong:
            status, told, headers = served.call(method, path, body, token=token)
            assert status == 401, (method, path, token)
            assert headers["WWW-Authenticate"] == "Bearer"
        for role in {"plant", "viewer", "operator"} - roles:
            status, told, _ = served.call(method, path, body, token=role)
            assert status == 403, (method, path, role)
            assert "role" in told["detail"]
    assert served.journal() == before


def test_the_right_roles_get_through(served):
    for method, path, body, roles in ROUTES:
        for role in roles:
            status, _, _ = served.call(method, path, body, token=role)
            assert status not in (401, 403, 404, 405), (method, path, role)
            assert status < 500


def test_secrets_are_hashed_at_rest(served):
    content = served.where.read_bytes() + served.where.with_name("c.campaign-wal").read_bytes()
    for token in served.tokens.values():
        secret = token.split("_")[2]
        assert secret.encode() not in content
        assert hashlib.sha256(secret.encode()).hexdigest().encode() in content


def test_tokens_are_made_listed_and_revoked(create):
    where, _ = create()
    with Campaign.open(where, TARGET) as campaign:
        book = TokenStore(campaign.backend.store, time.time)
        token = book.create("hall 3", "plant", ["hall-3"])
        assert book.find(token).plants == ("hall-3",)
        assert [one.name for one in book.all()][-1] == "hall 3"
        for text in (token + "0", token[:-1], token.replace("scopeval_", "other_"), ""):
            assert book.find(text) is None
        with pytest.raises(InputError, match="there is a valid token of the name"):
            book.create("hall 3", "viewer")
        with pytest.raises(InputError, match="role"):
            book.create("x", "king")
        with pytest.raises(InputError, match="role plant"):
            book.create("x", "viewer", ["hall-3"])
        book.revoke("hall 3")
        assert book.find(token) is None
        with pytest.raises(InputError, match="no valid token"):
            book.revoke("hall 3")
        again = book.create("hall 3", "plant", ["hall-3"])  # the name is free again
        assert book.find(again) is not None


def test_a_token_of_one_plant_is_not_one_of_another(served):
    with Campaign.open(served.where, TARGET) as campaign:
        token = TokenStore(campaign.backend.store, time.time).create("hall 3", "plant", ["hall-3"])
    deadline = time.monotonic() + 120
    while served.call("POST", "/v1/heartbeat", {"plant": "x"}, token=token)[0] == 401:
        assert time.monotonic() < deadline  # the running service reads new tokens
        time.sleep(0.2)
    status, episode, _ = served.call("POST", "/v1/episodes", START, token="plant")
    place = f"/v1/episodes/{episode['number']}"
    for method, path, body in (
        ("POST", "/v1/episodes", START),
        ("GET", place, None),
        ("POST", f"{place}/act", {"step": 0, "obs": 1}),
        ("POST", f"{place}/lose", {"reason": "not mine"}),
        ("POST", "/v1/heartbeat", {"plant": "a"}),
    ):
        assert served.call(method, path, body, token=token)[0] == 403
    own = {"plant": "hall-3", "request": "12345678"}  # the same word as another token's
    status, other, _ = served.call("POST", "/v1/episodes", own, token=token)
    assert status == 200
    assert other["number"] != episode["number"]


def test_this_machine_may_look_until_there_is_a_token_and_command_nothing(create):
    where, _ = create(tokens=())
    with serving(Service(where, TARGET, port=0)) as url:
        served = Served(where, url, {})
        assert served.call("GET", "/v1/status")[0] == 200
        assert served.call("POST", "/v1/episodes", START)[0] == 401
        assert served.call("POST", "/v1/commands/pause", COMMAND)[0] == 401
        # another page in the same browser: it can pretend a host
        other = {"Host": "evil.example"}
        assert served.call("GET", "/v1/status", headers=other)[0] == 421
        assert served.call("GET", "/v1/status", token="scopeval_a_b")[0] == 401
        # a proxy on this machine: whoever is behind it is not on this machine
        for name in ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"):
            status, _, _ = served.call("GET", "/v1/status", headers={name: "203.0.113.9"})
            assert status == 401, name


def test_other_addresses_need_tokens(create):
    where, _ = create(tokens=())
    service = Service(where, TARGET, host="0.0.0.0", port=0)
    with pytest.raises(InputError, match="nobody has a token"), serving(service):
        pass
    with Campaign.open(where, TARGET) as campaign:
        book = TokenStore(campaign.backend.store, time.time)
        book.create("a", "viewer")
        with serving(service) as url:
            served = Served(where, url.replace("0.0.0.0", "127.0.0.1"), {})
            assert served.call("GET", "/v1/status")[0] == 401
        book.revoke("a")
    with pytest.raises(InputError, match="nobody has a token"), serving(service):
        pass


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("", False), ("10.0.0.1", False),
     ("127.evil.example", False), ("localhost.evil.example", False)],
)  # fmt: skip
def test_what_is_this_machine(host, local):
    assert is_loopback(host) == local


def test_rates_are_limited(create):
    where, tokens = create()
    settings = Settings(limits=Limits(rate=0.001, failures=0.2))
    with serving(Service(where, TARGET, port=0, settings=settings)) as url:
        served = Served(where, url, tokens)
        status, _, _ = served.call("GET", "/v1/status", token="viewer")
        again, _, headers = served.call("GET", "/v1/status", token="viewer")
        assert (status, again, headers["Retry-After"]) == (200, 429, "1")
        assert served.call("GET", "/v1/status", token="operator")[0] == 200  # each its own
        wrong = [served.call("GET", "/v1/status", token="x")[0] for _ in range(4)]
        assert wrong == [401, 401, 429, 429]


def test_a_bucket_fills_with_time():
    now = [0.0]
    limit = RateLimit(2.0, 4.0, most=2, clock=lambda: now[0])
    assert [limit.allow("a") for _ in range(6)] == [True] * 4 + [False] * 2
    now[0] = 1.0
    assert [limit.allow("a") for _ in range(3)] == [True, True, False]
    limit.allow("b"), limit.allow("c")  # "a" is forgotten: memory is bounded
    assert len(limit._buckets) == 2


def test_the_number_of_open_episodes_is_limited(create):
    where, tokens = create()
    settings = Settings(limits=Limits(open_episodes=2))
    with serving(Service(where, TARGET, port=0, settings=settings)) as url:
        served = Served(where, url, tokens)

        def start(plant):
            body = {"plant": plant, "request": f"{plant}-12345678"}
            return served.call("POST", "/v1/episodes", body, token="plant")

        numbers = [start(plant)[1]["number"] for plant in ("a", "b")]
        before = served.journal()
        status, told, _ = start("c")
        assert status == 429
        assert "2 episodes are open" in told["detail"]
        assert served.journal() == before
        lost = {"reason": "make room"}
        served.call("POST", f"/v1/episodes/{numbers[0]}/lose", lost, token="plant")
        assert start("c")[0] == 200


def test_sessions_end():
    now = [0.0]
    sessions = Sessions(hours=1.0, most=2, clock=lambda: now[0])
    token = type("T", (), {"key": "k"})()
    first, second = sessions.begin(token), sessions.begin(token)
    assert sessions.find(first.number) == first
    third = sessions.begin(token)
    assert sessions.find(first.number) is None
    sessions.end(second)
    assert sessions.find(second.number) is None
    now[0] = 3601.0
    assert sessions.find(third.number) is None
    assert sessions.find(None) is None


def test_answers_give_nothing_away(served, monkeypatch):
    """An error of the service itself tells neither its place nor its disk."""
    status, told, headers = served.call("GET", "/nowhere")
    assert (status, told) == (404, {"detail": "Not Found", "code": "not_found"})
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "server" not in {name.lower() for name in headers}
    served.call("POST", "/v1/episodes", START, token="plant")
    with sqlite3.connect(served.where) as raw:  # the database is not what it was
        raw.execute("ALTER TABLE steps RENAME TO gone")
    status, told, _ = served.call(
        "POST", "/v1/episodes/0/act", {"step": 0, "obs": 1}, token="plant"
    )
    assert status == 503
    assert told == {
        "detail": "the database failed; nothing of this call was recorded, try it again",
        "code": "database",
    }
    with sqlite3.connect(served.where) as raw:
        raw.execute("ALTER TABLE gone RENAME TO steps")
    assert served.call("GET", "/healthz")[1] == {"status": "ok"}
    status, told, _ = served.call(
        "POST", "/v1/episodes/0/act", {"step": 0, "obs": 1}, token="plant"
    )
    assert status == 200  # and goes on when the database does


def test_metrics_are_in_the_format_of_prometheus(served):
    body = {"plant": 'hall "3"\\', "request": "12345678"}
    assert served.call("POST", "/v1/episodes", body, token="plant")[0] == 200
    status, text, headers = served.call("GET", "/metrics", token="viewer")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = text.splitlines()
    assert 'scopeval_episodes{state="open"} 1.0' in lines
    assert 'scopeval_campaign_state{state="running"} 1.0' in lines
    assert "scopeval_webhook_failures_total 0.0" in lines
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)
    assert "scopeval_value NaN" in lines
    assert any(r'plant="hall \"3\"\\"' in line for line in lines)
    assert 'scopeval_http_requests_total{route="/v1/episodes",status="200"} 1.0' in lines
    for line in lines:
        if not line.startswith("#"):
            name, _, number = line.rpartition(" ")
            float(number.replace("Inf", "inf"))
            assert name.startswith(("scopeval_", "process_"))

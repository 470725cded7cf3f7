"""Attack a service with wrong calls: ``python tools/fuzz_service.py --calls 10000 --seed 0``.

A campaign is created and served in a temporary folder. Calls are made by a seeded generator: bodies
of all kinds of JSON and of damaged bytes, wrong places, methods, headers and tokens, and bytes that
are not HTTP. Every answer must have a status below 500 and give nothing away; a call that is
refused must not have changed the database. Ends with status 1 where that does not hold.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import socket
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from scopeval import Campaign
from scopeval.serve.app import Service, Settings, serving
from scopeval.serve.auth import TokenStore
from scopeval.serve.models import Limits

HORIZON, STATES, ACTIONS = 5, 4, 3

#: Seconds that a call waits for its answer; one that takes longer is wrong.
PATIENCE = 60.0
ROLES = ("plant", "viewer", "operator")

#: Places with a body that is right for them, or nearly: what would end the campaign or its open
#: episode is wrong in one field, so that later calls still find them.
PLACES: dict[str, Any] = {
    "/v1/episodes": {"plant": "a", "request": "12345678", "resume": True},
    "/v1/episodes/3/act": {"step": 1, "obs": 1},
    "/v1/episodes/3/observe": {
        "step": 1, "reward": 1.0, "cost": 0.5, "next_obs": 2, "terminated": False, "signals": {},
    },
    "/v1/episodes/3/advance": {"step": 1, "reward": 1.0, "cost": 0.5, "next_obs": 2},
    "/v1/episodes/3/end": {"steps": 9},
    "/v1/episodes/3/lose": {"reason": ""},
    "/v1/heartbeat": {"plant": "a"},
    "/v1/commands/pause": {"reason": "because", "request": "12345678"},
    "/v1/commands/resume": {"reason": "because", "request": "12345678"},
    "/v1/commands/hand-over": {"reason": "because", "request": "short"},
    "/v1/commands/stop": {"reason": "because", "request": "short"},
    "/v1/commands/drop": {"reason": "because", "request": "short", "episode": 1},
    "/v1/commands/lose": {"reason": "because", "request": "short", "episode": 3},
    "/v1/commands/go-live": {"reason": "because", "request": "short"},
    "/v1/commands/refit": {"reason": "because", "request": "12345678"},
    "/v1/tell-silence": {},
    "/sign-in": {"token": "scopeval_a_b"},
    "/operate/stop": {"reason": "because", "form": "x", "request": "12345678"},
}  # fmt: skip
PLANTS = ("/v1/episodes", "/v1/heartbeat")
GETS = (
    "/", "/live", "/docs", "/openapi.json", "/metrics", "/healthz", "/sign-in", "/operate/stop",
    "/report", "/v1/status", "/v1/result", "/v1/events", "/v1/episodes", "/v1/episodes/3",
    "/v1/designs", "/v1/report", "/v1/audit", "/v1/terms", "/v1/shadow", "/v1/logs",
    "/v1/verification", "/v1/open-episode?plant=a", "/v1/open-episode?plant=%00",
    "/v1/plants/episodes?plant=a", "/v1/plants/episodes", "/v1/report?title=%1b",
)  # fmt: skip
ODD_TEXTS = (
    "", " ", "\x00", "\x1b[31m", "\ud800", "é", "\u202e", "a" * 300, "a" * 5000, "../../etc/passwd",
    "%00", "'; DROP TABLE steps; --", "<script>", "{{7*7}}", "null", "NaN", "1", "-0", "\r\nX: y",
)  # fmt: skip
ODD_NUMBERS = (
    0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0, 1e308, 1e-320,
    float("nan"), float("inf"), float("-inf"), True, False, None,
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One call: what is sent, and as whom."""

    method: str
    place: str
    body: bytes | None
    headers: dict[str, str]


@dataclass
class Findings:
    """What came back.

    Attributes:
        statuses: how often each; 0: the connection was closed.
        wrong: what should not have been, in words.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def odd_value(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON, or what Python's encoder makes of what is not JSON."""
    kind = rng.randrange(7 if depth < 3 else 3)
    if kind == 0:
        return rng.choice(ODD_TEXTS)
    if kind in (1, 2):
        return rng.choice(ODD_NUMBERS)
    if kind in (3, 4):
        return [odd_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 5:
        return {
            str(rng.choice(ODD_TEXTS)): odd_value(rng, depth + 1) for _ in range(rng.randrange(4))
        }
    return [0.0] * rng.choice((1, 100, 9000))


def odd_body(rng: random.Random, right: Any) -> bytes:
    """A body that is right, nearly right, or not at all."""
    kind = rng.randrange(-1, 8)
    if kind <= 0:
        return json.dumps(right).encode()
    if kind <= 3:  # one field is wrong, missing or too much
        changed = dict(right)
        name = rng.choice([*changed, "more"])
        changed[name] = odd_value(rng)
        if rng.random() < 0.3:
            del changed[rng.choice(list(changed))]
        return json.dumps(changed).encode("utf-8", "surrogatepass")
    if kind == 4:
        return json.dumps(odd_value(rng)).encode("utf-8", "surrogatepass")
    if kind == 5:  # damaged
        text = bytearray(json.dumps(right).encode())
        for _ in range(rng.randrange(1, 6)):
            text[rng.randrange(len(text))] = rng.randrange(256)
        return bytes(text[: rng.randrange(1, len(text) + 1)])
    if kind == 6:
        deep = rng.choice((10, 1000, 30_000))
        return rng.choice((b"[" * deep, b'{"step":' * (deep // 8), b"[" * deep + b"]" * deep))
    return rng.randbytes(rng.choice((0, 1, 100, 70_000)))


def odd_place(rng: random.Random, place: str) -> str:
    """A place that is right, or an odd one."""
    if rng.random() < 0.85:
        return place
    number = rng.choice(("-1", "9" * 30, "1e3", "%00", "..%2f..", "3/../3", "é".encode().hex(), ""))
    end = rng.choice(("", "?after=-1", "?after=x", "?limit=9999999", "?plant=%ff", "?figures=%00"))
    return place.replace("/3", f"/{number}").replace("/1/", f"/{number}/") + end


def odd_call(rng: random.Random, tokens: dict[str, str]) -> Call:
    """The next call."""
    headers = {}
    place = rng.choice(list(PLACES)) if rng.random() < 0.75 else rng.choice(GETS)
    if rng.random() < 0.95:
        kinds = ("text/plain", "application/x-www-form-urlencoded", "")
        good = rng.random() < 0.95
        headers["Content-Type"] = "application/json" if good else rng.choice(kinds)
    who = rng.choice((*ROLES, "wrong", "none"))
    if rng.random() < 0.7:  # most calls get past the door
        who = "plant" if "episodes/3" in place or place in PLANTS else "operator"
    if who == "wrong":
        key = tokens["operator"].split("_")[1]
        wrong = ("", "x", f"scopeval_{key}_", f"scopeval_{key}_{'0' * 64}", "scopeval_" * 50)
        headers["Authorization"] = rng.choice(("Bearer ", "Basic ", "")) + rng.choice(wrong)
    elif who != "none":
        headers["Authorization"] = f"Bearer {tokens[who]}"
    if rng.random() < 0.1:
        odd = (
            ("Content-Encoding", "gzip"), ("Host", "evil.example"), ("Origin", "null"),
            ("Cookie", "scopeval_session=" + "x" * 50), ("Expect", "100-continue"),
            ("X-Forwarded-For", "1.2.3.4"), ("Accept", "text/" + "x" * 3000), ("Range", "bytes=0-"),
            ("X-Large", "x" * 20_000), ("Upgrade", "websocket"),
        )  # fmt: skip
        name, value = rng.choice(odd)
        headers[name] = value
    if place not in PLACES:
        return Call("GET", odd_place(rng, place), None, headers)
    method = "POST" if rng.random() < 0.95 else rng.choice(("PUT", "DELETE", "PATCH", "OPTIONS"))
    return Call(method, odd_place(rng, place), odd_body(rng, PLACES[place]), headers)


class Attacker:
    """Makes calls, and looks at the database after each.

    Args:
        url: of the service.
        where: the file of its campaign.
        tokens: by role.
        seed: of everything.
    """

    def __init__(self, url: str, where: Path, tokens: dict[str, str], seed: int) -> None:
        parts = urlsplit(url)
        self._address = (str(parts.hostname), int(parts.port or 80))
        self._where, self._tokens = where, tokens
        self._rng = random.Random(seed)
        self._database = sqlite3.connect(where, isolation_level=None)
        self._rows = self._read()
        self.found = Findings()

    def attack(self, calls: int) -> Findings:
        """Make so many calls."""
        for number in range(calls):
            before = self._version()
            if self._rng.random() < 0.03:
                status, text = self._send_bytes()
                what = "bytes that are not HTTP"
            else:
                call = odd_call(self._rng, self._tokens)
                status, text = self._make(call)
                what = f"{call.method} {call.place[:80]} {call.body!r:.100}"
            self.found.statuses[status] += 1
            said = f"call {number}: {what}: {status}"
            if status >= 500:
                self.found.wrong.append(f"{said} {text[:200]}")
            if "Traceback" in text or str(self._where.parent) in text:
                self.found.wrong.append(f"{said} gives away: {text[:200]}")
            if self._version() == before:
                continue
            rows, self._rows = self._rows, self._read()
            if not 200 <= status < 400 and self._rows != rows:
                self.found.wrong.append(f"{said}, but the database was changed")
        return self.found

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _read(self) -> list[list[Any]]:
        """All rows of all tables, but for what a service writes by itself at any moment.

        That is when a token was used last (a thread notes it every two seconds) and the log of
        refused calls (written behind the answer). Events of silent plants there are none here.
        """
        tables = self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        found = []
        for (name,) in sorted(tables.fetchall()):
            columns = [row[1] for row in self._database.execute(f"PRAGMA table_info({name})")]
            kept = ", ".join(one for one in columns if (name, one) != ("serve_tokens", "used"))
            done = "WHERE outcome NOT LIKE 'refused%'" if name == "serve_audit" else ""
            rows = self._database.execute(f"SELECT {kept} FROM {name} {done} ORDER BY 1, 2")
            found.append(rows.fetchall())
        return found

    def _version(self) -> int:
        """Changes whenever another connection has written; also what is the same as before."""
        return int(self._database.execute("PRAGMA data_version").fetchone()[0])

    def _make(self, call: Call) -> tuple[int, str]:
        line = http.client.HTTPConnection(*self._address, timeout=PATIENCE)
        try:
            line.putrequest(
                call.method, call.place.replace(" ", "%20"), skip_host="Host" in call.headers
            )
            for name, value in call.headers.items():
                line.putheader(name, value)
            if call.body is not None:
                line.putheader("Content-Length", str(len(call.body)))
            line.endheaders(call.body)
            answer = line.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        except TimeoutError:
            return 599, f"no answer within {PATIENCE:g} seconds"
        except (OSError, http.client.HTTPException):
            return 0, ""  # closed: what it was sent was no HTTP, or more than it takes
        finally:
            line.close()

    def _send_bytes(self) -> tuple[int, str]:
        """Something that is not HTTP."""
        some = (
            self._rng.randbytes(200), b"GET\r\n\r\n", b"POST /v1/commands/stop HTTP/1.1\r\n\r\n{}",
            b"GET / HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
            b"POST /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 50_000 + b"\r\n\r\n",
        )  # fmt: skip
        with socket.create_connection(self._address, timeout=PATIENCE) as line:
            try:
                line.sendall(self._rng.choice(some))
                line.shutdown(socket.SHUT_WR)
                told = line.recv(4096)
            except OSError:
                told = b""
        status = int(told[9:12]) if told.startswith(b"HTTP/1.1 ") else 0
        return status, told.decode("utf-8", "replace")


def prepare(folder: Path) -> tuple[Path, np.ndarray, dict[str, str]]:
    """A campaign with three finished episodes and an open one; its target and its tokens."""
    rng = np.random.default_rng(0)
    target = rng.dirichlet(np.ones(ACTIONS), STATES)
    where = folder / "fuzzed.campaign"
    given = {"behavior": target[::-1], "silent_after": 1e9}  # no event comes by itself
    with Campaign.create(where, target, horizon=HORIZON, **given) as campaign:
        for _ in range(3):
            episode = campaign.start("a")
            for t in range(HORIZON):
                episode.act(t % STATES)
                episode.observe(float(rng.normal()), float(rng.random()), (t + 1) % STATES)
            episode.end()
        episode = campaign.start("a")
        episode.act(0)
        episode.observe(1.0, 0.5, 1)
        book = TokenStore(campaign.backend.store, time.time)
        return where, target, {role: book.create(role, role) for role in ROLES}


def run(calls: int, seed: int, folder: Path) -> Findings:
    """Attack a service of one's own."""
    where, target, tokens = prepare(folder)
    # a busy machine is not what is tested: no call is answered by how long it took
    limits = Limits(
        rate=1e9,
        failures=1e9,
        answer_seconds=PATIENCE,
        head_seconds=PATIENCE,
        body_seconds=PATIENCE,
    )
    settings = Settings(limits=limits)
    with serving(Service(where, target, port=0, settings=settings)) as url:
        attacker = Attacker(url, where, tokens, seed)
        try:
            return attacker.attack(calls)
        finally:
            attacker.close()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Attack a service with wrong calls.")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(given.calls, given.seed, Path(folder))
    print(f"{given.calls:,} calls, seed {given.seed}; answers by status (0: connection closed):")
    for status, n in sorted(found.statuses.items()):
        print(f"  {status:3d}  {n:,}")
    for text in found.wrong[:20]:
        print(f"WRONG {text}")
    print(f"{len(found.wrong)} wrong")
    sys.exit(1 if found.wrong else 0)


if __name__ == "__main__":
    main()

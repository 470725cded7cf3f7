"""A service in a process of its own, and plants that call it at the same time.

The peer is a bare FastAPI endpoint, which does what no service of this kind can do without: it
parses a call, writes one row, commits it, and answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

__all__ = ["Hosted", "Load", "Mode", "create", "drive", "driven", "host", "hosted"]

HORIZON, SIZE = 10, 10

#: "act": `act` and `observe` are two calls; "advance": one; "commit": the bare endpoint.
Mode = Literal["act", "advance", "commit"]

STATES = 100


@dataclass
class Load:
    """What a load has come to.

    Attributes:
        seconds: how long it lasted.
        computed: seconds that the service computed in that time.
        decisions: answered actions, or rows.
        calls: answered calls of all kinds.
        errors: answers other than 200, and broken connections.
        waits: seconds of every call that asks for an action, or commits a row.
    """

    seconds: float = 0.0
    computed: float = 0.0
    decisions: int = 0
    calls: int = 0
    errors: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def add(self, other: Load) -> None:
        """Count another load in."""
        self.seconds += other.seconds
        self.computed += other.computed
        self.decisions += other.decisions
        self.calls += other.calls
        self.errors += other.errors
        self.waits += other.waits


class _Plant:
    """One plant with its connection."""

    def __init__(
        self, address: tuple[str, int], number: int, load: Load, until: float, token: str
    ) -> None:
        self._address, self._number, self._load, self._until = address, number, load, until
        self._rng, self._token = random.Random(number), token

    async def run(self, mode: Mode) -> None:
        """Call until the time is over."""
        try:
            self._reader, self._writer = await asyncio.open_connection(*self._address)
            while time.perf_counter() < self._until:
                if mode == "commit":
                    await self._decide("/commit", {"step": 1, "obs": self._rng.randrange(STATES)})
                else:
                    await self._episode(mode)
            self._writer.close()
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            self._load.errors.append(f"{type(error).__name__}: {error}")

    async def _episode(self, mode: Mode) -> None:
        word = secrets.token_hex(16)  # a word that was used before would find that episode
        told = await self._post("/v1/episodes", {"plant": f"plant-{self._number}", "request": word})
        place, obs = f"/v1/episodes/{told['number']}", self._rng.randrange(STATES)
        t, over, decided = 0, False, False
        while not over and time.perf_counter() < self._until:
            if not decided:
                await self._decide(f"{place}/act", {"step": t, "obs": obs})
            obs = self._rng.randrange(STATES)
            outcome = {"step": t, "reward": self._rng.random(), "cost": 1.0, "next_obs": obs}
            if mode == "advance":
                told = await self._decide(f"{place}/advance", outcome)
                decided = True
            else:
                told = await self._post(f"{place}/observe", outcome)
            over, t = bool(told.get("over", True)), t + 1
        if over:
            await self._post(f"{place}/end", {"steps": t})

    async def _decide(self, place: str, body: dict[str, Any]) -> Any:
        """A call that asks for an action."""
        began = time.perf_counter()
        told = await self._post(place, body)
        self._load.waits.append(time.perf_counter() - began)
        self._load.decisions += told.get("action", None) is not None
        return told

    async def _post(self, place: str, body: dict[str, Any]) -> Any:
        content = json.dumps(body).encode()
        head = (
            f"POST {place} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self._token}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lower = answer.lower()
        at = lower.index(b"content-length:") + len(b"content-length:")
        told = await self._reader.readexactly(int(lower[at : lower.index(b"\r\n", at)]))
        if not answer.startswith(b"HTTP/1.1 200"):
            raise ValueError(f"{place}: {answer[:12]!r} {told[:200]!r}")
        self._load.calls += 1
        return json.loads(told)


async def drive(
    url: str,
    plants: int,
    seconds: float,
    mode: Mode,
    token: str,
    *,
    watch: Callable[[], None] | None = None,
) -> Load:
    """Put a service under load.

    Args:
        url: of the service.
        plants: that call at the same time.
        seconds: how long.
        mode: what they call.
        token: that they show.
        watch: called every half second.
    """
    parts = urlsplit(url)
    address = (str(parts.hostname), int(parts.port or 80))
    load, began = Load(), time.perf_counter()
    tasks = [
        asyncio.create_task(_Plant(address, k, load, began + seconds, token).run(mode))
        for k in range(plants)
    ]
    while not all(task.done() for task in tasks):
        await asyncio.wait(tasks, timeout=0.5)
        if watch is not None:
            watch()
    load.seconds = time.perf_counter() - began
    return load


# -- the two processes -------------------------------------------------------------------------


@dataclass
class Hosted:
    """A process that serves.

    Attributes:
        url: its address.
        process: it.
    """

    url: str
    process: subprocess.Popen[str] = field(repr=False)

    def computed(self) -> float:
        """Seconds of all its threads; 0 where the system does not tell."""
        place = Path(f"/proc/{self.process.pid}/stat")
        if not place.exists():
            return 0.0
        words = place.read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self) -> float:
        """Memory of it and the processes that it has started; 0 where the system does not tell.

        A page that they share is counted once (the proportional set size).
        """
        return sum(_proportional(pid) for pid in _family(self.process.pid)) / 1024


def _family(pid: int) -> list[int]:
    """A process and all that it has started, directly or not."""
    pids = [pid]
    for place in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has just ended
            pids += [one for child in place.read_text().split() for one in _family(int(child))]
    return pids


def _proportional(pid: int) -> int:
    """Kilobytes of a process, its part of what others share with it."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


@contextlib.contextmanager
def hosted(
    kind: str,
    where: str,
    seed: int,
    module: str = "benchmarks.service",
    env: Mapping[str, str] | None = None,
) -> Iterator[Hosted]:
    """A campaign, or the bare endpoint, in a process of its own."""
    program = f"import json, sys; from {module} import host; host(*json.loads(sys.argv[1]))"
    words = json.dumps([kind, where, seed])
    process = subprocess.Popen(
        [sys.executable, "-c", program, words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ if env is None else env),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Hosted(process.stdout.readline().strip(), process)
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def host(kind: str, where: str, seed: int) -> None:
    """Serve until standard input ends; prints the address."""
    with _campaign(where, seed) if kind == "campaign" else _bare(where) as url:
        print(url, flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def _campaign(where: str, seed: int) -> Iterator[str]:
    from scopeval.serve.app import Service, Settings, serving
    from scopeval.serve.models import Limits

    settings = Settings(limits=Limits(rate=1e9, open_episodes=100_000, connections=100_000))
    with serving(Service(where, _target(seed), port=0, settings=settings)) as url:
        yield url


@contextlib.contextmanager
def _bare(where: str) -> Iterator[str]:
    """One route: check a body, insert a row, commit, answer."""
    import socket
    import threading

    import sqlalchemy as sa
    import uvicorn
    from fastapi import FastAPI

    from scopeval.campaign.store import open_engine

    engine = open_engine(where, create=False, patience=30.0)
    table = sa.Table(
        "bench_rows",
        sa.MetaData(),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("step", sa.Integer),
        sa.Column("obs", sa.Integer),
    )
    table.metadata.create_all(engine)
    app, one = FastAPI(), threading.Lock()

    @app.post("/commit")
    def commit(body: dict[str, int]) -> dict[str, int]:
        # SQLite has one writer at a time: those who wait here do not wait in its slow retries
        with one, engine.begin() as connection:
            connection.execute(table.insert().values(step=body["step"], obs=body["obs"]))
        return {"step": body["step"], "action": 0}

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        while not server.started:
            thread.join(0.01)
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def create(where: str, seed: int) -> str:
    """A campaign on the Gridworld with a learned design; returns a token for its plants."""
    from scopeval.behavior.designer import design
    from scopeval.campaign.campaign import Campaign, LocalBackend
    from scopeval.envs.gridworld import Gridworld, logs_of
    from scopeval.serve.auth import TokenStore

    target = _target(seed)
    log = logs_of(Gridworld(SIZE, seed=seed).mdp(), [target], 300, seed=seed)
    behavior = design(log, target, horizon=HORIZON, method="scope")
    with Campaign.create(
        where, target, horizon=HORIZON, behavior=behavior, seed=seed, promise=()
    ) as campaign:
        assert isinstance(campaign.backend, LocalBackend)
        return TokenStore(campaign.backend.store, time.time).create("the plants", "plant")


def _target(seed: int) -> Any:
    from scopeval.envs.gridworld import target_policies

    return target_policies(1, SIZE, seed=seed)[0]


def driven(
    served: Hosted,
    plants: int,
    seconds: float,
    mode: Mode,
    token: str,
    watch: Callable[[], None] | None = None,
) -> Load:
    """A process under load, with the time that it computed."""
    before = served.computed()
    load = asyncio.run(drive(served.url, plants, seconds, mode, token, watch=watch))
    load.computed = served.computed() - before
    return load

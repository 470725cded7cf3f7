"""A served campaign, beside a bare FastAPI endpoint that commits one row in the same database.

Both run in processes of their own, and many plants call them over HTTP at the same time, in turns.
The bare endpoint does what no service of this kind can do without: it parses a call, writes one
row, commits it, and answers. A decision of a campaign is two calls (`act`, `observe`), or one
(`advance`); beginnings and ends of episodes are counted in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, load_peer
from benchmarks.serve_load import Load, Mode, drive
from scopeval.arrays import check_whole
from scopeval.errors import InputError, MissingExtraError

__all__ = ["Config", "host", "run"]

HORIZON, SIZE = 10, 10


@dataclass(frozen=True)
class Config:
    """What to measure."""

    plants: int = 200
    """That call at the same time."""
    seconds: float = 120.0
    """Of load on the service with `act` and `observe`, and on the bare endpoint; of `advance`, a
    third of that."""
    turns: int = 6
    """In which the two alternate."""
    folder: str = ""
    """Where the database is; empty: the place for temporary files."""
    database: str = ""
    """URL of an empty PostgreSQL database; empty: SQLite."""
    seed: int = 0
    """Of the policies, the campaign and the plants."""

    def __post_init__(self) -> None:
        for name in ("plants", "turns"):
            check_whole(name, getattr(self, name), 1)
        if not self.seconds > 0:
            raise InputError(f"seconds: got {self.seconds!r}, expected a number above 0")


def run(config: Config) -> list[Comparison]:
    """Throughput, 99th percentiles and memory."""
    if load_peer("fastapi") is None or load_peer("uvicorn") is None:
        raise MissingExtraError("fastapi", "serve", "The benchmark of the service")
    with tempfile.TemporaryDirectory(dir=config.folder or None) as folder:
        where = config.database or str(Path(folder, "bench.campaign"))
        token = _create(where, config.seed)
        with (
            _hosted("campaign", where, config.seed) as ours,
            _hosted("bare", where, config.seed) as bare,
        ):
            steps, rows, memory = _in_turns(config, ours, bare, token)
            quick = _driven(config, ours, config.seconds / 3, "advance", token)
    return _rows(config, steps, quick, rows, memory)


def _rows(
    config: Config, steps: Load, quick: Load, rows: Load, memory: list[float]
) -> list[Comparison]:
    """The comparisons of the service."""
    if steps.errors or quick.errors or rows.errors:
        raise RuntimeError(f"errors: {steps.errors + quick.errors + rows.errors}")
    if not (steps.decisions and quick.decisions and rows.decisions):
        raise RuntimeError("nothing was answered in time; try more seconds")
    said = f"{config.plants} plants"
    peer = rows.seconds / rows.decisions
    first = float(np.mean(memory[: max(len(memory) // 4, 1)]))
    last = float(np.mean(memory[-max(len(memory) // 4, 1) :]))
    return [
        Comparison(
            "decisions, act and observe",
            steps.seconds / steps.decisions,
            peer,
            unit="decision",
            sense="slower",
            goal=2.0,
            note=_said(said, steps, rows),
        ),
        Comparison(
            "decisions, advance",
            quick.seconds / quick.decisions,
            peer,
            unit="decision",
            sense="slower",
            goal=2.0,
            note=_said(said, quick, rows),
        ),
        Comparison(
            "act, p99",
            float(np.quantile(steps.waits, 0.99)),
            float(np.quantile(rows.waits, 0.99)),
            unit="call, p99",
            sense="slower",
            note=f"{said}; medians {1e3 * np.median(steps.waits):.0f} and "
            f"{1e3 * np.median(rows.waits):.0f} ms",
        ),
        Comparison(
            "memory, end over beginning",
            last / first,
            1.0,
            unit="slope",
            sense="slower",
            goal=1.1,
            note=f"mean of the first and last quarter: {first:.0f} and {last:.0f} MB",
        ),
    ]


def _said(who: str, load: Load, rows: Load) -> str:
    """Numbers beside the ratio; computing does not depend on how busy the machine is."""
    return (
        f"{who}, {load.seconds:.0f} s: {load.decisions / load.seconds:,.0f} decisions and "
        f"{load.calls / load.seconds:,.0f} calls a second, no error; computing for a decision "
        f"{1e3 * load.computed / load.decisions:.2f} ms, for a row "
        f"{1e3 * rows.computed / rows.decisions:.2f} ms"
    )


def _driven(
    config: Config,
    hosted: Hosted,
    seconds: float,
    mode: Mode,
    token: str,
    watch: Callable[[], None] | None = None,
) -> Load:
    """A process under load, with the time that it computed."""
    before = hosted.computed()
    load = asyncio.run(drive(hosted.url, config.plants, seconds, mode, token, watch=watch))
    load.computed = hosted.computed() - before
    return load


def _in_turns(
    config: Config, ours: Hosted, bare: Hosted, token: str
) -> tuple[Load, Load, list[float]]:
    """Both under load, one after the other; and the memory of the service, in MB."""
    each = config.seconds / config.turns
    steps, rows, memory = Load(), Load(), []
    modes: tuple[tuple[Hosted, Mode, Load], ...] = (
        (ours, "act", steps),
        (bare, "commit", rows),
    )
    for hosted, mode, _ in modes:  # a warm-up that does not count
        _driven(config, hosted, min(each, 5.0), mode, token)
    for _ in range(config.turns):
        for hosted, mode, load in modes:
            watch = (lambda: memory.append(ours.megabytes())) if hosted is ours else None
            load.add(_driven(config, hosted, each, mode, token, watch))
    return steps, rows, memory


def _create(where: str, seed: int) -> str:
    """A campaign on the Gridworld with a learned design; returns a token for its plants."""
    from scopeval.behavior.designer import design
    from scopeval.campaign.campaign import Campaign
    from scopeval.campaign.local import LocalBackend
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
        """Resident memory; 0 where the system does not tell."""
        place = Path(f"/proc/{self.process.pid}/status")
        if not place.exists():
            return 0.0
        line = next(x for x in place.read_text().splitlines() if x.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


@contextlib.contextmanager
def _hosted(
    kind: str,
    where: str,
    seed: int,
    module: str = "benchmarks.serve",
    env: Mapping[str, str] | None = None,
) -> Iterator[Hosted]:
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

    from scopeval.campaign.schema import open_engine

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

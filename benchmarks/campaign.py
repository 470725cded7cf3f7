"""One decision of a campaign in SQLite, against one durable commit of SQLite.

A decision is on disk before `act` returns, so a commit that waits for the disk is the least it can
take. The peer inserts one row of the same columns and commits, with the same settings
(journal_mode=WAL, synchronous=FULL). Both sides take turns on the same disk.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import Comparison, quiet
from scopeval.arrays import Floats, check_whole
from scopeval.campaign.campaign import Campaign

__all__ = ["Config", "run"]

HORIZON, STATES, ACTIONS = 20, 50, 4


@dataclass(frozen=True)
class Config:
    """What to measure."""

    calls: int = 2_000
    """Calls of each side."""
    folder: str | None = None
    """Where the databases are; None: the folder of temporary files."""
    seed: int = 0
    """Seed of the policies."""

    def __post_init__(self) -> None:
        check_whole("calls", self.calls, 1)


def run(config: Config) -> list[Comparison]:
    """`act`, and a whole step of `act` and `observe` beside two commits."""
    rng = np.random.default_rng(config.seed)
    target = rng.dirichlet(np.ones(ACTIONS), STATES)
    behavior = 0.7 * target + 0.3 / ACTIONS
    rows = []
    with tempfile.TemporaryDirectory(dir=config.folder) as folder:
        place = Path(folder, "campaign.sqlite")
        with (
            closing(sqlite3.connect(Path(folder, "peer.sqlite"), isolation_level=None)) as peer,
            Campaign.create(place, target, horizon=HORIZON, behavior=behavior) as campaign,
        ):
            took, computed = _steps(campaign, _commits(peer), config.calls)
    for name, mine in (("act, SQLite", [0]), ("act and observe, SQLite", [0, 1])):
        ours, other = took[mine].sum(axis=0), took[2:][mine].sum(axis=0)
        computing = [np.median(part[mine].sum(axis=0)) * 1e3 for part in (computed, computed[2:])]
        middle, last = np.median(ours), np.quantile(ours, 0.99)
        rows.append(
            Comparison(
                name,
                float(middle),
                float(np.median(other)),
                unit="call, median",
                sense="slower",
                goal=3.0,
                note=f"{config.calls:,} calls; 99th percentiles {last * 1e3:.2f} and "
                f"{np.quantile(other, 0.99) * 1e3:.2f} ms, processor times {computing[0]:.2f} and "
                f"{computing[1]:.2f} ms",
            )
        )
    return rows


def _commits(connection: sqlite3.Connection) -> Callable[[int], None]:
    """Inserts a row and commits it."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE steps (episode INTEGER, step INTEGER, obs TEXT, action TEXT, "
        "probability DOUBLE, target_probability DOUBLE, decided DOUBLE, "
        "PRIMARY KEY (episode, step))"
    )

    def commit(i: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        row = (i // HORIZON, i, "17", "2", 0.3, 0.25, time.time())
        connection.execute("INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("COMMIT")

    return commit


def _steps(campaign: Campaign, commit: Callable[[int], None], calls: int) -> tuple[Floats, Floats]:
    """Seconds and processor seconds [4, calls]: act, observe, and a commit after each."""
    moments = np.empty((2, 5, calls))
    episode = campaign.start()
    with quiet():
        for i in range(-20, calls):
            if episode.over:
                episode.end()
                episode = campaign.start()
            began = _now()
            action = episode.act(i % STATES)
            acted = _now()
            commit(2 * (i + 20))
            committed = _now()
            episode.observe(float(action), 1.0, (i + 1) % STATES)
            observed = _now()
            commit(2 * (i + 20) + 1)
            if i >= 0:
                moments[:, :, i] = np.transpose([began, acted, committed, observed, _now()])
        episode.lose("the measurement is over")
    took, computed = np.diff(moments, axis=1)[:, [0, 2, 1, 3]]
    return took, computed


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()

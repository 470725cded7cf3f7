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

from scopeval.arrays import Floats, check_whole
from scopeval.campaign.campaign import Campaign
from scopeval.paper.benchmarks.harness import Comparison, quiet

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
            took = _steps(campaign, _commits(peer), config.calls)
    for name, ours, other in (
        ("act, SQLite", took[0], took[2]),
        ("act and observe, SQLite", took[0] + took[1], took[2] + took[3]),
    ):
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
                f"{np.quantile(other, 0.99) * 1e3:.2f} ms",
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


def _steps(campaign: Campaign, commit: Callable[[int], None], calls: int) -> Floats:
    """Seconds [4, calls]: act, observe, and a commit after each."""
    took = np.empty((4, calls))
    clock = time.perf_counter
    episode = campaign.start()
    with quiet():
        for i in range(-20, calls):
            if episode.over:
                episode.end()
                episode = campaign.start()
            began = clock()
            action = episode.act(i % STATES)
            acted = clock()
            commit(2 * (i + 20))
            committed = clock()
            episode.observe(float(action), 1.0, (i + 1) % STATES)
            observed = clock()
            commit(2 * (i + 20) + 1)
            if i >= 0:
                took[:, i] = (
                    acted - began,
                    observed - committed,
                    committed - acted,
                    clock() - observed,
                )
        episode.lose("the measurement is over")
    return took

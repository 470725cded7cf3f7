"""The service of `python -m benchmarks live` for as long as one likes, in SQLite or PostgreSQL.

python tools/bench_service.py [--seconds 120] [--turns 6] [--plants 200] [--postgres]
python tools/bench_service.py --beside FOLDER [--seconds 120] [--turns 6] [--plants 200]
python tools/bench_service.py --downloads 20 [--episodes 16000]

With ``--postgres`` a PostgreSQL server is started for it, as for the tests. With ``--beside`` the
service alternates with that of an older version, whose tree lies in FOLDER (made by
``git worktree add --detach FOLDER 562c33e``), and with the bare endpoint. With ``--downloads`` so
many clients ask at the same time for all episodes of a long campaign, and the memory of the service
is printed, that of the process that writes the file included; pages that both have count once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from benchmarks.live import Config, under_load
from benchmarks.service import SIZE, Hosted, Load, Mode, create, driven, hosted
from postgres_server import MISSING, PostgresServer, binaries
from scopeval.campaign.campaign import Campaign, LocalBackend
from scopeval.campaign.store import EPISODES, EVENTS, STEPS, chained
from scopeval.envs.gridworld import target_policies
from scopeval.serve.auth import TokenStore
from scopeval.serve.client import HttpBackend

#: Makes a campaign with the code of 562c33e; prints the token of its plants.
OLDER_CREATE = """
import sys, time
from scopeval.campaign.journal import Journal
from scopeval.paper.benchmarks.serve import _create
from scopeval.serve.tokens import TokenBook
_create(sys.argv[1], 0)
print(TokenBook(Journal(sys.argv[1], create=False), time.time).create("the plants", "plant"))
"""


def beside(config: Config, older: Path) -> None:
    """Print this version, the older one and the bare endpoint, which take turns."""
    path = os.environ | {"PYTHONPATH": str(older / "src")}
    with tempfile.TemporaryDirectory() as folder:
        where, before = str(Path(folder, "now.campaign")), str(Path(folder, "before.campaign"))
        token = create(where, config.seed)
        made = [sys.executable, "-c", OLDER_CREATE, before]
        old_token = subprocess.run(made, env=path, capture_output=True, text=True, check=True)
        program = "scopeval.paper.benchmarks.serve"
        with (
            hosted("campaign", where, config.seed) as now,
            hosted("campaign", before, config.seed, program, path) as old,
            hosted("bare", where, config.seed) as bare,
        ):
            rows: list[tuple[str, Hosted, Mode, str]] = [
                ("this version, act and observe", now, "act", token),
                ("562c33e, act and observe", old, "act", old_token.stdout.strip()),
                ("this version, advance", now, "advance", token),
                ("562c33e, advance", old, "advance", old_token.stdout.strip()),
                ("one row, committed", bare, "commit", ""),
            ]
            loads = [Load() for _ in rows]
            for turn in range(config.turns + 1):
                for load, (_, served, mode, word) in zip(loads, rows, strict=True):
                    each = driven(served, config.plants, config.seconds / config.turns, mode, word)
                    if turn:  # the first is a warm-up
                        load.add(each)
    print("| | a second | computing | median | 99 % | errors |\n|---|---|---|---|---|---|")
    for load, (name, *_) in zip(loads, rows, strict=True):
        median, late = (1e3 * float(np.quantile(load.waits, q)) for q in (0.5, 0.99))
        print(
            f"| {name} | {load.decisions / load.seconds:,.0f} "
            f"| {1e3 * load.computed / load.decisions:.2f} ms | {median:.0f} ms | {late:.0f} ms "
            f"| {len(load.errors)} |"
        )


def downloads(count: int, episodes: int) -> None:
    """Print how much memory downloads at the same time take."""
    with tempfile.TemporaryDirectory() as folder:
        where = str(Path(folder, "long.campaign"))
        create(where, 0)
        lengthen(where, episodes)
        with Campaign.open(where) as campaign:
            assert isinstance(campaign.backend, LocalBackend)
            token = TokenStore(campaign.backend.store, time.time).create("viewer", "viewer")
        size = Path(where).stat().st_size / 2**20
        with hosted("campaign", where, 0) as served:
            client = HttpBackend(served.url, token, timeout=600.0, patience=600.0)
            client.status()
            before, peak = served.megabytes(), 0.0
            threads = [
                threading.Thread(target=client.get_bytes, args=("/v1/episodes",))
                for _ in range(count)
            ]
            began = time.perf_counter()
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                peak = max(peak, served.megabytes())
                time.sleep(0.02)
            seconds = time.perf_counter() - began
            print(
                f"{count} downloads of {episodes:,} episodes ({size:.0f} MB on disk) in "
                f"{seconds:.1f} s: {before:.0f} MB before, {peak:.0f} MB at most, "
                f"{served.megabytes():.0f} MB after"
            )


def lengthen(where: str, episodes: int) -> None:
    """Run some episodes of a campaign, and write them again until there are so many."""
    few, rng = 50, np.random.default_rng(0)
    with Campaign.open(where, target_policies(1, SIZE, seed=0)[0]) as campaign:
        assert isinstance(campaign.backend, LocalBackend)
        store = campaign.backend.store
        for _ in range(few):
            episode = campaign.start()
            while not episode.over:
                episode.act(int(rng.integers(100)))
                episode.observe(rng.random(), 1.0, int(rng.integers(100)))
            episode.end()
        with store.group() as connection:
            tables = {
                table: [dict(row._mapping) for row in connection.execute(sa.select(table))]
                for table in (EPISODES, STEPS, EVENTS)
            }
            last = tables[EVENTS][-1]
            number, head = last["number"], last["hash"]
            for first in range(few, episodes, few):
                for table, name in ((EPISODES, "number"), (STEPS, "episode")):
                    rows = [row | {name: row[name] + first} for row in tables[table]]
                    connection.execute(table.insert(), rows)
                events = []
                for row in tables[EVENTS][1:]:
                    number += 1
                    made = row | {"number": number, "episode": row["episode"] + first}
                    made["hash"] = head = chained(head, made)
                    events.append(made)
                connection.execute(EVENTS.insert(), events)
        store.forget_head()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--plants", type=int, default=200)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--beside", type=Path, metavar="FOLDER")
    parser.add_argument("--downloads", type=int, metavar="COUNT")
    parser.add_argument("--episodes", type=int, default=16_000)
    asked = parser.parse_args()
    if asked.downloads is not None:
        downloads(asked.downloads, asked.episodes)
        return 0
    if asked.beside is not None:
        beside(Config(plants=asked.plants, seconds=asked.seconds, turns=asked.turns), asked.beside)
        return 0
    if asked.postgres and binaries() is None:
        print(MISSING, file=sys.stderr)
        return 2
    server = PostgresServer() if asked.postgres else None
    try:
        url = "" if server is None else server.url()
        config = Config(plants=asked.plants, seconds=asked.seconds, turns=asked.turns, database=url)
        for one in under_load(config):
            assert one.peer is not None
            print(f"{one.name:<38}{one.ours / one.peer:6.2f}  {one.note}", flush=True)
    finally:
        if server is not None:
            server.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())

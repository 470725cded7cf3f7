"""The service of `python -m benchmarks live` for as long as one likes, in SQLite or PostgreSQL.

python tools/bench_service.py [--seconds 120] [--turns 6] [--plants 200] [--postgres]
python tools/bench_service.py --beside FOLDER [--seconds 120] [--turns 6] [--plants 200]

With ``--postgres`` a PostgreSQL server is started for it, as for the tests. With ``--beside`` the
service alternates with that of an older version, whose tree lies in FOLDER (made by
``git worktree add --detach FOLDER 562c33e``), and with the bare endpoint.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.live import Config, under_load
from benchmarks.service import Hosted, Load, Mode, create, driven, hosted
from postgres_server import MISSING, PostgresServer, binaries

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


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--plants", type=int, default=200)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--beside", type=Path, metavar="FOLDER")
    asked = parser.parse_args()
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

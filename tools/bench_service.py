"""`python -m benchmarks serve` for as long as one likes, in SQLite or PostgreSQL.

python tools/bench_service.py [--seconds 120] [--turns 6] [--plants 200] [--postgres]

With ``--postgres`` a PostgreSQL server is started for it, as for the tests.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.serve import Config, run
from postgres_server import MISSING, PostgresServer, binaries


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--plants", type=int, default=200)
    parser.add_argument("--postgres", action="store_true")
    asked = parser.parse_args()
    if asked.postgres and binaries() is None:
        print(MISSING, file=sys.stderr)
        return 2
    server = PostgresServer() if asked.postgres else None
    try:
        url = "" if server is None else server.url()
        config = Config(asked.plants, asked.seconds, asked.turns, database=url)
        for one in run(config):
            assert one.peer is not None
            print(f"{one.name:<28}{one.ours / one.peer:6.2f}  {one.note}", flush=True)
    finally:
        if server is not None:
            server.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())

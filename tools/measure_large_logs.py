"""Time and memory of designs from generated logs of any size.

    python tools/measure_large_logs.py write FOLDER --rows 100000000
    python tools/measure_large_logs.py read FOLDER --workers 2

The rows are those of ``python -m benchmarks growth``: 10^8 take 1.2 GB. Delete the folder
afterwards.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.growth import Read, write_folder
from benchmarks.harness import in_own_process


def main() -> None:
    """Write a log, or read one and print what that took."""
    parser = argparse.ArgumentParser(description="Measure designs from generated logs.")
    parser.add_argument("what", choices=["write", "read"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10**8)
    parser.add_argument("--file-rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=0, help="0: in one process")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.what == "write":
        began = time.perf_counter()
        write_folder(given.folder, given.rows, given.file_rows, given.seed)
        print(f"{given.rows:,} rows in {time.perf_counter() - began:.0f} s")
        return
    found = Read(*in_own_process("growth.design_folder", str(given.folder), given.workers))
    print(
        f"{found.rows:,} rows, {given.workers or 'no'} workers: {found.seconds:.1f} s, "
        f"{1e9 * found.processor / found.rows:.0f} ns of processor time per row; at most "
        f"{found.here:.0f} MB here, {found.worker:.0f} MB in a worker; checksum "
        f"{found.checksum:08x}"
    )


if __name__ == "__main__":
    main()

"""The time of the log diagnosis, as a share of the time that reading the log takes.

    python tools/measure_diagnosis.py [--rows 2000000] [--repeats 15] [--compiler no]

A clean log of state numbers and one of vectors with four entries are written to a temporary folder,
as CSV and as Parquet. Each is read and diagnosed several times, and the least times of every batch
count. Times are those of the processor, all threads together, so that other work on the machine
hardly matters. Reading is everything that happens before the diagnosis: decoding, checks of
columns, ranges and missing values.

Designs load a compiler, and the diagnosis then uses it; `scopeval check` does not.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from scopeval.data.diagnosis import Problem, diagnosis_of
from scopeval.data.log_statistics import LogStatistics
from scopeval.data.readers import logged_batches

HORIZON = 50
PROBLEM = Problem(HORIZON, 5)


def clean_log(rows: int, vectors: bool, seed: int = 0) -> pa.Table:
    """Episodes of a random walk, in order, each of `HORIZON` steps."""
    rng = np.random.default_rng(seed)
    t = np.arange(rows) % HORIZON
    columns: dict[str, Any] = {"t": t, "action": rng.integers(0, 5, rows)}
    if vectors:
        walk = rng.normal(size=(rows + 1, 4)).cumsum(axis=0)
        for k in range(4):
            columns[f"obs_{k}"], columns[f"next_obs_{k}"] = walk[:-1, k], walk[1:, k]
    else:
        walk = rng.integers(0, 400, rows + 1)
        columns |= {"obs": walk[:-1], "next_obs": walk[1:]}
    columns |= {"reward": rng.normal(size=rows), "cost": rng.random(rows)}
    return pa.table(columns | {"terminated": np.zeros(rows, np.bool_)})


def measure(path: Path, repeats: int) -> tuple[float, float]:
    """Processor seconds of reading and of the diagnosis: the least of every batch, summed."""
    took = []
    for _ in range(repeats):
        statistics, moments = LogStatistics(), [time.process_time()]
        for batch in logged_batches(path, problem=PROBLEM)[0]:
            moments.append(time.process_time())
            statistics.add(batch.log)
            moments.append(time.process_time())
        moments.append(time.process_time())
        diagnosis_of(statistics, PROBLEM)
        took.append(np.diff([*moments, time.process_time()]))
    least = np.min(took, axis=0)
    return float(least[::2].sum()), float(least[1::2].sum())


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Share of the diagnosis in reading.")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--compiler", choices=("yes", "no"), default="yes")
    options = parser.parse_args()
    if options.compiler == "yes":
        importlib.import_module("numba")
    print(f"{'log':<20}{'reading':>12}{'diagnosis':>12}{'share':>9}   (nanoseconds a row)")
    with tempfile.TemporaryDirectory() as folder:
        for vectors in (False, True):
            table = clean_log(options.rows, vectors)
            for kind, write in (("csv", pa.csv.write_csv), ("parquet", pa.parquet.write_table)):
                path = Path(folder) / f"log.{kind}"
                write(table, path)
                each = [1e9 * x / options.rows for x in measure(path, options.repeats)]
                name = f"{'vectors' if vectors else 'states'}, {kind}"
                print(f"{name:<20}{each[0]:>12.1f}{each[1]:>12.1f}{each[1] / each[0]:>9.1%}")


if __name__ == "__main__":
    main()

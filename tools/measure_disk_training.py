"""Time and memory of worlds learned from generated vectors on disk, of any size.

    python tools/measure_disk_training.py write FOLDER --rows 10000000
    python tools/measure_disk_training.py learn FOLDER
    python tools/measure_disk_training.py learn FOLDER --whole

`learn` trains from the disk; with `--whole` all rows are read into memory first. A row has two
observations of 20 numbers: 10^7 rows take 3.4 GB. Delete the folder afterwards.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np

from scopeval import Transitions, World, read_logs, stream_logs, write_logs

WIDTH, ACTIONS, HORIZON = 20, 4, 50


def rows_of(n: int, seed: int, number: int) -> Transitions:
    """Random rows of a world that is not linear, with noise; some episodes end."""
    rng = np.random.default_rng((seed, number))
    obs, action = rng.standard_normal((n, WIDTH)), rng.integers(ACTIONS, size=n)
    mixing = np.random.default_rng(seed).standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)
    after = 0.9 * obs + 0.3 * np.tanh(obs @ mixing) + 0.05 * rng.standard_normal((n, WIDTH))
    after[:, 0] += 0.2 * (action - 1.5)
    return Transitions(
        rng.integers(HORIZON, size=n),
        obs,
        action,
        np.abs(obs[:, 1]) * (action == 1) + 0.1 * rng.standard_normal(n),
        obs[:, 2] ** 2,
        after,
        after[:, 0] > 2.2,
    )


def write(folder: Path, rows: int, file_rows: int, seed: int) -> None:
    """Files that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, rows, file_rows)):
        path = folder / f"{number:06d}.parquet"
        if not path.exists():
            write_logs(rows_of(min(file_rows, rows - start), seed, number), path)


def learn(folder: Path, whole: bool, seed: int) -> str:
    """Learn a world, and say what that took."""
    World.learn(rows_of(2000, seed, 10**6))  # loads all code
    began, used = time.perf_counter(), time.process_time()
    logged = stream_logs(folder, batch_rows=50_000)
    world = World.learn(read_logs(folder) if whole else logged)
    took, used = time.perf_counter() - began, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    other = rows_of(20_000, seed, 10**6 + 1)
    ahead = world.dynamics.predict(other.obs, None, 0).next_obs
    wrong = (ahead[np.arange(len(other)), other.action] - other.next_obs)[~other.terminated]
    return (
        f"{logged.rows:,} rows{', all in memory' if whole else ''}: {took:.0f} s, {used:.0f} s of "
        f"processor time; at most {peak:.0f} MB; error {np.sqrt(np.mean(wrong**2)):.4f} on other "
        "rows (noise 0.05)"
    )


def main() -> None:
    """Write a log, or learn from one and print what that took."""
    parser = argparse.ArgumentParser(description="Measure training from the disk.")
    parser.add_argument("what", choices=["write", "learn"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--file-rows", type=int, default=250_000)
    parser.add_argument("--whole", action="store_true", help="read all rows into memory")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.what == "write":
        write(given.folder, given.rows, given.file_rows, given.seed)
    else:
        print(learn(given.folder, given.whole, given.seed))


if __name__ == "__main__":
    main()

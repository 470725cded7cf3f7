"""Designs from a folder of Parquet files: processor time per row as it grows, and on workers.

And worlds learned from vectors in such a folder: memory as it grows.

The rows are generated, file by file, in a folder that is deleted afterwards. Every measurement is a
process of its own, so that its peak of memory is known; the behavior policies are compared by a
checksum.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from benchmarks.harness import Comparison, in_own_process, timed
from scopeval.arrays import check_whole
from scopeval.errors import InputError
from scopeval.logs.tables import write_logs
from scopeval.logs.transitions import Transitions
from scopeval.models.table import TableCritic

__all__ = ["Config", "design_folder", "learn_folder", "run", "write_folder", "write_vectors"]

STATES, ACTIONS, HORIZON = 400, 4, 10
#: Of the vectors, and most rows of a file of them: also the small log has several.
WIDTH, VECTOR_FILE_ROWS = 20, 50_000


@dataclass(frozen=True)
class Config:
    """What to measure."""

    rows: tuple[int, int] = (1_000_000, 10_000_000)
    """Rows of the small and of the large log."""
    file_rows: int = 500_000
    """Rows of a file."""
    vectors: tuple[int, int] = (250_000, 1_000_000)
    """Rows of the small and of the large log of vectors; both more than are held in memory."""
    workers: int = 2
    """How many."""
    folder: str | None = None
    """Where the logs are generated; default: the folder for temporary files."""
    seed: int = 0
    """Seed of the rows."""

    def __post_init__(self) -> None:
        for name, (small, large) in (("rows", self.rows), ("vectors", self.vectors)):
            if not 0 < small < large:
                raise InputError(
                    f"{name}: got {small} and {large}, expected a small and a large number"
                )
        for name in ("file_rows", "workers"):
            check_whole(name, getattr(self, name), 1)


class Read(NamedTuple):
    """One design from a folder: time, processor time, peak memory here and in a worker (MB)."""

    seconds: float
    processor: float
    here: float
    worker: float
    checksum: int
    rows: int


def run(config: Config) -> list[Comparison]:
    """Time per row of both logs, and of the large one on workers."""
    small, large = config.rows
    place = Path(tempfile.mkdtemp(prefix="scopeval-logs-", dir=config.folder))
    try:
        for rows in config.rows:
            write_folder(place / str(rows), rows, config.file_rows, config.seed)
        few = _read(place / str(small), 0)
        many = _read(place / str(large), 0)
        shared = _read(place / str(large), config.workers)
        learned = [_learned(place / f"vectors{rows}", rows, config) for rows in config.vectors]
    finally:
        shutil.rmtree(place)
    same = "the same bits" if shared.checksum == many.checksum else "NOT THE SAME BITS"
    return [
        Comparison(
            f"design from files, {large:.0e} rows".replace("e+0", "e"),
            many.processor / large,
            few.processor / small,
            unit="row",
            sense="slower",
            goal=1.1,
            note=f"processor time beside {small:,} rows; one process, at most {many.here:.0f} MB "
            f"({few.here:.0f} MB)",
        ),
        Comparison(
            f"design from files, {config.workers} workers",
            shared.seconds / large,
            many.seconds / large,
            unit="row",
            sense="faster",
            note=f"{large:,} rows beside one process, the start of the workers included; at most "
            f"{shared.here:.0f} MB and {shared.worker:.0f} MB in a worker; {same}",
        ),
        Comparison(
            f"vectors from files, memory, {config.vectors[1]:.0e} rows".replace("e+0", "e"),
            learned[1][0] / learned[0][0],
            1.0,
            unit="slope",
            sense="slower",
            goal=1.1,
            note=f"of a world learned from vectors of width {WIDTH}, beside {config.vectors[0]:,} "
            f"rows: {learned[1][0]:.0f} and {learned[0][0]:.0f} MB, {learned[1][1]:.1f} and "
            f"{learned[0][1]:.1f} s of processor time",
        ),
    ]


def write_folder(folder: Path, rows: int, file_rows: int, seed: int) -> None:
    """Random rows of a world with 400 states."""
    folder.mkdir(parents=True)
    for k, start in enumerate(range(0, rows, file_rows)):
        rng = np.random.default_rng((seed, k))
        n = min(file_rows, rows - start)
        s, a = rng.integers(STATES, size=n), rng.integers(ACTIONS, size=n)
        log = Transitions(
            t=rng.integers(HORIZON, size=n),
            obs=s,
            action=a,
            reward=(7 * s + a) % 11 / 11 + 0.1 * rng.random(n),
            cost=(3 * s + a) % 5 / 5,
            next_obs=(5 * s + 3 * a + rng.integers(3, size=n)) % STATES,
        )
        write_logs(log, folder / f"{k:06d}.parquet")


def _learned(folder: Path, rows: int, config: Config) -> list[float]:
    """Peak memory (MB) and processor time of a world learned from so many rows."""
    write_vectors(folder, rows, min(config.file_rows, VECTOR_FILE_ROWS), config.seed)
    found: list[float] = in_own_process("logs.learn_folder", str(folder))
    return found


def write_vectors(folder: Path, rows: int, file_rows: int, seed: int) -> None:
    """Random rows of a world of vectors."""
    folder.mkdir(parents=True)
    for k, start in enumerate(range(0, rows, file_rows)):
        rng = np.random.default_rng((seed, k))
        n = min(file_rows, rows - start)
        x, a = rng.standard_normal((n, WIDTH)), rng.integers(ACTIONS, size=n)
        after = 0.9 * x + 0.1 * np.tanh(x[:, ::-1]) * a[:, None]
        t, reward, cost = rng.integers(HORIZON, size=n), x[:, 0] * a, x[:, 1] ** 2
        write_logs(Transitions(t, x, a, reward, cost, after), folder / f"{k:06d}.parquet")


def learn_folder(folder: str) -> tuple[float, float]:
    """Peak memory (MB) and processor time of a world learned from the files of a folder."""
    from scopeval.logs.stream import stream_logs
    from scopeval.models.model.training import Training
    from scopeval.models.model.world import World

    World.learn(stream_logs(folder, batch_rows=50_000), training=Training(steps=1000))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime


def _read(folder: Path, workers: int) -> Read:
    return Read(*in_own_process("logs.design_folder", str(folder), workers))


def design_folder(folder: str, workers: int) -> Read:
    """A design from the files of a folder; 0 workers: in this process."""
    from scopeval.behavior.designer import design
    from scopeval.logs.stream import stream_logs
    from scopeval.policies.adapters import TabularPolicy

    target = TabularPolicy(np.full((STATES, ACTIONS), 1.0 / ACTIONS))
    design(_warm_up(), target, horizon=HORIZON, method="scope")  # loads all code
    found = []

    def work() -> None:
        logged = stream_logs(folder, horizon=HORIZON, workers=workers or None)
        found.append(design(logged, target, horizon=HORIZON, method="scope"))

    before = _usage()
    seconds = timed(work)
    usage = _usage()
    processor = sum(
        after.ru_utime + after.ru_stime - was.ru_utime - was.ru_stime
        for was, after in zip(before, usage, strict=True)
    )
    checksum = 0
    for critic in found[0].critics:
        for values in cast(TableCritic, critic).arrays().values():
            checksum = zlib.crc32(np.ascontiguousarray(values).tobytes(), checksum)
    checksum = zlib.crc32(repr((found[0].predicted, found[0].report.notes)).encode(), checksum)
    here, worker = (one.ru_maxrss / 1024 for one in usage)
    return Read(seconds, processor, here, worker, checksum, found[0].report.rows)


def _usage() -> list[resource.struct_rusage]:
    """Of this process, and of those that it has started and that have ended."""
    return [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]


def _warm_up() -> Transitions:
    rng = np.random.default_rng(0)
    s = rng.integers(STATES, size=2000)
    return Transitions(
        t=rng.integers(HORIZON, size=2000),
        obs=s,
        action=rng.integers(ACTIONS, size=2000),
        reward=rng.random(2000),
        cost=rng.random(2000),
        next_obs=(s + 1) % STATES,
    )

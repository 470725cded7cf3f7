"""How time and memory grow: logs of up to 10^8 rows in Parquet files, tables, horizons, episodes.

Every size is measured in a process of its own, after a small problem has loaded all code; memory is
the peak beyond that. A slope is d log(time or memory) / d log(size), 1 for linear growth, over the
last two decades. Logs are generated in a folder that is deleted afterwards; what is designed from
them by one process, by workers and by Ray is compared by a checksum.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from benchmarks.harness import Comparison, in_own_process, load_peer, peak_megabytes, timed
from scopeval.arrays import Floats, Ints, check_whole
from scopeval.errors import InputError
from scopeval.logs.tables import write_logs
from scopeval.logs.transitions import Transitions
from scopeval.models.table import TableCritic

__all__ = ["Config", "design_folder", "learn_folder", "measure", "run", "write_folder"]

STATES, ACTIONS, HORIZON = 400, 4, 10
#: Of the vectors, and most rows of a file of them: also the small log has several.
WIDTH, VECTOR_FILE_ROWS = 20, 50_000


@dataclass(frozen=True)
class Config:
    """What to measure."""

    rows: tuple[int, int] = (1_000_000, 10_000_000)
    """Rows of the small and of the large log; 10^8 take 1.2 GB of disk."""
    file_rows: int = 500_000
    """Rows of a file."""
    vectors: tuple[int, int] = (250_000, 1_000_000)
    """Rows of the small and of the large log of vectors; both more than are held in memory."""
    workers: int = 2
    """How many."""
    backends: tuple[str, ...] = ("processes",)
    """Of the workers: processes, ray."""
    decades: tuple[tuple[str, int, int], ...] = (
        ("design, states", 3, 5),
        ("design, horizon", 1, 3),
        ("design, actions", 1, 3),
        ("evaluate, episodes", 4, 7),
    )
    """(what grows, least and largest power of ten)."""
    repeats: int = 2
    """Times each size of these is measured; the least counts."""
    folder: str | None = None
    """Where the logs are generated; default: the folder for temporary files."""
    seed: int = 0
    """Seed of the problems."""

    def __post_init__(self) -> None:
        for name, (small, large) in (("rows", self.rows), ("vectors", self.vectors)):
            if not 0 < small < large:
                raise InputError(
                    f"{name}: got {small} and {large}, expected a small and a large number"
                )
        for name in ("file_rows", "workers", "repeats"):
            check_whole(name, getattr(self, name), 1)
        for what, low, high in self.decades:
            if what not in WORK or not 0 <= low < high:
                raise InputError(
                    f"decades: got {what!r} from {low} to {high}, expected one of "
                    f"{', '.join(WORK)} and two powers of ten"
                )


def run(config: Config) -> list[Comparison]:
    """Logs in files, then slopes."""
    return [*_files(config), *_slopes(config)]


class Read(NamedTuple):
    """One design from a folder: time, processor time, peak memory here and in a worker (MB)."""

    seconds: float
    processor: float
    here: float
    worker: float
    checksum: int
    rows: int


def _files(config: Config) -> list[Comparison]:
    """Time per row of both logs, and of the large one on workers; memory for vectors."""
    small, large = config.rows
    backends = [name for name in config.backends if name != "ray" or load_peer("ray") is not None]
    place = Path(tempfile.mkdtemp(prefix="scopeval-logs-", dir=config.folder))
    try:
        for rows in config.rows:
            write_folder(place / str(rows), rows, config.file_rows, config.seed)
        few, many = (_read(place / str(rows), 0) for rows in config.rows)
        shared = {name: _read(place / str(large), config.workers, name) for name in backends}
        learned = [_learned(place / f"vectors{rows}", rows, config) for rows in config.vectors]
    finally:
        shutil.rmtree(place)
    found = [
        Comparison(
            f"design from files, {large:.0e} rows".replace("e+0", "e"),
            many.processor / large,
            few.processor / small,
            unit="row",
            sense="slower",
            goal=1.1,
            note=f"processor time beside {small:,} rows; one process, at most {many.here:.0f} MB "
            f"({few.here:.0f} MB)",
        )
    ]
    for name, read in shared.items():
        same = "the same bits" if read.checksum == many.checksum else "NOT THE SAME BITS"
        found.append(
            Comparison(
                f"design from files, {config.workers} workers, {name}",
                read.seconds / large,
                many.seconds / large,
                unit="row",
                sense="faster",
                note=f"{large:,} rows beside one process, the start of the workers included; at "
                f"most {read.here:.0f} MB, {read.worker:.0f} MB in a worker; {same}",
            )
        )
    found.append(
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
        )
    )
    return found


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
    found: list[float] = in_own_process("growth.learn_folder", str(folder))
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
    from scopeval.models.training import Training
    from scopeval.models.world import World

    World.learn(stream_logs(folder, batch_rows=50_000), training=Training(steps=1000))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime


def _read(folder: Path, workers: int, backend: str = "processes") -> Read:
    return Read(*in_own_process("growth.design_folder", str(folder), workers, backend))


def design_folder(folder: str, workers: int, backend: str = "processes") -> Read:
    """A design from the files of a folder; 0 workers: in this process."""
    from scopeval import Workers
    from scopeval.behavior.designer import design
    from scopeval.logs.stream import stream_logs
    from scopeval.policies.adapters import TabularPolicy

    target = TabularPolicy(np.full((STATES, ACTIONS), 1.0 / ACTIONS))
    design(_warm_up(), target, horizon=HORIZON, method="scope")  # loads all code
    found = []

    def work() -> None:
        logged = stream_logs(
            folder, horizon=HORIZON, workers=Workers(workers, backend) if workers else None
        )
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


# -- slopes ----------------------------------------------------------------------------------------


def _slopes(config: Config) -> list[Comparison]:
    """Slopes of time and memory."""
    rows = []
    for what, low, high in config.decades:
        sizes = [10**k for k in range(low, high + 1)]
        found = np.array([_least(what, size, config) for size in sizes])
        for k, (kind, unit, least) in enumerate((("time", "s", 1e-3), ("memory", "MB", 4.0))):
            slope = _slope(np.array(sizes[-3:]), found[-3:, k], least)
            numbers = ", ".join(f"{x:.3g}" for x in found[:, k])
            rows.append(
                Comparison(
                    f"{what}: {kind}",
                    slope,
                    1.0,
                    unit="slope",
                    sense="slower",
                    goal=1.1,
                    note=f"10^{low} to 10^{high}: {numbers} {unit}",
                )
            )
    return rows


def _slope(sizes: Ints, found: Floats, least: float) -> float:
    """Slope of the line through the values of at least `least`; 0 if there are fewer than two."""
    some = found >= least
    if some.sum() < 2:
        return 0.0
    return float(np.polyfit(np.log(sizes[some]), np.log(found[some]), 1)[0])


def _least(what: str, size: int, config: Config) -> list[float]:
    calls = range(config.repeats)
    every = [in_own_process("growth.measure", what, size, config.seed) for _ in calls]
    return [min(one) for one in zip(*every, strict=True)]


def measure(what: str, size: int, seed: int) -> tuple[float, float]:
    """Seconds and MB of one problem, in this process."""
    WORK[what](8, seed)()
    call = WORK[what](size, seed)
    took = 0.0

    def clocked() -> None:
        nonlocal took
        took = timed(call)

    peak = peak_megabytes(clocked)
    return took, peak


def _design(
    seed: int, tuples: int, states: int = 100, actions: int = 4, horizon: int = 10
) -> Callable[[], object]:
    from scopeval.behavior.designer import design
    from scopeval.logs.transitions import Transitions
    from scopeval.policies.adapters import TabularPolicy

    rng = np.random.default_rng(seed)
    s, a = rng.integers(states, size=tuples), rng.integers(actions, size=tuples)
    log = Transitions(
        t=rng.integers(horizon, size=tuples),
        obs=s,
        action=a,
        reward=(7 * s + a) % 11 / 11 + 0.1 * rng.random(tuples),
        cost=(3 * s + a) % 5 / 5,
        next_obs=(5 * s + 3 * a + rng.integers(3, size=tuples)) % states,
    )
    target = TabularPolicy(np.full((states, actions), 1.0 / actions))
    return lambda: design(log, target, horizon=horizon, method="scope")


def _evaluate(episodes: int, seed: int) -> Callable[[], object]:
    from scopeval.envs.gridworld import Gridworld, target_policies
    from scopeval.evaluation.evaluator import evaluate
    from scopeval.exact import design

    mdp, target = Gridworld(10, seed=seed).mdp(), target_policies(1, 10, seed=seed)[0]
    behavior = design(mdp, target)
    return lambda: evaluate(mdp, target, behavior, episodes=max(episodes, 100))


#: What can grow, and the problem of a size; problems are made before the clock starts.
WORK: dict[str, Callable[[int, int], Callable[[], object]]] = {
    "design, tuples": lambda n, seed: _design(seed, max(n, 1_000)),
    "design, states": lambda n, seed: _design(seed, 16 * n, states=n, horizon=3),
    "design, horizon": lambda n, seed: _design(seed, 100_000, horizon=n),
    "design, actions": lambda n, seed: _design(seed, 100 * n, actions=n, horizon=3),
    "evaluate, episodes": _evaluate,
}

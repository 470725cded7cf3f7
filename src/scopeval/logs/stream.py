"""Logs that are larger than memory: read in batches, piece by piece, by one process or by many.

A log on disk is divided into pieces: the files of a folder, or the blocks of a Ray dataset. What is
known about a piece are sums and counts, so pieces can be read anywhere and merged afterwards. They
are merged in their order, so that every sum is rounded in the same way, whoever has read which.

What must be in memory (networks that learn vectors) is trained by a random sample of the rows
(`sample_logs`: every set of n rows has the same probability), or by all rows in random order
(`shuffled_batches`: row groups come in random order, a few of them side by side, a small batch of
each in turn, so that rows that are far apart in the log come together).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from scopeval.arrays import check_whole
from scopeval.errors import DataError, InputError
from scopeval.logs.columns import ColumnMap
from scopeval.logs.diagnose import Diagnosis, Problem, diagnosis_of
from scopeval.logs.read import (
    Batch,
    CostFunction,
    FieldReader,
    Kind,
    check_sizes,
    kind_of,
    reader_of,
    refuse_other_kind,
)
from scopeval.logs.sources import open_path
from scopeval.logs.statistics import LogStatistics
from scopeval.logs.tables import Table, is_ray_dataset, open_ray_dataset
from scopeval.logs.transitions import Transitions
from scopeval.workers.attempt import Job, Queue, pack
from scopeval.workers.crew import Workers, open_crew, workers_of

__all__ = [
    "SIDE_BY_SIDE",
    "LoggedStream",
    "read_pieces",
    "sample_logs",
    "shuffled_batches",
    "stream_logs",
]

_HINT = "expected a policy of arrays, and a cost function of plain numbers"
#: Row groups that are read side by side, and rows of a batch.
SIDE_BY_SIDE, BATCH_ROWS = 4, 1 << 14


def stream_logs(
    source: object,
    *,
    columns: ColumnMap | None = None,
    horizon: int | None = None,
    actions: int | None = None,
    batch_rows: int = 1_000_000,
    cost: CostFunction | None = None,
    discrete: bool | None = None,
    workers: Workers | int | None = None,
) -> LoggedStream:
    """Read a log that is larger than memory, batch by batch, from Parquet or a Ray dataset.

    The log must have `t` and `next_obs` (nothing is rebuilt), and a log that stores every row
    several times is refused; all else is as in `read_logs`. Each batch is checked when it is
    read. Contradictions are found in all rows together, and raised before the last batch, which
    carries the notes.

    Args:
        source: a Parquet file, a folder of them (read in the order of their paths), or a Ray
            dataset (read block by block).
        columns: as in `read_logs`.
        horizon: as in `read_logs`.
        actions: as in `read_logs`.
        batch_rows: the most rows of a batch; bounds the memory.
        cost: as in `read_logs`.
        discrete: as in `read_logs`.
        workers: `design` reads the files of the folder, or the blocks of the dataset, on so many
            workers; the design is the same bits. None: in this process. A number, or `Workers`:
            "processes" on this machine, or "ray", a cluster, whose
            nodes must see the files under the same paths; alone, one worker for each core.

    Raises:
        DataError: the source cannot be read or used.
        InputError: an argument is wrong.
    """
    check_sizes(horizon, actions)
    if not isinstance(batch_rows, int) or batch_rows < 1:
        raise InputError(f"batch_rows must be a positive integer, got {batch_rows!r}")
    crew = workers_of(workers)
    table = _opened(source, batch_rows)
    if is_ray_dataset(source) and crew is not None and crew.backend != "ray":
        raise InputError(
            "workers: got a Ray dataset, which only workers of its cluster can read; expected "
            "Workers(backend='ray')"
        )
    reader = reader_of(table, columns, Problem(horizon, actions), cost, discrete)
    if reader.missing:
        raise DataError(
            f"{table.source}: no column for {' and '.join(reader.missing)}, which a stream needs; "
            "read_logs can rebuild it for a log that fits into memory"
        )
    if not table.rows:
        raise DataError(f"{table.source}: no rows")
    return LoggedStream(reader, crew, tuple(reader.notes))


def _opened(source: object, batch_rows: int) -> Table:
    if is_ray_dataset(source):
        table = open_ray_dataset(source)
    elif isinstance(source, str | os.PathLike):
        table = open_path(source)
    else:
        raise InputError(
            f"source: got {type(source).__name__}, expected the path of a Parquet file or of a "
            "folder of them, or a Ray dataset; use read_logs for what is in memory"
        )
    if table.batch_rows is None:
        raise DataError(f"{source}: only Parquet can be read in batches; use read_logs")
    return replace(table, batch_rows=batch_rows)


@dataclass(frozen=True)
class LoggedStream:
    """Batches of a log on disk; can be iterated any number of times.

    Attributes:
        crew: the workers that read its pieces; None: this process does.
        reading_notes: what reading the log had to say, before its rows were judged.
    """

    _reader: FieldReader
    crew: Workers | None = None
    reading_notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows in all batches together."""
        return self._reader.table.rows

    def __iter__(self) -> Iterator[Transitions]:
        read, statistics = 0, LogStatistics()
        for batch in self.batches():
            statistics.add(*batch)
            read += len(batch.log)
            if read < self.rows:
                yield batch.log
            else:
                yield batch.log.with_notes((*self.reading_notes, *self.judge(statistics).warnings))

    def diagnose(self, states: int | None = None) -> Diagnosis:
        """Read the whole log and return its diagnosis; contradictions are not raised.

        Args:
            states: number of states of the target policy.
        """
        statistics = LogStatistics()
        for batch in self.batches():
            statistics.add(*batch)
        return diagnosis_of(statistics.facts(), replace(self._reader.problem, states=states))

    def pieces(self) -> list[Table]:
        """The files, or blocks, that have rows."""
        return self._reader.table.each()

    def row_groups(self, batch_rows: int) -> list[LoggedStream]:
        """The row groups of the files, or the blocks, each alone, in smaller batches.

        Args:
            batch_rows: most rows of a batch.
        """
        return [self.of(group) for group in self._reader.table.row_groups(batch_rows)]

    def of(self, table: Table) -> LoggedStream:
        """The same way of reading, for a piece."""
        return replace(self, _reader=replace(self._reader, table=table))

    def without_rows(self) -> LoggedStream:
        """The way of reading alone."""
        return self.of(replace(self._reader.table, pieces=()))

    def batches(self) -> Iterator[Batch]:
        """The batches as they are stored, without a diagnosis."""
        return self._reader.batches()

    def judge(self, statistics: LogStatistics) -> Diagnosis:
        """The diagnosis of all rows.

        Raises:
            DataError: the log contradicts itself, or stores every row several times.
        """
        source = self._reader.table.source
        diagnosis = diagnosis_of(statistics.facts(), self._reader.problem)
        diagnosis.raise_errors(source)
        if diagnosis.copies > 1:
            raise DataError(
                f"{source}: every row occurs {diagnosis.copies:,} times or a multiple of it, which "
                "a stream cannot undo; use read_logs, which counts such rows once"
            )
        return diagnosis


class PieceRead(NamedTuple):
    """What is kept of a piece, the statistics of all its rows, and the kinds of its fields."""

    source: str
    content: Any
    statistics: LogStatistics
    kinds: dict[str, Kind]


#: What to keep of a piece, given its rows in batches; workers must be able to copy it.
Keep = Callable[[Table, Iterator[Transitions]], Any]


def read_piece(stream: LoggedStream, keep: Keep, piece: Table) -> PieceRead:
    """Read a piece, here or in a worker.

    Args:
        stream: how the log is read, without its rows.
        keep: what is kept of a piece.
        piece: of the log.
    """
    statistics = LogStatistics(piece.first_row)
    kinds: dict[str, Kind] = {}

    def rows() -> Iterator[Transitions]:
        for batch in stream.of(piece).batches():
            statistics.add(*batch)
            kinds.update(obs=kind_of(batch.log.obs), action=kind_of(batch.log.action))
            yield batch.log

    content = keep(piece, rows())
    return PieceRead(piece.source, content, statistics, kinds)


def read_pieces(
    logged: LoggedStream, keep: Keep, take: Callable[[Any], None]
) -> tuple[Diagnosis, tuple[str, ...]]:
    """Call `take` with what is kept of every piece, in their order; diagnosis and notes of all.

    Args:
        logged: the log; it says which workers read it. Without any, all is read here.
        keep: what is kept of a piece.
        take: merges that. What comes early waits for those before it.

    Raises:
        DataError: the log contradicts itself, or stores every row several times.
    """
    reader, pieces = partial(read_piece, logged.without_rows(), keep), logged.pieces()
    statistics, first = LogStatistics(), list[PieceRead]()

    def merge(read: PieceRead) -> None:
        first[:] = first or [read]
        for field, kind in read.kinds.items():
            refuse_other_kind(field, first[0].kinds[field], kind, first[0].source, read.source)
        statistics.merge(read.statistics)
        take(read.content)

    if logged.crew is None:
        for piece in pieces:
            merge(reader(piece))
    else:
        early: dict[int, PieceRead] = {}
        taken = 0

        def in_order(number: int, read: PieceRead) -> None:
            nonlocal taken
            early[number] = read
            while taken in early:
                merge(early.pop(taken))
                taken += 1

        packed = pack("logged", reader, _HINT)
        queue = Queue({k: Job(one, one.source) for k, one in enumerate(pieces)}, in_order)
        with open_crew(logged.crew.count, logged.crew.backend, grace=0.0) as workers:
            workers.load(packed)
            workers.run(queue)
    diagnosis = logged.judge(statistics)
    return diagnosis, (*logged.reading_notes, *diagnosis.warnings)


def _sample(
    seed: int, wanted: dict[int, int], piece: Table, batches: Iterator[Transitions]
) -> list[Transitions]:
    """As many rows of a piece as are wanted, by its first row, drawn by this seed."""
    rng = np.random.default_rng((seed, 17, piece.first_row))
    left, needed = piece.rows, wanted[piece.first_row]
    samples: list[Transitions] = []
    for log in batches:
        n = len(log)
        # of the rows that are left, so many of the sample are in this batch
        count = int(rng.hypergeometric(n, left - n, needed)) if needed else 0
        if count:
            samples.append(log.select(np.sort(rng.choice(n, count, replace=False))))
        left, needed = left - n, needed - count
    return samples


def sample_logs(logged: LoggedStream, rows: int, seed: int = 0) -> Transitions:
    """A random sample of a log that is larger than memory, for networks that learn vectors.

    All rows are read once and checked, on workers if the stream has them: the sample is the same
    bits. Memory holds one batch and the sample.

    Args:
        logged: what `stream_logs` has opened.
        rows: how many, or all if there are fewer. Every set of so many rows is equally likely.
        seed: of the sample.

    Returns:
        The rows in the order of the log, with its notes.

    Raises:
        DataError: the log contradicts itself, or stores every row several times.
    """
    if not isinstance(logged, LoggedStream):
        raise InputError(
            f"logged: got {type(logged).__name__}, expected what stream_logs opens; rows in "
            "memory can be drawn by log.select(rng.choice(len(log), rows, replace=False))"
        )
    rows, seed = check_whole("rows", rows, 1), check_whole("seed", seed, 0)
    pieces = logged.pieces()
    rng = np.random.default_rng((seed, 17))
    count = min(rows, logged.rows)
    sizes = np.array([piece.rows for piece in pieces])
    drawn = rng.multivariate_hypergeometric(sizes, count, method="marginals").tolist()
    wanted = {piece.first_row: n for piece, n in zip(pieces, drawn, strict=True)}
    parts = list[Transitions]()
    diagnosis, notes = read_pieces(logged, partial(_sample, seed, wanted), parts.extend)
    if count < logged.rows:
        notes = (*notes, f"a random sample of {count:,} of {logged.rows:,} rows")
    return Transitions.concat(parts).keep_facts(diagnosis.facts).with_notes(notes)


def shuffled_batches(logged: LoggedStream, rng: np.random.Generator) -> Iterator[Transitions]:
    """Batches without end: every row comes once before any comes again.

    Args:
        logged: what `stream_logs` has opened.
        rng: draws the order of the row groups.
    """
    groups = logged.row_groups(BATCH_ROWS)
    while True:
        waiting = [groups[k] for k in rng.permutation(len(groups))]
        running = list[Iterator[Transitions]]()
        while waiting or running:
            while waiting and len(running) < SIDE_BY_SIDE:
                running.append(_rows(waiting.pop()))
            going = list[Iterator[Transitions]]()
            for rows in running:
                batch = next(rows, None)
                if batch is not None:
                    going.append(rows)
                    yield batch
            running = going


def _rows(group: LoggedStream) -> Iterator[Transitions]:
    for batch in group.batches():
        yield batch.log

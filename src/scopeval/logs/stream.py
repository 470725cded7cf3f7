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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from scopeval.arrays import check_whole
from scopeval.errors import DataError, InputError
from scopeval.logs.clock import Clock
from scopeval.logs.columns import ColumnMap, Exogenous
from scopeval.logs.diagnose import Diagnosis, Problem, diagnosis_of
from scopeval.logs.read import (
    Batch,
    CostFunction,
    FieldReader,
    Kind,
    batch_of,
    check_sizes,
    computed_cost,
    kind_of,
    notes_of,
    read_whole,
    reader_of,
    refuse_other_kind,
)
from scopeval.logs.sources import CsvFormat, open_path
from scopeval.logs.statistics import LogStatistics
from scopeval.logs.tables import (
    BlockTable,
    ParquetTable,
    Part,
    is_ray_dataset,
    open_ray_dataset,
)
from scopeval.logs.transitions import Transitions
from scopeval.workers.attempt import Job, Queue, pack
from scopeval.workers.crew import Workers, open_crew, workers_of

__all__ = [
    "SIDE_BY_SIDE",
    "LogPiece",
    "LoggedStream",
    "logged_batches",
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
    if isinstance(table, BlockTable) and crew is not None and crew.backend != "ray":
        raise InputError(
            "workers: got a Ray dataset, which only workers of its cluster can read; expected "
            "Workers(backend='ray')"
        )
    problem = Problem(horizon=horizon, actions=actions)
    reader = reader_of(table, columns, problem, cost, discrete)
    missing = [name for name in ("t", "next_obs") if name not in reader.choices]
    if missing:
        raise DataError(
            f"{table.source}: no column for {' and '.join(missing)}, which a stream needs; "
            "read_logs can rebuild it for a log that fits into memory"
        )
    if not table.rows:
        raise DataError(f"{table.source}: no rows")
    notes = tuple(notes_of(table, reader))
    return LoggedStream(reader, table.rows, notes, cost, crew)


def _opened(source: object, batch_rows: int) -> ParquetTable | BlockTable:
    if is_ray_dataset(source):
        return open_ray_dataset(source, batch_rows)
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"source: got {type(source).__name__}, expected the path of a Parquet file or of a "
            "folder of them, or a Ray dataset; use read_logs for what is in memory"
        )
    table = open_path(source)
    if not isinstance(table, ParquetTable):
        raise DataError(f"{source}: only Parquet can be read in batches; use read_logs")
    return replace(table, batch_rows=batch_rows)


@dataclass(frozen=True)
class LoggedStream:
    """Batches of a log on disk; can be iterated any number of times.

    Attributes:
        rows: rows in all batches together.
    """

    _reader: FieldReader
    rows: int
    _notes: tuple[str, ...] = ()
    _cost: CostFunction | None = None
    crew: Workers | None = None

    def __iter__(self) -> Iterator[Transitions]:
        read = 0
        for batch, statistics in self._counted():
            read += len(batch.log)
            if read < self.rows:
                yield batch.log
            else:
                yield batch.log.with_notes(self.notes(statistics))

    def diagnose(self, states: int | None = None) -> Diagnosis:
        """Read the whole log and return its diagnosis; contradictions are not raised.

        Args:
            states: number of states of the target policy.
        """
        statistics = LogStatistics()
        for _, statistics in self._counted():  # noqa: B007  (the last ones count)
            pass
        return diagnosis_of(statistics.facts(), replace(self._reader.problem, states=states))

    def pieces(self) -> list[LogPiece]:
        """The files, or blocks, that have rows."""
        pieces, row = [], 0
        for table in self._table.pieces():
            if table.rows:
                pieces.append(LogPiece(table, row))
            row += table.rows
        return pieces

    def row_groups(self, batch_rows: int) -> list[LoggedStream]:
        """The row groups of the files, or the blocks, each alone, in smaller batches.

        Args:
            batch_rows: most rows of a batch.
        """
        table = self._table
        if isinstance(table, ParquetTable):
            return [self.of(replace(g, batch_rows=batch_rows)) for g in table.row_groups()]
        return [self.of(replace(piece.table, batch_rows=batch_rows)) for piece in self.pieces()]

    def of(self, table: ParquetTable | BlockTable) -> LoggedStream:
        """The same way of reading, for a piece."""
        return replace(self, _reader=replace(self._reader, table=table), rows=table.rows)

    def without_rows(self) -> LoggedStream:
        """The way of reading alone."""
        return self.of(self._table.without_rows())

    def notes(self, statistics: LogStatistics) -> tuple[str, ...]:
        """What a user should know about the log.

        Args:
            statistics: of all rows.

        Raises:
            DataError: the log contradicts itself, or stores every row several times.
        """
        return (*self._notes, *self.judge(statistics).warnings)

    @property
    def reading_notes(self) -> tuple[str, ...]:
        """What reading the log had to say, before its rows were judged."""
        return tuple(self._notes)

    @property
    def _table(self) -> ParquetTable | BlockTable:
        assert isinstance(self._reader.table, ParquetTable | BlockTable)
        return self._reader.table

    def _counted(self) -> Iterator[tuple[Batch, LogStatistics]]:
        """The batches, and the statistics of all rows until then."""
        statistics = LogStatistics()
        for _, batch in self._parts():
            statistics.add(batch.log, episode=batch.episode, truncated=batch.truncated)
            yield batch, statistics

    def batches(self) -> Iterator[Batch]:
        """The batches as they are stored, without a diagnosis."""
        for _, batch in self._parts():
            yield batch

    def _parts(self) -> Iterator[tuple[Part, Batch]]:
        for part, fields in self._reader.parts():
            if self._cost is not None:
                if not fields.get("has_next", np.True_).all():
                    raise DataError(
                        f"{part.source}: rows without a successor (has_next), where the function "
                        "cost= is given next_obs; expected a column of costs, or read_logs, which "
                        "leaves such rows out"
                    )
                fields["cost"] = computed_cost(self._cost, fields)
            yield part, batch_of(fields, part.source, self._reader.exogenous)

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


class LogPiece(NamedTuple):
    """A file or a block of a log.

    Attributes:
        table: its rows.
        first_row: number of its first row in the log.
        wanted: how many of its rows belong to a sample.
    """

    table: ParquetTable | BlockTable
    first_row: int
    wanted: int = 0


def logged_batches(
    source: object,
    *,
    columns: ColumnMap | None = None,
    problem: Problem = Problem(),  # noqa: B008  (frozen)
    discrete: bool | None = None,
    csv: CsvFormat = CsvFormat(),  # noqa: B008  (frozen)
    clock: Clock | None = None,
    batch_rows: int = 1 << 18,
    exogenous: Exogenous | None = None,
) -> tuple[Iterator[Batch], tuple[str, ...]]:
    """The rows of a log as they are stored, in batches where possible, and notes about them.

    Nothing is judged, and nothing is counted once.
    """
    if isinstance(source, str | os.PathLike) and csv.stated is None and clock is None:
        table = open_path(source)
        if isinstance(table, ParquetTable):
            reader = reader_of(
                replace(table, batch_rows=batch_rows), columns, problem, None, discrete, exogenous
            )
            if {"t", "next_obs"} <= set(reader.choices):
                stream = LoggedStream(reader, table.rows)
                return stream.batches(), tuple(notes_of(table, reader))
    batch, notes = read_whole(source, columns, problem, None, discrete, csv, clock, exogenous)
    return iter([batch]), tuple(notes)


class PieceRead(NamedTuple):
    """What is kept of a piece, the statistics of all its rows, and the kinds of its fields."""

    source: str
    content: Any
    statistics: LogStatistics
    kinds: dict[str, Kind]


#: What to keep of a piece, given its rows in batches; workers must be able to copy it.
Keep = Callable[[LogPiece, Iterator[Transitions]], Any]


def read_piece(stream: LoggedStream, keep: Keep, piece: LogPiece) -> PieceRead:
    """Read a piece, here or in a worker.

    Args:
        stream: how the log is read, without its rows.
        keep: what is kept of a piece.
        piece: of the log.
    """
    statistics = LogStatistics(piece.first_row)
    kinds: dict[str, Kind] = {}

    def rows() -> Iterator[Transitions]:
        for batch in stream.of(piece.table).batches():
            statistics.add(batch.log, episode=batch.episode, truncated=batch.truncated)
            kinds.update(obs=kind_of(batch.log.obs), action=kind_of(batch.log.action))
            yield batch.log

    content = keep(piece, rows())
    return PieceRead(piece.table.source, content, statistics, kinds)


def read_pieces(
    logged: LoggedStream, pieces: Sequence[LogPiece], keep: Keep, take: Callable[[Any], None]
) -> LogStatistics:
    """Call `take` with what is kept of every piece, in their order; the statistics of all rows.

    Args:
        logged: the log; it says which workers read it. Without any, all is read here.
        pieces: of it.
        keep: what is kept of a piece.
        take: merges that. What comes early waits for those before it.
    """
    reader = partial(read_piece, logged.without_rows(), keep)
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
        return statistics
    early: dict[int, PieceRead] = {}
    taken = 0

    def in_order(number: int, read: PieceRead) -> None:
        nonlocal taken
        early[number] = read
        while taken in early:
            merge(early.pop(taken))
            taken += 1

    packed = pack("logged", reader, _HINT)
    queue = Queue({k: Job(one, one.table.source) for k, one in enumerate(pieces)}, in_order)
    with open_crew(logged.crew.count, logged.crew.backend, grace=0.0) as workers:
        workers.load(packed)
        workers.run(queue)
    return statistics


def _sample(seed: int, piece: LogPiece, batches: Iterator[Transitions]) -> list[Transitions]:
    """As many rows of a piece as are wanted, drawn by this seed."""
    rng = np.random.default_rng((seed, 17, piece.first_row))
    left, wanted = piece.table.rows, piece.wanted
    samples: list[Transitions] = []
    for log in batches:
        n = len(log)
        # of the rows that are left, so many of the sample are in this batch
        count = int(rng.hypergeometric(n, left - n, wanted)) if wanted else 0
        if count:
            samples.append(log.select(np.sort(rng.choice(n, count, replace=False))))
        left, wanted = left - n, wanted - count
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
    check_whole("rows", rows, 1)
    check_whole("seed", seed, 0)
    pieces = logged.pieces()
    sizes = np.array([piece.table.rows for piece in pieces])
    rng = np.random.default_rng((seed, 17))
    count = min(rows, logged.rows)
    counts = rng.multivariate_hypergeometric(sizes, count, method="marginals")
    parts = list[Transitions]()
    drawn = [one._replace(wanted=int(n)) for one, n in zip(pieces, counts, strict=True)]
    statistics = read_pieces(logged, drawn, partial(_sample, seed), parts.extend)
    diagnosis = logged.judge(statistics)
    notes = [*logged.reading_notes, *diagnosis.warnings]
    if count < logged.rows:
        notes.append(f"a random sample of {count:,} of {logged.rows:,} rows")
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

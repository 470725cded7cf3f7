"""Logs that are larger than memory: read in batches, piece by piece, by one process or by many.

A log on disk is divided into pieces: the files of a folder, or the blocks of a Ray dataset. What is
known about a piece are sums and counts, so pieces can be read anywhere and merged afterwards. They
are merged in their order, so that every sum is rounded in the same way, whoever has read which.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from scopeval.data.column_names import ColumnMap
from scopeval.data.diagnosis import Diagnosis, Problem, diagnosis_of
from scopeval.data.field_reader import FieldReader
from scopeval.data.log_reader import (
    Batch,
    CostFunction,
    batch_of,
    check_sizes,
    computed_cost,
    notes_of,
    reader_of,
)
from scopeval.data.log_statistics import LogStatistics
from scopeval.data.open_source import open_path
from scopeval.data.parquet import ParquetTable
from scopeval.data.ray_dataset import BlockTable, is_ray_dataset, open_ray_dataset
from scopeval.data.table_sources import Part
from scopeval.data.transitions import Transitions
from scopeval.errors import DataError, InputError
from scopeval.workers.crew import CrewSize, check_crew

__all__ = ["LogPiece", "LoggedStream", "stream_logged"]


def stream_logged(
    source: object,
    *,
    columns: ColumnMap | None = None,
    horizon: int | None = None,
    actions: int | None = None,
    batch_rows: int = 1_000_000,
    cost: CostFunction | None = None,
    discrete: bool | None = None,
    workers: int | None = None,
    backend: str | None = None,
) -> LoggedStream:
    """Read a log that is larger than memory, batch by batch, from Parquet or a Ray dataset.

    The log must have `t` and `next_obs` (nothing is rebuilt), and a log that stores every row
    several times is refused; all else is as in `read_logged`. Each batch is checked when it is
    read. Contradictions are found in all rows together, and raised before the last batch, which
    carries the notes.

    Args:
        source: a Parquet file, a folder of them (read in the order of their paths), or a Ray
            dataset (read block by block).
        columns: as in `read_logged`.
        horizon: as in `read_logged`.
        actions: as in `read_logged`.
        batch_rows: the most rows of a batch; bounds the memory.
        cost: as in `read_logged`.
        discrete: as in `read_logged`.
        workers: `design` reads the files of the folder, or the blocks of the dataset, on so many
            workers; the design is the same bits. None: in this process.
        backend: of the workers: "processes" on this machine (default), or "ray", a cluster, whose
            nodes must see the files under the same paths; alone, one worker for each core.

    Raises:
        DataError: the source cannot be read or used.
        InputError: an argument is wrong.
    """
    check_sizes(horizon, actions)
    if not isinstance(batch_rows, int) or batch_rows < 1:
        raise InputError(f"batch_rows must be a positive integer, got {batch_rows!r}")
    check_crew(workers, backend)
    table = _opened(source, batch_rows)
    if isinstance(table, BlockTable) and (workers is not None or backend) and backend != "ray":
        raise InputError(
            "backend: got a Ray dataset, which only workers of its cluster can read; expected "
            "backend='ray'"
        )
    problem = Problem(horizon=horizon, actions=actions)
    reader = reader_of(table, columns, problem, cost, discrete)
    missing = [name for name in ("t", "next_obs") if name not in reader.choices]
    if missing:
        raise DataError(
            f"{table.source}: no column for {' and '.join(missing)}, which a stream needs; "
            "read_logged can rebuild it for a log that fits into memory"
        )
    if not table.rows:
        raise DataError(f"{table.source}: no rows")
    notes = tuple(notes_of(table, reader))
    return LoggedStream(reader, table.rows, problem, notes, cost, CrewSize(workers, backend))


def _opened(source: object, batch_rows: int) -> ParquetTable | BlockTable:
    if is_ray_dataset(source):
        return open_ray_dataset(source, batch_rows)
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"source: got {type(source).__name__}, expected the path of a Parquet file or of a "
            "folder of them, or a Ray dataset; use read_logged for what is in memory"
        )
    table = open_path(source)
    if not isinstance(table, ParquetTable):
        raise DataError(f"{source}: only Parquet can be read in batches; use read_logged")
    return replace(table, batch_rows=batch_rows)


@dataclass(frozen=True)
class LoggedStream:
    """Batches of a log on disk; can be iterated any number of times.

    Attributes:
        rows: rows in all batches together.
    """

    _reader: FieldReader
    rows: int
    _problem: Problem
    _notes: tuple[str, ...] = ()
    _cost: CostFunction | None = None
    crew: CrewSize = CrewSize()  # noqa: RUF009  (a tuple)

    def __iter__(self) -> Iterator[Transitions]:
        read = 0
        for batch, statistics in self._counted():
            read += len(batch.log)
            if read < self.rows:
                yield batch.log
            else:
                yield batch.log.with_notes(self.notes(statistics()))

    def diagnose(self, states: int | None = None) -> Diagnosis:
        """Read the whole log and return its diagnosis; contradictions are not raised.

        Args:
            states: number of states of the target policy.
        """
        found: Callable[[], LogStatistics] = LogStatistics
        for _, statistics in self._counted():
            found = statistics
        return diagnosis_of(found(), replace(self._problem, states=states))

    def pieces(self) -> list[LogPiece]:
        """The files, or blocks, that have rows."""
        found, row = [], 0
        for table in self._table.pieces():
            if table.rows:
                found.append(LogPiece(table, row))
            row += table.rows
        return found

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

    def anchor(self) -> int | None:
        """What the statistics of later pieces begin with; it is in the first row."""
        statistics = LogStatistics()
        for batch in self.batches():
            statistics.add(batch.log.select(slice(0, 1)))
            break
        return statistics.anchor

    def notes(self, statistics: LogStatistics) -> tuple[str, ...]:
        """What a user should know about the log.

        Args:
            statistics: of all rows.

        Raises:
            DataError: the log contradicts itself, or stores every row several times.
        """
        return (*self._notes, *self._judge(statistics).warnings)

    @property
    def _table(self) -> ParquetTable | BlockTable:
        assert isinstance(self._reader.table, ParquetTable | BlockTable)
        return self._reader.table

    def _counted(self) -> Iterator[tuple[Batch, Callable[[], LogStatistics]]]:
        """The batches, and what gives the statistics of all rows until then."""
        whole, piece = LogStatistics(), LogStatistics()

        def all_together() -> LogStatistics:
            whole.merge(piece)
            return whole

        for part, batch in self._parts():
            if part.first_row == 0 and piece.anchor is not None:
                whole.merge(piece)
                piece = whole.following()
            piece.add(batch.log, episode=batch.episode, truncated=batch.truncated)
            yield batch, all_together

    def batches(self) -> Iterator[Batch]:
        """The batches as they are stored, without a diagnosis."""
        for _, batch in self._parts():
            yield batch

    def _parts(self) -> Iterator[tuple[Part, Batch]]:
        for part, fields in self._reader.parts():
            if self._cost is not None:
                fields["cost"] = computed_cost(self._cost, fields)
            yield part, batch_of(fields, part.source)

    def _judge(self, statistics: LogStatistics) -> Diagnosis:
        source = self._reader.table.source
        diagnosis = diagnosis_of(statistics, self._problem)
        diagnosis.raise_errors(source)
        if diagnosis.copies > 1:
            raise DataError(
                f"{source}: every row occurs {diagnosis.copies:,} times or a multiple of it, which "
                "a stream cannot undo; use read_logged, which counts such rows once"
            )
        return diagnosis


class LogPiece(NamedTuple):
    """A file or a block of a log.

    Attributes:
        table: its rows.
        first_row: number of its first row in the log.
    """

    table: ParquetTable | BlockTable
    first_row: int

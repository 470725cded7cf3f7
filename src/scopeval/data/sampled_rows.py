"""A random sample of the rows of a log that is larger than memory.

For what must be in memory: networks that learn vectors. They are trained by some million rows that
are drawn at random anyway, so that a sample of that size loses little. Every set of n rows has the
same probability. All rows are read once and checked; memory holds one batch and the sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scopeval.arrays import check_whole
from scopeval.data.field_reader import Kind, kind_of, refuse_other_kind
from scopeval.data.log_statistics import LogStatistics
from scopeval.data.piecewise import PieceJob, read_pieces
from scopeval.data.streams import LoggedStream, LogPiece
from scopeval.data.transitions import Transitions
from scopeval.errors import InputError

__all__ = ["sample_logged"]


class SampleJob(NamedTuple):
    """A piece, and how many of its rows belong to the sample."""

    piece: LogPiece
    wanted: int


class SampledPiece(NamedTuple):
    """The sampled rows of a piece, the statistics of all its rows, and the kinds of its fields."""

    source: str
    rows: list[Transitions]
    statistics: LogStatistics
    kinds: dict[str, Kind]


@dataclass(frozen=True)
class SampleWork:
    """Reads pieces, here or in a worker.

    Attributes:
        stream: how the log is read, without its rows.
        seed: of the sample.
        anchor: of the statistics, from the first row of the log.
    """

    stream: LoggedStream
    seed: int
    anchor: int | None

    def __call__(self, job: SampleJob) -> SampledPiece:
        table, first_row = job.piece
        rng = np.random.default_rng((self.seed, 17, first_row))
        statistics = LogStatistics(first_row, self.anchor if first_row else None)
        left, wanted = table.rows, job.wanted
        found: list[Transitions] = []
        kinds: dict[str, Kind] = {}
        for batch in self.stream.of(table).batches():
            log, n = batch.log, len(batch.log)
            statistics.add(log, episode=batch.episode, truncated=batch.truncated)
            kinds = {"obs": kind_of(log.obs), "action": kind_of(log.action)}
            # of the rows that are left, so many of the sample are in this batch
            count = int(rng.hypergeometric(n, left - n, wanted)) if wanted else 0
            if count:
                found.append(log.select(np.sort(rng.choice(n, count, replace=False))))
            left, wanted = left - n, wanted - count
        return SampledPiece(table.source, found, statistics, kinds)


def sample_logged(logged: LoggedStream, rows: int, seed: int = 0) -> Transitions:
    """A random sample of a log that is larger than memory, for networks that learn vectors.

    All rows are read once and checked, on workers if the stream has them: the sample is the same
    bits. Memory holds one batch and the sample.

    Args:
        logged: what `stream_logged` has opened.
        rows: how many, or all if there are fewer. Every set of so many rows is equally likely.
        seed: of the sample.

    Returns:
        The rows in the order of the log, with its notes.

    Raises:
        DataError: the log contradicts itself, or stores every row several times.
    """
    if not isinstance(logged, LoggedStream):
        raise InputError(
            f"logged: got {type(logged).__name__}, expected what stream_logged opens; rows in "
            "memory can be drawn by log.select(rng.choice(len(log), rows, replace=False))"
        )
    check_whole("rows", rows, 1)
    check_whole("seed", seed, 0)
    pieces = logged.pieces()
    sizes = np.array([piece.table.rows for piece in pieces])
    rng = np.random.default_rng((seed, 17))
    count = min(rows, logged.rows)
    counts = rng.multivariate_hypergeometric(sizes, count, method="marginals")
    anchor = logged.anchor() if len(pieces) > 1 else None
    statistics, parts, firsts = LogStatistics(), list[Transitions](), list[SampledPiece]()

    def take(read: SampledPiece) -> None:
        first = firsts[0] if firsts else read
        firsts[:] = [first]
        for field, kind in read.kinds.items():
            refuse_other_kind(field, first.kinds[field], kind, first.source, read.source)
        statistics.merge(read.statistics)
        parts.extend(read.rows)

    jobs = [
        PieceJob(SampleJob(piece, int(n)), piece.table.source)
        for piece, n in zip(pieces, counts, strict=True)
    ]
    read_pieces(SampleWork(logged.without_rows(), seed, anchor), jobs, logged.crew, take)
    notes = logged.notes(statistics)
    if count < logged.rows:
        notes = (*notes, f"a random sample of {count:,} of {logged.rows:,} rows")
    return Transitions.concat(parts).with_notes(notes)

"""A log on disk as rows to learn from, read piece by piece: here, or on workers.

Every piece (a file, or a block of a dataset) becomes a table of sums and the statistics of its
rows: that is the map. The pieces are merged in their order, so that the result is the same bits
whoever has read them, and memory holds one batch and the sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from scopeval.logs.read import Kind, kind_of, refuse_other_kind
from scopeval.logs.statistics import LogStatistics
from scopeval.logs.stream import LoggedStream, LogPiece, PieceJob, read_pieces
from scopeval.models.log_rows import JoinedParts, Log, Part, check_batch, log_of, part_of
from scopeval.policies.protocols import ContinuousPolicy, Policy

__all__ = ["gather_stream"]


class PieceRead(NamedTuple):
    """What is kept of a piece.

    Attributes:
        source: its name.
        part: its rows, equal ones merged.
        statistics: of its rows.
        actions: how many the target offers.
        kinds: of its observations and actions.
    """

    source: str
    part: Part
    statistics: LogStatistics
    actions: int
    kinds: dict[str, Kind]


@dataclass(frozen=True)
class PieceWork:
    """Reads pieces, here or in a worker.

    Attributes:
        stream: how the log is read, without its rows.
        target: pi.
        horizon: T.
        seed: of the halves.
    """

    stream: LoggedStream
    target: Policy | ContinuousPolicy
    horizon: int
    seed: int

    def __call__(self, piece: LogPiece) -> PieceRead:
        row, actions = piece.first_row, 0
        parts, statistics = JoinedParts(), LogStatistics(row)
        kinds: dict[str, Kind] = {}
        for batch in self.stream.of(piece.table).batches():
            log = batch.log
            statistics.add(log, episode=batch.episode, truncated=batch.truncated)
            actions = check_batch(log, self.target, self.horizon, actions, streamed=True)
            parts.add(part_of(log, self.target, row, self.seed, merge=True))
            kinds = {"obs": kind_of(log.obs), "action": kind_of(log.action)}
            row += len(log)
        return PieceRead(piece.table.source, parts.whole(), statistics, actions, kinds)


def gather_stream(
    logged: LoggedStream, target: Policy | ContinuousPolicy, horizon: int, seed: int
) -> Log:
    """Rows, halves and starts of a log on disk, for a table.

    Args:
        logged: the log; it says which workers read it.
        target: pi.
        horizon: T.
        seed: of the halves.

    Raises:
        DataError: the log contradicts itself.
        InputError: it does not fit the target, or it has vectors.
    """
    pieces = logged.pieces()
    work = PieceWork(logged.without_rows(), target, horizon, seed)
    merged = _Merged()
    jobs = [PieceJob(piece, piece.table.source) for piece in pieces]
    read_pieces(work, jobs, logged.crew, merged.add)
    diagnosis = logged.judge(merged.statistics)
    notes = (*logged.own_notes, *diagnosis.warnings)
    log = log_of(merged.parts, logged.rows, merged.actions, notes)
    return replace(log, doubt=diagnosis.doubt)


class _Merged:
    """Pieces, merged in their order."""

    def __init__(self) -> None:
        self.parts, self.statistics, self.actions = JoinedParts(), LogStatistics(), 0
        self._first: PieceRead | None = None

    def add(self, read: PieceRead) -> None:
        """Take in the next piece."""
        first = self._first = self._first or read
        for field, kind in read.kinds.items():
            refuse_other_kind(field, first.kinds[field], kind, first.source, read.source)
        self.parts.add(read.part)
        self.statistics.merge(read.statistics)
        self.actions = self.actions or read.actions

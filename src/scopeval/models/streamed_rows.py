"""A log on disk as rows to learn from, read piece by piece: here, or on workers.

Every piece (a file, or a block of a dataset) becomes a table of sums and the statistics of its
rows: that is the map. The pieces are merged in their order, so that the result is the same bits
whoever has read them, and memory holds one batch and the sums.

Networks learn from rows as they come. A row belongs to the half that its content says, wherever and
whenever it is read. So the networks of the halves never share a row, as with logs in memory, and
equal rows are in the same half.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from scopeval.arrays import Ints
from scopeval.logs.statistics import hash_rows
from scopeval.logs.stream import LoggedStream, LogPiece, read_pieces, shuffled_batches
from scopeval.logs.transitions import Transitions
from scopeval.models.rows import (
    JoinedParts,
    Log,
    Part,
    Rows,
    check_batch,
    following_obs,
    log_of,
    part_of,
)
from scopeval.policies.protocols import ContinuousPolicy, Policy

__all__ = ["IN_MEMORY", "StreamedRows", "gather_stream", "halves_by_content", "rows_to_learn"]


@dataclass(frozen=True)
class MergeRows:
    """Keeps the rows of a piece, equal ones merged, and how many actions the target offers.

    Attributes:
        target: pi.
        horizon: T.
        seed: of the halves.
    """

    target: Policy | ContinuousPolicy
    horizon: int
    seed: int

    def __call__(self, piece: LogPiece, batches: Iterator[Transitions]) -> tuple[Part, int]:
        row, actions, parts = piece.first_row, 0, JoinedParts()
        for log in batches:
            actions = check_batch(log, self.target, self.horizon, actions, streamed=True)
            parts.add(part_of(log, self.target, row, self.seed, merge=True))
            row += len(log)
        return parts.whole(), actions


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
    parts, actions = JoinedParts(), 0

    def take(read: tuple[Part, int]) -> None:
        nonlocal actions
        parts.add(read[0])
        actions = actions or read[1]

    statistics = read_pieces(logged, logged.pieces(), MergeRows(target, horizon, seed), take)
    diagnosis = logged.judge(statistics)
    notes = (*logged.own_notes, *diagnosis.warnings)
    log = log_of(parts, logged.rows, actions, notes)
    return replace(log, doubt=diagnosis.doubt)


# -- rows of a log on disk for networks ------------------------------------------------------------


#: Rows of a log on disk that are drawn into memory; the rest only trains the networks.
IN_MEMORY = 200_000
#: Rows of a half that are mixed and learned from together.
BUFFER = 50_000


@dataclass(frozen=True)
class StreamedRows:
    """The rows of one half of a log on disk.

    Attributes:
        logged: the log.
        half: 0 or 1.
        seed: of the halves and of the order.
    """

    logged: LoggedStream
    half: int
    seed: int

    def buffers(self) -> Iterator[Rows]:
        """Rows in random order, without end, `BUFFER` or a few more at a time."""
        rng = np.random.default_rng((self.seed, 24, self.half))
        parts, have = list[Rows](), 0
        for batch in shuffled_batches(self.logged, rng):
            rows = batch.select(np.flatnonzero(halves_by_content(batch, self.seed) == self.half))
            if not len(rows):
                continue
            parts.append(rows_to_learn(rows))
            have += len(rows)
            if have >= BUFFER:
                yield Rows.joined(parts)
                parts, have = [], 0


def rows_to_learn(log: Transitions) -> Rows:
    """The rows of a log as networks of the dynamics learn them."""
    return replace(Rows.of(log), next_obs=following_obs(log))


def halves_by_content(log: Transitions, seed: int) -> Ints:
    """The half, 0 or 1, of each row: a bit of the hash of its content."""
    columns = (log.t, log.obs, log.action, log.reward, log.cost, log.next_obs)
    code = hash_rows([np.full(len(log), seed), *columns])
    code = (code ^ (code >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(code >> np.uint64(63), np.int64)

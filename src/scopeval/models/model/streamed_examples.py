"""What a network learns from, read from a log on disk that is larger than memory.

A row belongs to the half that its content says, wherever and whenever it is read. So the networks
of the halves never share a row, as with logs in memory, and equal rows are in the same half.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from scopeval.arrays import Ints
from scopeval.logs.statistics import hash_rows
from scopeval.logs.stream import LoggedStream, shuffled_batches
from scopeval.logs.transitions import Transitions
from scopeval.models.log_rows import following_obs
from scopeval.models.protocols import Rows

__all__ = ["IN_MEMORY", "StreamedRows", "halves_by_content", "rows_to_learn"]

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
            own = batch.select(np.flatnonzero(halves_by_content(batch, self.seed) == self.half))
            if not len(own):
                continue
            parts.append(rows_to_learn(own))
            have += len(own)
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

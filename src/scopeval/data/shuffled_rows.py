"""The rows of a log on disk in random order, again and again, with few of them in memory.

Row groups come in random order, and a few of them are read side by side, a small batch of each in
turn. So rows that are far apart in the log come together, while memory holds one batch of each
group. Which rows come when depends on the seed alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scopeval.data.streams import LoggedStream
from scopeval.data.transitions import Transitions

__all__ = ["SIDE_BY_SIDE", "shuffled_batches"]

#: Row groups that are read side by side, and rows of a batch.
SIDE_BY_SIDE, BATCH_ROWS = 4, 1 << 14


def shuffled_batches(logged: LoggedStream, rng: np.random.Generator) -> Iterator[Transitions]:
    """Batches without end: every row comes once before any comes again.

    Args:
        logged: what `stream_logged` has opened.
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

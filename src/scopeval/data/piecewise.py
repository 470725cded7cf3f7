"""Read the pieces of a log here or on workers, and take what was read in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from scopeval.workers.attempt import pack
from scopeval.workers.crew import CrewSize, open_crew
from scopeval.workers.queue import Job, Queue

__all__ = ["PieceJob", "read_pieces"]

_HINT = "expected a policy of arrays, and a cost function of plain numbers"


class PieceJob(NamedTuple):
    """What is to be read, and its name in messages."""

    content: Any
    source: str


def read_pieces(
    work: Callable[[Any], Any],
    jobs: Sequence[PieceJob],
    crew: CrewSize,
    take: Callable[[Any], None],
) -> None:
    """Call ``take(work(job))`` for every job, in their order.

    Args:
        work: reads one piece, here or in a worker.
        jobs: the pieces.
        crew: which workers; without any, all is read here.
        take: merges what was read. What comes early waits for those before it.
    """
    if not crew.wanted:
        for job in jobs:
            take(work(job.content))
        return
    early: dict[int, Any] = {}
    taken = 0

    def keep(number: int, read: Any) -> None:
        nonlocal taken
        early[number] = read
        while taken in early:
            take(early.pop(taken))
            taken += 1

    packed = pack("logged", work, _HINT)
    queue = Queue({k: Job(job.content, job.source) for k, job in enumerate(jobs)}, keep)
    with open_crew(*crew, grace=0.0) as workers:
        workers.load(packed)
        workers.run(queue)

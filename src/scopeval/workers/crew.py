"""Which workers do the jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from scopeval._files import machine
from scopeval.arrays import check_whole
from scopeval.errors import InputError
from scopeval.workers.queue import Queue

__all__ = ["BACKENDS", "Crew", "CrewSize", "open_crew"]

BACKENDS = ("processes", "ray")

#: Seconds that running jobs have after Ctrl-C to answer what they have.
GRACE = 2.0


class CrewSize(NamedTuple):
    """How many workers of which kind; nothing given: the work is done in this process."""

    workers: int | None = None
    backend: str | None = None

    @property
    def wanted(self) -> bool:
        """Whether there are to be workers."""
        return self.workers is not None or self.backend is not None


class Crew(Protocol):
    """Workers that do jobs; one that dies is replaced, and its job done again."""

    def load(self, work: bytes) -> None:
        """Take a packed work function, for all jobs from now on."""
        ...

    def run(self, queue: Queue[Any]) -> None:
        """Do everything in the queue."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


@contextmanager
def open_crew(
    workers: int | None,
    backend: str | None = None,
    *,
    address: str | None = None,
    grace: float = GRACE,
) -> Iterator[Crew]:
    """Workers, which end with the block; they are started when there is something to do.

    Args:
        workers: how many; None: one for each core, of this machine or of the cluster.
        backend: "processes" (default), or "ray".
        address: of a running Ray cluster.
        grace: seconds that running jobs have after Ctrl-C to answer what they have.
    """
    check_crew(workers, backend)
    if address is not None and backend != "ray":
        raise InputError(f"address: got {address!r} with backend {backend!r}, expected 'ray'")
    crew: Crew
    if backend == "ray":
        from scopeval.workers.cluster import RayWorkers

        crew = RayWorkers(workers, address, grace)
    else:
        from scopeval.workers.processes import ProcessWorkers

        crew = ProcessWorkers(workers or int(machine()["cores"]), grace)
    try:
        yield crew
    finally:
        crew.close()


def check_crew(workers: int | None, backend: str | None) -> None:
    """Refuse what `open_crew` does not know."""
    if backend is not None and backend not in BACKENDS:
        raise InputError(f"backend: got {backend!r}, expected one of {', '.join(BACKENDS)}")
    if workers is not None:
        check_whole("workers", workers, 1)

"""Which workers do the jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from scopeval._files import machine
from scopeval.arrays import check_whole
from scopeval.errors import InputError
from scopeval.workers.attempt import Queue

__all__ = ["BACKENDS", "Crew", "Workers", "open_crew", "workers_of"]

BACKENDS = ("processes", "ray")

#: Seconds that running jobs have after Ctrl-C to answer what they have.
GRACE = 2.0


@dataclass(frozen=True)
class Workers:
    """Workers that share the work; the result is the same bits for any number of them.

    Attributes:
        count: how many; None: one for each core, of this machine or of the cluster.
        backend: "processes" on this machine, or "ray", a cluster: the one that this process is
            connected to, that of RAY_ADDRESS, or a new one on this machine.
    """

    count: int | None = None
    backend: str = "processes"

    def __post_init__(self) -> None:
        check_crew(self.count, self.backend)


def workers_of(given: Workers | int | None) -> Workers | None:
    """What was given as ``workers=``: `Workers`, a number of processes, or nothing.

    Raises:
        InputError: something else.
    """
    if given is None or isinstance(given, Workers):
        return given
    return Workers(given)


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

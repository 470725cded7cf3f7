"""Many small computations, spread over processes or machines, stored as they finish.

A *shard* is one call of a pure function with one frozen dataclass, which holds everything that the
answer depends on, including seeds. So the answers are the same bits for every backend, number of
workers and order of completion. Each answer is stored in its own file as soon as it is there.
Running again reads the answers that match (same function, same configuration, same code of this
package) and computes the others: after Ctrl-C, a power cut, a damaged file, or with more shards.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from scopeval._files import machine
from scopeval.arrays import check_whole
from scopeval.errors import InputError
from scopeval.paper.backends.store import Store, as_json
from scopeval.workers.attempt import Attempt, WorkerError, attempt
from scopeval.workers.crew import open_crew
from scopeval.workers.queue import Job, Queue

__all__ = ["BACKENDS", "RESUMED", "Progress", "ShardError", "ShardOptions", "run_shards"]

BACKENDS = ("serial", "processes", "ray")

#: What `Progress` is told when answers of an earlier run are there.
RESUMED = "resumed"

#: Called as progress(done, total, what) after every shard.
Progress = Callable[[int, int, str], None]


class ShardError(WorkerError):
    """A shard could not be computed; the message names it. Finished shards are kept."""


class ShardOptions(TypedDict, total=False):
    """How shards are run: the arguments of `run_shards` that do not change any answer."""

    backend: str
    workers: int | None
    address: str | None
    progress: Progress | None
    notify: Callable[[str], None] | None


def run_shards(
    work: Callable[[Any], Any],
    shards: Sequence[Any],
    *,
    backend: str = "processes",
    workers: int | None = None,
    folder: str | os.PathLike[str],
    address: str | None = None,
    progress: Progress | None = None,
    notify: Callable[[str], None] | None = None,
) -> list[Any]:
    """Call ``work(shard)`` for every shard; the answers, in the order of the shards.

    Args:
        work: a function that other processes can import; what it returns must be JSON.
        shards: frozen dataclasses; their attribute `label` is the name used in messages.
        backend: "serial" (this process), "processes" or "ray" (a cluster).
        workers: how many at a time; None: one for each core (of the cluster).
        folder: where answers are stored, one file each.
        address: of a running Ray cluster; None: the one this process is connected to, or a new
            one on this machine.
        progress: called as progress(done, total, what) after every shard.
        notify: called with one line about every problem that was solved by computing something
            again; default: a log message of level WARNING.

    Raises:
        ShardError: `work` raised an exception, or its worker died more than `RETRIES` times.
    """
    if backend not in BACKENDS:
        raise InputError(f"backend: got {backend!r}, expected one of {', '.join(BACKENDS)}")
    if workers is not None:
        check_whole("workers", workers, 1)
    if address is not None and backend != "ray":
        raise InputError(f"address: got {address!r} with backend {backend!r}, expected 'ray'")
    notify = notify or logging.getLogger(__name__).warning
    store = Store(work, Path(folder), notify)
    jobs = {store.key(shard): Job(shard, shard.label) for shard in shards}
    answers: dict[str, Any] = {}
    for key, job in jobs.items():
        found, answer = store.read(key, job.label)
        if found:
            answers[key] = answer

    def report(label: str) -> None:
        if progress is not None:
            progress(len(answers), len(jobs), label)

    def keep(key: str, text: str) -> None:
        answers[key] = store.write(key, jobs[key], text)
        report(jobs[key].label)

    if answers:
        report(RESUMED)
    missing = {key: job for key, job in jobs.items() if key not in answers}
    if missing:
        _compute(work, _Shards(missing, keep, notify), backend, workers, address)
    return [answers[store.key(shard)] for shard in shards]


class _Shards(Queue[str]):
    """Shards that are still to be computed."""

    def failure(self, label: str, ended: Attempt) -> Exception:
        """Names the shard."""
        last = ended.text.strip().splitlines()[-1]
        error = ShardError(f"{label} failed: {last}; finished shards are kept")
        error.add_note(ended.text)
        return error

    def give_up(self, key: str, why: str) -> None:
        """A shard that always kills its worker."""
        raise ShardError(
            f"{self.jobs[key].label}: {why}; is there enough memory? Finished shards are kept: "
            "run again with fewer workers"
        )


class _AsJson:
    """The work function with answers as JSON, so that they are the same text everywhere."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work

    def __call__(self, shard: Any) -> str:
        return as_json(self._work(shard))


def _compute(
    work: Callable[[Any], Any],
    queue: _Shards,
    backend: str,
    workers: int | None,
    address: str | None,
) -> None:
    """Everything in the queue, by the backend."""
    answer = _AsJson(work)
    if backend == "serial":
        while queue.waiting:
            key, shard = queue.take()
            queue.settle(key, attempt(answer, shard))
        return
    try:
        packed = pickle.dumps(answer)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"work: {error}; expected a function at the top level of a module, which other "
            "processes can import"
        ) from error
    if backend == "processes":
        workers = min(workers or int(machine()["cores"]), len(queue.jobs))
    with open_crew(workers, backend, address=address, grace=0.0) as crew:
        crew.load(packed)
        crew.run(queue)

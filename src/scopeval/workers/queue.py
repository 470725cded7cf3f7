"""Jobs that wait for a worker, and what happens with their answers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from scopeval.workers.attempt import Attempt, WorkerError

__all__ = ["RETRIES", "Job", "Queue"]

#: How often a job is done again after its worker died.
RETRIES = 3

Key = TypeVar("Key", bound=Hashable)


class Job(NamedTuple):
    """What a worker is given, and what messages call it."""

    content: Any
    label: str


class Queue(Generic[Key]):
    """Jobs by key, and how often each has lost its worker.

    Args:
        jobs: in the order in which they are begun.
        keep: called with the key and the answer of every job, in the order in which they end.
        notify: called with one line when a job is done again; default: a log message.
        stop: asked before a job is begun; True begins no more.
    """

    def __init__(
        self,
        jobs: Mapping[Key, Job],
        keep: Callable[[Key, Any], None],
        notify: Callable[[str], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self.jobs, self.keep = jobs, keep
        self.notify = notify or logging.getLogger("scopeval").warning
        self.running: set[Key] = set()
        self._stop = stop
        self._waiting = deque(jobs)
        self._deaths = dict.fromkeys(jobs, 0)

    @property
    def waiting(self) -> int:
        """How many jobs wait; those whose worker died are waited for in any case."""
        if self._waiting and self._stop is not None and self._stop():
            self._stop = None
            self._waiting = deque(key for key in self._waiting if self._deaths[key])
        return len(self._waiting)

    def take(self) -> tuple[Key, Any]:
        """The next key and its job."""
        key = self._waiting.popleft()
        self.running.add(key)
        return key, self.jobs[key].content

    def settle(self, key: Key, ended: Attempt) -> None:
        """Keep an answer, queue a lost job again, or give up."""
        self.running.discard(key)
        label = self.jobs[key].label
        if ended.kind == "done":
            self.keep(key, ended.value)
        elif ended.kind == "failed":
            raise self.failure(label, ended)
        else:
            self._deaths[key] += 1
            if self._deaths[key] > RETRIES:
                self.give_up(key, f"its worker died {self._deaths[key]} times ({ended.text})")
                return
            self.notify(f"{label}: its worker died ({ended.text}); trying again")
            # first in the line: what comes after it may wait for it
            self._waiting.appendleft(key)

    def failure(self, label: str, ended: Attempt) -> Exception:
        """What is raised when the work function has raised."""
        return ended.exception(label)

    def give_up(self, key: Key, why: str) -> None:
        """A job has lost its worker too often."""
        raise WorkerError(f"{self.jobs[key].label}: {why}; is there enough memory?")

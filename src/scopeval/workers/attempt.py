"""One call of the work function with one thread, and how it ended.

Jobs that wait for a worker, and what happens with their answers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import sys
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from threading import Event
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import cloudpickle

from scopeval._parallel import one_blas_thread, one_torch_thread, unwanted_by
from scopeval.errors import InputError, ScopevalError

__all__ = [
    "RETRIES",
    "THREADS",
    "Attempt",
    "Bench",
    "Job",
    "Queue",
    "Work",
    "WorkerError",
    "attempt",
    "pack",
]

#: Environment variables that set the number of threads of numerical libraries.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

#: Called with one job at a time.
Work = Callable[[Any], Any]


class WorkerError(ScopevalError, RuntimeError):
    """A worker failed, or died again and again."""


class Attempt(NamedTuple):
    """How one call ended.

    Attributes:
        kind: "done"; "failed" by an exception; "lost": the worker is gone.
        value: the answer.
        text: the traceback, or why the worker is gone.
        error: the exception itself, packed, where that is possible.
    """

    kind: Literal["done", "failed", "lost"]
    value: Any = None
    text: str = ""
    error: bytes = b""

    def exception(self, label: str) -> Exception:
        """The exception that ended the call; its note says where."""
        raised: Any = None
        with contextlib.suppress(Exception):  # a class that only the worker can import
            raised = pickle.loads(self.error) if self.error else None
        if not isinstance(raised, Exception):
            last = (self.text.strip().splitlines() or ["no message"])[-1]
            raised = WorkerError(f"{label} failed in a worker: {last}")
        error: Exception = raised
        error.add_note(self.text)
        return error


class Bench:
    """What a worker holds: the work function and, through it, what that has opened.

    Args:
        unwanted: set when nobody waits for the running job any more.
    """

    def __init__(self, unwanted: Event) -> None:
        self._unwanted = unwanted
        self._packed: bytes | None = None
        self._work: Work | None = None

    def load(self, packed: bytes) -> None:
        """Take a new work function; it is unpacked with the next job, which reports errors."""
        self._packed = packed

    def attempt(self, job: Any) -> Attempt:
        """Do one job."""
        self._unwanted.clear()

        with unwanted_by(self._unwanted):
            return attempt(self._do, job)

    def _do(self, job: Any) -> Any:
        if self._packed is not None:
            fresh: Any = pickle.loads(self._packed)
            if hasattr(fresh, "take_over"):  # it goes on with what earlier work has opened
                fresh.take_over(self._work)
            self._work, self._packed = fresh, None
        assert self._work is not None
        return self._work(job)


def attempt(work: Work, job: Any) -> Attempt:
    """Call the work function with one thread; raises nothing but an interrupt."""
    with _one_thread():
        try:
            return Attempt("done", work(job))
        except Exception as error:
            text, packed = traceback.format_exc(), b""
            with contextlib.suppress(Exception):
                packed = cloudpickle.dumps(error)
            return Attempt("failed", text=text, error=packed)


def pack(name: str, what: Any, hint: str) -> bytes:
    """What another process can unpack: functions of a script or a notebook go along whole.

    Raises:
        InputError: it holds something that cannot leave this process.
    """
    try:
        return bytes(cloudpickle.dumps(what))
    except Exception as error:  # whatever a class of the user's raises
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{name}: cannot be sent to other processes ({reason}); {hint}") from error


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """One thread everywhere: sums over another number of threads differ in their last bits."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))  # for libraries that are not loaded yet
    # torch is not loaded for this; whoever loads it later reads the environment
    torch = one_torch_thread() if "torch" in sys.modules else contextlib.nullcontext()
    try:
        with torch, one_blas_thread():  # numpy's BLAS is loaded, and does not read it any more
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# -- jobs that wait for a worker -------------------------------------------------------------------

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

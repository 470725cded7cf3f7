"""One call of the work function with one thread, and how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from scopeval._parallel import one_torch_thread
from scopeval.errors import ScopevalError

__all__ = ["RETRIES", "THREADS", "Attempt", "Job", "Queue", "ShardError", "as_json", "attempt"]

#: How often a shard is tried again after its worker died.
RETRIES = 3
#: Environment variables that set the number of threads of numerical libraries.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

#: How an attempt ended: the answer as JSON; a traceback; or why the worker is gone.
Attempt = tuple[Literal["done", "failed", "lost"], str]


class ShardError(ScopevalError, RuntimeError):
    """A shard could not be computed; the message names it. Finished shards are kept."""


@dataclass(frozen=True)
class Job:
    """A shard that is still to be computed, and what messages call it."""

    shard: Any
    label: str


class Queue:
    """Jobs by key that are still to be computed, and how often each has lost its worker."""

    def __init__(
        self,
        jobs: dict[str, Job],
        keep: Callable[[str, str], None],
        notify: Callable[[str], None],
    ) -> None:
        self.jobs, self.keep, self.notify = jobs, keep, notify
        self.waiting = deque(jobs)
        self.deaths = dict.fromkeys(jobs, 0)

    def take(self) -> tuple[str, Any]:
        """The next key and its shard."""
        key = self.waiting.popleft()
        return key, self.jobs[key].shard

    def settle(self, key: str, ended: Attempt) -> None:
        """Keep an answer, queue a lost shard again, or give up."""
        kind, text = ended
        label = self.jobs[key].label
        if kind == "done":
            self.keep(key, text)
        elif kind == "failed":
            last = text.strip().splitlines()[-1]
            error = ShardError(f"{label} failed: {last}; finished shards are kept")
            error.add_note(text)
            raise error
        else:
            self.deaths[key] += 1
            if self.deaths[key] > RETRIES:
                raise ShardError(
                    f"{label}: its worker died {self.deaths[key]} times ({text}); is there enough "
                    "memory? Finished shards are kept: run again with fewer workers"
                )
            self.notify(f"{label}: its worker died ({text}); trying again")
            self.waiting.append(key)


def attempt(work: Callable[[Any], Any], shard: Any) -> Attempt:
    """Call the work function with one thread; raises nothing but an interrupt."""
    with _one_thread():
        try:
            return "done", as_json(work(shard))
        except Exception:
            return "failed", traceback.format_exc()


def as_json(value: Any) -> str:
    """JSON that is the same text for the same value."""
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """One thread everywhere: sums over another number of threads differ in their last bits."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))  # for libraries that are not loaded yet
    # torch is not loaded for this; whoever loads it later reads the environment
    torch = one_torch_thread() if "torch" in sys.modules else contextlib.nullcontext()
    try:
        with torch:
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

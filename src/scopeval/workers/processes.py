"""Workers that are processes on this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any

from scopeval.workers.attempt import THREADS, Attempt, Bench, Queue

__all__ = ["ProcessWorkers"]


class ProcessWorkers:
    """Processes that do jobs, one at a time each; one that dies is replaced.

    Args:
        count: how many.
        grace: seconds that running jobs have after Ctrl-C to answer what they have.
    """

    def __init__(self, count: int, grace: float = 0.0) -> None:
        self._count, self._grace = count, grace
        self._work, self._version = b"", 0
        self._idle: list[_Worker] = []
        self._busy: dict[Any, _Worker] = {}

    def load(self, work: bytes) -> None:
        """Take a packed work function, for all jobs from now on."""
        self._work, self._version = work, self._version + 1

    def run(self, queue: Queue[Any]) -> None:
        """Do everything in the queue.

        Raises:
            KeyboardInterrupt: after Ctrl-C; what was answered by then is kept.
        """
        try:
            while queue.waiting or self._busy:
                self._hand_out(queue)
                self._take_in(queue, None)
        except KeyboardInterrupt:
            self._finish(queue)
            raise

    def close(self) -> None:
        """End all processes."""
        workers = [*self._busy.values(), *self._idle]
        self._busy, self._idle = {}, []
        for worker in workers:
            worker.stop()

    def _hand_out(self, queue: Queue[Any]) -> None:
        waiting = queue.waiting
        # all are started before the first is given anything: it listens only when it is up
        missing = min(waiting - len(self._idle), self._count - len(self._busy) - len(self._idle))
        self._idle += [_Worker() for _ in range(missing)]
        while self._idle and queue.waiting:
            worker = self._idle.pop(0)
            self._busy[worker.pipe] = worker
            key, job = queue.take()
            worker.give(key, job, self._version, self._work)

    def _take_in(self, queue: Queue[Any], seconds: float | None) -> None:
        """Wait for answers, and settle them."""
        for pipe in wait(list(self._busy), seconds):
            worker = self._busy.pop(pipe)
            ended = worker.take()
            if ended.kind == "lost":
                worker.stop()
            else:
                self._idle.append(worker)
            queue.settle(worker.key, ended)

    def _finish(self, queue: Queue[Any]) -> None:
        """Ask for what running jobs have, and wait for it a moment."""
        until = time.monotonic() + self._grace
        if self._grace:
            for worker in self._busy.values():
                worker.ask_to_stop()
        with contextlib.suppress(Exception, KeyboardInterrupt):  # the interrupt is reported
            while self._busy and (left := until - time.monotonic()) > 0:
                self._take_in(queue, left)


class _Worker:
    """A process that takes jobs through a pipe."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        with _interrupts_ignored(), _without_main():
            self.process.start()
        theirs.close()
        self.key: Any = None
        self._version = 0

    def give(self, key: Any, job: Any, version: int, work: bytes) -> None:
        """Send a job and, before it, a work function that the process does not have yet."""
        self.key = key
        with contextlib.suppress(OSError):  # if the process has died, `take` reports it
            if version != self._version:
                self.pipe.send(("work", work))
                self._version = version
            self.pipe.send(("job", job))

    def ask_to_stop(self) -> None:
        """Nobody waits for the whole answer any more."""
        with contextlib.suppress(OSError):
            self.pipe.send(("stop", None))

    def take(self) -> Attempt:
        """The answer, or how the process ended."""
        try:
            ended: Attempt = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            return Attempt("lost", text=f"process {self.process.pid}, {name}")
        return ended

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection) -> None:
    """What a worker does until the parent closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(dict.fromkeys(THREADS, "1"))  # before numpy and torch are loaded
    inbox: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    unwanted = threading.Event()
    threading.Thread(target=_listen, args=(pipe, inbox, unwanted), daemon=True).start()
    bench = Bench(unwanted)
    with contextlib.suppress(OSError):
        while True:
            kind, content = inbox.get()
            if kind == "work":
                bench.load(content)
            else:
                pipe.send(bench.attempt(content))


def _listen(
    pipe: Connection, inbox: SimpleQueue[tuple[str, Any]], unwanted: threading.Event
) -> None:
    """Take messages; exit with the parent, because nobody waits for an answer then."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            kind, content = pipe.recv()
            if kind == "stop":
                unwanted.set()
            else:
                inbox.put((kind, content))
    os._exit(1)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """A process inherits this: only the parent handles Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change signal handlers
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """A process must not run the user's script again, which might start processes in turn.

    Nothing of the script is needed there: its functions are packed whole.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main

"""Shards in processes on this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from scopeval.errors import InputError
from scopeval.paper.backends.attempt import THREADS, Attempt, Queue, attempt

__all__ = ["run_in_processes"]


def run_in_processes(work: Callable[[Any], Any], queue: Queue, workers: int) -> None:
    """Compute everything in the queue, in at most `workers` processes at a time."""
    try:
        packed = pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"work: {error}; expected a function at the top level of a module, which other "
            "processes can import"
        ) from error
    busy: dict[Any, _Worker] = {}
    idle: list[_Worker] = []
    try:
        while queue.waiting or busy:
            while queue.waiting and (idle or len(busy) < workers):
                worker = idle.pop() if idle else _Worker(packed)
                busy[worker.pipe] = worker
                worker.give(*queue.take())
            for pipe in wait(list(busy)):
                worker = busy.pop(pipe)
                ended = worker.take()
                if ended[0] == "lost":
                    worker.stop()
                else:
                    idle.append(worker)
                queue.settle(worker.key, ended)
    finally:
        for worker in (*busy.values(), *idle):
            worker.stop()


class _Worker:
    """A process that takes shards through a pipe, one at a time."""

    def __init__(self, work: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        with _interrupts_ignored():  # the process inherits this: only the parent handles Ctrl-C
            self.process.start()
        theirs.close()
        with contextlib.suppress(OSError):  # if the process has died, `take` reports it
            self.pipe.send_bytes(work)
        self.key = ""

    def give(self, key: str, shard: Any) -> None:
        """Send a shard."""
        self.key = key
        with contextlib.suppress(OSError):
            self.pipe.send(shard)

    def take(self) -> Attempt:
        """The answer, or how the process ended."""
        try:
            ended: Attempt = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            return "lost", f"process {self.process.pid}, {name}"
        return ended

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection) -> None:
    """What a worker does until the parent closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    os.environ.update(dict.fromkeys(THREADS, "1"))  # before numpy and torch are loaded
    with contextlib.suppress(EOFError, OSError):
        work = pickle.loads(pipe.recv_bytes())
        while True:
            pipe.send(attempt(work, pipe.recv()))


def _exit_with_parent() -> None:
    """Exit when the parent dies: a shard can take minutes, and nobody waits for its answer."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change signal handlers
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

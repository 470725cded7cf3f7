"""Workers that are actors of a Ray cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from typing import Any

from scopeval.errors import InputError, MissingExtraError
from scopeval.workers.attempt import RETRIES, Attempt, Bench, Queue, WorkerError

__all__ = ["RayWorkers"]


class RayWorkers:
    """Actors that do jobs, one at a time each; one that is lost, or whose node is, is replaced.

    A cluster that is started here is stopped here.

    Args:
        count: how many; None: one for each core of the cluster, also of nodes that join later.
        address: of a running cluster; None: the one that this process is connected to, that of the
            environment variable RAY_ADDRESS, or a new one on this machine.
        grace: seconds that running jobs have after Ctrl-C to answer what they have.
    """

    def __init__(self, count: int | None, address: str | None = None, grace: float = 0.0) -> None:
        self._count, self._grace = count, grace
        self._ray, self._ours = _connect(count, address)
        self._actor = self._ray.remote(
            num_cpus=1, max_restarts=0, max_task_retries=0, concurrency_groups={"stop": 1}
        )(_Actor)
        self._work: Any = None
        self._version = 0
        self._failures = 0  # actors that could not be started, one after the other
        self._starting: dict[Any, _Member] = {}
        self._idle: list[_Member] = []
        self._busy: dict[Any, tuple[_Member, Any]] = {}

    def load(self, work: bytes) -> None:
        """Take a packed work function, for all jobs from now on."""
        self._work, self._version = self._ray.put(work), self._version + 1

    def run(self, queue: Queue[Any]) -> None:
        """Do everything in the queue.

        Raises:
            KeyboardInterrupt: after Ctrl-C; what was answered by then is kept.
        """
        try:
            while queue.waiting or self._busy:  # nobody waits for those that are starting
                self._hand_out(queue)
                self._take_in(queue, None)
        except KeyboardInterrupt:
            self._finish(queue)
            raise

    def close(self) -> None:
        """End all actors."""
        members = [*(member for member, _ in self._busy.values()), *self._idle]
        members += self._starting.values()
        self._busy, self._idle, self._starting = {}, [], {}
        for member in members:
            self._end(member)
        if self._ours:
            self._ray.shutdown()
            self._ours = False

    def _hand_out(self, queue: Queue[Any]) -> None:
        while self._idle and queue.waiting:
            member = self._idle.pop(0)
            key, job = queue.take()
            if member.version != self._version:
                member.handle.load.remote(self._work)
                member.version = self._version
            self._busy[member.handle.attempt.remote(job)] = member, key
        # nodes may come and go, so the number of places is asked again every time
        cores = self._ray.cluster_resources().get("CPU", 1)
        places = self._count or max(1, int(cores))
        missing = places - len(self._busy) - len(self._starting)
        for _ in range(min(missing, queue.waiting - len(self._starting))):
            # it gets a job when it is up: the cluster may have no room for it
            member = _Member(self._actor.remote())
            self._starting[member.handle.ready.remote()] = member

    def _take_in(self, queue: Queue[Any], seconds: float | None) -> None:
        """Wait for answers, and settle them."""
        waited = [*self._busy, *self._starting]
        done, _ = self._ray.wait(waited, num_returns=1, timeout=seconds)
        for reference in done:
            ended = self._result(reference)
            if reference in self._starting:
                self._started(self._starting.pop(reference), ended)
                continue
            member, key = self._busy.pop(reference)
            if ended.kind == "lost":
                self._end(member)
            else:
                self._idle.append(member)
            queue.settle(key, ended)

    def _started(self, member: _Member, ended: Attempt) -> None:
        """An actor is up, or it is not."""
        if ended.kind == "done":
            self._failures = 0
            self._idle.append(member)
            return
        self._end(member)
        self._failures += 1
        if self._failures > RETRIES:
            raise WorkerError(
                f"no worker could be started on the Ray cluster ({ended.text.strip():.300}); is "
                "scopeval installed on its nodes, in the same version?"
            )

    def _end(self, member: _Member) -> None:
        with contextlib.suppress(Exception):  # it is gone already
            self._ray.kill(member.handle)

    def _finish(self, queue: Queue[Any]) -> None:
        """Ask for what running jobs have, and wait for it a moment."""
        until = time.monotonic() + self._grace
        if self._grace:
            for member, _ in self._busy.values():
                member.handle.stop.options(concurrency_group="stop").remote()
        with contextlib.suppress(Exception, KeyboardInterrupt):  # the interrupt is reported
            while self._busy and (left := until - time.monotonic()) > 0:
                self._take_in(queue, left)

    def _result(self, reference: Any) -> Attempt:
        ray = self._ray
        try:
            ended: Attempt = ray.get(reference)
        except ray.exceptions.RayTaskError as error:  # the function could not be loaded there
            return Attempt("failed", text=str(error))
        except ray.exceptions.RayError as error:
            return Attempt("lost", text=type(error).__name__)
        return ended


class _Member:
    """An actor, and which work function it has."""

    def __init__(self, handle: Any) -> None:
        self.handle, self.version = handle, 0


class _Actor:
    """What runs in a worker of the cluster."""

    def __init__(self) -> None:
        self._unwanted = threading.Event()
        self._bench = Bench(self._unwanted)

    def ready(self) -> Attempt:
        """It is up."""
        return Attempt("done")

    def load(self, work: bytes) -> None:
        """Take a work function."""
        self._bench.load(work)

    def attempt(self, job: Any) -> Attempt:
        """Do one job."""
        return self._bench.attempt(job)

    def stop(self) -> None:
        """Nobody waits for the whole answer any more."""
        self._unwanted.set()


def _connect(workers: int | None, address: str | None) -> tuple[Any, bool]:
    """The module `ray`, connected, and whether the connection was made here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "the ray backend") from error
    if ray.is_initialized():
        return ray, False
    address = address or os.environ.get("RAY_ADDRESS")
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        settings |= {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(address=address or "local", **settings)  # a new one, whatever else runs here
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise InputError(
            f"address: no Ray cluster {where} ({' '.join(str(error).split())}); try "
            "ray start --head, or leave the address out"
        ) from error
    return ray, True

"""Many small pieces of work, spread over processes or machines, kept as they finish.

A *shard* is one call of a pure function with one frozen dataclass, which holds all that the answer
depends on, its seeds too. So the answers are the same bits whatever the backend, the number of
workers and the order in which they finish. Each answer is stored in a file of its own as soon as it
is there. Running again reads what matches (same function, same configuration, same code of this
package) and computes the rest: after Ctrl-C, a power cut, a damaged file, or with more shards.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, TypedDict

from scopeval._files import machine, write_json
from scopeval.errors import InputError, MissingExtraError, ScopevalError

__all__ = ["BACKENDS", "RETRIES", "Running", "ShardError", "run_shards"]

BACKENDS = ("serial", "processes", "ray")
#: How often a shard is tried again after its worker died.
RETRIES = 3
FORMAT = 1

#: Called as progress(done, total, what) after every shard.
Progress = Callable[[int, int, str], None]
#: How one attempt ended: the answer as JSON; an exception; or nothing, because the worker died.
Outcome = tuple[Literal["done", "failed", "lost"], str]
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Running(TypedDict, total=False):
    """How shards are run: the arguments of `run_shards` that change no answer."""

    backend: str
    workers: int | None
    address: str | None
    progress: Progress | None
    notify: Callable[[str], None] | None


class ShardError(ScopevalError, RuntimeError):
    """A shard could not be computed; the message names it. Finished shards are kept."""


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
        shards: frozen dataclasses. A `label` attribute is what messages call one.
        backend: "serial" (this process), "processes" or "ray" (a cluster).
        workers: how many at a time; None: one for each core (of the cluster).
        folder: where answers are kept, one file each.
        address: of a running Ray cluster; None: the one this process is connected to, or a new
            one on this machine.
        progress: called as progress(done, total, what) after every shard.
        notify: called with one line when something went wrong and was mended; default: a log
            message of level WARNING.

    Raises:
        ShardError: `work` raised an exception, or its worker died more than `RETRIES` times.
    """
    if backend not in BACKENDS:
        raise InputError(f"backend: got {backend!r}, expected one of {', '.join(BACKENDS)}")
    if workers is not None and (isinstance(workers, bool) or int(workers) != workers):
        raise InputError(f"workers: got {workers!r}, expected a whole number >= 1")
    if workers is not None and workers < 1:
        raise InputError(f"workers: got {workers}, expected a whole number >= 1")
    if address is not None and backend != "ray":
        raise InputError(f"address: got {address!r} with backend {backend!r}, expected 'ray'")
    store = _Store(work, Path(folder), notify or logging.getLogger(__name__).warning)
    jobs = {store.key(shard): _Job(shard, _label(k, shard)) for k, shard in enumerate(shards)}
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

    missing = {key: job for key, job in jobs.items() if key not in answers}
    if answers:
        report("resumed")
    if missing:
        pending = _Pending(missing, store.notify)
        if backend == "serial":
            _serially(work, pending, keep)
        elif backend == "processes":
            at_a_time = min(workers or int(machine()["cores"]), len(missing))
            _in_processes(work, pending, keep, at_a_time)
        else:
            _on_ray(work, pending, keep, workers, address)
    return [answers[store.key(shard)] for shard in shards]


@dataclass(frozen=True)
class _Job:
    shard: Any
    label: str


def _label(number: int, shard: Any) -> str:
    return str(getattr(shard, "label", f"shard {number}"))


class _Pending:
    """What is still to be done, and how often each shard has lost its worker."""

    def __init__(self, jobs: dict[str, _Job], notify: Callable[[str], None]) -> None:
        self.jobs, self.notify = jobs, notify
        self.queue = deque(jobs)
        self.deaths = dict.fromkeys(jobs, 0)

    def settle(self, key: str, outcome: Outcome, keep: Callable[[str, str], None]) -> None:
        """Keep an answer, put a lost shard back, or give up."""
        kind, text = outcome
        label = self.jobs[key].label
        if kind == "done":
            keep(key, text)
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
            self.queue.append(key)


# -- the files -----------------------------------------------------------------------------------


class _Store:
    """One JSON file for each answer, named by what it depends on."""

    def __init__(
        self, work: Callable[[Any], Any], folder: Path, notify: Callable[[str], None]
    ) -> None:
        self.name = f"{work.__module__}.{work.__qualname__}"
        self.folder, self.notify = folder, notify

    def key(self, shard: Any) -> str:
        if not is_dataclass(shard) or isinstance(shard, type):
            raise InputError(f"shards: got {type(shard).__name__}, expected a frozen dataclass")
        kind = f"{type(shard).__module__}.{type(shard).__qualname__}"
        return _digest(_json([FORMAT, self.name, kind, asdict(shard), _code()]))

    def path(self, key: str) -> Path:
        return self.folder / f"{key[:24]}.json"

    def read(self, key: str, label: str) -> tuple[bool, Any]:
        """Whether the answer is there and whole, and the answer."""
        path = self.path(key)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["key"] == key and content["checksum"] == _digest(_json(content["result"])):
                return True, content["result"]
            reason = "its checksum is wrong"
        except FileNotFoundError:
            return False, None
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = str(error) or type(error).__name__
        self.notify(f"{path} ({label}) is damaged: {reason}; computing it again")
        return False, None

    def write(self, key: str, job: _Job, text: str) -> Any:
        result = json.loads(text)
        write_json(
            self.path(key),
            {
                "key": key,
                "label": job.label,
                "work": self.name,
                "config": asdict(job.shard),
                "checksum": _digest(_json(result)),
                "result": result,
            },
        )
        return result


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _code() -> str:
    """Digest of this package's source: an answer of other code is not resumed."""
    root = Path(__file__).parents[1]
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        whole.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


# -- the work itself -----------------------------------------------------------------------------


def _attempt(work: Callable[[Any], Any], shard: Any) -> Outcome:
    """Call it with one thread; never raises, except for an interrupt."""
    with _one_thread():
        try:
            return "done", _json(work(shard))
        except Exception:
            return "failed", traceback.format_exc()


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Libraries that add up in threads give other last bits with another number of them."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # for what is not loaded yet
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch is not None else 0
    if torch is not None:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if torch is not None:
            torch.set_num_threads(threads)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _serially(
    work: Callable[[Any], Any], pending: _Pending, keep: Callable[[str, str], None]
) -> None:
    while pending.queue:
        key = pending.queue.popleft()
        pending.settle(key, _attempt(work, pending.jobs[key].shard), keep)


# -- processes -----------------------------------------------------------------------------------


class _Worker:
    """A process that takes shards through a pipe, one at a time."""

    def __init__(self, work: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        with _interrupts_ignored():  # inherited: Ctrl-C is for the parent to answer
            self.process.start()
        theirs.close()
        with contextlib.suppress(OSError):  # dead already: `take` will say so
            self.pipe.send_bytes(work)
        self.key: str | None = None

    def give(self, key: str, shard: Any) -> None:
        self.key = key
        with contextlib.suppress(OSError):
            self.pipe.send(shard)

    def take(self) -> Outcome:
        """The answer; or how the process ended."""
        try:
            outcome: Outcome = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            return "lost", f"process {self.process.pid}, {name}"
        return outcome

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection) -> None:
    """The life of a worker; it ends when the parent closes the pipe, or at once when it dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_the_parent, daemon=True).start()
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # before numpy and torch are loaded
    with contextlib.suppress(EOFError, OSError):
        work = pickle.loads(pipe.recv_bytes())
        while True:
            pipe.send(_attempt(work, pipe.recv()))


def _leave_with_the_parent() -> None:
    """Nobody waits for the answer any more: a shard of minutes must not be finished for nothing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change it
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _in_processes(
    work: Callable[[Any], Any], pending: _Pending, keep: Callable[[str, str], None], workers: int
) -> None:
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
        while pending.queue or busy:
            while pending.queue and (idle or len(busy) < workers):
                worker = idle.pop() if idle else _Worker(packed)
                busy[worker.pipe] = worker
                key = pending.queue.popleft()
                worker.give(key, pending.jobs[key].shard)
            for pipe in wait(list(busy)):
                worker = busy.pop(pipe)
                outcome = worker.take()
                if outcome[0] == "lost":
                    worker.stop()
                else:
                    idle.append(worker)
                assert worker.key is not None
                pending.settle(worker.key, outcome, keep)
    finally:
        for worker in (*busy.values(), *idle):
            worker.stop()


# -- ray -----------------------------------------------------------------------------------------


def _on_ray(
    work: Callable[[Any], Any],
    pending: _Pending,
    keep: Callable[[str, str], None],
    workers: int | None,
    address: str | None,
) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "the ray backend") from error

    ours = not ray.is_initialized()
    if ours:
        how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            how |= {"num_cpus": workers, "include_dashboard": False}
        try:
            ray.init(address=address, **how)
        except (ConnectionError, ValueError, RuntimeError) as error:
            where = "on this machine" if address is None else f"at {address}"
            raise InputError(
                f"address: no Ray cluster {where} ({' '.join(str(error).split())}); try "
                "ray start --head, or leave the address out"
            ) from error
    remote = ray.remote(num_cpus=1, max_retries=0)(_attempt)
    running: dict[Any, str] = {}
    try:
        while pending.queue or running:
            places = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            while pending.queue and len(running) < places:
                key = pending.queue.popleft()
                running[remote.remote(work, pending.jobs[key].shard)] = key
            [done], _ = ray.wait(list(running), num_returns=1)
            key = running.pop(done)
            try:
                outcome: Outcome = ray.get(done)
            except ray.exceptions.RayTaskError as error:  # the function could not be loaded there
                outcome = ("failed", str(error))
            except ray.exceptions.RayError as error:
                outcome = ("lost", type(error).__name__)
            pending.settle(key, outcome, keep)
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
        if ours:
            ray.shutdown()

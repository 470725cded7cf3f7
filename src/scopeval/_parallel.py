"""Threads that share independent work and can be interrupted; torch and BLAS on one thread."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Event, Lock, local
from typing import Any, TypeVar

__all__ = [
    "fan_out",
    "fan_out_rows",
    "one_blas_thread",
    "one_torch_thread",
    "stop_if_unwanted",
    "unwanted",
    "unwanted_by",
]

Item = TypeVar("Item")
Result = TypeVar("Result")


def fan_out(
    work: Callable[[Item], Result], items: Iterable[Item], *, threads: int | None = None
) -> list[Result]:
    """Return ``[work(item) for item in items]``, computed by several threads.

    Threads help where `work` releases the GIL, as the compiled kernels, BLAS and torch do. The
    results are in the order of the items, so they do not depend on the number of threads. After an
    error, or Ctrl-C, no further item is begun, and `stop_if_unwanted` ends those that run.

    Args:
        work: must not depend on the other items.
        items: one call each.
        threads: at most this many (default: all cores).
    """
    every = list(items)
    # asking for the number of cores takes as long as some of the work
    workers = min(threads or os.cpu_count() or 1, len(every)) if len(every) > 1 else 1
    if workers <= 1:  # a pool would only cost time
        return [work(item) for item in every]
    left = Event()

    def watched(item: Item) -> Result:
        _THREAD.unwanted = left
        return work(item)

    with ThreadPoolExecutor(workers) as pool:
        try:  # Ctrl-C may come while items are still handed over
            futures = [pool.submit(watched, item) for item in every]
            return [future.result() for future in futures]
        except BaseException:
            left.set()  # the pool waits for its threads, which must not take long
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _UnwantedError(Exception):
    """Ends a thread of `fan_out` whose result nobody waits for."""


#: `unwanted`: the event of the `fan_out` that a thread works for.
_THREAD = local()


def stop_if_unwanted() -> None:
    """End a thread of `fan_out` after an error or Ctrl-C; long work calls this now and then.

    In the main thread nothing is needed: Ctrl-C raises KeyboardInterrupt there.
    """
    if unwanted():
        raise _UnwantedError


def unwanted() -> bool:
    """Whether nobody waits any more for what this thread computes."""
    event: Event | None = _THREAD.__dict__.get("unwanted")
    return event is not None and event.is_set()


@contextmanager
def unwanted_by(event: Event) -> Iterator[None]:
    """What this thread computes inside is unwanted once the event is set."""
    before: Event | None = _THREAD.__dict__.get("unwanted")
    _THREAD.unwanted = event
    try:
        yield
    finally:
        _THREAD.unwanted = before


def fan_out_rows(
    work: Callable[[int, int], Result],
    rows: int,
    *,
    block: int = 1,
    least: int = 1,
    threads: int | None = None,
) -> list[Result]:
    """Call ``work(start, stop)`` on consecutive spans that cover the rows, one span per thread.

    Args:
        work: computes the rows start .. stop - 1.
        rows: how many there are.
        block: spans start at multiples of it. A kernel that works in blocks then sees the same
            blocks, and rounds in the same way, for any number of threads.
        least: blocks that are worth a thread of their own.
        threads: at most this many (default: all cores).
    """
    blocks = -(-rows // block)
    if blocks < 2 * least:
        return [work(0, rows)]
    workers = max(1, min(threads or os.cpu_count() or 1, blocks // least))
    edges = [min(block * (blocks * k // workers), rows) for k in range(workers + 1)]
    return fan_out(lambda span: work(*span), itertools.pairwise(edges), threads=workers)


_LOCK = Lock()
#: How many callers are inside `one_torch_thread`, and the setting to restore after the last one.
_INSIDE, _BEFORE = 0, 0
#: The same for `one_blas_thread`.
_BLAS_INSIDE = 0
_BLAS_BEFORE: Any = None


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Run torch on one thread, so that sums have the same bits on every machine.

    Small networks are also faster that way. Calls may be nested or overlap in several threads; the
    setting is restored when the last of them ends.
    """
    global _INSIDE, _BEFORE  # torch's setting is global as well
    import torch

    with _LOCK:
        if _INSIDE == 0:
            _BEFORE = torch.get_num_threads()
        # every caller sets it, because OpenMP keeps the number separately for each thread
        torch.set_num_threads(1)
        _INSIDE += 1
    try:
        yield
    finally:
        with _LOCK:
            _INSIDE -= 1
            if _INSIDE == 0:
                torch.set_num_threads(_BEFORE)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run matrix products of numpy, scipy and compiled code on one thread each.

    Products of small networks take longer to share than to compute, and threads that wait for work
    keep a core busy. Calls may be nested or overlap in several threads, as for torch.
    """
    global _BLAS_INSIDE, _BLAS_BEFORE  # a setting of the process as well
    with _LOCK:
        if _BLAS_INSIDE == 0:
            _take_control()
            _BLAS_BEFORE = _blas_libraries().limit(limits=1, user_api="blas")
        _BLAS_INSIDE += 1
    try:
        yield
    finally:
        with _LOCK:
            _BLAS_INSIDE -= 1
            if _BLAS_INSIDE == 0:
                _take_control()
                _BLAS_BEFORE.restore_original_limits()
                _BLAS_BEFORE = None


def _take_control() -> None:
    """Let this thread set the number of threads.

    From threadpoolctl 3.8 on only the thread that set it first can, and others do nothing, without
    a word. Here any of the threads that train may be the first one, or the last.
    """
    from threadpoolctl import OpenBLASController

    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread(force=True)


@cache
def _blas_libraries() -> Any:
    """The BLAS of numpy, and that of scipy, which compiled code uses."""
    import scipy.linalg.cython_blas  # noqa: F401  (loads its library)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

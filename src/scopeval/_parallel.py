"""Threads that share independent work, and torch on one thread."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TypeVar

__all__ = ["fan_out", "fan_out_rows", "one_torch_thread"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def fan_out(
    work: Callable[[Item], Result], items: Iterable[Item], *, threads: int | None = None
) -> list[Result]:
    """Return ``[work(item) for item in items]``, computed by several threads.

    Threads help where `work` releases the GIL, as the compiled kernels, BLAS and torch do. The
    results are in the order of the items, so they do not depend on the number of threads.

    Args:
        work: must not depend on the other items.
        items: one call each.
        threads: at most this many (default: all cores).
    """
    every = list(items)
    workers = min(threads or os.cpu_count() or 1, len(every))
    if workers <= 1:  # a pool would only cost time
        return [work(item) for item in every]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, every))


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
    workers = max(1, min(threads or os.cpu_count() or 1, blocks // least))
    edges = [min(block * (blocks * k // workers), rows) for k in range(workers + 1)]
    return fan_out(lambda span: work(*span), itertools.pairwise(edges), threads=workers)


_LOCK = Lock()
#: How many callers are inside `one_torch_thread`, and the setting to restore after the last one.
_INSIDE, _BEFORE = 0, 0


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

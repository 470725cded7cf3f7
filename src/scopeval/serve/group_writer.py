"""One thread writes for all plants: calls that wait together share one transaction.

A transaction takes as long as the disk needs to confirm it, whatever is in it. A call is answered
when its transaction is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from scopeval.campaign.campaign import Campaign

__all__ = ["GroupWriter", "OverloadedError"]

Answer = TypeVar("Answer")
log = logging.getLogger("scopeval.serve")

#: Most calls in one transaction, so that the first of them does not wait long.
LARGEST_GROUP = 256


class OverloadedError(Exception):
    """Too many calls wait already."""


@dataclass
class _Call:
    """A call that waits, and where its answer goes."""

    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    answer: Any = None
    error: BaseException | None = None


class GroupWriter:
    """Runs calls one after the other in a thread of its own, many in one transaction.

    Args:
        campaign: whose calls they are.
        waiting: most calls that wait; more are refused.
        failed: called in the thread when a transaction was not committed.
    """

    def __init__(self, campaign: Campaign, waiting: int, failed: Callable[[], None]) -> None:
        self._campaign, self._failed = campaign, failed
        self._queue: queue.Queue[_Call | None] = queue.Queue(waiting)
        self._thread = threading.Thread(target=self._run, name="scopeval-writer", daemon=True)
        self.groups = 0
        self.calls = 0

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what waits, then end."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    async def do(self, work: Callable[[], Answer]) -> Answer:
        """Run a call; what it has written is on disk when this returns.

        Raises:
            OverloadedError: too many calls wait.
        """
        loop = asyncio.get_running_loop()
        call = _Call(work, loop, loop.create_future())
        try:
            self._queue.put_nowait(call)
        except queue.Full as full:
            raise OverloadedError from full
        answer: Answer = await call.future
        return answer

    # -- in the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            group, last = self._next_group()
            if group:
                self._write(group)
                self.groups += 1
                self.calls += len(group)
                for loop in {call.loop for call in group}:
                    _answer(loop, [call for call in group if call.loop is loop])
            if last:
                return

    def _next_group(self) -> tuple[list[_Call], bool]:
        """Everything that waits now; and whether it is the last."""
        first = self._queue.get()
        group: list[_Call] = []
        while first is not None:
            group.append(first)
            if len(group) >= LARGEST_GROUP:
                return group, False
            try:
                first = self._queue.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _write(self, group: list[_Call]) -> None:
        try:
            with self._campaign.group():
                for call in group:
                    try:
                        call.answer = call.work()
                    except Exception as error:  # of this call only; its part was taken back
                        call.error = error
        except Exception as error:  # of the transaction: nothing of the group was recorded
            log.error("a transaction of %d calls was not committed: %s", len(group), error)
            self._failed()
            for call in group:
                call.error = call.error or error


def _answer(loop: asyncio.AbstractEventLoop, group: list[_Call]) -> None:
    def tell() -> None:
        for call in group:
            if call.future.done():  # the client has gone
                continue
            if call.error is not None:
                call.future.set_exception(call.error)
            else:
                call.future.set_result(call.answer)

    if not loop.is_closed():
        loop.call_soon_threadsafe(tell)

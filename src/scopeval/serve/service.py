"""The campaign's verbs as a service calls them: by numbers and words, safe to repeat.

One thread writes for all plants: calls that wait together share one transaction, which takes as
long as the disk needs to confirm it, whatever is in it. A call is answered when it is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa

from scopeval.campaign.episode import Episode
from scopeval.campaign.local import LocalBackend
from scopeval.campaign.store import PLANTS
from scopeval.campaign.terms import command_of
from scopeval.errors import CampaignError, InputError, NotFoundError, ScopevalError
from scopeval.serve.auth import AuditEntry, AuditLog, Token
from scopeval.serve.models import ActBody, EndBody, Limits, LoseBody, ObserveBody, StartBody

__all__ = [
    "CampaignService",
    "OverloadedError",
    "RefusedError",
    "WriteQueue",
    "problem_of",
]

Answer = TypeVar("Answer")
log = logging.getLogger("scopeval.serve")

#: Most calls in one transaction, so that the first of them does not wait long.
LARGEST_GROUP = 256


class RefusedError(ScopevalError):
    """What the service itself refuses, whatever the campaign would say.

    Args:
        text: why.
        status: of the answer.
        code: for programs.
    """

    def __init__(self, text: str, status: int, code: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


class OverloadedError(Exception):
    """Too many calls wait already, or a call has waited too long."""


@dataclass
class _Call:
    """A call that waits, and where its answer goes."""

    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    answer: Any = None
    error: BaseException | None = None


class WriteQueue:
    """Runs calls one after the other in a thread of its own, many in one transaction.

    Args:
        backend: whose calls they are.
        limits: how many calls may wait, and for how long.
        failed: called in the thread when a transaction was not committed.
    """

    def __init__(self, backend: LocalBackend, limits: Limits, failed: Callable[[], None]) -> None:
        self._backend, self._failed, self._limits = backend, failed, limits
        self._queue: queue.Queue[_Call | None] = queue.Queue(limits.waiting)
        self._thread = threading.Thread(target=self._run, name="scopeval-writer", daemon=True)
        self.groups = self.calls = self.failures = 0

    @property
    def waiting(self) -> int:
        """Calls that wait now, about."""
        return self._queue.qsize()

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
            OverloadedError: too many calls wait, or this one has waited too long: it may still be
                carried out, and can be repeated.
        """
        loop = asyncio.get_running_loop()
        call = _Call(work, loop, loop.create_future())
        try:
            self._queue.put_nowait(call)
        except queue.Full as full:
            raise OverloadedError("too many calls wait for the database") from full
        late = loop.call_later(self._limits.answer_seconds, self._give_up, call)
        try:
            answer: Answer = await call.future
        finally:
            late.cancel()
        return answer

    def _give_up(self, call: _Call) -> None:
        if not call.future.done():
            seconds = self._limits.answer_seconds
            call.future.set_exception(
                OverloadedError(
                    f"the database did not confirm this call within {seconds:g} seconds; it may "
                    "still be recorded"
                )
            )

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
            with self._backend.group():
                for call in group:
                    try:
                        call.answer = call.work()
                    except Exception as error:  # of this call only; its part was taken back
                        call.error = error
        except Exception as error:  # of the transaction: nothing of the group was recorded
            log.error("a transaction of %d calls was not committed: %s", len(group), error)
            self.failures += 1
            self._failed()
            for call in group:
                call.error = call.error or error


def _answer(loop: asyncio.AbstractEventLoop, group: list[_Call]) -> None:
    def resolve() -> None:
        for call in group:
            if call.future.done():  # the client has gone, or was answered
                continue
            if call.error is not None:
                call.future.set_exception(call.error)
            else:
                call.future.set_result(call.answer)

    if not loop.is_closed():
        loop.call_soon_threadsafe(resolve)


class CampaignService:
    """Everything that writes. It runs in the thread of the `WriteQueue`.

    Running episodes are kept at hand, as many as may be open. After an error an episode is read
    again from the journal, which is what counts.

    Args:
        backend: of the campaign.
        limits: of the service.
        audit: the audit log.
    """

    def __init__(self, backend: LocalBackend, limits: Limits, audit: AuditLog) -> None:
        self._backend, self._limits, self._audit = backend, limits, audit
        self._running: OrderedDict[int, Episode] = OrderedDict()
        self.decisions = 0

    def forget(self) -> None:
        """Read all episodes again: a transaction was not committed."""
        self._running.clear()

    # -- plants --------------------------------------------------------------------------------

    def start(self, token: Token, body: StartBody) -> dict[str, Any]:
        """Begin an episode; where that is refused, nothing is changed."""
        check_plant(token, body.plant)
        # a word belongs to its token: one plant cannot take another's episode by guessing
        request = f"{token.key}:{body.plant}:{body.request}"
        with self._backend.group():
            before = self._open()
            episode = self._backend.start(
                body.plant,
                resume=body.resume,
                request=request,
                take_over=body.take_over,
                holder=f"{token.key}:{body.controller}",
                who=token.name,
            )
            if self._open() > max(before, self._limits.open_episodes):
                raise RefusedError(
                    f"start: {before} episodes are open, and no more than "
                    f"{self._limits.open_episodes} may be; end() or lose() some",
                    429,
                    "too_many_episodes",
                )
        for number in [n for n, one in self._running.items() if one.plant == body.plant]:
            del self._running[number]  # lost or ended by the start of this one
        self._keep(episode)
        return describe(episode)

    def _open(self) -> int:
        with self._backend.store.read() as connection:
            return len(self._backend.state(connection).open)

    def act(self, token: Token, number: int, body: ActBody) -> dict[str, Any]:
        """Decide a step."""
        return self._with_episode(
            token, number, lambda one: self._act(one, body.step, body.obs, body.incumbent)
        )

    def _act(self, episode: Episode, step: int, obs: Any, incumbent: Any) -> dict[str, Any]:
        try:
            action = episode.act(obs, step=step, incumbent=incumbent)
        except ScopevalError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"obs: the target policy has no answer for it at step {step} "
                f"({type(error).__name__}); nothing was recorded"
            ) from error
        self.decisions += 1
        return {
            "step": step,
            "action": None if action is None else plain(action),
            "by": "plant" if action is None else episode.by,
            "back": episode.back,
        }

    def observe(self, token: Token, number: int, body: ObserveBody) -> dict[str, Any]:
        """Record an outcome."""

        def observe(episode: Episode) -> dict[str, Any]:
            episode.observe(
                body.reward,
                body.cost,
                body.next_obs,
                terminated=body.terminated,
                signals=body.signals,
                step=body.step,
            )
            return {"step": body.step, "over": episode.over}

        return self._with_episode(token, number, observe)

    def advance(self, token: Token, number: int, body: ObserveBody) -> dict[str, Any]:
        """Record an outcome and decide the next step, both or neither."""

        def advance(episode: Episode) -> dict[str, Any]:
            given = (body.reward, body.cost, body.next_obs)
            action = episode.advance(
                *given, terminated=body.terminated, signals=body.signals, step=body.step
            )
            if action is not None:
                self.decisions += 1
            return {
                "step": body.step,
                "over": episode.over,
                "action": None if action is None else plain(action),
                "by": episode.by,
                "back": episode.back,
            }

        return self._with_episode(token, number, advance)

    def end(self, token: Token, number: int, body: EndBody) -> dict[str, Any]:
        """End an episode of so many steps."""

        def end(episode: Episode) -> dict[str, Any]:
            if body.steps != episode.step:
                self._backend.refresh(episode)  # another service may have gone on
            if body.steps != episode.step:
                raise CampaignError(
                    f"end: got {body.steps} steps, episode {number} has {episode.step}; nothing "
                    "was changed",
                    "wrong_step",
                )
            episode.end()
            return describe(episode)

        return self._with_episode(token, number, end)

    def lose(self, token: Token, number: int, body: LoseBody) -> dict[str, Any]:
        """Give an episode up."""

        def lose(episode: Episode) -> dict[str, Any]:
            episode.lose(body.reason)
            return describe(episode)

        return self._with_episode(token, number, lose)

    def heartbeat(self, token: Token, plant: str) -> dict[str, Any]:
        """Note a sign of life of a plant that has run an episode, and answer the state."""
        check_plant(token, plant)
        with self._backend.store.read() as connection:
            there = connection.execute(sa.select(PLANTS).where(PLANTS.c.name == plant)).first()
        if there is None:
            raise InputError(f"plant: {plant!r:.60} has not run an episode; expected start")
        state = self._backend.heartbeat(plant)
        return {"state": state, "control": "plant" if state == "stopped" else "campaign"}

    def open_on(self, token: Token, plant: str) -> dict[str, Any]:
        """The open episode of a plant, as the journal has it."""
        check_plant(token, plant)
        return self.look_up(token, self._backend.resume_episode(plant).number)

    def look_up(self, token: Token, number: int) -> dict[str, Any]:
        """An episode, as the journal has it."""
        self._running.pop(number, None)
        return self._with_episode(token, number, describe)

    # -- operators -----------------------------------------------------------------------------

    def command(self, name: str, entry: AuditEntry, number: int | None = None) -> bool:
        """Carry out what an operator wants, and write it into the audit log, both or neither.

        Args:
            name: of the command.
            entry: for the log.
            number: of the episode, where it is about one.

        Returns:
            False: there was nothing to do.
        """
        command = command_of(name)
        assert entry.request is not None
        if self._audit.has(entry.request) is not None:
            return True  # the answer to the first call was lost
        with self._backend.group():
            done = self._backend.command(command.name, entry.reason, who=entry.who, number=number)
            if number is not None:
                self._running.pop(number, None)
            elif command.name == "stop":
                self._running.clear()  # they are over
            self._audit.add(entry)
        return done

    # -- inside --------------------------------------------------------------------------------

    def _with_episode(
        self, token: Token, number: int, verb: Callable[[Episode], dict[str, Any]]
    ) -> dict[str, Any]:
        episode = self._running.get(number) or self._backend.episode(number)
        if token.role == "plant":
            check_plant(token, episode.plant)
        self._keep(episode)
        episode.who = token.name
        try:
            return verb(episode)
        except BaseException:
            self._running.pop(number, None)
            raise
        finally:
            if episode.state != "open":
                self._running.pop(number, None)

    def _keep(self, episode: Episode) -> None:
        self._running[episode.number] = episode
        self._running.move_to_end(episode.number)
        if len(self._running) > self._limits.open_episodes:
            self._running.popitem(last=False)


#: Fields of an episode that are plain in an answer.
FIELDS = (
    *("number", "plant", "state", "step", "over", "terminated", "by_target", "shadow"),
    *("design", "share", "horizon", "by", "back", "halted"),
)


def describe(episode: Episode) -> dict[str, Any]:
    """An episode as an answer."""
    decided, last = episode.decided, episode.last_obs
    return {
        **{name: getattr(episode, name) for name in FIELDS},
        "signals": list(episode.signals),
        "last_obs": None if last is None else plain(last),
        "decided": None
        if decided is None
        else {"obs": plain(decided.obs), "action": plain(decided.action), "by": decided.by},
    }


def check_plant(token: Token, plant: str) -> None:
    """See that a token is for a plant."""
    if token.plants is not None and plant not in token.plants:
        raise RefusedError("this token is for other plants", 403, "other_plant")


def plain(value: Any) -> Any:
    """A number or a list."""
    return np.asarray(value).tolist()


def problem_of(error: Exception) -> tuple[int, str, str] | None:
    """Status, code and text of an answer; None: not a client error."""
    if isinstance(error, RefusedError):
        return error.status, error.code, str(error)
    if isinstance(error, CampaignError):
        return 409, error.code, str(error)
    if isinstance(error, NotFoundError):
        return 404, "not_found", str(error)
    if isinstance(error, InputError):
        return 422, "invalid", str(error)
    return None

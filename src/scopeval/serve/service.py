"""The campaign's verbs as a service calls them: by numbers and words, safe to repeat.

One thread writes for all plants: calls that wait together share one transaction, which takes as
long as the disk needs to confirm it, whatever is in it. A call is answered when it is on disk. What
only looks (`Viewer`) has a backend of its own, so that plants do not wait for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa
from fastapi import HTTPException
from fastapi.responses import FileResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from starlette.background import BackgroundTask

from scopeval import __version__
from scopeval.campaign.campaign import LocalBackend, open_local
from scopeval.campaign.designs import Policies
from scopeval.campaign.episode import Episode
from scopeval.campaign.refit import PROGRAM, task_of
from scopeval.campaign.state import CampaignState
from scopeval.campaign.store import PLANTS
from scopeval.campaign.terms import command_of
from scopeval.campaign.transfer import bytes_of_episodes, bytes_of_logs
from scopeval.campaign.view import CampaignStatus, Verification
from scopeval.comparison.result import Comparison
from scopeval.errors import CampaignError, DataError, InputError, NotFoundError, ScopevalError
from scopeval.evaluation.result import Evaluation
from scopeval.serve.auth import AuditEntry, AuditLog, Token
from scopeval.serve.models import ActBody, EndBody, Limits, LoseBody, ObserveBody, StartBody

__all__ = [
    "CampaignService",
    "Metrics",
    "OverloadedError",
    "RefusedError",
    "Viewer",
    "WriteQueue",
    "problem_of",
    "write_file",
    "write_task",
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
            token,
            number,
            lambda one: self._act(one, body.step, body.obs, body.incumbent),
            body.controller,
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

        return self._with_episode(token, number, observe, body.controller)

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

        return self._with_episode(token, number, advance, body.controller)

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

        return self._with_episode(token, number, end, body.controller)

    def lose(self, token: Token, number: int, body: LoseBody) -> dict[str, Any]:
        """Give an episode up."""

        def lose(episode: Episode) -> dict[str, Any]:
            episode.lose(body.reason)
            return describe(episode)

        return self._with_episode(token, number, lose, body.controller)

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
        self,
        token: Token,
        number: int,
        verb: Callable[[Episode], dict[str, Any]],
        controller: str | None = None,
    ) -> dict[str, Any]:
        episode = self._running.get(number) or self._backend.episode(number)
        if token.role == "plant":
            check_plant(token, episode.plant)
        self._keep(episode)
        episode.who = token.name
        episode.holder = None if controller is None else f"{token.key}:{controller}"
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


# -- all that looks --------------------------------------------------------------------------------

#: Seconds for which a status is used again; many may look, and each look reads the database.
FRESH = 0.5

#: Seconds that a file waits for the one before it, and that it may take.
WAIT, LONGEST = 60.0, 600.0

#: Steps above which a file is made by a process of its own, which does not hold up plants and whose
#: memory is then given back. One step takes about 25 microseconds, a process 2 seconds to start.
IN_PROCESS = 10_000

#: What writes a file in a process of its own. Episodes, which are many, need little of the package.
_WRITERS = {
    "episodes": ("scopeval.campaign.steps", "write_episodes"),
    "logs": ("scopeval.serve.service", "write_task"),
}

_NAMES = {
    "episodes": "episodes.npz",
    "mixture": "mixture.npz",
    "report": "report.html",
    "logs": "logs.npz",
}


class _File:
    """A file that was made, and is deleted when it was sent to all who wanted it.

    Args:
        about: what it is.
        began: when it was begun.
    """

    def __init__(self, about: tuple[str, str | None], began: float) -> None:
        self.about, self.began, self._users = about, began, 1
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name, _NAMES[about[0]])

    def use(self) -> None:
        """It is wanted once more."""
        self._users += 1

    def leave(self) -> None:
        """It is not needed any more by somebody."""
        self._users -= 1
        if not self._users:
            self._folder.cleanup()


class Viewer:
    """Looks at a campaign. It has a backend of its own, so that plants do not wait for it.

    Args:
        backend: opened for this purpose only.
        clock: seconds.
    """

    def __init__(self, backend: LocalBackend, clock: Callable[[], float] = time.monotonic) -> None:
        self.backend, self._clock = backend, clock
        self._lock = threading.Lock()
        self._status: tuple[float, CampaignStatus] | None = None
        self._result: tuple[int, Evaluation | Comparison] | None = None
        self._heavy, self._waiting = asyncio.Semaphore(1), 0
        self._file: _File | None = None  # kept while others wait, who may want the same
        self._verifying = threading.Lock()

    def status(self, *, fresh: bool = False) -> CampaignStatus:
        """The status; at most `FRESH` seconds old, or of this moment."""
        with self._lock:
            now = self._clock()
            if self._status is None or fresh or now - self._status[0] > FRESH:
                self._status = (now, self.backend.status())
            return self._status[1]

    def expire(self) -> None:
        """Read the status anew when it is next asked for: an operator has just changed it."""
        self._status = None

    def result(self) -> Evaluation | Comparison:
        """The result by all that is finished; computed once for every event.

        Raises:
            CampaignError: no episode is finished.
        """
        status = self.status(fresh=True)
        if not status.finished:
            raise CampaignError(
                "result: no episode is finished, expected at least one", "no_result"
            )
        with self._lock:
            if self._result is not None and self._result[0] == status.last_event:
                return self._result[1]
            if not status.policies:
                self._result = (status.last_event, self.backend.result())
                return self._result[1]
        computed = self.backend.result()  # takes a while, in which others may look
        self._result = (status.last_event, computed)
        return computed

    def result_or_none(self) -> Evaluation | None:
        """The result; None where no episode is finished, or several policies are compared.

        Of these the status has what was found last.
        """
        if self.backend.terms.policies:
            return None
        try:
            outcome = self.result()
        except (CampaignError, InputError):
            return None
        return outcome if isinstance(outcome, Evaluation) else None

    def state(self) -> CampaignState:
        """The state, folded from all events so far."""
        with self.backend.lock, self.backend.store.read() as connection:
            return self.backend.state(connection)

    def verify(self, head: str | None) -> Verification:
        """An audit, one at a time."""
        with self._verifying:
            return self.backend.verify(head)

    async def file(self, kind: str, about: str | None) -> FileResponse:
        """A file as an answer: one is made at a time, and it is sent in pieces from the disk.

        Whoever waits gets the file that another one has asked for, where it was begun after both
        have asked: it holds all that it must.

        Args:
            kind: "episodes", "mixture", "report" or "logs".
            about: the plant, or the title.
        """
        arrived = self._clock()
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT):
                await self._heavy.acquire()
        except TimeoutError as late:
            if self._waiting == 1:
                self._forget_file()
            raise HTTPException(
                503, "other files are made; try again", {"Retry-After": "10"}
            ) from late
        finally:
            self._waiting -= 1
        try:
            file = self._file
            if file is None or file.about != (kind, about) or file.began < arrived:
                self._forget_file()
                file = _File((kind, about), self._clock())
                try:
                    await asyncio.to_thread(self._make, kind, file.path, about)
                except BaseException:
                    file.leave()
                    raise
                self._file = file
            file.use()
            if not self._waiting:
                self._forget_file()
        finally:
            self._heavy.release()
        media = "text/html" if kind == "report" else "application/octet-stream"
        return FileResponse(file.path, media_type=media, background=BackgroundTask(file.leave))

    def _forget_file(self) -> None:
        """Do not keep the last file for those who wait."""
        if self._file is not None:
            self._file.leave()
            self._file = None

    def _make(self, kind: str, path: Path, about: str | None) -> None:
        if kind == "report":
            self.result()  # refused here where there is none
        lines = self.state().lines.values()
        steps = len(lines) * self.backend.terms.horizon
        alone = kind == "report"  # it shows the design, which another process may not have
        alone |= kind == "mixture"  # needs the policies, likewise
        if steps <= IN_PROCESS or alone:
            write_file(self.backend, kind, path, about)
            return
        task = task_of(self.backend.store) | {"kind": kind, "file": str(path), "about": about}
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM.format(*_WRITERS[kind])],
            input=json.dumps(task).encode(),
            capture_output=True,
            timeout=LONGEST,
            check=False,
        )
        if done.returncode:
            lines_said = done.stderr.decode(errors="replace").strip().splitlines()
            raise DataError(f"{kind}: {lines_said[-1] if lines_said else 'no file was made'}")


def write_file(backend: LocalBackend, kind: str, path: Path, about: str | None) -> None:
    """Write one of the files."""
    if kind == "episodes":
        backend.episodes(about).save(path)
    elif kind == "logs":
        path.write_bytes(bytes_of_logs(backend.logs()))
    elif kind == "mixture":
        path.write_bytes(bytes_of_episodes(backend.mixture()))
    else:
        backend.report(path, about or "The campaign")


def write_task(task: dict[str, Any]) -> None:
    """Write a file, in the process that was started for it."""
    backend = open_local(task["where"], Policies(None), check=False, clock=time.time)
    write_file(backend, task["kind"], Path(task["file"]), task["about"])
    backend.store.close()


# -- metrics ---------------------------------------------------------------------------------------


STATES = ("running", "paused", "handed over", "stopped")


class Metrics:
    """Counts calls by route and status, and how long they took."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._calls = Counter(
            "scopeval_http_requests",
            "Calls by route and status.",
            ("route", "status"),
            registry=self._registry,
        )
        self._times = Histogram(
            "scopeval_http_request_duration_seconds",
            "Time from the head of a call to its answer.",
            ("route",),
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count one call."""
        self._calls.labels(route, str(status)).inc()
        self._times.labels(route).observe(seconds)

    def text(
        self, status: CampaignStatus, counts: Mapping[str, int], refused: Mapping[int, int]
    ) -> bytes:
        """All of it.

        Args:
            status: of the campaign.
            counts: what the parts of the service have counted, by the names of COUNTS.
            refused: calls by status.
        """
        metrics = [*_campaign(status), *_service(counts, refused)]
        now: Any = SimpleNamespace(collect=lambda: metrics)
        content: bytes = generate_latest(now) + generate_latest(self._registry)
        return content


def _campaign(status: CampaignStatus) -> Iterator[Metric]:
    """The numbers about the campaign."""
    gauge = GaugeMetricFamily(
        "scopeval_campaign_state", "1 for the state that it is in.", labels=["state"]
    )
    for name in STATES:
        gauge.add_metric([name], int(status.state == name))
    yield gauge
    gauge = GaugeMetricFamily("scopeval_episodes", "Episodes.", labels=["state"])
    numbers = {"open": status.open, "finished": status.finished, "lost": status.lost}
    for name, episodes in (numbers | {"shadow": status.shadowed}).items():
        gauge.add_metric([name], episodes)
    yield gauge
    value = status.interval
    silent = sum(plant.silent for plant in status.plants)
    for name, about, number in (
        ("value", "Estimate of the target policy's value.", value.estimate),
        ("value_low", "Lower end of its interval.", value.low),
        ("value_high", "Upper end of its interval.", value.high),
        ("cost_spent", "Cost of all episodes.", status.spent),
        ("share", "Share of the behavior policy in new episodes.", status.share),
        ("design", "Number of the design of new episodes.", status.design),
        ("last_event", "Number of the last event.", status.last_event),
        ("plants_silent", "Plants that have fallen silent in an episode.", silent),
        ("problems", "Problems that somebody should see to.", len(status.problems)),
        ("refit_failed", "1 where a design that is due could not be computed.",
         int(status.refit_failure is not None)),
        ("unconfirmed", "1 where the design in use is not confirmed.",
         int(status.unconfirmed is not None)),
    ):  # fmt: skip
        yield GaugeMetricFamily(f"scopeval_{name}", about, value=number)
    if status.policies:
        yield from _policies(status)
    gauge = GaugeMetricFamily(
        "scopeval_guard_alarm", "1 for guards that have raised an alarm.", labels=["guard", "rule"]
    )
    for k, guard in enumerate(status.guards):
        gauge.add_metric([str(k), guard.rule], int(guard.alarm is not None))
    yield gauge
    gauge = GaugeMetricFamily(
        "scopeval_plant_seen_timestamp_seconds", "Last sign of life.", labels=["plant"]
    )
    for plant in status.plants:
        gauge.add_metric([plant.name], plant.seen)
    yield gauge


def _policies(status: CampaignStatus) -> Iterator[Metric]:
    """The numbers about several policies, as of the last look."""
    base = status.policies[0].name
    share = GaugeMetricFamily("scopeval_policy_share", "Share of new episodes.", labels=["policy"])
    for one in status.policies:
        share.add_metric([one.name], one.share)
    yield share
    for name, about in (
        ("difference", "Value less that of the baseline."),
        ("low", "Lower end of its anytime-valid interval."),
        ("high", "Upper end of its anytime-valid interval."),
    ):
        title = "difference" if name == "difference" else f"difference_{name}"
        gauge = GaugeMetricFamily(f"scopeval_{title}", about, labels=["policy", "baseline"])
        for one in status.policies[1:]:
            gauge.add_metric([one.name, base], getattr(one, name))
        yield gauge
    yield GaugeMetricFamily(
        "scopeval_looked_episodes", "Finished episodes at the last look.", value=status.looked
    )


#: What the parts of a service count, in all and now.
COUNTS: dict[str, tuple[type[CounterMetricFamily | GaugeMetricFamily], str]] = {
    "decisions": (CounterMetricFamily, "Decisions answered."),
    "transactions": (CounterMetricFamily, "Transactions written."),
    "written_calls": (CounterMetricFamily, "Calls in these transactions."),
    "database_errors": (CounterMetricFamily, "Transactions that were not committed."),
    "webhook_failures": (CounterMetricFamily, "Events that a webhook did not take, given up."),
    "waiting_calls": (GaugeMetricFamily, "Calls that wait."),
    "webhook_waiting": (GaugeMetricFamily, "Events that wait for another try."),
}


def _service(counts: Mapping[str, int], refused: Mapping[int, int]) -> Iterator[Metric]:
    """The numbers about the service."""
    about = GaugeMetricFamily("scopeval_build_info", "The version.", labels=["version"])
    about.add_metric([__version__], 1)
    yield about
    for name, (kind, text) in COUNTS.items():
        yield kind(f"scopeval_{name}", text, value=counts[name])
    family = CounterMetricFamily(
        "scopeval_refused", "Calls with a wrong token, role or rate.", labels=["status"]
    )
    for status, calls in sorted(refused.items()):
        family.add_metric([str(status)], calls)
    yield family

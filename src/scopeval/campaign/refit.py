"""New designs from all that is finished: the stages of a campaign, and the process that makes them.

When enough episodes have finished, a refit is due (an event says so). Whoever computes it reads the
logs and all episodes that had finished by then, designs a behavior policy as `evaluate` would for
its next stage, and writes it with its fingerprint. So a design is a function of the journal up to
that event. Episodes that start afterwards use it; how much their values count is decided when they
start (`stages`), so the estimate stays unbiased.

It is computed in a process of its own, so that no plant waits for one. The task comes by the
standard input, because a URL may hold a password. It names the database, the target policy (a
table, or module:attribute), and the folders from which this process imports: the current folder is
among them only if it is here. A process that fails is told as an event.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
import sqlalchemy as sa

from scopeval.behavior.policy import BehaviorPolicy
from scopeval.campaign.recorder import Recorder
from scopeval.campaign.state import CampaignState, StagePlan, budget_after
from scopeval.campaign.steps import read_episodes
from scopeval.campaign.store import DESIGNS, EVENTS, Event, Store, kept_digests
from scopeval.campaign.transfer import kept_logs
from scopeval.collection.episodes import Episodes
from scopeval.errors import DataError
from scopeval.evaluation.stage_design import StageDesigner
from scopeval.evaluation.stages import Stages, stage_part
from scopeval.logs.transitions import Transitions
from scopeval.policies.adapters import TabularPolicy
from scopeval.question.question import Question

__all__ = ["PROGRAM", "RefitProcess", "confirmed", "main", "refit_now", "task_of"]


@dataclass(frozen=True)
class _Task:
    """What is known when a refit is due.

    Attributes:
        number: of the refit, from 1.
        current: number of the design in use.
        plans: of all stages so far.
        left: episodes of the plan that had not started; None: the plan has no end.
        logs: that the campaign began with; None: none.
        chunks: the episodes that finished before the first refit was due, before the second, and so
            on.
        asked: relative cost that is asked of the next stage.
    """

    number: int
    current: int
    plans: list[StagePlan]
    left: int | None
    logs: Transitions | None
    chunks: list[Episodes]
    asked: float


def refit_now(recorder: Recorder) -> bool:
    """Compute the design that is due, and use it from now on; False: none is due.

    It takes as long as a design does; no lock is held meanwhile.
    """
    store, settings = recorder.store, recorder.terms.refit
    with recorder.lock, store.read() as connection:
        state = recorder.state(connection)
        if settings is None or state.refits_due <= state.refits_done:
            return False
        task = _read_task(recorder, connection, state, settings)
    made, behavior = _designed(recorder, settings, task)
    with recorder.writing() as (connection, state):
        if state.refits_done >= task.number:
            return False  # another process was faster
        number = task.current
        text = f"refit {task.number}: design {number} stays in use, {made.plan.why}"
        if made.plan.new:
            number = 1 + int(
                connection.execute(sa.select(sa.func.max(DESIGNS.c.number))).scalar_one()
            )
            why, now = made.plan.why, recorder.clock()
            mark = recorder.kept.keep(connection, number, behavior, now, why)
            text = f"refit {task.number}: design {number}, {made.plan.why}"
        data: dict[str, Any] = {"refit": task.number, "design": number, "plan": made.to_json()}
        data["confirmed"] = confirmed(
            recorder.kept.behavior(number), baseline=recorder.terms.baseline
        )
        if made.plan.new:
            data["designs"] = {str(number): mark}
            data["kept"] = kept_digests(connection, number)
        recorder.happen(connection, Event("design", text, data=data))
    return True


def confirmed(behavior: object, *, baseline: bool) -> bool:
    """Whether what runs is a design that its checks have confirmed, or what was asked for.

    A design that has fallen back is the target policy. So is None, which nobody has confirmed where
    something else runs today.
    """
    if isinstance(behavior, BehaviorPolicy):
        return not behavior.falls_back
    return behavior is not None or not baseline


def _read_task(
    recorder: Recorder, connection: sa.Connection, state: CampaignState, settings: Stages
) -> _Task:
    terms, number = recorder.terms, state.refits_done + 1
    due = state.due[:number]
    moment, started = due[-1]
    rows = connection.execute(
        sa.select(EVENTS.c.episode, EVENTS.c.number).where(
            EVENTS.c.kind == "ended", EVENTS.c.number < moment
        )
    )
    marks = [event for event, _ in due]
    chunk_of = {row.episode: bisect_left(marks, row.number) for row in rows}
    finished = read_episodes(connection, terms.horizon)
    where = np.array([chunk_of.get(int(k), -1) for k in finished.index], np.int64)
    counts = Counter(
        state.allotment.of(int(k)).stage for k in finished.index[(where >= 0) & (where < number)]
    )
    plans = state.plans[:number]
    budget = budget_after(terms, plans, [counts[k] for k in range(number)])
    planned = terms.stop.episodes
    return _Task(
        number=number,
        current=state.design,
        plans=plans,
        left=None if planned is None else planned - started,
        logs=_read_logs(connection, terms.horizon, moment),
        chunks=[finished.select(np.flatnonzero(where == k)) for k in range(number)],
        asked=budget.asked,
    )


def _designed(recorder: Recorder, settings: Stages, task: _Task) -> tuple[StagePlan, Any]:
    """What `evaluate` would run in its next stage, and its behavior policy."""
    terms = recorder.terms
    designer = StageDesigner(
        Question(recorder.target, terms.horizon, terms.gamma),
        terms.promise,
        settings,
        None,
        task.logs,
        terms.seed,
    )
    plans = [one.plan for one in task.plans]
    last = replace(plans[-1], behavior=recorder.kept.behavior(task.current))
    designer.resume([*plans[:-1], last], task.plans[-1].stopped)
    for chunk, after in zip(task.chunks[:-1], itertools.islice(task.plans, 1, None), strict=True):
        for one in after.agreements:
            if not one.agrees:
                designer.forget(one.what)
        if len(chunk):
            designer.add(chunk)
    disagreements, new = [], task.chunks[-1]
    if len(new):
        part = stage_part(settings, terms.stop.episodes, task.number)
        level = settings.significance * part
        disagreements = designer.learn(new, task.number, level)
    plan = designer.next(task.left, task.asked)
    warnings = (*plan.warnings, *(one.sentence for one in disagreements if not one.agrees))
    plan = replace(plan, warnings=warnings, seconds=round(plan.seconds, 3))
    return StagePlan(plan, tuple(disagreements), designer.stopped), plan.behavior


def _read_logs(connection: sa.Connection, horizon: int, before: int) -> Transitions | None:
    """What the campaign began with, and what was seen of today's controller before an event."""
    first = kept_logs(connection)
    logs = [] if first is None else [first]
    rows = connection.execute(
        sa.select(EVENTS.c.episode).where(EVENTS.c.kind == "ended", EVENTS.c.number < before)
    )
    over = {row.episode for row in rows}
    shadow = read_episodes(connection, horizon, shadow=True)
    shadow = shadow.select(np.flatnonzero([int(k) in over for k in shadow.index]))
    if len(shadow):
        columns: dict[str, Any] = shadow.transitions()
        logs.append(Transitions(**columns))
    return Transitions.concat(logs) if logs else None


#: A process for one task, which comes by the standard input; it runs a function of a module.
#: Nothing of scopeval is imported before the folders are those of the task.
PROGRAM = (
    "import json, sys; task = json.loads(sys.stdin.read()); sys.path[:] = task['path']; "
    "from {} import {} as run; sys.exit(run(task))"
)


def task_of(store: Store) -> dict[str, Any]:
    """What such a process must know: the database, and from where this one imports."""
    where, here = store.where, os.getcwd()
    return {
        "where": where if "://" in where else os.path.abspath(where),
        "path": [os.path.join(here, entry) for entry in sys.path],
        "folder": here,
    }


#: What computes a design there.
REFIT = ("scopeval.campaign.campaign", "refit_task")

#: Bytes at the end of what a failed process wrote that are read, and characters that are told.
READ, LONGEST = 4096, 300

#: Failures in a row after which it is started by an operator only.
MOST_FAILURES = 10

#: Processes that outlive the campaign object that started them.
_outliving: list[subprocess.Popen[bytes]] = []


class RefitProcess:
    """Starts the process when a design is due, one at a time.

    A process that fails is told as an event "refit failed", with its exit code and the last line of
    what it wrote. After the k-th failure in a row `start` does nothing for 2^k calls. It is called
    after every episode, so that n episodes start at most 1 + log2(n) processes that fail, and never
    more than MOST_FAILURES: then an operator must ask for one.

    Args:
        recorder: of the campaign; only a target that is a table can be sent to another process,
        name: or "module:attribute", from which that process imports it.
    """

    def __init__(self, recorder: Recorder, name: str | None) -> None:
        self._recorder, self._target, self._name = recorder, recorder.target, name
        self._running: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None  # what it writes to its standard error
        self._failures = self._waiting = 0

    @property
    def able(self) -> bool:
        """Whether the target policy can be had in another process."""
        return self._name is not None or isinstance(self._target, TabularPolicy)

    def start(self, *, now: bool = False) -> None:
        """Start the process, unless it runs, or has failed lately and it is not asked for now."""
        if not self.able or (self._running is not None and self._running.poll() is None):
            return
        self._look()
        if self._failures >= MOST_FAILURES and not now:
            return
        if self._waiting and not now:
            self._waiting -= 1
            return
        self._waiting = 0
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it was read)
        self._running = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM.format(*REFIT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            cwd=os.path.abspath(os.sep),
            start_new_session=True,  # Ctrl-C is for the plants' process
        )
        assert self._running.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._running.stdin as pipe:
            pipe.write(json.dumps(self._task()).encode())

    def _task(self) -> dict[str, Any]:
        task = task_of(self._recorder.store) | {"name": self._name}
        if self._name is None and isinstance(self._target, TabularPolicy):
            table = self._target.table(self._target.horizon or 1)
            task["table"] = (table if self._target.horizon else table[0]).tolist()
        return task

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the process has ended."""
        if self._running is not None:
            self._running.wait(seconds)
            self._look()

    def leave(self) -> None:
        """Let the process end by itself."""
        if self._running is None:
            return
        if self._running.poll() is None:
            _outliving.append(self._running)
            if self._said is not None:
                self._said.close()  # the process has its own; nobody reads it any more
        else:
            self._look()

    def _look(self) -> None:
        """See how the process has ended, and tell a failure."""
        if self._running is None or self._said is None:
            return
        code, said = self._running.returncode, self._said
        self._running = self._said = None
        with said:
            if code == 0:
                self._failures = 0
                return
            said.seek(max(0, said.seek(0, os.SEEK_END) - READ))
            lines = said.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")
        self._failures += 1
        self._waiting = 2**self._failures
        with contextlib.suppress(DataError):  # an episode does not fail because of this
            self._tell(code, last[:LONGEST])

    def _tell(self, code: int, last: str) -> None:
        recorder = self._recorder
        ended = f"exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                ended = f"ended by {signal.Signals(-code).name}"
        with recorder.writing() as (connection, state):
            number = state.refits_done + 1
            text = f"refit {number} failed ({ended}: {last}); design {state.design} stays in use"
            data = {"refit": number, "code": code, "failures": self._failures}
            recorder.happen(connection, Event("refit failed", text, data=data))


def main(task: dict[str, Any], open_recorder: Callable[[str, Any], Recorder]) -> int:
    """Compute what is due.

    Args:
        task: what `RefitProcess` has sent.
        open_recorder: opens a campaign with a target.
    """
    target: Any = task.get("table")
    if target is None:
        with contextlib.suppress(OSError):
            os.chdir(task["folder"])  # for files that the target's module reads
        module, _, attribute = task["name"].partition(":")
        target = importlib.import_module(module)
        for name in attribute.split("."):
            target = getattr(target, name)
    recorder = open_recorder(task["where"], target)
    try:
        refit_now(recorder)
        return 0
    finally:
        recorder.store.close()

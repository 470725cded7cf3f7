"""New designs from all that is finished: the stages of a campaign.

When enough episodes have finished, a refit is due (an event says so). Whoever computes it reads the
logs and all episodes that had finished by then, designs a behavior policy as `evaluate` would for
its next stage, and writes it with its fingerprint. So a design is a function of the journal up to
that event. Episodes that start afterwards use it; how much their values count is decided when they
start (`allotment`), so the estimate stays unbiased.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval.campaign import schema
from scopeval.campaign.journal import Event
from scopeval.campaign.log_bytes import bytes_of_logs, logs_of_bytes
from scopeval.campaign.recorder import Recorder
from scopeval.campaign.rows import read_episodes
from scopeval.campaign.stage_plans import StagePlan, budget_after
from scopeval.campaign.state import CampaignState
from scopeval.collection.episodes import Episodes
from scopeval.data.transitions import Transitions
from scopeval.evaluation import source_choice
from scopeval.evaluation.refitting import Refitting
from scopeval.evaluation.stage_design import StageDesigner, agreement_level

__all__ = ["keep_logs", "refit_now"]


def keep_logs(connection: sa.Connection, logs: Transitions) -> None:
    """Keep the logs that a campaign begins with, for later designs."""
    row = {"name": "first", "content": bytes_of_logs(logs)}
    connection.execute(schema.logs.insert(), row)


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
    journal, settings = recorder.journal, recorder.terms.refit
    with recorder.lock, journal.read() as connection:
        state = recorder.state(connection)
        if settings is None or state.refits_due <= state.refits_done:
            return False
        task = _read_task(recorder, connection, state, settings)
    made, behavior = _designed(recorder, settings, task)
    with recorder.lock, recorder.undoing(), journal.write() as connection:
        journal.order(connection)
        if recorder.state(connection).refits_done >= task.number:
            return False  # another process was faster
        number = task.current
        text = f"refit {task.number}: design {number} stays in use, {made.plan.why}"
        if made.plan.new:
            table = schema.designs
            number = 1 + int(
                connection.execute(sa.select(sa.func.max(table.c.number))).scalar_one()
            )
            recorder.designs.keep(connection, number, behavior, recorder.clock(), made.plan.why)
            text = f"refit {task.number}: design {number}, {made.plan.why}"
        data = {"refit": task.number, "design": number, "plan": made.to_json()}
        recorder.happen(connection, Event("design", text, data=data))
    return True


def _read_task(
    recorder: Recorder, connection: sa.Connection, state: CampaignState, settings: Refitting
) -> _Task:
    terms, number = recorder.terms, state.refits_done + 1
    due = state.due[:number]
    events = schema.events
    rows = connection.execute(
        sa.select(events.c.episode, events.c.number).where(
            events.c.kind == "ended", events.c.number < due[-1].event
        )
    )
    marks = [one.event for one in due]
    chunk_of = {row.episode: bisect_left(marks, row.number) for row in rows}
    own = read_episodes(connection, terms.horizon)
    where = np.array([chunk_of.get(int(k), -1) for k in own.index], np.int64)
    counts = Counter(
        state.allotment.of(int(k)).stage for k in own.index[(where >= 0) & (where < number)]
    )
    plans = state.plans[:number]
    budget = budget_after(terms, plans, [counts[k] for k in range(number)])
    planned = terms.plan.episodes
    return _Task(
        number=number,
        current=state.design,
        plans=plans,
        left=None if planned is None else planned - due[-1].started,
        logs=_read_logs(connection),
        chunks=[own.select(np.flatnonzero(where == k)) for k in range(number)],
        asked=budget.asked,
    )


def _designed(recorder: Recorder, settings: Refitting, task: _Task) -> tuple[StagePlan, Any]:
    """What `evaluate` would run in its next stage, and its behavior policy."""
    terms = recorder.terms
    designer = StageDesigner(
        recorder.target,
        source_choice.Terms(terms.horizon, terms.gamma, terms.epsilon),
        settings,
        None,
        task.logs,
        terms.seed,
    )
    plans = [one.plan for one in task.plans]
    last = replace(plans[-1], behavior=recorder.designs.behavior(task.current))
    designer.resume([*plans[:-1], last], task.plans[-1].stopped)
    for chunk, after in zip(task.chunks[:-1], itertools.islice(task.plans, 1, None), strict=True):
        for one in after.agreements:
            if not one.agrees:
                designer.forget(one.what)
        if len(chunk):
            designer.add(chunk)
    found, new = [], task.chunks[-1]
    if len(new):
        level = agreement_level(settings, terms.plan.episodes)
        found = designer.learn(new, task.number, level)
    plan = designer.next(task.left, task.asked)
    told = (*plan.warnings, *(one.sentence for one in found if not one.agrees))
    plan = replace(plan, warnings=told, seconds=round(plan.seconds, 3))
    return StagePlan(plan, tuple(found), designer.stopped), plan.behavior


def _read_logs(connection: sa.Connection) -> Transitions | None:
    content = connection.execute(sa.select(schema.logs.c.content)).scalar()
    return None if content is None else logs_of_bytes(content)

"""New designs from all that is finished: the stages of a campaign.

When enough episodes have finished, a refit is due (an event says so). Whoever computes it reads the
logs and all finished episodes, designs a behavior policy, and writes it with its fingerprint.
Episodes that start afterwards use it. Designs depend on past episodes only, and all episodes count
alike, so the estimate stays unbiased.
"""

from __future__ import annotations

import io
import time
from dataclasses import replace
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval.campaign import schema
from scopeval.campaign.journal import Event
from scopeval.campaign.recorder import Recorder
from scopeval.campaign.rows import read_episodes
from scopeval.campaign.terms import Terms
from scopeval.data.transitions import Transitions
from scopeval.errors import ScopevalError
from scopeval.evaluation import source_choice
from scopeval.evaluation.agreement import compare
from scopeval.evaluation.refitting import Refitting
from scopeval.evaluation.stage_design import Plan, StageDesigner

__all__ = ["keep_logs", "refit_now"]

_COLUMNS = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated")


def keep_logs(connection: sa.Connection, logs: Transitions) -> None:
    """Keep the logs that a campaign begins with, for later designs."""
    buffer = io.BytesIO()
    columns: dict[str, Any] = {name: getattr(logs, name) for name in _COLUMNS}
    np.savez_compressed(buffer, **columns)
    connection.execute(schema.logs.insert(), {"name": "first", "content": buffer.getvalue()})


def refit_now(recorder: Recorder) -> bool:
    """Compute the design that is due, and use it from now on; False: none is due.

    It takes as long as a design does; no lock is held meanwhile.
    """
    journal, terms = recorder.journal, recorder.terms
    with journal.read() as connection:
        state = recorder.state(connection)
        due, done, current = state.refits_due, state.refits_done, state.design
        if terms.refit is None or due <= done:
            return False
        logs = _read_logs(connection)
        own = read_episodes(connection, terms.horizon)
        left = None if terms.plan.episodes is None else terms.plan.episodes - state.started
    began = time.perf_counter()
    warnings: list[str] = []
    seen = StageDesigner.rows_of(own)
    if logs is not None and not _agree(logs, seen, terms.refit, terms.seed + due):
        warnings.append("the logs do not agree with the episodes of this campaign and are not used")
        logs = None
    rows = seen if logs is None else Transitions.concat([logs, seen])
    try:
        plan = _designed(recorder, terms, terms.refit, rows, left)
        warnings += plan.warnings
    except ScopevalError as error:
        plan = None
        warnings.append(str(error))
    seconds = round(time.perf_counter() - began, 3)
    about = {"refit": due, "seconds": seconds, "rows": len(rows.t), "warnings": warnings}
    with recorder.lock, recorder.undoing(), journal.write() as connection:
        journal.order(connection)
        if recorder.state(connection).refits_done >= due:
            return False  # another process was faster
        number, text = current, f"refit {due}: design {current} stays in use, none could be made"
        if plan is not None:
            table = schema.designs
            number = 1 + int(
                connection.execute(sa.select(sa.func.max(table.c.number))).scalar_one()
            )
            recorder.designs.keep(connection, number, plan.behavior, recorder.clock(), plan.why)
            text = f"refit {due}: design {number}, {plan.why}"
        recorder.happen(connection, Event("design", text, data=about | {"design": number}))
    return True


def _designed(
    recorder: Recorder, terms: Terms, settings: Refitting, rows: Transitions, left: int | None
) -> Plan:
    """What `evaluate` would run in its next stage."""
    designer = StageDesigner(
        recorder.target,
        source_choice.Terms(terms.horizon, terms.gamma, terms.epsilon),
        settings,
        None,
        rows,
        terms.seed,
    )
    plan = designer.next(left, 1.0 + terms.epsilon)
    return replace(plan, why=plan.why.replace("of the logs", "of logs and finished episodes"))


def _agree(logs: Transitions, seen: Transitions, settings: Refitting, seed: int) -> bool:
    found = compare(logs, seen, time_varying=settings.time_varying, seed=seed)
    return found.p_value >= settings.significance


def _read_logs(connection: sa.Connection) -> Transitions | None:
    content = connection.execute(sa.select(schema.logs.c.content)).scalar()
    if content is None:
        return None
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        columns: dict[str, Any] = {name: arrays[name] for name in _COLUMNS}
    return Transitions(**columns)

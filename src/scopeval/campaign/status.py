"""What a campaign tells about itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from scopeval.campaign import schema
from scopeval.campaign.journal import Event
from scopeval.campaign.state import CampaignState
from scopeval.estimation.running_moments import Interval
from scopeval.evaluation.result import no_interval

__all__ = ["CampaignStatus", "GuardStatus", "PlantStatus", "any_silent", "plants_of", "status_of"]


@dataclass(frozen=True)
class PlantStatus:
    """A plant.

    Attributes:
        name: of the plant.
        seen: its last sign of life, seconds since 1970.
        silent: an episode runs there and nothing was heard for too long.
        episode: number of the running one; None: none runs.
        step: steps of it that are recorded.
        finished: episodes that it has finished, and
        lost: lost.
    """

    name: str
    seen: float
    silent: bool
    episode: int | None
    step: int
    finished: int
    lost: int


@dataclass(frozen=True)
class GuardStatus:
    """A guard.

    Attributes:
        signal: what it watches.
        rule: in words.
        action: what it does.
        alarm: what it has told last; None: nothing.
        low: lower bound of E[D] where it tests a promise; above 0 the promise is refuted.
        estimate: of E[D] likewise.
    """

    signal: str
    rule: str
    action: str
    alarm: str | None
    low: float | None = None
    estimate: float | None = None


@dataclass(frozen=True)
class CampaignStatus:
    """The state of a campaign.

    Attributes:
        state: "running", "paused", "handed over" or "stopped".
        reason: why, where it is not running.
        done: why the plan starts no more episodes; None: it does.
        started, finished, lost, open: numbers of episodes.
        shadowed: finished episodes that an incumbent ran; and
        live: whether new ones are run by the campaign.
        spent: cost of all episodes, running ones included.
        interval: anytime-valid, of the value.
        design: number of the design that new episodes use.
        refit_due: a new design is due and not there yet.
        stage: of the ramp, from 0.
        share: of the behavior policy in new episodes.
        guards: what is watched.
        plants: every one that has started an episode.
        last_event: number of the last event.
    """

    state: str
    reason: str | None
    done: str | None
    started: int
    finished: int
    lost: int
    open: int
    shadowed: int
    live: bool
    spent: float
    interval: Interval
    design: int
    refit_due: bool
    stage: int
    share: float
    guards: tuple[GuardStatus, ...]
    plants: tuple[PlantStatus, ...]
    last_event: int

    @property
    def word(self) -> str:
        """The state; "complete" where nothing runs and the plan starts no more episodes."""
        over = self.state == "running" and self.done is not None and not self.open
        return "complete" if over else self.state

    def values(self) -> dict[str, float]:
        """The numbers by name, for a `Tracker`; what is not finite is left out."""
        found = {
            "estimate": self.interval.estimate,
            "low": self.interval.low,
            "high": self.interval.high,
            "cost": self.spent,
            "running": float(self.open),
            "lost": float(self.lost),
            "share": self.share,
        }
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, but for numbers that are not finite."""
        return asdict(self)

    def __str__(self) -> str:
        found = self.interval
        lines = [
            self.word + (f": {self.reason}" if self.reason else ""),
            f"{self.finished:,} episodes finished, {self.open} running, {self.lost} lost; "
            f"{self.spent:.4g} spent",
        ]
        if self.done:
            lines.insert(1, self.done)
        if found.n and not math.isfinite(found.half_width):
            lines.append(f"value about {found.estimate:.4g}, with {no_interval(found)}")
        elif found.n:
            lines.append(
                f"value {found.estimate:.4g}, between {found.low:.4g} and {found.high:.4g} "
                f"with {100 * (1 - found.alpha):.4g}% confidence at all times"
            )
        for plant in self.plants:
            where = "idle" if plant.episode is None else f"episode {plant.episode}, {plant.step}"
            where += "" if plant.episode is None else " steps"
            silent = ", silent" if plant.silent else ""
            lines.append(f"{plant.name}: {where}{silent}, {plant.finished} finished")
        return "\n".join(lines)


def status_of(connection: sa.Connection, state: CampaignState, now: float) -> CampaignStatus:
    """The status now."""
    table = schema.episodes
    running = connection.execute(
        sa.select(sa.func.sum(table.c.spent)).where(table.c.state == "open")
    ).scalar()
    return CampaignStatus(
        state=state.word,
        reason=state.reason,
        done=state.done(),
        started=state.started,
        finished=state.finished,
        lost=state.lost,
        open=len(state.open),
        shadowed=state.shadowed,
        live=state.live,
        spent=state.spent + float(running or 0.0),
        interval=state.interval,
        design=state.design,
        refit_due=state.refits_due > state.refits_done,
        stage=state.stage,
        share=state.share,
        guards=tuple(_guards(state)),
        plants=tuple(plants_of(connection, now, state.terms.silent_after)),
        last_event=state.cursor,
    )


def _guards(state: CampaignState) -> list[GuardStatus]:
    told: Mapping[int, Event] = {int(a.data["guard"]): a for a in state.alarms}
    found = []
    for number, guard in enumerate(state.terms.guards):
        alarm = told.get(number)
        watch = state.watch(number)
        interval = None if watch is None or not watch.state.episodes else watch.state.interval
        found.append(
            GuardStatus(
                guard.signal,
                guard.rule(state.terms.epsilon),
                guard.action,
                None if alarm is None else alarm.text,
                None if interval is None else interval.low,
                None if interval is None else interval.estimate,
            )
        )
    return found


def plants_of(connection: sa.Connection, now: float, patience: float) -> list[PlantStatus]:
    """All plants; the last sign of life is a call of any kind."""
    table, plants = schema.episodes, schema.plants
    counts: dict[str, dict[str, int]] = {}
    states = sa.select(table.c.plant, table.c.state, sa.func.count())
    for name, state, n in connection.execute(states.group_by(table.c.plant, table.c.state)):
        counts.setdefault(name, {})[state] = int(n)
    last = sa.select(sa.func.max(table.c.number)).group_by(table.c.plant).scalar_subquery()
    latest = {row.plant: row for row in connection.execute(_signs(table.c.number.in_(last)))}
    found = []
    for name, seen in connection.execute(sa.select(plants).order_by(plants.c.name)).all():
        episode, step, row = None, 0, latest.get(name)
        if row is not None:
            times = (row.decided, row.observed, row.ended)
            seen = max(seen, *(x for x in times if x is not None), seen)
            if row.ended is None:
                episode, step = row.number, row.length
        silent = episode is not None and now - seen > patience
        own = counts.get(name, {})
        lost = own.get("lost", 0) + own.get("dropped", 0)
        found.append(PlantStatus(name, seen, silent, episode, step, own.get("finished", 0), lost))
    return found


def _signs(chosen: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Signs of life in some episodes."""
    table, steps = schema.episodes, schema.steps
    shown = (table.c.plant, table.c.number, table.c.length, table.c.ended)
    return (
        sa.select(
            *shown,
            sa.func.max(steps.c.decided).label("decided"),
            sa.func.max(steps.c.observed).label("observed"),
        )
        .select_from(table.outerjoin(steps, steps.c.episode == table.c.number))
        .where(chosen)
        .group_by(*shown)
    )


def any_silent(connection: sa.Connection, now: float, patience: float) -> bool:
    """Whether an episode runs of whose plant nothing was heard for too long.

    It reads the running episodes only.
    """
    plants = schema.plants
    running = connection.execute(_signs(schema.episodes.c.state == "open")).all()
    if not running:
        return False
    names = [row.plant for row in running]
    known = sa.select(plants).where(plants.c.name.in_(names))
    seen = {row.name: row.seen for row in connection.execute(known)}
    return any(
        now - max(seen.get(row.plant, 0.0), row.decided or 0.0, row.observed or 0.0) > patience
        for row in running
    )

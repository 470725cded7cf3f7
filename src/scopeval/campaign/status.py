"""What a campaign tells about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from scopeval.campaign import schema
from scopeval.campaign.journal import Event
from scopeval.campaign.state import CampaignState
from scopeval.estimation.running_moments import Interval

__all__ = ["CampaignStatus", "GuardStatus", "PlantStatus", "plants_of", "status_of"]


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

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, but for numbers that are not finite."""
        return asdict(self)

    def __str__(self) -> str:
        found = self.interval
        lines = [
            f"{self.state}" + (f": {self.reason}" if self.reason else ""),
            f"{self.finished:,} episodes finished, {self.open} running, {self.lost} lost; "
            f"{self.spent:.4g} spent",
        ]
        if self.done:
            lines.insert(1, self.done)
        if found.n:
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
    table, steps, plants = schema.episodes, schema.steps, schema.plants
    found = []
    for name, seen in connection.execute(sa.select(plants).order_by(plants.c.name)).all():
        states = connection.execute(
            sa.select(table.c.state, sa.func.count())
            .where(table.c.plant == name)
            .group_by(table.c.state)
        )
        counts: dict[str, int] = {state: int(n) for state, n in states}
        last = connection.execute(
            sa.select(table.c.number, table.c.length, table.c.ended)
            .where(table.c.plant == name)
            .order_by(table.c.number.desc())
            .limit(1)
        ).one_or_none()
        episode, step = None, 0
        if last is not None:
            times = connection.execute(
                sa.select(sa.func.max(steps.c.decided), sa.func.max(steps.c.observed)).where(
                    steps.c.episode == last.number
                )
            ).one()
            seen = max(seen, *(x for x in (*times, last.ended) if x is not None), seen)
            if last.ended is None:
                episode, step = last.number, last.length
        silent = episode is not None and now - seen > patience
        lost = counts.get("lost", 0) + counts.get("dropped", 0)
        found.append(
            PlantStatus(name, seen, silent, episode, step, counts.get("finished", 0), lost)
        )
    return found

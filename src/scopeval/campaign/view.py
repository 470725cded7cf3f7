"""One view of a campaign: what its status, its card, its report and its page say.

Renderers only arrange what stands here: the state in one word, the problems, a sentence about the
value, and what every plant does.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval.campaign.designs import BASELINE, DesignRecord
from scopeval.campaign.state import CampaignState, EpisodeLine, PolicyStatus
from scopeval.campaign.store import (
    DESIGNS,
    EPISODES,
    PLANTS,
    STEPS,
    Event,
)
from scopeval.campaign.terms import Terms, rule_of
from scopeval.estimation.moments import Interval, confidence
from scopeval.evaluation.result import no_interval, rounded
from scopeval.notebook.card import Card
from scopeval.notebook.sketch import Span, sketch_spans
from scopeval.report import Section, Table
from scopeval.report.evaluation_figures import Run, Trace
from scopeval.report.wording import amount

__all__ = [
    "QUIET",
    "CampaignStatus",
    "GuardStatus",
    "PlantStatus",
    "ShadowReport",
    "Verification",
    "any_silent",
    "campaign_section",
    "card_of",
    "columns_of",
    "cut_short",
    "moment",
    "plants_of",
    "reading",
    "short_episodes",
    "status_of",
    "sureness",
    "trace_of",
]

#: Kinds of events that happen with every episode; lists of events leave them out.
QUIET = ("started", "ended")
#: Most events that a report lists, the last ones.
LISTED = 50


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
        obs: JSON, what was observed last in the running episode; None: nothing.
        action: JSON, what was decided last there, and
        by: by whom.
    """

    name: str
    seen: float
    silent: bool
    episode: int | None
    step: int
    finished: int
    lost: int
    obs: str | None = None
    action: str | None = None
    by: str | None = None

    @property
    def doing(self) -> str:
        """What it does, in words."""
        if self.episode is None:
            return "idle"
        running = f"episode {self.episode:,}, {self.step:,} step{'' if self.step == 1 else 's'}"
        return running if self.by not in ("baseline", "incumbent") else f"{running} by the baseline"


@dataclass(frozen=True)
class GuardStatus:
    """A guard.

    Attributes:
        signal: what it watches.
        rule: in words.
        action: what it does.
        alarm: the first that it has raised; None: none.
        alarms: how many it has raised.
        low: lower bound of E[D] where it tests a promise; above 0 the promise is refuted.
        estimate: of E[D] likewise.
    """

    signal: str
    rule: str
    action: str
    alarm: str | None
    alarms: int = 0
    low: float | None = None
    estimate: float | None = None


@dataclass(frozen=True)
class CampaignStatus:
    """The state of a campaign.

    Attributes:
        state: "running", "paused", "handed over" or "stopped".
        reason: why, where it is not running.
        done: why no more episodes are started for good, by the plan or a stop; None: they are.
        started, finished, lost, open: numbers of episodes.
        shadowed: finished episodes that what runs today has decided; and
        live: whether new ones are run by the campaign.
        spent: cost of all episodes, running ones included.
        interval: of the value: anytime-valid, until a fixed number of episodes is over.
        design: number of the design that new episodes use.
        refit_due: a new design is due and not there yet.
        stage: of the ramp, from 0.
        share: of the behavior policy in new episodes.
        guards: what is watched.
        plants: every one that has started an episode.
        last_event: number of the last event.
        refit_failure: why the new design that is due is not there; None: nothing has failed.
        unconfirmed: what runs because the design in use is not confirmed; None: it is, or a policy
            was given.
        head: hash of the last event; whoever keeps it notices if older events are changed.
        cut: lost episodes that a stop has cut.
        policies: that are compared, the baseline first; (): there is one target policy.
        answer: to which of them is better, as of the last look, after
        looked: so many finished episodes.
        safety: verdict and sentence of the certificate likewise; (): there is none.
        runs: what new episodes run and why, in words; "": an older service does not say it.
        rescued: finished episodes whose rest the baseline has decided.
        short: finished episodes of fewer steps than the horizon that did not terminate.
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
    refit_failure: str | None = None
    unconfirmed: str | None = None
    head: str = ""
    cut: int = 0
    policies: tuple[PolicyStatus, ...] = ()
    answer: str = ""
    looked: int = 0
    safety: tuple[str, ...] = ()
    runs: str = ""
    rescued: int = 0
    short: int = 0

    @property
    def word(self) -> str:
        """The state; "complete" where nothing runs and the plan starts no more episodes."""
        over = self.state == "running" and self.done is not None and not self.open
        return "complete" if over else self.state

    @property
    def explained(self) -> str:
        """Why it is in this state, and what runs: the first line of everything that is shown."""
        over = self.word in ("complete", "stopped")
        said = (self.reason, self.done, "" if over else self.runs)
        return "; ".join(dict.fromkeys(text for text in said if text))

    @property
    def headline(self) -> str:
        """The state, why it is in it, and what runs."""
        return f"{self.word}: {self.explained}" if self.explained else self.word

    @property
    def problems(self) -> tuple[str, ...]:
        """What somebody should see to, the worst first."""
        problems = [] if self.state in ("running", "paused") else [f"{self.state}: {self.reason}"]
        problems += [f"{p.name} is silent ({p.doing})" for p in self.plants if p.silent]
        raised = (guard.alarm for guard in self.guards if guard.alarm is not None)
        problems += [alarm for alarm in raised if alarm != self.reason]
        problems += [self.refit_failure] if self.refit_failure else []
        failed = (policy for policy in self.policies if policy.verdict == "failed")
        problems += [f"{policy.name} has failed: {policy.reason}" for policy in failed]
        problems += [f"paused: {self.reason}"] if self.state == "paused" else []
        return tuple(problems)

    @property
    def value(self) -> str:
        """The value, or which policy is better, in words; "" where no episode is finished."""
        if self.policies:
            late = f" (looked at after {self.looked:,} episodes)" if self.answer else ""
            return self.answer + (late if self.looked < self.finished else "")
        interval = self.interval
        if not interval.n:
            return ""
        if not math.isfinite(interval.half_width):
            return f"value about {interval.estimate:.4g}, with {no_interval(interval)}"
        value, low, high = rounded(
            interval.half_width, interval.estimate, interval.low, interval.high
        )
        return f"value {value}, between {low} and {high} with {sureness(interval)}"

    def values(self) -> dict[str, float]:
        """The numbers by name, for a `Tracker`; what is not finite is left out."""
        values = {
            "estimate": self.interval.estimate,
            "low": self.interval.low,
            "high": self.interval.high,
            "cost": self.spent,
            "running": float(self.open),
            "lost": float(self.lost),
            "share": self.share,
        }
        for policy in self.policies[1:]:
            ends = {"": policy.difference, "_low": policy.low, "_high": policy.high}
            values |= {f"difference{end}/{policy.name}": x for end, x in ends.items()}
        return {name: value for name, value in values.items() if math.isfinite(value)}

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, but for numbers that are not finite."""
        return asdict(self) | {"word": self.word, "problems": list(self.problems)}

    def __str__(self) -> str:
        lines = [self.headline]
        today = f", {self.shadowed:,} by what runs today" if self.shadowed else ""
        cut = f" ({self.cut} cut by the stop)" if self.cut else ""
        lines.append(
            f"{self.finished:,} episodes finished, {self.open} running, {self.lost} lost{cut}"
            f"{today}; {self.spent:.4g} spent"
        )
        lines += [self.value] if self.value else []
        alarms = sum(guard.alarms for guard in self.guards)
        rescued = f", {_many(self.rescued, 'episode')} handed over to the baseline"
        if alarms or self.rescued:
            lines.append(_many(alarms, "alarm") + (rescued if self.rescued else ""))
        lines += [cut_short(self.short, self.finished)] if self.short else []
        for policy in self.policies:
            about = f", {policy.between}" if policy.between else ""
            why = f"; {policy.reason}" if policy.reason else ""
            lines.append(f"{policy.name}: {policy.verdict}{about}, share {policy.share:.3g}{why}")
        lines += [self.refit_failure] if self.refit_failure else []
        for plant in self.plants:
            silent = ", silent" if plant.silent else ""
            lines.append(f"{plant.name}: {plant.doing}{silent}, {plant.finished} finished")
        return "\n".join(lines)


def _many(count: int, word: str) -> str:
    """So many of something."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def cut_short(short: int, finished: int) -> str:
    """That episodes have ended too early, in words."""
    return (
        f"{short:,} of {_many(finished, 'finished episode')} ended before the horizon without "
        "termination: their values are of fewer steps; expected all steps of the horizon, or "
        "observe(..., terminated=True) at the last one"
    )


def short_episodes(connection: sa.Connection, horizon: int) -> int:
    """Finished episodes of fewer steps than the horizon that did not terminate."""
    chosen = sa.select(sa.func.count()).where(
        EPISODES.c.state == "finished",
        EPISODES.c.shadow.is_(False),
        EPISODES.c.terminated.is_(False),
        EPISODES.c.length < horizon,
    )
    return int(connection.execute(chosen).scalar() or 0)


@dataclass(frozen=True)
class Verification:
    """What an audit found.

    Attributes:
        decisions: that were drawn again.
        different: how many of them are not as the journal says.
        holes: steps that are missing in the middle of an episode, and episodes and events that are
            missing among others.
        first: the first differences, in words.
        altered: episodes whose numbers do not follow from their steps, and terms and designs that
            are not those of the events.
        events: that were checked.
        broken: events whose hash does not fit, and a head that is not in the chain.
        head: number and hash of the last event: keep it for the next audit.
    """

    decisions: int
    different: int
    holes: int
    first: tuple[str, ...]
    altered: int = 0
    events: int = 0
    broken: int = 0
    head: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing is different and nothing is missing."""
        return not (self.different or self.holes or self.altered or self.broken)

    def __str__(self) -> str:
        lines = [
            f"{self.decisions:,} decisions drawn again, {self.different:,} different",
            f"{self.events:,} events checked, {self.broken:,} changed; {self.holes:,} missing rows",
            f"{self.altered:,} numbers, terms or designs changed",
            *self.first,
            f"head {self.head}",
            "good" if self.good else "NOT GOOD",
        ]
        return "\n".join(lines)


# -- shadow ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShadowReport:
    """Episodes in which what runs today has decided.

    Attributes:
        decisions: how many.
        distance: mean share of decisions that the behavior policy changes against the target
            policy (total variation).
        agreement: mean probability of the incumbent's action under the behavior policy; None:
            continuous actions.
        target_agreement: the same under the target policy.
        fallbacks: decisions in which the behavior policy fell back, by reason.
        earned: what an episode of today's controller returns, with an anytime-valid interval; None:
            none is finished.
        paid: the cost of one, likewise.
    """

    decisions: int
    distance: float | None
    agreement: float | None
    target_agreement: float | None
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    earned: Interval | None = None
    paid: Interval | None = None


def sureness(interval: Interval) -> str:
    """How sure the interval of a value is, in words."""
    sure = f"{confidence(interval.alpha)} confidence"
    if interval.method == "asymptotic sequence":
        return f"{sure} at all times, as far as seen"
    return f"{sure} ({interval.method} interval of the planned episodes)"


def status_of(connection: sa.Connection, state: CampaignState, now: float) -> CampaignStatus:
    """The status now."""
    running = connection.execute(
        sa.select(sa.func.sum(EPISODES.c.spent)).where(EPISODES.c.state == "open")
    ).scalar()
    return CampaignStatus(
        state=state.word,
        reason=state.reason,
        done=state.reason if state.stopped else state.done(),
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
        refit_failure=state.refit_failure,
        unconfirmed=state.unconfirmed,
        head=state.head,
        cut=state.cut,
        policies=tuple(policies_of(state)),
        answer=state.looks[-1].sentence if state.looks else "",
        looked=state.looks[-1].episodes if state.looks else 0,
        safety=(state.looks[-1].safety or ()) if state.looks else (),
        runs=runs_of(connection, state),
        rescued=state.rescued,
        short=short_episodes(connection, state.terms.horizon),
    )


def runs_of(connection: sa.Connection, state: CampaignState) -> str:
    """What episodes run that start now, and why."""
    terms = state.terms
    if state.unconfirmed is not None:
        return state.unconfirmed
    if not state.live:
        return "what runs today goes on (shadow), until an operator says go-live"
    if state.handed_over:
        return "the baseline runs" if terms.baseline else "the target policy itself runs"
    if terms.policies:
        shares = zip(terms.policies, state.next_shares(), strict=False)
        parts = ", ".join(f"{name} {share:.3g}" for name, share in shares)
        return f"a mixture of the policies runs ({parts})"
    chosen = sa.select(DESIGNS.c.kind, DESIGNS.c.about).where(DESIGNS.c.number == state.design)
    kind, about = connection.execute(chosen).one()
    share = "" if state.share == 1.0 else f", in {state.share:g} of the decisions"
    if kind == "target":
        return "the target policy itself runs, for there is no other behavior policy"
    if kind != "design":
        return f"the behavior policy that was given runs{share}"
    method = json.loads(about).get("method", kind)
    return f"design {state.design} ({method}) runs{share}, which its logs confirm"


def policies_of(state: CampaignState) -> list[PolicyStatus]:
    """Several policies, the baseline first, as of the last look."""
    names, base = state.terms.policies, state.terms.reference
    if not names:
        return []
    look = state.looks[-1] if state.looks else None
    shares, policies = state.next_shares(), []
    for k in (base, *(k for k in range(len(names)) if k != base)):
        now = PolicyStatus(names[k], shares[k], "baseline" if k == base else "undecided")
        if look is not None:
            now = replace(look.policies[k], share=shares[k])
        after = state.decided_after.get(k)
        if after is not None:  # intervals hold at all times together: it stays clear
            ends = next(one.differences[k] for one in state.looks if one.episodes == after)
            word = "better" if ends.low > 0 else "worse"
            now = replace(now, verdict=word, more_episodes=None, decided_after=after)
            now = replace(now, difference=ends.estimate, low=ends.low, high=ends.high)
        if k in state.dropped:
            why = f"another policy is surely better, after {state.dropped[k]:,} episodes"
            now = replace(now, reason=why)
        if k in state.failed and k not in state.dropped:
            now = replace(now, reason=state.failed[k])
        policies.append(replace(now, verdict="failed") if k in state.failed else now)
    return policies


def _guards(state: CampaignState) -> list[GuardStatus]:
    raised: dict[int, list[Event]] = {}
    for alarm in state.alarms:
        raised.setdefault(int(alarm.data["guard"]), []).append(alarm)
    guards = []
    for number, guard in enumerate(state.terms.guards):
        alarms, watch = raised.get(number, []), state.watch(number)
        interval = None if watch is None or not watch.state.episodes else watch.state.interval
        guards.append(
            GuardStatus(
                guard.signal,
                rule_of(guard, state.terms.reference_words),
                guard.action,
                alarms[0].text if alarms else None,
                len(alarms),
                None if interval is None else interval.low,
                None if interval is None else interval.estimate,
            )
        )
    return guards


# -- plants ----------------------------------------------------------------------------------------


def plants_of(connection: sa.Connection, now: float, patience: float) -> list[PlantStatus]:
    """All plants; the last sign of life is a call of any kind, and is never in the future."""
    counts: dict[str, dict[str, int]] = {}
    states = sa.select(EPISODES.c.plant, EPISODES.c.state, sa.func.count())
    for name, state, n in connection.execute(states.group_by(EPISODES.c.plant, EPISODES.c.state)):
        counts.setdefault(name, {})[state] = int(n)
    last = sa.select(sa.func.max(EPISODES.c.number)).group_by(EPISODES.c.plant).scalar_subquery()
    latest = {row.plant: row for row in connection.execute(_signs(EPISODES.c.number.in_(last)))}
    decisions = _last_decisions(connection)
    statuses = []
    names = sa.select(PLANTS.c.name, PLANTS.c.seen).order_by(PLANTS.c.name)
    for name, seen in connection.execute(names).all():
        episode, step, row = None, 0, latest.get(name)
        times = [seen]
        if row is not None:
            times += [x for x in (row.decided, row.observed, row.ended) if x is not None]
            if row.ended is None:
                episode, step = row.number, row.length
        past = _past(times, now, patience)
        silent = episode is not None and now - past > patience
        by_state = counts.get(name, {})
        lost = by_state.get("lost", 0) + by_state.get("dropped", 0)
        decision = decisions.get(episode) if episode is not None else None
        obs, action, by = (None, None, None) if decision is None else decision
        statuses.append(
            PlantStatus(
                name,
                past,
                silent,
                episode,
                step,
                by_state.get("finished", 0),
                lost,
                obs,
                action,
                by,
            )
        )
    return statuses


def _past(times: Sequence[float], now: float, patience: float) -> float:
    """The last of some moments, at most now; those of a clock that was far ahead are left out.

    A plant that was heard by a clock three days ahead would else look alive for three days. Clocks
    of two machines may differ by less than `patience`.
    """
    return min(max((x for x in times if x <= now + patience), default=0.0), now)


def _last_decisions(connection: sa.Connection) -> dict[int, tuple[str, str, str]]:
    """Of every running episode what was observed and decided last, and by whom."""
    last = (
        sa.select(STEPS.c.episode, sa.func.max(STEPS.c.step).label("step"))
        .join(EPISODES, EPISODES.c.number == STEPS.c.episode)
        .where(EPISODES.c.state == "open")
        .group_by(STEPS.c.episode)
        .subquery()
    )
    chosen = sa.select(
        *(STEPS.c.episode, STEPS.c.obs, STEPS.c.next_obs, STEPS.c.action, STEPS.c.chooser)
    ).join(last, sa.and_(last.c.episode == STEPS.c.episode, last.c.step == STEPS.c.step))
    return {
        row.episode: (row.next_obs or row.obs, row.action, row.chooser)
        for row in connection.execute(chosen)
    }


def _signs(chosen: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Signs of life in some episodes."""
    shown = (EPISODES.c.plant, EPISODES.c.number, EPISODES.c.length, EPISODES.c.ended)
    return (
        sa.select(
            *shown,
            sa.func.max(STEPS.c.decided).label("decided"),
            sa.func.max(STEPS.c.observed).label("observed"),
        )
        .select_from(EPISODES.outerjoin(STEPS, STEPS.c.episode == EPISODES.c.number))
        .where(chosen)
        .group_by(*shown)
    )


def any_silent(connection: sa.Connection, now: float, patience: float) -> bool:
    """Whether an episode runs of whose plant nothing was heard for too long.

    It reads the running episodes only.
    """
    running = connection.execute(_signs(EPISODES.c.state == "open")).all()
    if not running:
        return False
    names = [row.plant for row in running]
    kept = sa.select(PLANTS).where(PLANTS.c.name.in_(names))
    seen = {row.name: row.seen for row in connection.execute(kept)}
    moments = ([seen.get(r.plant, 0.0), r.decided or 0.0, r.observed or 0.0] for r in running)
    return any(now - _past(times, now, patience) > patience for times in moments)


# -- episodes --------------------------------------------------------------------------------------


def trace_of(state: CampaignState) -> Trace | None:
    """The numbers of finished episodes in the order in which they ended; None: there are none."""
    lines = [state.lines[number] for number in state.ended]
    if not lines:
        return None
    nan = math.nan
    return Trace(
        value=np.array([line.value for line in lines], np.float64),
        weight=np.array([line.weight for line in lines], np.float64),
        spent=np.array([line.spent for line in lines], np.float64),
        excess=np.array([nan if line.excess is None else line.excess for line in lines]),
        stages=_runs(state),
    )


def _runs(state: CampaignState) -> tuple[Run, ...]:
    """Finished episodes in a row of equal stage and weight; (): there are no stages."""
    if state.terms.refit is None:
        return ()
    segments = (state.allotment.of(number) for number in state.ended)
    grouped = itertools.groupby((one.stage, one.weight) for one in segments)
    return tuple(Run(stage, sum(1 for _ in some), weight) for (stage, weight), some in grouped)


def columns_of(lines: Mapping[int, EpisodeLine]) -> dict[str, list[Any]]:
    """The episodes as columns of a table."""
    names = ("plant", "state", "started", "ended", "value", "weight", "spent")

    def column(name: str) -> list[Any]:
        values = (getattr(line, name) for line in lines.values())
        return [math.nan if value is None else value for value in values]

    return {"episode": list(lines)} | {name: column(name) for name in names}


# -- renderers -------------------------------------------------------------------------------------


def card_of(status: CampaignStatus, terms: Terms) -> Card:
    """The campaign as the card of a notebook."""
    interval = status.interval
    goal = "" if terms.stop.episodes is None else f" of {terms.stop.episodes:,}"
    text = f"{status.finished:,}{goal} episodes are finished"
    text += f", at a cost of {amount(status.spent)}" if status.spent else ""
    text += f"; {status.value.removesuffix('.')}." if status.value else "."
    rows = tuple(
        (p.name, p.doing + (", silent" if p.silent else ""), f"{p.finished:,}", f"{p.lost:,}")
        for p in status.plants
    )
    spans = [Span("value", interval.low, interval.estimate, interval.high)]
    if status.policies:
        base = status.policies[0].name
        compared = [one for one in status.policies[1:] if one.between]
        spans = [Span(f"{p.name} less {base}", p.low, p.difference, p.high) for p in compared]
    notes = tuple(f"{g.rule}: {g.alarm}" for g in status.guards if g.alarm is not None)
    return Card(
        f"Campaign: {status.headline}",
        text,
        rows,
        ("plant", "now", "finished", "lost") if rows else (),
        sketch_spans(spans) if interval.n > 1 and spans else "",
        notes,
    )


def campaign_section(
    status: CampaignStatus, designs: Sequence[DesignRecord], events: Sequence[Event]
) -> Section:
    """What a report says about plants, guards, designs and events; times are UTC.

    Args:
        status: of the campaign.
        designs: all of them.
        events: those that are not QUIET.
    """
    text = [f"The campaign is {status.headline}."]
    text.append(
        f"The journal ends with event {status.last_event:,}, whose hash is {status.head}: keep it, "
        "and scopeval campaign verify --head says whether anything before it was changed."
    )
    if len(events) > LISTED:
        text.append(f"The last {LISTED} of {len(events):,} events are listed.")
    plants = tuple(
        (p.name, moment(p.seen), f"{p.finished:,}", f"{p.lost:,}") for p in status.plants
    )
    listed = tuple((moment(e.time), e.kind, e.who or "", e.text) for e in events[-LISTED:])
    guards = tuple((g.rule, g.action, g.alarm or "nothing") for g in status.guards)
    return Section(
        "The campaign",
        tuple(text),
        tables=(
            Table("Plants", ("plant", "last sign of life", "finished", "lost"), plants),
            Table("Guards", ("what is watched", "action", "first alarm"), guards, words=True),
            _designs(designs),
            Table("Events", ("time", "what", "by", "in words"), listed, words=True),
        ),
    )


def _designs(designs: Sequence[DesignRecord]) -> Table:
    """A row for each design; with fingerprints, if any is known."""
    columns = {
        "number": ["baseline" if d.number == BASELINE else str(d.number) for d in designs],
        "made": [moment(d.made) for d in designs],
        "kind": [d.kind for d in designs],
        "fingerprint": [(d.fingerprint or "\N{EN DASH}")[:12] for d in designs],
        "why": [str(d.about.get("why", "")) for d in designs],
    }
    if not any(d.fingerprint for d in designs):
        del columns["fingerprint"]
    rows = tuple(zip(*columns.values(), strict=True))
    return Table("Designs", tuple(columns), rows, words=True)


def moment(seconds: float) -> str:
    """A moment in UTC."""
    when = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return when.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")


def reading(text: str | None) -> str:
    """An observation or an action, short enough for a table."""
    if text is None:
        return ""
    value = json.loads(text)
    if isinstance(value, list):
        shown = ", ".join(f"{x:.4g}" for x in value[:4])
        return f"{shown}, ..." if len(value) > 4 else shown
    return f"{value:.6g}"

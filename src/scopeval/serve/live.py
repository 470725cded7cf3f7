"""What the live page says: problems first, then figures, plants and events.

The words are those of the one view (`campaign.view`); the templates only arrange them.
"""

from __future__ import annotations

import datetime
import itertools
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from scopeval.campaign.designs import BASELINE, DesignRecord
from scopeval.campaign.state import CampaignState, LookLine, narrowest_at
from scopeval.campaign.store import Event
from scopeval.campaign.terms import COMMANDS, Command, Terms
from scopeval.campaign.view import (
    CampaignStatus,
    GuardStatus,
    PlantStatus,
    moment,
    sureness,
    trace_of,
)
from scopeval.evaluation.result import Evaluation, no_interval, rounded
from scopeval.report.evaluation_figures import Band, Trace, running
from scopeval.report.page import Check, Fact, Figure, Tone, Verdict
from scopeval.report.svg import INK, OURS, OWN, UNSAFE, canvas, figure_of
from scopeval.report.wording import amount, by_itself, verdict_of
from scopeval.serve.service import Viewer

__all__ = [
    "LivePage",
    "LiveView",
    "ago",
    "differences_figure",
    "ended_at",
    "promise_figure",
    "spending_figure",
    "time_figure",
    "value_figure",
    "view_of",
]

#: Most rows of events, and most events that they are made of.
LINES, LISTED = 40, 400
#: Kinds of events that are listed.
KINDS = (
    *("alarm", "silent", "refit failed", "fallback", "lost", "dropped", "stop", "hand over"),
    *("policy failed", "policy dropped", "decided"),
    *("pause", "resume", "live", "stage", "refit", "design", "created", "migrated"),
)
_STATES: dict[str, Tone] = {
    "running": "good",
    "paused": "open",
    "handed over": "bad",
    "stopped": "bad",
}


class EventRow(NamedTuple):
    """One or more equal events on the page: when the last one happened, what, and who or where."""

    moment: float
    kind: str
    text: str
    where: str


@dataclass(frozen=True)
class LiveView:
    """Everything on the page but the figures.

    Attributes:
        state: the badge.
        reason: why it is in that state, and what runs.
        problems: what somebody should see to, the worst first.
        commands: that make sense now.
        facts: headline numbers.
        safety: verdict of the certificate.
        safety_text: its sentence.
        guards: what is watched.
        stages: where the ramp and the designs are, and what each stage adds to the estimate.
        plants: all of them, silent ones first.
        events: the last ones.
        kinds: of all events, by which they can be filtered.
        head: number and hash of the last event.
        now: when it was made, seconds since 1970.
    """

    state: Verdict
    reason: str
    problems: tuple[str, ...]
    commands: tuple[Command, ...]
    facts: tuple[Fact, ...]
    safety: Verdict
    safety_text: str
    guards: tuple[Check, ...]
    stages: tuple[Check, ...]
    plants: tuple[PlantStatus, ...]
    events: tuple[EventRow, ...]
    kinds: tuple[str, ...]
    head: str
    now: float


class LivePage:
    """Makes views, and figures when something has finished.

    Args:
        viewer: looks at the campaign.
        clock: seconds since 1970.
        failures: what the service itself has to say, such as webhooks that failed.
    """

    def __init__(
        self,
        viewer: Viewer,
        clock: Callable[[], float],
        failures: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._viewer, self._clock, self._failures = viewer, clock, failures
        self._lock = threading.Lock()
        self._figures: tuple[str, tuple[Figure, ...]] = ("", ())

    def view(self, kind: str = "") -> LiveView:
        """The page now.

        Args:
            kind: of the events that are listed; "": all but those of every episode.
        """
        status, backend = self._viewer.status(), self._viewer.backend
        result = self._viewer.result_or_none() if status.finished else None
        events = backend.events(most=LISTED, kinds=(kind,) if kind else KINDS, last=True)
        view = view_of(
            status, result, events[::-1], backend.designs(), backend.terms, self._clock()
        )
        return replace(view, problems=(*view.problems, *self._failures()))

    def figures(self) -> tuple[str, tuple[Figure, ...]]:
        """The figures, and a key that changes when they do."""
        with self._lock:  # one drawing at a time, however many look
            state, terms = self._viewer.state(), self._viewer.backend.terms
            key = f"n{len(state.ended)}" + (f"d{state.lost}" if state.lost else "")
            key += f"k{len(state.looks)}" if state.looks else ""
            if key == self._figures[0]:
                return self._figures
            trace = trace_of(state)
            if trace is None:
                return "none", ()
            result = self._viewer.result_or_none()
            cost = None if result is None or by_itself(result) else result.on_policy.cost
            target_cost = cost if cost is not None and math.isfinite(cost) else None
            first = value_figure(trace, terms) if not terms.policies else None
            if terms.policies:
                first = differences_figure(state.looks, terms.policies, terms.reference)
            drawn = [
                first,
                spending_figure(trace, target_cost, terms.stop.cost),
                promise_figure(trace, terms),
                time_figure(ended_at(state)),
            ]
            self._figures = (key, tuple(one for one in drawn if one is not None))
            return self._figures


def ended_at(state: CampaignState) -> list[float]:
    """When finished episodes have ended, in seconds since 1970."""
    return [when for n in state.ended if (when := state.lines[n].ended) is not None]


def view_of(
    status: CampaignStatus,
    result: Evaluation | None,
    events: Sequence[Event],
    designs: Sequence[DesignRecord],
    terms: Terms,
    now: float,
) -> LiveView:
    """The page of a moment; the latest of the events is the first."""
    safety, text = _safety(status, result, terms)
    badge = Verdict(_STATES[status.state], status.state.capitalize())
    if status.word == "complete":
        badge = Verdict("plain", "Complete")
    problems = status.problems
    if status.state in ("running", "paused") and problems:
        badge = Verdict("bad", f"{badge.text}, {len(problems)} to see to")
    elif status.unconfirmed and badge.tone == "good":
        badge = Verdict("open", "Not confirmed" if status.live else "Waits for an operator")
    plants = sorted(status.plants, key=lambda plant: (not plant.silent, plant.name))
    return LiveView(
        state=badge,
        reason=status.explained,
        problems=problems,
        commands=_commands(status, terms),
        facts=_facts(status, result, terms),
        safety=safety,
        safety_text=text,
        guards=tuple(_guard(guard) for guard in status.guards),
        stages=(*_policies(status), *_stages(status, designs, terms), *_shares(result)),
        plants=tuple(plants),
        events=_rows(events),
        kinds=KINDS,
        head=f"{status.last_event}:{status.head}",
        now=now,
    )


def _rows(events: Iterable[Event]) -> tuple[EventRow, ...]:
    """The latest first; one that repeats itself is one row, so that it does not hide others."""
    rows = []
    for (kind, _, where), group in itertools.groupby(events, _sameness):
        same = list(group)
        last, first = max(e.time for e in same), min(e.time for e in same)
        repeated = f" ({len(same)} times since {moment(first)})" if len(same) > 1 else ""
        rows.append(EventRow(last, kind, same[0].text + repeated, where))
    return tuple(rows[:LINES])


def _sameness(event: Event) -> tuple[str, object, str]:
    """What is one row: alarms of one limit on one plant, whatever was read, and equal texts."""
    limit = (event.data.get("guard"), event.data.get("limit"))
    about = limit if event.kind == "alarm" and None not in limit else event.text
    return event.kind, about, ", ".join(x for x in (event.plant, event.who) if x)


def _commands(status: CampaignStatus, terms: Terms) -> tuple[Command, ...]:
    if status.state == "stopped":
        return ()
    names = [] if status.live else ["go-live"]
    names.append("resume" if status.state == "paused" else "pause")
    names += [] if status.state == "handed over" else ["hand-over"]
    names += ["refit"] if status.refit_due and status.refit_failure else []
    return tuple(COMMANDS[name] for name in (*names, "stop"))


def _facts(status: CampaignStatus, result: Evaluation | None, terms: Terms) -> tuple[Fact, ...]:
    interval = status.interval
    value, note = "not known yet", "no episode is finished"
    if interval.n:
        value, note = f"{interval.estimate:.4g}", no_interval(interval)
    if interval.n and math.isfinite(interval.half_width):
        value, low, high = rounded(
            interval.half_width, interval.estimate, interval.low, interval.high
        )
        note = f"between {low} and {high} with {sureness(interval)}"
    goal = "" if terms.stop.episodes is None else f"of {terms.stop.episodes:,}; "
    first = [Fact("Value of the policy", value, note)]
    if status.policies:
        first = _compared(status)
    facts = [
        *first,
        Fact(
            "Finished episodes",
            f"{status.finished:,}",
            f"{goal}{status.open:,} running, {status.lost:,} lost",
        ),
        Fact("Cost so far", amount(status.spent), _budget(status, terms)),
    ]
    certificate = None if result is None or by_itself(result) else result.certificate
    if certificate is not None and not math.isnan(certificate.ratio.estimate):
        ratio = certificate.ratio
        ends = f" ({ratio.low:.3f} to {ratio.high:.3f})" if math.isfinite(ratio.high) else ""
        facts.append(
            Fact(
                "Cost of an episode",
                f"{ratio.estimate:.3f}",
                f"times the target policy's{ends}; allowed: {1 + certificate.epsilon:g}",
            )
        )
    return tuple(facts)


#: Most differences among the headline numbers; of more policies they are counted.
MOST_FACTS = 3


def _compared(status: CampaignStatus) -> list[Fact]:
    """The headline of several policies."""
    base, *others = status.policies
    if len(others) > MOST_FACTS:
        counts = Counter(one.verdict for one in others)
        text = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
        return [Fact(f"Against {base.name}", text, f"after {status.looked:,} episodes")]
    facts = []
    for one in others:
        note = one.verdict
        if one.verdict == "undecided" and one.more_episodes is not None:
            note += f"; about {one.more_episodes:,} more episodes would decide it"
        if one.decided_after is not None:
            note += f", clear after {one.decided_after:,} episodes"
        value = one.between or "not known yet"
        facts.append(Fact(f"{one.name} less {base.name}", value, note))
    return facts


def _policies(status: CampaignStatus) -> list[Check]:
    """Several policies, one a line."""
    tones: dict[str, Tone] = {"better": "good", "worse": "bad", "failed": "bad"}
    lines = []
    for one in status.policies:
        text = f"{one.name}: {one.verdict}, share of new episodes {one.share:.3g}"
        text += f"; {one.reason}" if one.reason else ""
        lines.append(Check(tones.get(one.verdict, "plain"), text))
    return lines


def _budget(status: CampaignStatus, terms: Terms) -> str:
    budget = terms.stop.cost
    if budget is None:
        return "no budget was set"
    return f"{status.spent / budget:.0%} of the budget of {amount(budget)}"


def _safety(status: CampaignStatus, result: Evaluation | None, terms: Terms) -> tuple[Verdict, str]:
    if terms.policies and terms.watched is None:
        return Verdict("plain", "Nothing was promised"), "No promise about the cost was made."
    if status.safety:
        kept, text = status.safety
        tone: Tone = "bad" if kept == "refuted" else "good" if kept == "safe" else "open"
        return Verdict(tone, kept.capitalize()), text
    if terms.policies and status.finished:
        return Verdict("plain", "Nothing to certify yet"), "The episodes were not looked at yet."
    if result is None:
        return Verdict("plain", "Nothing to certify yet"), "No episode is finished."
    verdict = verdict_of(result)
    return verdict, " ".join(result.safety_told)


def _guard(guard: GuardStatus) -> Check:
    if guard.alarm is not None:
        return Check("bad", f"{guard.rule}: {guard.alarm} (action: {guard.action})")
    return Check("plain", f"{guard.rule}: no alarm so far (action: {guard.action})")


def _stages(status: CampaignStatus, designs: Sequence[DesignRecord], terms: Terms) -> list[Check]:
    lines = []
    share_of = (
        "new policies' part of their share" if status.policies else "the behavior policy's share"
    )
    if terms.ramp is not None:
        lines.append(
            Check(
                "plain",
                f"stage {status.stage + 1} of {len(terms.ramp.shares)}: {share_of} in new "
                f"episodes is {status.share:g}",
            )
        )
    for design in designs:
        if status.policies and design.number != 0:
            continue  # a line of its own
        if design.number == BASELINE:
            lines.append(Check("plain", f"baseline, what runs today ({design.kind})"))
            continue
        current = design.number == status.design
        method = design.about.get("method", design.kind)
        mark = "" if design.fingerprint is None else f", fingerprint {design.fingerprint[:12]}"
        lines.append(
            Check(
                "good" if current else "plain",
                f"design {design.number} ({method}), {moment(design.made)}{mark}"
                + (": used by new episodes" if current else ""),
            )
        )
    return lines


def _shares(result: Evaluation | None) -> list[Check]:
    """What every stage adds to the estimate."""
    return [
        Check(
            "plain",
            f"stage {stage.number} of the estimate, share {stage.share:.0%}: {stage.sentence}",
        )
        for stage in (result.stages if result is not None else ())
    ]


def ago(seconds: float) -> str:
    """How long ago, in words."""
    for size, name in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name} ago"
    return f"{max(seconds, 0.0):.0f} s ago"


# -- figures ---------------------------------------------------------------------------------------


#: Inches; three stand side by side.
SIZE = (3.7, 2.6)


def value_figure(trace: Trace, terms: Terms) -> Figure:
    """The estimate with its interval as it narrows."""
    goal = narrowest_at(terms)
    if terms.refit is not None:
        goal = max(round(goal / terms.refit.prior_variance), 1)
    band = running(trace.value, terms.alpha, goal, trace.stages)
    with canvas(*SIZE) as (drawing, ax):
        _draw(ax, band, [])
        ax.set_xlabel("finished episodes")
        ax.set_ylabel("value")
        low, high = float(band.low[-1]), float(band.high[-1])
        said = f"{band.mean[-1]:.4g}"
        if np.isfinite(low) and np.isfinite(high):
            value, left, right = rounded((high - low) / 2, float(band.mean[-1]), low, high)
            said = f"{value}, interval from {left} to {right}"
        return figure_of(
            drawing,
            label=f"Line: the estimate against the number of episodes, now {said}.",
            caption="The estimate of the value. Shaded: its interval, which holds at all times "
            "together as far as seen, so that it may be looked at as often as one likes.",
        )


def spending_figure(trace: Trace, target_cost: float | None, budget: float | None) -> Figure:
    """What was spent, beside what the target policy would have cost, and the budget.

    Args:
        trace: of finished episodes.
        target_cost: of an episode of the target policy, estimated; None: not known.
        budget: of the plan; None: there is none.
    """
    n = len(trace.spent)
    at = np.unique(np.linspace(1, n, min(n, 160)).astype(int))
    spent = np.cumsum(trace.spent)[at - 1]
    with canvas(*SIZE) as (drawing, ax):
        ax.plot(at, spent, color=OURS, label="spent")
        if target_cost is not None:
            ax.plot(
                at,
                at * target_cost,
                color=OWN,
                dashes=(4, 1.5),
                label="target policy",
            )
        if budget is not None:
            ax.axhline(budget, color=UNSAFE, lw=1.2, ls=":", label="budget")
        ax.set_xlim(left=0)
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_formatter(lambda x, _: f"{x:,.6g}")
        ax.locator_params(nbins=6)
        ax.set_xlabel("finished episodes")
        ax.set_ylabel("cost")
        ax.legend(
            loc="lower left",
            bbox_to_anchor=(-0.02, 1.0),
            ncols=3,
            borderpad=0.2,
            columnspacing=0.9,
            handlelength=1.3,
            handletextpad=0.4,
            fontsize=9.0,
        )
        beside = (
            ""
            if target_cost is None
            else (f"; as many episodes of the target policy: about {amount(n * target_cost)}")
        )
        of = "" if budget is None else f" of a budget of {amount(budget)}"
        return figure_of(
            drawing,
            label=f"Line: cost so far, {amount(float(spent[-1]))}{of}{beside}.",
            caption="The cost of finished episodes"
            + (
                ""
                if target_cost is None
                else ", beside an estimate of what as many of the target policy cost"
            )
            + ("." if budget is None else ", and the budget of the plan."),
        )


def differences_figure(looks: Sequence[LookLine], names: Sequence[str], base: int) -> Figure | None:
    """What was seen of several policies at each look; None: there were fewer than two."""
    if len(looks) < 2:
        return None
    with canvas(*SIZE) as (drawing, ax):
        for k, name in enumerate(names):
            seen = [(one.episodes, *one.differences[k]) for one in looks if k in one.differences]
            rows = np.array([row for row in seen if np.isfinite(row).all()], np.float64)
            if not len(rows):
                continue
            at, mean, low, high = rows.T
            (line,) = ax.plot(at, mean, label=name)
            ax.fill_between(at, low, high, color=line.get_color(), alpha=0.15, lw=0)
        ax.axhline(0, color=INK, lw=1.2)
        ax.locator_params(nbins=6)
        ax.set_xlabel("finished episodes")
        ax.set_ylabel(f"value less that of {names[base]}")
        ax.legend(fontsize=9.0)
        return figure_of(
            drawing,
            label=f"Lines: values less that of {names[base]} against the number of episodes.",
            caption="The differences to the baseline, with intervals that hold at all times "
            "together as far as seen. One that leaves zero is decided.",
        )


def promise_figure(trace: Trace, terms: Terms) -> Figure | None:
    """The promise about the cost, as the guard sees it; None: there is nothing to see yet."""
    excess = trace.excess[np.isfinite(trace.excess)]
    if len(excess) < 2 or (terms.policies and terms.watched is None):
        return None
    band = running(excess, terms.alpha, max(terms.stop.episodes or 1000, 50))
    with canvas(*SIZE) as (drawing, ax):
        ax.axhline(0, color=INK, lw=1.2)
        _draw(ax, band, [0.0])
        ax.set_xlabel("episodes of the behavior policy")
        ax.set_ylabel("cost less what is allowed")
        return figure_of(
            drawing,
            label=f"Line: mean cost of an episode less what is allowed, now {band.mean[-1]:.3g}; "
            "zero is the limit.",
            caption="Mean cost of an episode less what is allowed, with its interval. All of it "
            "above zero: the promise is refuted. All of it below: it is kept.",
        )


def _draw(ax: Any, band: Band, within: list[float]) -> None:
    """A running mean with its interval; the first episodes, whose bands are wide, may stick out."""
    finite = np.isfinite(band.low)
    ax.fill_between(
        band.at[finite], band.low[finite], band.high[finite], color=OURS, alpha=0.18, lw=0
    )
    ax.plot(band.at, band.mean, color=OURS)
    ax.set_xlim(left=0)
    ax.locator_params(nbins=6)
    start = int(np.searchsorted(band.at, 0.12 * band.at[-1]))
    late = np.concatenate([band.low[start:], band.high[start:], band.mean[start:], within])
    late = late[np.isfinite(late)]
    low, high = float(late.min()), float(late.max())
    pad = 0.06 * (high - low) or 0.5
    ax.set_ylim(low - pad, high + pad)


def time_figure(ended: list[float]) -> Figure | None:
    """Finished episodes against time, in UTC: where the line is flat, nothing has finished."""
    if len(ended) < 2 or ended[-1] <= ended[0]:
        return None
    first, last = min(ended), max(ended)
    units = (("seconds", 1.0), ("minutes", 60.0), ("hours", 3600.0), ("days", 86_400.0))
    unit, size = next((u for u in units[::-1] if last - first >= 2 * u[1]), units[0])
    times = (np.sort(np.array(ended)) - first) / size
    count = np.arange(1, len(times) + 1)
    with canvas(*SIZE) as (drawing, ax):
        ax.step(times, count, where="post", color=OURS)
        ax.set_xlim(left=0)
        ax.set_ylim(bottom=0)
        ax.locator_params(nbins=6)
        began = datetime.datetime.fromtimestamp(first, datetime.UTC).strftime("%Y-%m-%d %H:%M")
        ax.set_xlabel(f"{unit} since {began} UTC")
        ax.set_ylabel("finished episodes")
        return figure_of(
            drawing,
            label=f"Line: finished episodes against time, {len(ended)} in "
            f"{(last - first) / size:.3g} {unit}.",
            caption="Finished episodes against time. Where the line is flat, nothing has finished.",
        )

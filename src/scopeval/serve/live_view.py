"""What the live page says, in words and figures; the templates only arrange it."""

from __future__ import annotations

import datetime
import itertools
import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scopeval.campaign.designs import DesignRecord
from scopeval.campaign.journal import Event
from scopeval.campaign.status import CampaignStatus, GuardStatus, PlantStatus
from scopeval.campaign.terms import Terms
from scopeval.evaluation.result import Evaluation, no_interval, rounded
from scopeval.report.page import Check, Fact, Figure, Tone, Verdict
from scopeval.report.wording import amount, by_itself, confidence, verdict_of
from scopeval.serve.figures import promise_figure, spending_figure, value_figure
from scopeval.serve.history import History
from scopeval.serve.viewer import Viewer

__all__ = ["LivePage", "LiveView", "PlantRow"]

#: Most lines of events.
LINES = 40
_STATES: dict[str, Tone] = {
    "running": "good",
    "paused": "open",
    "handed over": "bad",
    "stopped": "bad",
}


@dataclass(frozen=True)
class PlantRow:
    """A plant on the page."""

    name: str
    seen: str
    silent: bool
    doing: str
    finished: str
    lost: str


@dataclass(frozen=True)
class Line:
    """An event on the page."""

    when: str
    kind: str
    text: str
    where: str


@dataclass(frozen=True)
class LiveView:
    """Everything on the page but the figures.

    Attributes:
        state: the badge.
        reason: why it is not running; "": it is, or there is none.
        commands: verbs that make sense now.
        facts: headline numbers.
        safety: verdict of the certificate.
        safety_text: its sentence.
        guards: what is watched.
        stages: where the ramp and the designs are, and what each stage adds to the estimate.
        plants: all of them.
        events: the last ones.
    """

    state: Verdict
    reason: str
    commands: tuple[str, ...]
    facts: tuple[Fact, ...]
    safety: Verdict
    safety_text: str
    guards: tuple[Check, ...]
    stages: tuple[Check, ...]
    plants: tuple[PlantRow, ...]
    events: tuple[Line, ...]


class LivePage:
    """Makes views, and figures when something has finished.

    Args:
        viewer: looks at the campaign.
        clock: seconds since 1970.
    """

    def __init__(self, viewer: Viewer, clock: Callable[[], float]) -> None:
        self._viewer, self._clock = viewer, clock
        self._lock = threading.Lock()
        self._figures: tuple[str, tuple[Figure, ...]] = ("", ())

    def view(self) -> LiveView:
        """The page now."""
        status = self._viewer.status()
        result = self._viewer.result_or_none() if status.finished else None
        history = self._viewer.update_history()
        designs = self._viewer.campaign.designs()
        return view_of(status, result, history, designs, self._viewer.campaign.terms, self._clock())

    def figures(self) -> tuple[str, tuple[Figure, ...]]:
        """The figures, and a key that changes when they do."""
        with self._lock:  # one drawing at a time, however many look
            history, terms = self._viewer.update_history(), self._viewer.campaign.terms
            trace = history.trace
            if trace is None:
                return "none", ()
            key = f"n{len(trace.value)}"
            if key != self._figures[0]:
                result = self._viewer.result_or_none()
                cost = None if result is None or by_itself(result) else result.on_policy.cost
                known = cost if cost is not None and math.isfinite(cost) else None
                drawn = [
                    value_figure(trace, terms),
                    spending_figure(trace, known, terms.plan.cost_budget),
                    promise_figure(trace, terms),
                ]
                self._figures = (key, tuple(one for one in drawn if one is not None))
            return self._figures


def view_of(
    status: CampaignStatus,
    result: Evaluation | None,
    history: History,
    designs: list[DesignRecord],
    terms: Terms,
    now: float,
) -> LiveView:
    """The page of a moment."""
    safety, text = _safety(result)
    state = Verdict(_STATES[status.state], status.state.capitalize())
    return LiveView(
        state=Verdict("plain", "Complete") if status.word == "complete" else state,
        reason=status.reason or status.done or "",
        commands=_commands(status),
        facts=_facts(status, result, terms),
        safety=safety,
        safety_text=text,
        guards=tuple(_guard(guard) for guard in status.guards),
        stages=(*_stages(status, designs, terms), *_shares(result)),
        plants=tuple(_plant(plant, now) for plant in status.plants),
        events=_lines(history.listed),
    )


def _lines(events: Iterable[Event]) -> tuple[Line, ...]:
    """The latest first; one that repeats itself is one line, so that it does not hide others."""
    found = []
    for (kind, text, where), group in itertools.groupby(
        events, lambda e: (e.kind, e.text, e.who or e.plant or "")
    ):
        times = [e.time for e in group]
        last, first = max(times), min(times)
        repeated = f" ({len(times)} times since {_moment(first)})" if len(times) > 1 else ""
        found.append(Line(_moment(last), kind, text + repeated, where))
    return tuple(found[:LINES])


def _commands(status: CampaignStatus) -> tuple[str, ...]:
    if status.state == "stopped":
        return ()
    first = "resume" if status.state == "paused" else "pause"
    over = status.state == "handed over"
    return (first, "stop") if over else (first, "hand over", "stop")


def _facts(status: CampaignStatus, result: Evaluation | None, terms: Terms) -> tuple[Fact, ...]:
    found = status.interval
    value, note = "not known yet", "no episode is finished"
    if found.n:
        value, note = f"{found.estimate:.4g}", no_interval(found)
    if found.n and math.isfinite(found.half_width):
        value, low, high = rounded(found.half_width, found.estimate, found.low, found.high)
        note = f"between {low} and {high} with {confidence(found.alpha)} confidence at all times"
    goal = "" if terms.plan.episodes is None else f"of {terms.plan.episodes:,}; "
    facts = [
        Fact("Value of the policy", value, note),
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


def _budget(status: CampaignStatus, terms: Terms) -> str:
    budget = terms.plan.cost_budget
    if budget is None:
        return "no budget was set"
    return f"{status.spent / budget:.0%} of the budget of {amount(budget)}"


def _safety(result: Evaluation | None) -> tuple[Verdict, str]:
    if result is None:
        return Verdict("plain", "Nothing to certify yet"), "No episode is finished."
    verdict = verdict_of(result)
    if result.certificate is None or by_itself(result):
        return verdict, ""
    return verdict, result.certificate.sentence


def _guard(guard: GuardStatus) -> Check:
    if guard.alarm is not None:
        return Check("bad", f"{guard.rule}: {guard.alarm} (action: {guard.action})")
    return Check("plain", f"{guard.rule}: no alarm so far (action: {guard.action})")


def _stages(status: CampaignStatus, designs: list[DesignRecord], terms: Terms) -> list[Check]:
    found = []
    if terms.ramp is not None:
        found.append(
            Check(
                "plain",
                f"stage {status.stage + 1} of {len(terms.ramp.shares)}: the behavior policy's "
                f"share in new episodes is {status.share:g}",
            )
        )
    for design in designs:
        current = design.number == status.design
        method = design.about.get("method", design.kind)
        mark = "" if design.fingerprint is None else f", fingerprint {design.fingerprint[:12]}"
        found.append(
            Check(
                "good" if current else "plain",
                f"design {design.number} ({method}), {_moment(design.made)}{mark}"
                + (": used by new episodes" if current else ""),
            )
        )
    return found


def _shares(result: Evaluation | None) -> list[Check]:
    """What every stage adds to the estimate."""
    return [
        Check(
            "plain",
            f"stage {stage.number} of the estimate, share {stage.share:.0%}: {stage.sentence}",
        )
        for stage in (result.stages if result is not None else ())
    ]


def _plant(plant: PlantStatus, now: float) -> PlantRow:
    doing = "idle"
    if plant.episode is not None:
        doing = f"episode {plant.episode:,}, {plant.step:,} steps"
    return PlantRow(
        plant.name, ago(now - plant.seen), plant.silent, doing, f"{plant.finished:,}",
        f"{plant.lost:,}",
    )  # fmt: skip


def ago(seconds: float) -> str:
    """How long ago, in words."""
    for size, name in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name} ago"
    return f"{max(seconds, 0.0):.0f} s ago"


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")

"""The state of a campaign as a function of its events.

Every process that works on a campaign folds the same events in the same order, and so has the same
state: after a restart, and on every plant. Guards decide in the transaction that ends an episode or
records a reading; what they decide is an event too, and is never decided twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from scopeval.campaign.allotment import Allotment
from scopeval.campaign.journal import Event
from scopeval.campaign.running_value import RunningValue, narrowest_at
from scopeval.campaign.stage_plans import StagePlan, expected_of
from scopeval.campaign.terms import COST, Limit, Promise, Terms
from scopeval.estimation.running_moments import Interval
from scopeval.safety.episode_costs import EpisodeCosts
from scopeval.safety.guard import Guard

__all__ = ["CampaignState", "OpenEpisode"]


@dataclass(frozen=True)
class OpenEpisode:
    """An episode that has started and not ended."""

    number: int
    plant: str
    stage: int


class Due(NamedTuple):
    """When a refit became due: number of that event, and episodes that had started by then."""

    event: int
    started: int


@dataclass
class CampaignState:
    """What follows from the events so far.

    Attributes:
        terms: of the campaign.
        cursor: number of the last event that was folded.
        paused: no episodes are started until `resume`.
        handed_over: the target policy decides, for good.
        stopped: no episodes are started, for good.
        handed_over_after: number of episodes that were over by then; None: never.
        reason: of the last of these, in words.
        design: number of the design that new episodes use.
        stage: of the ramp.
        refits_due, refits_done: how many new designs were due, and how many are there.
        due: of every refit, when it became due.
        plans: of the first design and of every one that has arrived.
        allotment: the stage and the weight of every episode.
        refuted_in: stage in which a promise about the cost was refuted, and why; None: never.
        alarms: what the guards have told, in order.
        open: running episodes by number.
        last_episode: number of the last episode that has started; -1: none has.
        started, finished, lost: numbers of episodes; shadow episodes are counted in
        shadowed: finished episodes that an incumbent ran.
        live: new episodes are run by the campaign, and not by an incumbent.
        spent: cost of all episodes that are over.
        totals: sums of the other guarded signals over episodes that are over.
    """

    terms: Terms
    cursor: int = 0
    paused: bool = False
    handed_over: bool = False
    stopped: bool = False
    handed_over_after: int | None = None
    reason: str | None = None
    design: int = 0
    stage: int = 0
    refits_due: int = 0
    refits_done: int = 0
    due: list[Due] = field(default_factory=list)
    plans: list[StagePlan] = field(default_factory=list)
    refuted_in: tuple[int, str] | None = None
    alarms: list[Event] = field(default_factory=list)
    open: dict[int, OpenEpisode] = field(default_factory=dict)
    last_episode: int = -1
    started: int = 0
    finished: int = 0
    lost: int = 0
    shadowed: int = 0
    live: bool = True
    spent: float = 0.0
    totals: dict[str, float] = field(default_factory=dict)
    _in_stage: int = 0
    _guards: list[Guard | None] = field(default_factory=list)
    _fired: set[tuple[int, str, int | None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.live = not self.terms.shadow
        self.allotment = Allotment(self.terms)
        self._value = RunningValue(self.terms)
        self._guards = [
            None
            if isinstance(guard, Limit)
            else Guard(
                epsilon=self.terms.epsilon if guard.epsilon is None else guard.epsilon,
                alpha=guard.alpha,
                bound=self.terms.bound() if guard.signal == COST else None,
                target_n=narrowest_at(self.terms),
            )
            for guard in self.terms.guards
        ]

    # -- reading -------------------------------------------------------------------------------

    @property
    def word(self) -> str:
        """The state in one word or two."""
        if self.stopped:
            return "stopped"
        if self.paused:
            return "paused"
        return "handed over" if self.handed_over else "running"

    @property
    def interval(self) -> Interval:
        """Anytime-valid, of the value."""
        return self._value.interval

    @property
    def share(self) -> float:
        """Of the behavior policy in the decisions of episodes that start now."""
        ramp = self.terms.ramp
        return 1.0 if ramp is None else ramp.shares[self.stage]

    def done(self) -> str | None:
        """Why the plan starts no more episodes; None: it does."""
        plan = self.terms.plan
        if plan.episodes is not None and self.started >= plan.episodes:
            return self._all_started(plan.episodes)
        if plan.precision is not None and self.interval.half_width <= plan.precision:
            return f"stopped when the interval was +- {plan.precision:g} or narrower"
        if plan.cost_budget is not None and self.spent >= plan.cost_budget:
            return f"stopped when the cost budget of {plan.cost_budget:g} was reached"
        return None

    def _all_started(self, planned: int) -> str:
        """How far the episodes are, in words, once all of the plan were started."""
        if self.finished >= planned:
            return f"all {planned:,} episodes are finished"
        if self.finished + self.lost >= planned:
            return f"all {planned:,} episodes are over, {self.lost:,} of them lost"
        return f"all {planned:,} episodes were started"

    # -- folding -------------------------------------------------------------------------------

    def fold(self, event: Event) -> None:
        """Take in the next event."""
        self.cursor = event.number
        if event.kind == "started":
            assert event.episode is not None
            assert event.plant is not None
            stage = int(event.data["stage"])
            self.open[event.episode] = OpenEpisode(event.episode, event.plant, stage)
            self.last_episode = max(self.last_episode, event.episode)
            if not event.data.get("shadow", False):
                weight = event.data.get("value_weight")
                self.allotment.started(event.episode, weight, self.share, self.handed_over)
                self.started += 1
        elif event.kind in ("ended", "lost"):
            self._over(event)
        elif event.kind == "dropped":
            assert event.episode is not None
            self.finished, self.lost = self.finished - 1, self.lost + 1
            self._value.drop(event.episode)
        elif event.kind == "created":
            self._plan(event)
        elif event.kind == "stage":
            self.stage, self._in_stage = int(event.data["stage"]), 0
        elif event.kind == "refit":
            self.refits_due = int(event.data["refit"])
            self.due.append(Due(event.number, int(event.data.get("started", self.started))))
        elif event.kind == "design":
            self.design = int(event.data["design"])
            self.refits_done = int(event.data["refit"])
            self._plan(event)
        elif event.kind == "alarm":
            self._alarmed(event)
        elif event.kind in ("pause", "hand over", "stop"):
            self._act(event.kind, event.text)
        elif event.kind == "live":
            self.live = True
        elif event.kind == "resume":
            self.paused, self.reason = False, None

    def _plan(self, event: Event) -> None:
        """The design that new episodes use."""
        refit = self.terms.refit
        self.plans.append(StagePlan.of_event(event.data, event.text))
        known = refit is not None and "plan" in event.data
        expected = expected_of(self.plans[-1].plan, refit) if refit is not None and known else None
        if event.kind == "created":
            self.allotment.create(expected)
        else:
            self.allotment.design(expected)

    def _alarmed(self, event: Event) -> None:
        self.alarms.append(event)
        number, action = int(event.data["guard"]), str(event.data["action"])
        self._fired.add((number, str(event.data["limit"]), event.episode))
        whole = event.data["limit"] == "promise" and self.terms.guards[number].signal == COST
        if whole and action in ("hand over", "stop") and not self.handed_over:
            self.refuted_in = (self.allotment.stage, event.text)
        self._act(action, event.text)

    def _act(self, action: str, why: str) -> None:
        if action == "pause":
            self.paused = True
        if action in ("hand over", "stop") and not self.handed_over:
            self.handed_over = True
            self.handed_over_after = self.finished + self.lost
        if action == "stop":
            self.stopped = True
        if action != "tell":
            self.reason = why

    def _over(self, event: Event) -> None:
        assert event.episode is not None
        running = self.open.pop(event.episode, None)
        numbers = event.data
        self.spent += float(numbers["spent"])
        for name, (total, *_) in numbers["signals"].items():
            self.totals[name] = self.totals.get(name, 0.0) + float(total)
        if numbers.get("shadow"):
            self.shadowed += event.kind == "ended"
            return
        if event.kind == "lost":
            self.lost += 1
            self._count_lost(numbers)
            return
        self.finished += 1
        if running is not None and running.stage == self.stage:
            self._in_stage += 1
        number = event.episode
        self._value.add(number, self.allotment.of(number), float(numbers["value"]))
        if not numbers["by_target"]:
            for guard, watch in zip(self.terms.guards, self._guards, strict=True):
                if watch is not None:
                    watch.add(_costs(numbers, guard.signal))

    def _count_lost(self, numbers: Mapping[str, Any]) -> None:
        """Guards with totals count what lost episodes cost."""
        for guard, watch in zip(self.terms.guards, self._guards, strict=True):
            if watch is not None and guard.signal == COST:
                watch.update([], [], lost=float(numbers["spent"]))

    # -- deciding, inside the transaction that records what it is about ------------------------

    def refuted(self) -> list[Event]:
        """Alarms of promises that are refuted and were not told yet."""
        found = []
        for number, (guard, watch) in enumerate(zip(self.terms.guards, self._guards, strict=True)):
            if watch is None or (number, "promise", None) in self._fired:
                continue
            state = watch.state
            if state.tripped:
                about = "" if guard.signal == COST else f"{guard.signal}: "
                found.append(_alarm(number, "promise", guard, about + str(state.reason)))
        return found

    def exceeded(
        self,
        episode: int,
        readings: Mapping[str, float],
        sums: Mapping[str, float],
        totals: Mapping[str, float],
    ) -> list[Event]:
        """Alarms of limits that a step exceeds; each is told once, or once for every episode.

        Args:
            episode: its number.
            readings: of the step, by signal.
            sums: of the episode so far.
            totals: of all episodes, running ones included.
        """
        found = []
        for number, guard in enumerate(self.terms.guards):
            if not isinstance(guard, Limit):
                continue
            for name, what, limit, seen in (
                ("step", "a step", guard.step, readings),
                ("episode", "an episode", guard.episode, sums),
                ("total", "all episodes together", guard.total, totals),
            ):
                value = seen.get(guard.signal, 0.0)
                whose = None if name == "total" else episode
                if limit is None or value <= limit or (number, name, whose) in self._fired:
                    continue
                verb = "cost" if guard.signal == COST else f"had {guard.signal}"
                text = f"{what} {verb} {value:.4g}, above the limit of {limit:.4g}"
                found.append(_alarm(number, name, guard, text, whose))
        return found

    def next_stage(self) -> Event | None:
        """The ramp's next stage, where it is due."""
        ramp = self.terms.ramp
        if ramp is None or self.handed_over or self._in_stage < ramp.episodes:
            return None
        if self.stage + 1 >= len(ramp.shares):
            return None
        share = ramp.shares[self.stage + 1]
        text = f"stage {self.stage + 2} of {len(ramp.shares)}: the behavior policy's share is "
        return Event("stage", f"{text}{share:g}", data={"stage": self.stage + 1, "share": share})

    def next_refit(self) -> Event | None:
        """Tells that a new design is due, where it is and the one before was made."""
        if self.refits_due > self.refits_done or self.handed_over:
            return None
        due = self.terms.refit_after(self.refits_due)
        if due is None or self.finished < due:
            return None
        text = f"a new design is due after {self.finished:,} finished episodes"
        data = {"refit": self.refits_due + 1, "started": self.started}
        return Event("refit", text, data=data)

    def next_weight(self) -> float:
        """How much the value of an episode that starts now counts."""
        return self.allotment.next_weight(self.share, self.handed_over)

    @property
    def limited_totals(self) -> bool:
        """Whether a guard limits the sum over all episodes."""
        return any(isinstance(g, Limit) and g.total is not None for g in self.terms.guards)

    def watch(self, number: int) -> Guard | None:
        """What is known about the promise of a guard; None for limits."""
        return self._guards[number]


def _costs(numbers: Mapping[str, Any], signal: str) -> EpisodeCosts:
    """What a guard needs to know of one episode."""
    if signal == COST:
        return EpisodeCosts.of_columns([numbers])
    _, own, weighted = numbers["signals"].get(signal, (math.nan,) * 3)
    return EpisodeCosts.of([own], [weighted])


def _alarm(
    number: int, limit: str, guard: Limit | Promise, text: str, episode: int | None = None
) -> Event:
    data = {"guard": number, "limit": limit, "action": guard.action}
    return Event("alarm", text, episode=episode, data=data)

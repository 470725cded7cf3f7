"""The state of a campaign as a function of its events.

Every process that works on a campaign folds the same events in the same order, and so has the same
state: after a restart, and on every plant. Guards decide in the transaction that ends an episode or
records a reading; what they decide is an event too, and is never decided twice.
"""

from __future__ import annotations

import copy
import itertools
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from scopeval.arrays import Bools
from scopeval.behavior.summary import Prediction
from scopeval.campaign.store import Event
from scopeval.campaign.terms import Terms
from scopeval.comparison.policy_set import current_shares
from scopeval.errors import CampaignError
from scopeval.estimation.moments import BURN_IN, Interval, moments_interval
from scopeval.estimation.sequences import StagedMoments
from scopeval.evaluation.result import rounded
from scopeval.evaluation.stage_design import Plan
from scopeval.evaluation.stage_report import Agreement
from scopeval.evaluation.stages import (
    Shares,
    StageBudget,
    Stages,
    expected_progress,
    expected_variance,
    stage_sizes,
)
from scopeval.question.inference import IntervalMethod
from scopeval.question.promise import COST, Limit, Promise
from scopeval.safety.costs import EpisodeCosts
from scopeval.safety.guard import Guard

__all__ = [
    "Allotment",
    "CampaignState",
    "EpisodeLine",
    "Expected",
    "LookLine",
    "PolicyStatus",
    "RunningValue",
    "StagePlan",
    "budget_after",
    "expected_of",
    "narrowest_at",
]


@dataclass(slots=True)
class EpisodeLine:
    """What the events say about one episode.

    Attributes:
        number: of the episode.
        plant: where it ran.
        shadow: what runs today has decided.
        stage: of the ramp, when it started.
        started, ended: seconds since 1970; None: it has not ended.
        state: "open", "finished", "lost" or "dropped".
        cut: control went back to the plant, by a stop.
        value: unbiased for the target policy's value; None: it is no evidence, as are
        weight: the importance weight, and
        excess: cost above what was promised, without importance weighting of its own cost.
        spent: cost; None: it has not ended.
        returned: what an episode of today's controller has earned; None: of others.
        rescued: the baseline has decided its rest, after a limit, a failure or a hand-over.
        shares: of several policies in it; (): there is one.
    """

    number: int
    plant: str
    shadow: bool
    stage: int
    started: float
    ended: float | None = None
    state: str = "open"
    cut: bool = False
    value: float | None = None
    weight: float | None = None
    excess: float | None = None
    spent: float | None = None
    returned: float | None = None
    rescued: bool = False
    shares: tuple[float, ...] = ()


class Ends(NamedTuple):
    """A difference with its interval; what is not known is NaN, or infinite."""

    estimate: float
    low: float
    high: float

    @classmethod
    def of(cls, content: Sequence[float | None] | None) -> Ends:
        """Of JSON, which has neither."""
        value, low, high = content or (None, None, None)
        return cls(
            math.nan if value is None else value,
            -math.inf if low is None else low,
            math.inf if high is None else high,
        )


@dataclass(frozen=True)
class PolicyStatus:
    """One of several policies, as of the last look; what is not known is NaN, or infinite.

    Attributes:
        name: of the policy.
        share: of new episodes.
        verdict: "baseline", or against it "better", "worse", "undecided" or "failed".
        value, value_low, value_high: its value with its interval.
        difference, low, high: its value less that of the baseline, anytime-valid; where that is
            clear, as it was first.
        more_episodes: about how many more would decide it; None: it is decided, or not known.
        decided_after: episodes after which it was clear; None: it is not.
        reason: why it has no share; None: it has.
    """

    name: str
    share: float
    verdict: str
    value: float = math.nan
    value_low: float = -math.inf
    value_high: float = math.inf
    difference: float = math.nan
    low: float = -math.inf
    high: float = math.inf
    more_episodes: int | None = None
    decided_after: int | None = None
    reason: str | None = None

    @classmethod
    def of_look(cls, name: str, line: Mapping[str, Any]) -> PolicyStatus:
        """What the data of a look say of it."""
        value, ends = Ends.of(line["value"]), Ends.of(line["difference"])
        more = line["more_episodes"]
        return cls(name, 0.0, str(line["verdict"]), *value, *ends, more)

    @property
    def between(self) -> str:
        """The difference in words; "": not known."""
        half = (self.high - self.low) / 2
        if not math.isfinite(half):
            return ""
        value, low, high = rounded(half, self.difference, self.low, self.high)
        return f"{value} ({low} to {high})"


@dataclass(frozen=True)
class LookLine:
    """A look at all episodes of a campaign over several policies.

    Attributes:
        episodes: finished ones that it has seen.
        sentence: the answer.
        policies: what it says of each, by number.
        differences: of those that have a share, to the baseline.
        best: some policy is surely better than all others.
        alike: they decide alike, as far as seen.
        width: of the widest interval of a difference, half of it.
        safety: verdict and sentence of the certificate; None: nothing was promised.
    """

    episodes: int
    sentence: str
    policies: tuple[PolicyStatus, ...]
    differences: dict[int, Ends]
    best: bool = False
    alike: bool = False
    width: float = math.inf
    safety: tuple[str, str] | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any], names: Sequence[str]) -> LookLine:
        """Of the data of its event."""
        safety = data.get("safety")
        return cls(
            int(data["episodes"]),
            str(data["sentence"]),
            tuple(PolicyStatus.of_look(name, data["policies"][name]) for name in names),
            {int(k): Ends.of(ends) for k, ends in data.get("seen", {}).items()},
            bool(data.get("best", False)),
            bool(data.get("alike", False)),
            math.inf if data.get("width") is None else float(data["width"]),
            None if safety is None else (str(safety[0]), str(safety[1])),
        )


@dataclass
class CampaignState:
    """What follows from the events so far.

    Attributes:
        terms: of the campaign.
        cursor: number of the last event that was folded, and
        head: its hash.
        paused: no episodes are started until `resume`.
        handed_over: the baseline (without one, the target policy) runs new episodes, for good, and
        rest: the rest of running ones.
        stopped: no episodes are started, and control has gone back, for good.
        handed_over_after: number of episodes that were over by then; None: never.
        reasons: of these, in words: the first of every kind.
        confirmed: the design in use is confirmed, or a policy that was given.
        accepted: an operator has let the campaign run the plants.
        fallen_back: running episodes whose rest the baseline takes.
        lines: what the events say of every episode, by number.
        ended: numbers of finished episodes that are evidence, in the order in which they ended.
        cut: lost episodes that a stop has cut.
        design: number of the design that new episodes use.
        stage: of the ramp.
        refits_due, refits_done: how many new designs were due, and how many are there.
        due: of every refit the number of the event that made it due, and the episodes started then.
        refit_failure: why the new design that is due could not be computed; None: it could, or
            was not tried.
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
        looks: at all episodes, of several policies.
        failed: of these, which gave no answer, by number, and what instead;
        dropped: lost their share because another one is surely better, after how many episodes; and
        decided_after: had a clear difference to the baseline, after how many.
    """

    terms: Terms
    cursor: int = 0
    head: str = ""
    paused: bool = False
    handed_over: bool = False
    rest: bool = False
    stopped: bool = False
    handed_over_after: int | None = None
    reasons: dict[str, str] = field(default_factory=dict)
    confirmed: bool = True
    accepted: bool = False
    fallen_back: set[int] = field(default_factory=set)
    lines: dict[int, EpisodeLine] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    cut: int = 0
    design: int = 0
    stage: int = 0
    refits_due: int = 0
    refits_done: int = 0
    refit_failure: str | None = None
    due: list[tuple[int, int]] = field(default_factory=list)
    plans: list[StagePlan] = field(default_factory=list)
    refuted_in: tuple[int, str] | None = None
    alarms: list[Event] = field(default_factory=list)
    open: dict[int, EpisodeLine] = field(default_factory=dict)
    last_episode: int = -1
    started: int = 0
    finished: int = 0
    lost: int = 0
    shadowed: int = 0
    live: bool = True
    spent: float = 0.0
    totals: dict[str, float] = field(default_factory=dict)
    looks: list[LookLine] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)
    decided_after: dict[int, int] = field(default_factory=dict)
    _outdated: bool = False  # an episode was dropped after the last look
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
                guard,
                alpha=self.terms.guard_alpha or self.terms.alpha,
                bound=self.terms.bound() if guard.signal == COST else None,
                target_n=narrowest_at(self.terms),
            )
            for guard in self.terms.guards
        ]

    # -- reading -------------------------------------------------------------------------------

    def copy(self) -> CampaignState:
        """What a look needs, as of now, while the state itself goes on."""
        other = copy.copy(self)
        for name in ("lines", "failed", "dropped", "decided_after", "looks", "open"):
            setattr(other, name, copy.copy(getattr(self, name)))
        return other

    @property
    def word(self) -> str:
        """The state in one word or two."""
        if self.stopped:
            return "stopped"
        if self.paused:
            return "paused"
        return "handed over" if self.handed_over else "running"

    @property
    def reason(self) -> str | None:
        """Why it is not running, in words."""
        kinds = ("stop",) if self.stopped else ("pause",) if self.paused else ("hand over",)
        return self.reasons.get(kinds[0])

    @property
    def unconfirmed(self) -> str | None:
        """What runs because the design in use is not confirmed, in words; None: it is."""
        if self.confirmed:
            return None
        text = "the design is not confirmed"
        if not self.live:
            return (
                f"{text}: what runs today goes on, and nothing is run by the campaign until an "
                "operator says so (go-live)"
            )
        if self.terms.baseline and self.handed_over:
            return f"{text}: the baseline runs"
        return f"{text}: the target policy itself runs"

    @property
    def evaluating(self) -> bool:
        """Whether episodes that start now are evidence about the target policy."""
        return self.live and not (self.terms.baseline and self.handed_over)

    def taken_over(self, number: int) -> bool:
        """Whether the next step of a running episode is not the behavior policy's any more."""
        return self.rest or number in self.fallen_back

    def check_starting(self) -> None:
        """See that episodes are started now.

        Raises:
            CampaignError: they are not.
        """
        halted = self.paused or self.stopped
        why = f"{self.word}; {self.reason}" if halted else self.done()
        if why is not None:
            code = "stopped" if self.stopped else "paused" if self.paused else "plan_reached"
            raise CampaignError(f"start: the campaign starts no episodes now ({why})", code)

    @property
    def anytime(self) -> str | None:
        """Why the interval must hold at any time, in words; None: it need not.

        It need not where the number of episodes was fixed before, all of them are over, and nothing
        that has been seen of them can have decided which they are. As in `evaluate`, lost ones are
        counted, and told.
        """
        terms, stop = self.terms, self.terms.stop
        adaptive = stop.precision is not None or stop.cost is not None or stop.decided
        dropped = any(line.state == "dropped" for line in self.lines.values())
        for holds, why in (
            (terms.interval == "sequence", "it was asked for"),
            (stop.episodes is None or adaptive, "no number of episodes was fixed before"),
            (terms.refit is not None, "later designs depend on earlier episodes"),
            (self.stopped, "it was stopped"),
            (self.handed_over, f"it was handed over: {self.reasons.get('hand over')}"),
            (dropped, "an episode was dropped"),
            (self.started < (stop.episodes or 0) or self.open, "not all episodes are over"),
        ):
            if holds:
                return why
        return None

    @property
    def rescued(self) -> int:
        """Episodes that are evidence, and whose rest the baseline has decided."""
        return sum(line.rescued and line.state == "finished" for line in self.lines.values())

    @property
    def interval(self) -> Interval:
        """Of the value: anytime-valid, until a fixed number of episodes is over."""
        return self._value.interval("sequence" if self.anytime else self.terms.interval)

    @property
    def share(self) -> float:
        """Of the behavior policy in the decisions of episodes that start now."""
        ramp = self.terms.ramp
        return 1.0 if ramp is None else ramp.shares[self.stage]

    def done(self) -> str | None:
        """Why the plan starts no more episodes; None: it does."""
        stop = self.terms.stop
        if stop.episodes is not None and self.started >= stop.episodes:
            return self._all_started(stop.episodes)
        if self.terms.policies:
            why = self._answered()
            if why is not None:
                return why
        elif stop.precision is not None and self.interval.half_width <= stop.precision:
            return f"stopped when the interval was +- {stop.precision:g} or narrower"
        if stop.cost is not None and self.spent >= stop.cost:
            return f"stopped when the cost budget of {stop.cost:g} was reached"
        return None

    def _answered(self) -> str | None:
        """Why several policies need no more episodes; None: they do."""
        stop, look = self.terms.stop, self.looks[-1] if self.looks else None
        if self.terms.reference in self.failed:
            return "stopped because the baseline failed: there is nothing to compare with"
        if sum(self.active[: len(self.terms.policies)]) < 2:
            names = (*self.terms.policies, "the design")
            failed = "; ".join(
                f"{names[k]} failed: {why}" for k, why in sorted(self.failed.items())
            )
            return "stopped because only one policy is left" + (f": {failed}" if failed else "")
        if look is not None and stop.decided and look.best:
            return "stopped when it was decided"
        if look is not None and stop.decided and look.alike:
            return "stopped because the policies decide alike: their values are equal"
        if look is not None and stop.precision is not None and look.width <= stop.precision:
            return f"stopped when every difference was known to +- {stop.precision:g} or better"
        return None

    @property
    def active(self) -> Bools:
        """Of several policies, which may have a share: they have not failed, nor were dropped."""
        active = np.ones(len(self.terms.shares), np.bool_)
        active[[*self.failed, *self.dropped]] = False
        return active

    def next_shares(self) -> tuple[float, ...]:
        """Of several policies, in episodes that start now; they depend on past episodes only."""
        part = None if self.terms.ramp is None else self.share
        fair = np.array(self.terms.shares)
        return tuple(current_shares(fair, self.active, self.terms.reference, part).tolist())

    @property
    def look_due(self) -> bool:
        """Whether the episodes of several policies are to be looked at now.

        That is when an interval can begin, and after a tenth more episodes (`Stop.every` says
        otherwise), and when all are over.
        """
        if not self.terms.policies or not self.finished:
            return False
        last = self.looks[-1].episodes if self.looks else 0
        every = self.terms.stop.every or (max(last // 10, 1) if last else BURN_IN)
        over = not self.open and self.finished != last and self.done() is not None
        return self._outdated or over or self.finished - last >= every

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
        self.cursor, self.head = event.number, event.hash
        if event.kind == "started":
            self._started(event)
        elif event.kind in ("ended", "lost"):
            self._over(event)
        elif event.kind == "dropped":
            self._dropped(event)
        elif event.kind == "created":
            self._plan(event)
        elif event.kind == "stage":
            self.stage, self._in_stage = int(event.data["stage"]), 0
        elif event.kind == "refit":
            self.refits_due = int(event.data["refit"])
            self.due.append((event.number, int(event.data.get("started", self.started))))
        elif event.kind == "refit failed":
            self.refit_failure = event.text
        elif event.kind == "design":
            self.refit_failure = None
            self.design = int(event.data["design"])
            self.refits_done = int(event.data["refit"])
            self._plan(event)
        elif event.kind == "alarm":
            self._alarmed(event)
        elif event.kind in ("look", "policy failed"):
            self._learned(event)
        elif event.kind == "fallback" and event.episode is not None:
            self.fallen_back.add(event.episode)
        elif event.kind in ("pause", "hand over", "stop"):
            self._act(event.kind, event.text)
        elif event.kind == "live":
            self.live = self.accepted = True
        elif event.kind == "resume":
            self.paused = False
            self.reasons.pop("pause", None)

    def _learned(self, event: Event) -> None:
        """What decides which of several policies have a share from now on."""
        if event.kind == "policy failed":
            where = f"episode {event.episode}, step {event.data.get('step', '?')}"
            if "obs" in event.data:  # older journals do not say it
                where += f", at {event.data['obs']}"
            self.failed.setdefault(int(event.data["policy"]), f"{event.data['reason']} ({where})")
            return
        self._outdated = False
        look = LookLine.of(event.data, self.terms.policies)
        self.looks.append(look)
        for k in event.data.get("worse", ()):
            self.dropped.setdefault(int(k), look.episodes)
        for k, after in event.data["clear"].items():
            self.decided_after.setdefault(int(k), int(after))

    def _started(self, event: Event) -> None:
        assert event.episode is not None
        assert event.plant is not None
        stage, shadow = int(event.data["stage"]), bool(event.data.get("shadow", False))
        line = EpisodeLine(event.episode, event.plant, shadow, stage, event.time)
        line.shares = tuple(event.data.get("shares", ()))
        self.lines[event.episode] = self.open[event.episode] = line
        self.last_episode = max(self.last_episode, event.episode)
        if not shadow:
            weight = event.data.get("value_weight")
            self.allotment.started(event.episode, weight, self.share, self.handed_over)
            self.started += 1

    def _dropped(self, event: Event) -> None:
        assert event.episode is not None
        line = self.lines[event.episode]
        line.state = "dropped"
        if line.shadow:
            self.shadowed -= 1
            return
        self.finished, self.lost = self.finished - 1, self.lost + 1
        self.ended.remove(event.episode)
        self._outdated = bool(self.looks)
        self._value.drop(event.episode)

    def _plan(self, event: Event) -> None:
        """The design that new episodes use."""
        refit = self.terms.refit
        self.confirmed = bool(event.data.get("confirmed", True))
        refuses = self.terms.baseline and self.terms.unconfirmed == "refuse"
        if refuses and not self.confirmed and not self.accepted:
            self.live = False
        self.plans.append(StagePlan.of_event(event.data, event.text))
        planned = refit is not None and "plan" in event.data
        expected = (
            expected_of(self.plans[-1].plan, refit) if refit is not None and planned else None
        )
        if event.kind == "created":
            self.allotment.create(expected)
        else:
            self.allotment.design(expected)

    def _alarmed(self, event: Event) -> None:
        self.alarms.append(event)
        number, action = int(event.data["guard"]), str(event.data["action"])
        self._fired.add((number, str(event.data["limit"]), event.episode))
        promise = event.data["limit"] == "promise"
        whole = promise and self.terms.guards[number].signal == COST
        if whole and action in ("hand over", "stop") and not self.handed_over:
            self.refuted_in = (self.allotment.stage, event.text)
        if action == "fall back" and event.episode in self.open:
            self.fallen_back.add(event.episode)
        # of a refuted promise running episodes are not to blame; the target itself takes over
        # at once, since nothing else is known to keep it
        self._act(action, event.text, running=not (promise and self.terms.baseline))

    def _act(self, action: str, why: str, *, running: bool = True) -> None:
        if action == "pause":
            self.paused = True
        if action in ("hand over", "stop") and not self.handed_over:
            self.handed_over = True
            self.handed_over_after = self.finished + self.lost
        if action == "hand over" and running:
            self.rest = True
        if action == "stop":
            self.stopped = True
        if action in ("pause", "hand over", "stop"):
            self.reasons.setdefault(action, why)

    def _over(self, event: Event) -> None:
        assert event.episode is not None
        running = self.open.pop(event.episode, None)
        self.fallen_back.discard(event.episode)
        numbers = event.data
        self._line(event)
        self.spent += float(numbers["spent"])
        for name, (total, *_) in numbers["signals"].items():
            self.totals[name] = self.totals.get(name, 0.0) + float(total)
        if numbers.get("shadow"):
            self.shadowed += event.kind == "ended"
            return
        if event.kind == "lost":
            self.lost += 1
            self.cut += bool(numbers.get("cut"))
            self._count_lost(numbers)
            return
        self.finished += 1
        self.ended.append(event.episode)
        if running is not None and running.stage == self.stage:
            self._in_stage += 1
        number = event.episode
        self._value.add(number, self.allotment.of(number), float(numbers["value"]))
        if not numbers["by_target"]:
            for guard, watch in zip(self.terms.guards, self._guards, strict=True):
                if watch is not None:
                    watch.add(_costs(numbers, guard.signal))

    def _line(self, event: Event) -> None:
        """What an episode that is over was."""
        assert event.episode is not None
        line, numbers = self.lines[event.episode], event.data
        line.ended, line.spent = event.time, float(numbers["spent"])
        line.state = "lost" if event.kind == "lost" else "finished"
        line.cut = bool(numbers.get("cut"))
        if line.shadow:
            line.returned = numbers.get("earned")
        elif event.kind == "ended":
            line.value, line.weight = float(numbers["value"]), float(numbers["weight"])
            fallback = self.terms.baseline or bool(self.terms.policies)
            line.rescued = fallback and bool(numbers["guarded"])
            if not numbers["by_target"]:
                allowed = self.terms.promise.at_most * float(numbers["weighted_cost"])
                line.excess = float(numbers["cost"]) - allowed

    def _count_lost(self, numbers: Mapping[str, Any]) -> None:
        """Guards with totals count what lost episodes cost, and those with a bound their worst."""
        spent, seen = float(numbers["spent"]), numbers.get("seen")
        for guard, watch in zip(self.terms.guards, self._guards, strict=True):
            if watch is None or guard.signal != COST:
                continue
            if seen is None or seen["by_target"]:
                watch.update([], [], lost=spent)
            else:
                watch.lose(EpisodeCosts.of_cut(seen), spent=spent)

    # -- deciding, inside the transaction that records what it is about ------------------------

    def refuted(self) -> list[Event]:
        """Alarms of promises that are refuted and were not told yet."""
        alarms = []
        for number, (guard, watch) in enumerate(zip(self.terms.guards, self._guards, strict=True)):
            if watch is None or (number, "promise", None) in self._fired:
                continue
            state = watch.state
            if state.tripped:
                about = "" if guard.signal == COST else f"{guard.signal}: "
                alarms.append(_alarm(number, "promise", guard, about + str(state.reason)))
        return alarms

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
        alarms = []
        for number, guard in enumerate(self.terms.guards):
            if not isinstance(guard, Limit):
                continue
            for name, what, limit, seen in (
                ("step", "a step", guard.step, readings),
                ("episode", "an episode", guard.episode, sums),
                ("total", "all episodes together", guard.total, totals),
            ):
                value = seen.get(guard.signal, 0.0)
                of_episode = None if name == "total" else episode
                if limit is None or value <= limit or (number, name, of_episode) in self._fired:
                    continue
                verb = "cost" if guard.signal == COST else f"had {guard.signal}"
                text = f"{what} {verb} {value:.4g}, above the limit of {limit:.4g}"
                plant = self.open[episode].plant if episode in self.open else None
                if of_episode is not None:
                    text += f" ({plant}, episode {episode})"
                alarms.append(_alarm(number, name, guard, text, of_episode, plant))
        return alarms

    def next_stage(self) -> Event | None:
        """The ramp's next stage, where it is due."""
        ramp = self.terms.ramp
        if ramp is None or self.handed_over or self._in_stage < ramp.episodes:
            return None
        if self.stage + 1 >= len(ramp.shares):
            return None
        share = ramp.shares[self.stage + 1]
        about = "new policies have so much of theirs: " if self.terms.policies else ""
        about = about or "the behavior policy's share is "
        text = f"stage {self.stage + 2} of {len(ramp.shares)}: {about}{share:g}"
        return Event("stage", text, data={"stage": self.stage + 1, "share": share})

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
    _, plain, weighted = numbers["signals"].get(signal, (math.nan,) * 3)
    return EpisodeCosts.of([plain], [weighted])


def _alarm(
    number: int,
    limit: str,
    guard: Limit | Promise,
    text: str,
    episode: int | None = None,
    plant: str | None = None,
) -> Event:
    data = {"guard": number, "limit": limit, "action": guard.action}
    return Event("alarm", text, plant, episode, data=data)


# -- weights of episodes, and the value as they finish ---------------------------------------------
#
# Weights are those of `evaluate` (`evaluation.stages.Shares`), with two differences. A design
# arrives some time after it is due, while other episodes go on with the last one. And plants run
# side by side, so that episodes of one stage may end after the next stage has begun. So a weight
# belongs to an episode and is decided when it starts. A new weight is computed where a planned
# stage, a design, a stage of the ramp or a hand-over begins; what was weighted before is
# subtracted, and the rest of the plan shares what is left. All weights together are the number of
# planned episodes, whatever the designs and the moments of their arrival: the estimate is
# unbiased.


class Expected(NamedTuple):
    """What a design is expected to give: relative variance, whether it fell back, and progress."""

    variance: float
    fell_back: bool
    progress: float = 1.0  # of later designs


@dataclass(frozen=True)
class Segment:
    """Episodes of one stage and one weight, from number `first` to that of the next segment.

    Attributes:
        first: number of the first episode.
        stage: from 0; the number of designs that had arrived after the first one.
        weight: of one episode's value.
    """

    first: int
    stage: int
    weight: float


class _Now(NamedTuple):
    """What a weight depends on: the planned stage, the design, the ramp and a hand-over."""

    block: int
    stage: int
    share: float
    by_target: bool


class Allotment:
    """Gives every episode its stage and its weight, when it starts.

    Args:
        terms: of the campaign.

    Attributes:
        segments: so far, in order.
        stage: of episodes that start now.
    """

    def __init__(self, terms: Terms) -> None:
        self._episodes, self._settings = terms.stop.episodes, terms.refit
        self._shares = None
        self._ends: list[int] = []
        self.segments: list[Segment] = []
        self.stage = 0
        self._expected: Expected | None = None
        self._tried = False  # the current design has not been counted in a weight yet
        self._started = self._in_segment = 0
        self._now: _Now | None = None
        if self._settings is not None:
            self._shares = Shares(self._episodes, self._settings)
            if self._episodes is not None:
                sizes = stage_sizes(self._settings, self._episodes)
                self._ends = list(itertools.accumulate(sizes))

    def create(self, expected: Expected | None) -> None:
        """The first design; None: all episodes count alike."""
        self._expected, self._tried = expected, True

    def design(self, expected: Expected | None) -> None:
        """Another design has arrived, and a stage begins."""
        self.stage += 1
        if self._expected is not None and expected is not None:
            self._expected, self._tried = expected, True

    def next_weight(self, share: float, by_target: bool) -> float:
        """Weight of an episode that starts now; nothing is changed.

        Args:
            share: of the behavior policy in its decisions.
            by_target: the target policy runs it, and all that follow.
        """
        return self._weigh(self._where(share, by_target), copy.copy(self._shares))

    def started(self, number: int, weight: float | None, share: float, by_target: bool) -> None:
        """Count an episode that has started, with the weight that was recorded."""
        now = self._where(share, by_target)
        weights = self._weigh(now, self._shares)
        self._in_segment = 1 if now != self._now else self._in_segment + 1
        self._now = now
        self._tried = False
        self._started += 1
        given = weights if weight is None else weight
        last = self.segments[-1] if self.segments else None
        if last is None or (last.stage, last.weight) != (self.stage, given):
            self.segments.append(Segment(number, self.stage, given))

    def of(self, number: int) -> Segment:
        """The segment of an episode that has started."""
        return self.segments[bisect_right(self.segments, number, key=lambda one: one.first) - 1]

    def _where(self, share: float, by_target: bool) -> _Now:
        block = bisect_right(self._ends, self._started)
        if by_target and self._ends:
            block = len(self._ends) - 1  # no design will come: the rest is one stage
        return _Now(block, self.stage, share, by_target)

    def _weigh(self, now: _Now, shares: Shares | None) -> float:
        """The weight, which is the last one where nothing has changed."""
        if shares is None or self._expected is None:
            return 1.0
        if now == self._now:
            return self.segments[-1].weight
        shares.cut(self._in_segment)
        variance = 1.0 if now.by_target else self._expected.variance**now.share
        end = self._ends[min(now.block, len(self._ends) - 1)] if self._ends else 0
        size = max(end - self._started, 1)
        return shares.next(
            size,
            variance,
            fell_back=self._tried and self._expected.fell_back,
            progress=1.0 if now.by_target else self._expected.progress,
        )


@dataclass(frozen=True)
class StagePlan:
    """What a stage runs, and what was learned before it.

    Attributes:
        plan: of the stage, without the behavior policy itself.
        agreements: of older data with the episodes before it.
        stopped: why there are no more refits; None: there may be.
    """

    plan: Plan
    agreements: tuple[Agreement, ...] = ()
    stopped: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        p = self.plan
        return {
            "prediction": None if p.prediction is None else asdict(p.prediction),
            "epsilon": p.epsilon,
            "why": p.why,
            "new": p.new,
            "rows": p.rows,
            "seconds": p.seconds,
            "warnings": list(p.warnings),
            "agreements": [asdict(one) for one in self.agreements],
            "stopped": self.stopped,
        }

    @classmethod
    def of_event(cls, data: Mapping[str, Any], text: str) -> StagePlan:
        """The plan in the data of an event; what older journals say of it where there is none."""
        plan = data.get("plan")
        if plan is None:
            warnings = tuple(data.get("warnings", ()))
            new = bool(data.get("refit")) and "stays in use" not in text
            rows, seconds = int(data.get("rows", 0)), float(data.get("seconds", 0.0))
            return cls(Plan(None, None, 0.0, text, new, rows, seconds, warnings))
        prediction = plan["prediction"]
        return cls(
            Plan(
                None,
                None if prediction is None else Prediction(**prediction),
                plan["epsilon"],
                plan["why"],
                plan["new"],
                plan["rows"],
                plan["seconds"],
                tuple(plan["warnings"]),
            ),
            tuple(Agreement(**one) for one in plan["agreements"]),
            plan["stopped"],
        )


def expected_of(plan: Plan, settings: Stages) -> Expected:
    """What a stage with this plan is expected to give, as in `evaluate`."""
    variance = expected_variance(plan.prediction, settings)
    progress = expected_progress(plan.prediction)
    return Expected(variance, plan.new and plan.prediction is None, progress)


def budget_after(terms: Terms, plans: Sequence[StagePlan], episodes: Sequence[int]) -> StageBudget:
    """What was asked of the stages so far, with so many finished episodes each."""
    assert terms.refit is not None
    budget = StageBudget(terms.promise.epsilon, terms.refit.promise_of, terms.stop.episodes)
    for one, count in zip(plans, episodes, strict=False):
        budget.add(count, one.plan.cost)
    return budget


def narrowest_at(terms: Terms) -> int:
    """Episodes at which intervals are to be narrowest; it must not depend on what was seen."""
    return max(terms.stop.episodes or 1000, 50)


class RunningValue:
    """Takes in finished episodes in the order in which they end.

    Args:
        terms: of the campaign.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._counted: dict[int, tuple[Segment, float]] = {}  # by number, as they have ended
        self._moments = self._empty()

    def _empty(self) -> StagedMoments:
        goal, refit = narrowest_at(self._terms), self._terms.refit
        prior = 1.0 if refit is None else refit.prior_variance
        return StagedMoments(self._terms.alpha, max(round(goal / prior), 1))

    def add(self, number: int, segment: Segment, value: float) -> None:
        """Take in an episode."""
        self._counted[number] = segment, value
        self._count(segment, value)

    def _count(self, segment: Segment, value: float) -> None:
        if self._terms.refit is None:
            self._moments.enter(0, 1.0)
        else:
            self._moments.enter(segment.stage, segment.weight)
        self._moments.update(np.array([value]))

    def drop(self, number: int) -> None:
        """Take an episode out again."""
        del self._counted[number]
        self._moments = self._empty()
        for one in self._counted.values():
            self._count(*one)

    def interval(self, method: IntervalMethod) -> Interval:
        """Of the value; all but "sequence" are for a number of episodes that was fixed before."""
        if method == "sequence":
            return self._moments.sequence()
        return moments_interval(self._moments.whole, alpha=self._terms.alpha, method=method)

"""The stages of a campaign: plans, weights of episodes, and the value as episodes finish.

Weights are those of `evaluate` (`evaluation.stages.Shares`), with two differences. A design
arrives some time after it is due, while other episodes go on with the last one. And plants run side
by side, so that episodes of one stage may end after the next stage has begun. So a weight belongs
to an episode and is decided when it starts. A new weight is computed where a planned stage, a
design, a stage of the ramp or a hand-over begins; what was weighted before is subtracted, and the
rest of the plan shares what is left. All weights together are the number of planned episodes,
whatever the designs and the moments of their arrival: the estimate is unbiased.
"""

from __future__ import annotations

import copy
import itertools
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from scopeval.behavior.summary import Prediction
from scopeval.campaign.terms import Terms
from scopeval.estimation.moments import Interval, moments_interval
from scopeval.estimation.sequences import StagedMoments
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

__all__ = [
    "Allotment",
    "Expected",
    "RunningValue",
    "StagePlan",
    "budget_after",
    "expected_of",
    "narrowest_at",
]


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

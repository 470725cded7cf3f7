"""The value of the target policy as episodes finish, with an interval that holds at all times."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from scopeval.campaign.allotment import Segment
from scopeval.campaign.terms import Terms
from scopeval.estimation.running_moments import FEWEST_EVENTS, AsymptoticSequence, Interval
from scopeval.estimation.staged_moments import StagedMoments

__all__ = ["RunningValue", "narrowest_at"]


def narrowest_at(terms: Terms) -> int:
    """Episodes at which intervals are to be narrowest; it must not depend on what was seen."""
    return max(terms.plan.episodes or 1000, 50)


class _Counted(NamedTuple):
    """A finished episode: its number, stage, weight and value."""

    number: int
    stage: int
    weight: float
    value: float


class RunningValue:
    """Takes in finished episodes in the order in which they end.

    Args:
        terms: of the campaign.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._counted: list[_Counted] = []
        self._moments = self._empty()

    def _empty(self) -> AsymptoticSequence | StagedMoments:
        goal, alpha = narrowest_at(self._terms), self._terms.alpha
        if self._terms.refit is None:
            return AsymptoticSequence(alpha, goal, fewest_events=FEWEST_EVENTS)
        return StagedMoments(alpha, max(round(goal / self._terms.refit.prior_variance), 1))

    def add(self, number: int, segment: Segment, value: float) -> None:
        """Take in an episode."""
        self._counted.append(_Counted(number, segment.stage, segment.weight, value))
        self._count(self._counted[-1])

    def _count(self, one: _Counted) -> None:
        if isinstance(self._moments, StagedMoments):
            self._moments.enter(one.stage, one.weight)
        self._moments.update(np.array([one.value]))

    def drop(self, number: int) -> None:
        """Take an episode out again."""
        self._counted = [one for one in self._counted if one.number != number]
        self._moments = self._empty()
        for one in self._counted:
            self._count(one)

    @property
    def interval(self) -> Interval:
        """Anytime-valid."""
        if isinstance(self._moments, AsymptoticSequence):
            return self._moments.interval
        if not self._counted:
            name = "asymptotic sequence"
            return Interval(math.nan, -math.inf, math.inf, self._terms.alpha, name, 0)
        return self._moments.sequence()

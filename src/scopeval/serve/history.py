"""The course of a campaign, one number for every finished episode, for the figures of the page."""

from __future__ import annotations

import math
from array import array
from collections import deque

import numpy as np

from scopeval.campaign.journal import Event
from scopeval.campaign.terms import Terms
from scopeval.report.evaluation_figures import Run, Trace

__all__ = ["History"]

#: Events that the page lists; those of single episodes are too many.
LISTED = 400
_QUIET = ("started", "ended")


class History:
    """Folds events, in order.

    Args:
        terms: of the campaign.

    Attributes:
        last: number of the last event.
        listed: the last events, without those of every episode.
    """

    def __init__(self, terms: Terms) -> None:
        self._factor = 1.0 + terms.epsilon
        self.last = 0
        self.listed: deque[Event] = deque(maxlen=LISTED)
        self._value, self._weight = array("d"), array("d")
        self._spent, self._excess = array("d"), array("d")
        self._staged, self._stage = terms.refit is not None, 0
        self._open: dict[int, tuple[int, float]] = {}  # stage and weight of running episodes
        self._runs: list[Run] = []

    def fold(self, event: Event) -> None:
        """Take in the next event."""
        self.last = event.number
        if event.kind not in _QUIET:
            self.listed.appendleft(event)
        if event.kind == "design":
            self._stage += 1
        if event.episode is not None and event.kind == "started":
            self._open[event.episode] = self._stage, float(event.data.get("value_weight", 1.0))
        if event.episode is None or event.kind not in ("ended", "lost"):
            return
        stage, weight = self._open.pop(event.episode)
        if event.kind == "lost" or event.data.get("shadow"):
            return
        self._count(stage, weight)
        numbers = event.data
        self._value.append(float(numbers["value"]))
        self._weight.append(float(numbers["weight"]))
        self._spent.append(float(numbers["spent"]))
        excess = float(numbers["cost"]) - self._factor * float(numbers["weighted_cost"])
        self._excess.append(math.nan if numbers["by_target"] else excess)

    def _count(self, stage: int, weight: float) -> None:
        """Count a finished episode in the runs of equal stage and weight."""
        last = self._runs[-1] if self._runs else None
        if last is not None and (last.stage, last.weight) == (stage, weight):
            self._runs[-1] = last._replace(episodes=last.episodes + 1)
        else:
            self._runs.append(Run(stage, 1, weight))

    @property
    def trace(self) -> Trace | None:
        """The numbers so far; None: there are none. Dropped episodes are still in it."""
        if not len(self._value):
            return None
        return Trace(
            value=np.array(self._value),
            weight=np.array(self._weight),
            spent=np.array(self._spent),
            excess=np.array(self._excess),
            stages=tuple(self._runs) if self._staged else (),
        )

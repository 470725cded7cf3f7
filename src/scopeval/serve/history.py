"""The course of a campaign, one number for every finished episode, for the figures of the page."""

from __future__ import annotations

import math
from array import array
from collections import deque

import numpy as np

from scopeval.campaign.journal import Event
from scopeval.campaign.terms import Terms
from scopeval.report.evaluation_figures import Trace

__all__ = ["History"]

#: Events that the page lists; those of single episodes are too many.
LISTED = 40
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

    def fold(self, event: Event) -> None:
        """Take in the next event."""
        self.last = event.number
        if event.kind not in _QUIET:
            self.listed.appendleft(event)
        if event.kind != "ended" or event.data.get("shadow"):
            return
        numbers = event.data
        self._value.append(float(numbers["value"]))
        self._weight.append(float(numbers["weight"]))
        self._spent.append(float(numbers["spent"]))
        excess = float(numbers["cost"]) - self._factor * float(numbers["weighted_cost"])
        self._excess.append(math.nan if numbers["by_target"] else excess)

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
        )

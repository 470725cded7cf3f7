"""When an evaluation looks at what it has, and when it stops.

Stopping rules are looked at after every batch, and only anytime-valid intervals are compared with
the wanted precision: looking often costs nothing in honesty.
"""

from __future__ import annotations

from scopeval.arrays import check_whole, is_number
from scopeval.errors import InputError
from scopeval.evaluation.batches import Batch, Source
from scopeval.evaluation.running_totals import Tally
from scopeval.safety.guard import Guard

__all__ = ["INTERRUPTED", "Plan"]

INTERRUPTED = "interrupted by the user"


class Plan:
    """When to look, and when to stop."""

    #: Episodes between two looks, unless said; in the simulator it grows up to LARGEST.
    CHUNK, LARGEST = 64, 1 << 16
    #: Where only precision or budget is given, and neither is ever reached.
    MOST = 10**9
    #: So many episodes lost one after the other: the environment does not work any more.
    DEAD = 64

    def __init__(
        self,
        episodes: int | None,
        precision: float | None,
        cost_budget: float | None,
        chunk: int | None,
    ) -> None:
        if episodes is None and precision is None and cost_budget is None:
            raise InputError(
                "episodes: needed unless precision or cost_budget says when to stop; try "
                "episodes=1000"
            )
        for name, value in (("precision", precision), ("cost_budget", cost_budget)):
            if value is not None and not (is_number(value) and value > 0):
                raise InputError(f"{name}: got {value!r}, expected a number above 0")
        self._episodes = self.MOST if episodes is None else check_whole("episodes", episodes, 1)
        self._precision, self._budget = precision, cost_budget
        self._given = None if chunk is None else check_whole("chunk", chunk, 1)
        self._side_by_side = 1
        self._grows = self._looks = self._careful = False
        self._dead = 0
        self.stopped = ""

    def suit(self, source: Source, guard: Guard | None) -> None:
        """Look as often as the source and the guard allow and ask for."""
        self._side_by_side = source.side_by_side
        self._grows = source.quick
        self._looks = guard is not None or self._precision is not None or self._budget is not None
        self._careful = guard is not None and guard.limited

    @property
    def adaptive(self) -> bool:
        """Whether the data had a say in the number of episodes."""
        chosen = self._precision is not None or self._budget is not None
        return chosen or self.stopped != self._full

    @property
    def _full(self) -> str:
        return f"all {self._episodes:,} episodes were run"

    def look(self, found: Batch) -> None:
        """Notice what the batch was like."""
        self._dead = 0 if len(found) else self._dead + len(found.lost)
        if found.interrupted:
            self.stopped = INTERRUPTED

    def next(self, tally: Tally) -> int:
        """How many episodes to run now; 0: no more, and `stopped` says why."""
        if self.stopped:
            return 0
        left = self._episodes - tally.started
        if left <= 0:
            self.stopped = self._full
        elif self._precision and tally.interval(anytime=True).half_width <= self._precision:
            self.stopped = f"stopped when the interval was +- {self._precision:g} or narrower"
        elif self._budget and tally.total >= self._budget:
            self.stopped = f"stopped when the cost budget of {self._budget:g} was reached"
        elif self._dead >= self.DEAD:
            self.stopped = f"stopped after {self._dead:,} lost episodes one after the other"
        if self.stopped:
            return 0
        return max(1, min(left, self._chunk(tally.started), self._affordable(tally)))

    def _chunk(self, done: int) -> int:
        if self._given is not None:
            return self._given
        if self._careful:
            return self._side_by_side
        if self._grows:
            return min(max(self.CHUNK, done // 4), self.LARGEST) if self._looks else self.LARGEST
        return -(-self.CHUNK // self._side_by_side) * self._side_by_side

    def _affordable(self, tally: Tally) -> int:
        """So few that the budget is hardly overspent: nine tenths of what is left, by the mean."""
        if self._budget is None:
            return self._episodes
        known = max(self._side_by_side, tally.started)  # at most twice as many as were seen
        if tally.mean_cost == 0:
            return known
        return min(known, int(0.9 * (self._budget - tally.total) / tally.mean_cost))

"""When an evaluation ends."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scopeval.arrays import check_whole, is_number
from scopeval.errors import InputError

__all__ = ["Stop", "stop_of"]


@dataclass(frozen=True)
class Stop:
    """No more episodes are started once one of these is reached, whichever is first.

    Attributes:
        episodes: so many were started.
        precision: the anytime-valid interval is +- this wide, or narrower.
        cost: all episodes together have cost this (not discounted).
        decided: it is known which of several policies is better (`compare`).
        every: episodes between two checks; None: as suits what runs them.
    """

    episodes: int | None = None
    precision: float | None = None
    cost: float | None = None
    decided: bool = False
    every: int | None = None

    def __post_init__(self) -> None:
        if self.episodes is not None:
            whole = check_whole("stop.episodes", self.episodes, 1)
            object.__setattr__(self, "episodes", whole)
        for name in ("precision", "cost"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value > 0):
                raise InputError(f"stop.{name}: got {value!r}, expected a number above 0")
        if not isinstance(self.decided, bool):
            raise InputError(f"stop.decided: got {self.decided!r}, expected True or False")
        if self.every is not None:
            object.__setattr__(self, "every", check_whole("stop.every", self.every, 1))


def stop_of(episodes: int | None, stop: Stop | None, *, needed: bool = True) -> Stop:
    """The plan of ``episodes=`` and ``stop=`` of a verb.

    Args:
        episodes: of the verb.
        stop: of the verb.
        needed: whether there must be an end.

    Raises:
        InputError: there is no end, or two numbers of episodes.
    """
    if stop is None:
        stop = Stop()
    if not isinstance(stop, Stop):
        raise InputError(f"stop: got {stop!r:.40}, expected Stop(...), or try episodes=1000")
    if episodes is not None:
        episodes = check_whole("episodes", episodes, 1)
        if stop.episodes not in (None, episodes):
            raise InputError(
                f"episodes: got {episodes}, and stop=Stop(episodes={stop.episodes}), expected one"
            )
        stop = replace(stop, episodes=episodes)
    if needed and stop == Stop(every=stop.every):
        raise InputError(
            "episodes: needed unless stop=Stop(precision=...) or Stop(cost=...) says when to "
            "stop; try episodes=1000"
        )
    return stop

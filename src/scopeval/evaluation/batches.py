"""What evaluation reads: numbers per episode, in batches, and the protocol of their sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from scopeval.arrays import Bools, Floats
from scopeval.collection.episodes import Episodes, LostEpisode
from scopeval.estimation.estimators import (
    ESTIMATORS,
    doubly_robust,
    pdis,
    pdis_cost,
    trajectory_weights,
)

__all__ = ["Batch", "Source", "summarize"]


@dataclass(frozen=True)
class Batch:
    """One number per finished episode, [k] each, and what went wrong.

    Attributes:
        value: unbiased for J(pi).
        returned: the plain return, discounted.
        weight: the importance weight of the whole episode.
        cost: discounted as the returns are; what the promise is about.
        weighted_cost: unbiased for the target's, likewise.
        spent: what the episode really cost, not discounted.
        target_spent: the same weighted: unbiased for the target's.
        by_target: the whole episode was run by the target itself.
        controlled: a control variate was used.
        fallbacks: steps that the behavior policy left to the target because it failed.
        guarded: steps that a guard gave to the target.
        lost: unfinished episodes.
        interrupted: the user stopped it.
        episodes: all there is to know, where it is kept.
    """

    value: Floats
    returned: Floats
    weight: Floats
    cost: Floats
    weighted_cost: Floats
    spent: Floats
    target_spent: Floats
    by_target: Bools
    controlled: bool = False
    fallbacks: int = 0
    guarded: int = 0
    lost: tuple[LostEpisode, ...] = ()
    interrupted: bool = False
    episodes: Episodes | None = None

    def __len__(self) -> int:
        return len(self.value)


class Source(Protocol):
    """Runs episodes by number, in batches."""

    @property
    def side_by_side(self) -> int:
        """How many episodes run at the same time; a batch had better be a multiple."""
        ...

    @property
    def quick(self) -> bool:
        """Whether episodes cost next to no time, so that batches had better be large."""
        ...

    @property
    def uncovered(self) -> str | None:
        """What the behavior policy leaves out of the target, in words; None: nothing known."""
        ...

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        ...

    def close(self) -> None:
        """Give back what was opened."""
        ...


def summarize(episodes: Episodes, gamma: float, estimator: str) -> Batch:
    """The numbers of collected episodes; estimator "auto": dr with a control variate, else pdis."""
    controlled = episodes.control is not None
    if not len(episodes):
        none = np.empty(0)
        value, weight, weighted, target_spent = none, none, none, none
    else:
        if estimator == "auto":
            value = doubly_robust(episodes, gamma) if controlled else pdis(episodes, gamma)
        else:
            value = ESTIMATORS[estimator].values(episodes, gamma)
        weight = trajectory_weights(episodes)
        weighted, target_spent = pdis_cost(episodes, gamma), pdis_cost(episodes)
    return Batch(
        value=value,
        returned=episodes.returns(gamma),
        weight=weight,
        cost=episodes.costs(gamma),
        weighted_cost=weighted,
        spent=episodes.costs(),
        target_spent=target_spent,
        by_target=episodes.by_target,
        controlled=controlled and estimator in ("auto", "dr"),
        fallbacks=int(episodes.fallbacks.sum()),
        guarded=int(episodes.guarded.sum()),
        lost=episodes.lost,
        interrupted=episodes.interrupted,
        episodes=episodes,
    )

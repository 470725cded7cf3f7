"""One episode: while it is recorded, and where it was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scopeval.arrays import Floats

__all__ = ["EpisodeRecord", "LostEpisode", "exogenous_of"]


@dataclass(frozen=True)
class LostEpisode:
    """An episode that could not be finished.

    Attributes:
        index: its number under the seed of the collection.
        step: time step at which it broke; 0 is the reset or the first step.
        reason: what happened, in words.
        cost: what it had cost by then (not discounted).
    """

    index: int
    step: int
    reason: str
    cost: float = 0.0


@dataclass
class EpisodeRecord:
    """One episode while it is recorded; every column has one entry per step.

    Attributes:
        index: number of the episode under the seed of the collection.
        obs: observations; one more than steps, the last is the one after the last step.
        action: actions taken.
        reward: rewards.
        cost: costs.
        probs: pairs (mu, pi): probabilities of the action taken.
        controls: pairs (b, bbar): the control variate of the action taken, and its mean under pi.
        terminated: the last step ended the episode for good.
        by_target: the whole episode was run by the target itself.
        fallbacks: steps at which the behavior policy failed.
        guarded: steps that a guard gave to the target.
        signals: names of exogenous signals that the environment reports.
        exogenous: [T+1, d] what they were at the reset and after each step; NaN: not reported.
    """

    index: int
    obs: Any = field(default_factory=list)
    action: Any = field(default_factory=list)
    reward: Any = field(default_factory=list)
    cost: Any = field(default_factory=list)
    probs: Any = field(default_factory=list)
    controls: Any = field(default_factory=list)
    terminated: bool = False
    by_target: bool = False
    fallbacks: int = 0
    guarded: int = 0
    signals: tuple[str, ...] = ()
    exogenous: Any = field(default_factory=list)


def exogenous_of(
    records: Sequence[EpisodeRecord], horizon: int
) -> tuple[tuple[str, ...], Floats | None]:
    """Names of exogenous signals, and their paths [N, T+1, d], NaN where there are none."""
    signals = {record.signals for record in records}
    if len(signals) != 1 or signals == {()}:
        return (), None
    names = signals.pop()
    paths = np.full((len(records), horizon + 1, len(names)), np.nan)
    for row, record in enumerate(records):
        one = np.asarray(record.exogenous, np.float64)[: horizon + 1]
        paths[row, : len(one)] = one
    return names, paths

"""Finished episodes of a mixture: what happened, and the weight of every policy at every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.collection.episodes import LostEpisode, discounts
from scopeval.logs.transitions import Transitions

__all__ = ["Failure", "MixtureEpisodes"]

#: Fields with a row for each episode.
_ROWS = (
    "obs", "action", "reward", "cost", "weights", "shares", "length", "last_obs", "terminated",
    "index", "failed", "back",
)  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """The first time that a policy gave no answer.

    Attributes:
        policy: its number.
        episode: number of the episode.
        step: the time step.
        reason: what it gave instead of probabilities.
    """

    policy: int
    episode: int
    step: int
    reason: str


@dataclass(frozen=True, eq=False)
class MixtureEpisodes:
    """N finished episodes of at most T steps, run by a mixture of K policies.

    Attributes:
        obs: state numbers [N, T], or vectors [N, T, d].
        action: as executed: numbers [N, T], or vectors [N, T, m].
        reward: [N, T]; 0 after the end.
        cost: [N, T]; 0 after the end.
        weights: u_k before every step and after the last, [N, T + 1, K]; constant after the end.
        shares: p_k of the episode, [N, K]; 0: the policy took no part, and its weight is no value.
        length: number of steps, [N].
        last_obs: observation after the last step, [N] or [N, d].
        terminated: whether the last step ended the episode for good, [N].
        index: number of the episode under the seed, [N].
        failed: which policies gave no answer somewhere in the episode, [N, K].
        failures: the first of each policy.
        lost: episodes that the environment did not finish.
        whole: whether `last_obs` was recorded.
        back: the step from which on the baseline had control, [N]: it decided alone, whatever the
            policies are, and the weights stay; the length (the default), where it never had.
        exogenous: [N, T + 1, d] signals that no action changes, at the start and after each step;
            NaN where nothing was reported; None: there are none.
        signals: their names.
    """

    obs: NDArray[Any]
    action: NDArray[Any]
    reward: Floats
    cost: Floats
    weights: Floats
    shares: Floats
    length: Ints
    last_obs: NDArray[Any]
    terminated: Bools
    index: Ints
    failed: Bools
    failures: tuple[Failure, ...] = ()
    lost: tuple[LostEpisode, ...] = ()
    whole: bool = True
    back: Ints = None  # type: ignore[assignment]
    exogenous: Floats | None = None
    signals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given: Ints | None = self.back
        if given is None:
            object.__setattr__(self, "back", self.length)

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def horizon(self) -> int:
        """Number of columns T."""
        return int(self.reward.shape[1])

    @property
    def steps(self) -> Bools:
        """[N, T]: which columns are steps and not padding."""
        return np.arange(self.horizon) < self.length[:, None]

    @property
    def taking_part(self) -> Bools:
        """[N, K]: policies that the episode has a value for: they had a share, and never failed.

        A policy that failed once has no value in any episode: those before the failure are the
        episodes in which it did not fail.
        """
        return np.asarray((self.shares > 0) & ~self.failed.any(axis=0))

    def returns(self, gamma: float) -> Floats:
        """sum_t gamma^t R_t of each episode, [N]."""
        return np.asarray(self.reward @ discounts(gamma, self.horizon))

    def select(self, rows: NDArray[Any]) -> MixtureEpisodes:
        """Some of the episodes, by numbers or mask."""
        paths = None if self.exogenous is None else self.exogenous[rows]
        return replace(self, **{name: getattr(self, name)[rows] for name in _ROWS}, exogenous=paths)

    @staticmethod
    def concat(parts: Sequence[MixtureEpisodes]) -> MixtureEpisodes:
        """All episodes of several parts with the same horizon and policies."""
        if len(parts) == 1:
            return parts[0]
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ROWS}
        first: dict[int, Failure] = {}
        for failure in (one for part in parts for one in part.failures):
            first.setdefault(failure.policy, failure)
        lost = tuple(one for part in parts for one in part.lost)
        whole = all(part.whole for part in parts)
        paths = [part.exogenous for part in parts if part.exogenous is not None]
        return MixtureEpisodes(
            **joined,
            failures=tuple(first.values()),
            lost=lost,
            whole=whole,
            exogenous=np.concatenate(paths) if len(paths) == len(parts) else None,
            signals=parts[0].signals,
        )

    def transitions(self) -> Transitions:
        """The steps as a log, to learn from; without those whose next observation is unknown."""
        steps = self.steps
        following = np.concatenate([self.obs[:, 1:], self.last_obs[:, None]], axis=1)
        last = np.arange(self.horizon) == self.length[:, None] - 1
        at = np.nonzero(last)
        following = following.copy()
        following[at] = self.last_obs
        times = np.broadcast_to(np.arange(self.horizon), steps.shape)
        if not self.whole:
            steps = steps & ~(last & ~self.terminated[:, None])
        return Transitions(
            t=times[steps],
            obs=self.obs[steps],
            action=self.action[steps],
            reward=self.reward[steps],
            cost=self.cost[steps],
            next_obs=following[steps],
            terminated=(last & self.terminated[:, None])[steps],
        )


assert set(_ROWS) <= {field.name for field in fields(MixtureEpisodes)}

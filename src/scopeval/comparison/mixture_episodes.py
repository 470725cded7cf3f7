r"""The mixture of episodes: one set of episodes that serves K policies at once.

Policies pi_1 ... pi_K have shares p_k that are fixed before an episode. An A/B test draws one of
them for each episode. Seen without the label, its actions come from

    mu(a | history) = sum_k p_k u_k pi_k(a | s) / sum_k p_k u_k,     u_k = prod pi_k / mu

with the running weights u_k, 1 at the start. Always sum_k p_k u_k = 1, so that no weight exceeds
1 / p_k: p_k u_k is the probability, given the episode so far, that it is an episode of policy k.
Nothing is ever run but the policies themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.collection.episodes import LostEpisode, discounts
from scopeval.logs.transitions import Transitions
from scopeval.policies.episode_state import log_sum

__all__ = ["Failure", "MixtureEpisodes", "mixture_probs", "running_weights"]

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
        interrupted: the user stopped them.
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
    interrupted: bool = False

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
        """All episodes of several parts with the same horizon and policies.

        Of a part without any only what was lost counts: nobody knows the width of its vectors.
        """
        if len(parts) == 1:
            return parts[0]
        some = [part for part in parts if len(part)] or parts[:1]
        joined = {name: np.concatenate([getattr(part, name) for part in some]) for name in _ROWS}
        first: dict[int, Failure] = {}
        for failure in (one for part in parts for one in part.failures):
            first.setdefault(failure.policy, failure)
        lost = tuple(one for part in parts for one in part.lost)
        whole = all(part.whole for part in some)
        paths = [part.exogenous for part in some if part.exogenous is not None]
        return MixtureEpisodes(
            **joined,
            failures=tuple(first.values()),
            lost=lost,
            whole=whole,
            exogenous=np.concatenate(paths) if len(paths) == len(some) else None,
            signals=some[0].signals,
            interrupted=any(part.interrupted for part in parts),
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


def mixture_probs(acting: Floats, probs: Floats) -> Floats:
    """Mu [N, A] of finite actions: sum_k of the posterior [N, K] times pi_k [N, K, A]."""
    return np.asarray(np.einsum("nk,nka->na", acting, probs))


def running_weights(log_probs: Floats, shares: Floats) -> Floats:
    """u_k before every step and after the last, [N, T + 1, K], of recorded episodes.

    The products telescope: u_k = prod pi_k / sum_j p_j prod pi_j.

    Args:
        log_probs: log pi_k of the actions taken, [N, T, K]; 0 after the end of an episode.
        shares: p, [K], positive.
    """
    N, T, K = log_probs.shape
    path = np.zeros((N, T + 1, K))
    np.cumsum(log_probs, axis=1, out=path[:, 1:])
    with np.errstate(invalid="ignore"):
        mixed = log_sum((path + np.log(shares)).reshape(-1, K)).reshape(N, T + 1, 1)
        weights = np.exp(path - mixed)
    return np.asarray(np.nan_to_num(weights, nan=0.0))

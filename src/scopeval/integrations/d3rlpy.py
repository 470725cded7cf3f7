"""d3rlpy: its episodes as logs, its action values as policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats

__all__ = ["action_values", "greedy", "steps_of_episodes"]


def steps_of_episodes(episodes: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Episodes of L observations, actions and rewards: `buffer.episodes` of d3rlpy.

    The observation after the last step is not stored: of that step the reward serves alone, unless
    it terminated.
    """
    lengths = [len(e.actions) for e in episodes]
    ends = [np.arange(n) == n - 1 for n in lengths]
    columns = {
        "episode": np.repeat(np.arange(len(episodes)), lengths),
        "obs": np.concatenate([e.observations for e in episodes]),
        "action": np.concatenate([e.actions for e in episodes]),
        "reward": np.concatenate([np.reshape(e.rewards, -1) for e in episodes]),
        "terminated": np.concatenate(
            [end & bool(e.terminated) for end, e in zip(ends, episodes, strict=True)]
        ),
    }
    if columns["action"].dtype.kind in "iu":  # numbers, stored as [L, 1]
        columns["action"] = columns["action"].reshape(-1)
    return columns


def greedy(
    values: Callable[[NDArray[Any]], NDArray[Any]], actions: int, explore: float = 0.0
) -> Callable[[NDArray[Any], Any], Floats]:
    """A policy that is greedy but for a share of exploration, as DQN is run.

    Args:
        values: (obs) -> [B, A], such as `action_values`.
        actions: A.
        explore: share of the time in which an action is drawn at random.
    """

    def probabilities(obs: NDArray[Any], t: Any) -> Floats:
        best = np.argmax(values(np.asarray(obs)), axis=1)
        return np.asarray(explore / actions + (1 - explore) * np.eye(actions)[best])

    return probabilities


def action_values(algorithm: Any, actions: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Action values [B, A] of a discrete algorithm of d3rlpy, such as DQN or DiscreteCQL."""

    def values(obs: NDArray[Any]) -> NDArray[Any]:
        every = [algorithm.predict_value(obs, np.full(len(obs), a)) for a in range(actions)]
        return np.stack(every, axis=1)

    return values

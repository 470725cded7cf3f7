"""Stable-Baselines3: its models as policies, its buffers as logs.

`as_policy`, and so every verb, takes a model as it is; `policy` is for what can be set.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.errors import InputError
from scopeval.policies.adapters import sb3_policy as policy

__all__ = ["policy", "steps_of_replay_buffer", "steps_of_rollout_buffer"]

Columns = dict[str, NDArray[Any]]


def steps_of_replay_buffer(buffer: Any) -> Columns:
    """A replay buffer of Stable-Baselines3, environment by environment, oldest steps first."""
    if not hasattr(buffer, "dones"):
        raise InputError(
            f"got a {type(buffer).__name__}, expected a replay buffer with dones and timeouts; for "
            "PPO and A2C try steps_of_rollout_buffer(model.rollout_buffer, time_limit)"
        )
    size = buffer.buffer_size if buffer.full else buffer.pos
    order = (np.arange(size) + (buffer.pos if buffer.full else 0)) % buffer.buffer_size

    def flat(values: Any) -> Any:
        rows = np.swapaxes(values[order], 0, 1)
        return rows.reshape(size * buffer.n_envs, *rows.shape[2:])

    done, cut = flat(buffer.dones) > 0, flat(buffer.timeouts) > 0
    last = np.arange(len(done)) % size == size - 1  # of one environment's steps
    columns = {
        "obs": flat(buffer.observations),
        "action": flat(buffer.actions),
        "reward": flat(buffer.rewards).astype(float),
        "next_obs": flat(buffer.next_observations),
        "terminated": done & ~cut,  # `dones` also marks time limits
        "truncated": cut | (last & ~done),
    }
    if columns["action"].dtype.kind in "iu":
        columns["action"] = columns["action"].reshape(-1)
    if not buffer.full:
        return columns
    # the oldest steps of a full buffer are from the middle of an episode, at an unknown time
    environment, ended = np.arange(len(done)) // size, np.cumsum(done | last) - (done | last)
    whole = ended > ended[environment * size]
    return {name: values[whole] for name, values in columns.items()}


def steps_of_rollout_buffer(buffer: Any, time_limit: int | None) -> Columns:
    """The last rollout of PPO or A2C of Stable-Baselines3: `model.rollout_buffer`.

    It stores neither how an episode ended nor the observation after its end. The step before a time
    limit is left out: an estimate of what would have followed was added to its reward.

    Args:
        buffer: the rollout buffer, before or after training with it.
        time_limit: steps after which the environment cuts an episode, None if it never does. All
            shorter episodes that ended count as terminated.
    """
    size = buffer.pos

    def flat(values: Any) -> Any:
        rows = np.swapaxes(values[:size], 0, 1)
        return rows.reshape(size * buffer.n_envs, *rows.shape[2:])

    obs, action = buffer.observations, buffer.actions
    if not buffer.generator_ready:  # training flattens these two
        obs, action = flat(obs), flat(action)
    if buffer.action_space.dtype.kind in "iu":
        action = action.reshape(-1)
    starts, step = flat(buffer.episode_starts) > 0, np.arange(len(obs))
    begins = starts | (step % size == 0)
    episode, first = np.cumsum(begins) - 1, np.flatnonzero(begins)
    ended = np.append(starts[1:], False) & (step % size != size - 1)  # of one environment's steps
    cut = step - first[episode] + 1 == (time_limit or 0)
    last = np.append(begins[1:], True)
    columns = {
        "episode": episode,
        "obs": obs,
        "action": action,
        "reward": flat(buffer.rewards).astype(float),
        "next_obs": np.where(
            last.reshape(-1, *[1] * (obs.ndim - 1)), obs, np.append(obs[1:], obs[-1:], axis=0)
        ),
        "terminated": ended & ~cut,
        "has_next": ~last | ended,
    }
    # a rollout may begin in the middle of an episode, at an unknown time
    whole = starts[first][episode] & ~cut
    return {name: values[whole] for name, values in columns.items()}

"""Logs and policies of other libraries: `scopeval.integrations`; here, what d3rlpy records.

python examples/other_libraries.py
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from scopeval import design, read_logs
from scopeval.integrations import d3rlpy


def recorded(count, seed=0):
    """What d3rlpy's episodes look like: a cart on nine places is pushed left or right."""
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(count):
        place, action = np.full(6, 4), rng.integers(2, size=(6, 1))
        for t in range(5):
            place[t + 1] = np.clip(place[t] + 2 * action[t, 0] - 1 + rng.integers(-1, 2), 0, 8)
        rewards = -np.abs(place - 4.0)[:, None]
        episodes.append(
            SimpleNamespace(observations=place, actions=action, rewards=rewards, terminated=False)
        )
    return episodes


def push_cost(obs, action, reward, next_obs):
    """Pushing to the right costs more; d3rlpy stores no costs, so they are computed."""
    return 1.0 + action


def main():
    logs = read_logs(d3rlpy.steps_of_episodes(recorded(200)), cost=push_cost)
    print(logs.summary())
    policy = d3rlpy.greedy(lambda obs: np.stack([obs - 4, 4 - obs], axis=1), 2, explore=0.3)
    behavior = design(logs, policy, horizon=5, method="scope-dr")
    print(behavior)
    return logs, behavior


if __name__ == "__main__":
    main()

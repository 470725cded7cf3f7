"""Logs and policies of Stable-Baselines3, d3rlpy, RLlib and Hugging Face datasets.

Each function is a few lines that you can copy; none of these libraries is needed to run this file.

    python examples/other_libraries.py
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from scopeval import design, read_logged

# -- logs ------------------------------------------------------------------------------------------


def steps_of_episodes(episodes):
    """Episodes of L observations, actions and rewards: `buffer.episodes` of d3rlpy.

    The observation after the last step is not stored, so that step is dropped unless it terminated.
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


def steps_of_replay_buffer(buffer):
    """A replay buffer of Stable-Baselines3, environment by environment, oldest steps first."""
    if not hasattr(buffer, "dones"):
        raise TypeError(
            f"got a {type(buffer).__name__}, expected a replay buffer with dones and timeouts; for "
            "PPO and A2C try steps_of_rollout_buffer(model.rollout_buffer, time_limit)"
        )
    size = buffer.buffer_size if buffer.full else buffer.pos
    order = (np.arange(size) + (buffer.pos if buffer.full else 0)) % buffer.buffer_size

    def flat(values):
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


def steps_of_rollout_buffer(buffer, time_limit):
    """The last rollout of PPO or A2C of Stable-Baselines3: `model.rollout_buffer`.

    It stores neither how an episode ended nor the observation after its end, and an estimate of
    what would have followed is added to the last reward before a time limit. So the last step of
    such an episode is dropped, and so is that of the rollout.

    Args:
        buffer: the rollout buffer, before or after training with it.
        time_limit: steps after which the environment cuts an episode, None if it never does. All
            shorter episodes that ended count as terminated.
    """
    size = buffer.pos

    def flat(values):
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
    columns = {
        "episode": episode,
        "obs": obs,
        "action": action,
        "reward": flat(buffer.rewards).astype(float),
        "terminated": ended & ~cut,
    }
    # a rollout may begin in the middle of an episode, at an unknown time
    whole = starts[first][episode]
    return {name: values[whole] for name, values in columns.items()}


#: Columns of RLlib's batches and of the Parquet files that it writes.
RLLIB = {
    "obs": "obs",
    "action": "actions",
    "reward": "rewards",
    "next_obs": "new_obs",
    "terminated": "terminateds",
    "truncated": "truncateds",
    "episode": "eps_id",
}


def episodes_of_rllib(episodes):
    """`SingleAgentEpisode`s of RLlib; costs where every info after the first has a "cost"."""
    found = []
    for e in episodes:
        episode = {
            "obs": np.asarray(e.get_observations()),  # L + 1: the last one follows the last action
            "action": np.asarray(e.get_actions()),
            "reward": np.asarray(e.get_rewards()),
            "terminated": bool(e.is_terminated),
        }
        infos = e.get_infos()[1:]
        if all("cost" in info for info in infos):
            episode["cost"] = np.array([info["cost"] for info in infos])
        found.append(episode)
    return found


def episodes_of_table(rows, time_limit=None):
    """Rows with a list per column, one row an episode: `dataset.to_list()` of Hugging Face.

    With one observation more than actions they can be read as they are; with as many, this drops
    the last step, whose next observation is not known, unless it terminated.

    Args:
        rows: dicts with observations, actions, rewards, perhaps costs, and terminated or `dones`.
        time_limit: `dones` count as terminated, except in episodes of this many steps: these were
            cut by a time limit. None if there is none, or if `dones` do not mark it.
    """
    found = []
    for row in rows:
        obs, n = np.stack([np.asarray(x) for x in row["observations"]]), len(row["actions"])
        terminated = ends_of(row, n, time_limit)
        whole = n if len(obs) > n or terminated.any() else n - 1
        following = obs[1 : whole + 1] if len(obs) > whole else np.append(obs[1:], obs[-1:], axis=0)
        episode = {
            "obs": obs[:whole],
            "action": np.asarray(row["actions"])[:whole],
            "reward": np.asarray(row["rewards"], float)[:whole],
            "next_obs": following,
            "terminated": terminated[:whole],
        }
        if "costs" in row:
            episode["cost"] = np.asarray(row["costs"], float)[:whole]
        found.append(episode)
    return found


def ends_of(row, n, time_limit):
    """Whether each of the n steps of a row terminated."""
    if "terminated" in row:  # of each step, or of the episode
        flags = np.asarray(row["terminated"], bool).reshape(-1)
        return flags if len(flags) == n else flags & (np.arange(n) == n - 1)
    if "dones" not in row:
        raise ValueError(f"a row has {', '.join(sorted(row))}, expected terminated or dones too")
    flags = np.asarray(row["dones"], bool).reshape(-1)
    return flags & (np.arange(n) != n - 1) if n == time_limit else flags


# -- policies --------------------------------------------------------------------------------------


def sb3_policy(model):
    """PPO and A2C of Stable-Baselines3 over numbered actions: their own probabilities."""
    import torch

    def probabilities(obs, t):
        with torch.no_grad():
            inputs, _ = model.policy.obs_to_tensor(np.asarray(obs))
            found = model.policy.get_distribution(inputs).distribution.probs
        return found.double().cpu().numpy()

    return probabilities


def greedy_with_exploration(action_values, actions, explore):
    """A policy that is greedy but for a share of exploration, as DQN is run.

    Args:
        action_values: (obs) -> [B, A]: for Stable-Baselines3's DQN
            ``lambda obs: model.q_net(model.policy.obs_to_tensor(obs)[0]).detach().numpy()``, for
            d3rlpy `d3rlpy_values`.
        actions: A.
        explore: share of the time in which an action is drawn at random.
    """

    def probabilities(obs, t):
        best = np.argmax(action_values(np.asarray(obs)), axis=1)
        return explore / actions + (1 - explore) * np.eye(actions)[best]

    return probabilities


def d3rlpy_values(algorithm, actions):
    """Action values [B, A] of a discrete algorithm of d3rlpy, such as DQN or DiscreteCQL."""

    def values(obs):
        every = [algorithm.predict_value(obs, np.full(len(obs), a)) for a in range(actions)]
        return np.stack(every, axis=1)

    return values


# -- all together ----------------------------------------------------------------------------------


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
    logs = read_logged(steps_of_episodes(recorded(200)), cost=push_cost)
    print(logs.summary())
    values = lambda obs: np.stack([obs - 4, 4 - obs], axis=1)  # noqa: E731  (left, right)
    policy = greedy_with_exploration(values, 2, explore=0.3)
    behavior = design(logs, policy, horizon=5, method="scope-dr")
    print(behavior)
    return logs, behavior


if __name__ == "__main__":
    main()

"""Tables with a row an episode: Hugging Face datasets, the Decision Transformer's among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.errors import DataError

__all__ = ["episodes"]


def episodes(
    rows: Iterable[Mapping[str, Any]], time_limit: int | None = None
) -> list[dict[str, Any]]:
    """Rows with a list per column, one row an episode: `dataset.to_list()` of Hugging Face.

    With one observation more than actions they can be read as they are; with as many, nobody
    recorded what followed the last step, unless it terminated.

    Args:
        rows: dicts with observations, actions, rewards, perhaps costs, and terminated or `dones`.
        time_limit: `dones` count as terminated, except in episodes of this many steps: these were
            cut by a time limit. None if there is none, or if `dones` do not mark it.
    """
    read = []
    for row in rows:
        obs, n = np.stack([np.asarray(x) for x in row["observations"]]), len(row["actions"])
        terminated = _ends(row, n, time_limit)
        following = obs[1:] if len(obs) > n else np.append(obs[1:], obs[-1:], axis=0)
        last = np.arange(n) == n - 1
        episode = {
            "obs": obs[:n],
            "action": np.asarray(row["actions"]),
            "reward": np.asarray(row["rewards"], float),
            "next_obs": following,
            "terminated": terminated,
            "has_next": ~last | terminated | (len(obs) > n),
        }
        if "costs" in row:
            episode["cost"] = np.asarray(row["costs"], float)
        read.append(episode)
    return read


def _ends(row: Mapping[str, Any], n: int, time_limit: int | None) -> NDArray[np.bool_]:
    """Whether each of the n steps of a row terminated."""
    last = np.arange(n) == n - 1
    if "terminated" in row:  # of each step, or of the episode
        flags: NDArray[np.bool_] = np.asarray(row["terminated"], bool).reshape(-1)
        return flags if len(flags) == n else flags & last
    if "dones" not in row:
        raise DataError(f"a row has {', '.join(sorted(row))}, expected terminated or dones too")
    flags = np.asarray(row["dones"], bool).reshape(-1)
    return flags & ~last if n == time_limit else flags

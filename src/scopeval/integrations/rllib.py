"""RLlib: its episodes, batches and Parquet files as logs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["COLUMNS", "episodes"]

#: Columns of RLlib's batches and of the Parquet files that it writes.
COLUMNS = {
    "obs": "obs",
    "action": "actions",
    "reward": "rewards",
    "next_obs": "new_obs",
    "terminated": "terminateds",
    "truncated": "truncateds",
    "episode": "eps_id",
}


def episodes(recorded: Iterable[Any]) -> list[dict[str, Any]]:
    """`SingleAgentEpisode`s of RLlib; costs where every info after the first has a "cost"."""
    read = []
    for e in recorded:
        episode = {
            "obs": np.asarray(e.get_observations()),  # L + 1: the last one follows the last action
            "action": np.asarray(e.get_actions()),
            "reward": np.asarray(e.get_rewards()),
            "terminated": bool(e.is_terminated),
        }
        infos = e.get_infos()[1:]
        if all("cost" in info for info in infos):
            episode["cost"] = np.array([info["cost"] for info in infos])
        read.append(episode)
    return read

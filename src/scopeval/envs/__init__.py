"""Environments, one per file. Importing this package registers them with Gymnasium."""

from __future__ import annotations

import gymnasium

__all__: list[str] = []

gymnasium.register(
    id="scopeval/Gridworld-v0",
    entry_point="scopeval.envs.gridworld:make_gridworld_env",
)

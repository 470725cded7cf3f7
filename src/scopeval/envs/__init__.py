"""Environments, one per file. Importing this package registers them with Gymnasium."""

from __future__ import annotations

import gymnasium

__all__: list[str] = []

gymnasium.register(
    id="scopeval/Gridworld-v0",
    entry_point="scopeval.envs.gridworld:make_gridworld_env",
)
gymnasium.register(
    id="scopeval/BinnedRobot-v0",
    entry_point="scopeval.paper.robots.bins:make_binned_robot",
)
gymnasium.register(
    id="scopeval/DataCenter-v0",
    entry_point="scopeval.envs.data_center.environment:DataCenterEnv",
)

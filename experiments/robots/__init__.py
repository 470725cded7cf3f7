"""The paper's robots: environment, bins, shipped policies, logs, training.

Importing it registers ``scopeval/BinnedRobot-v0`` with Gymnasium.
"""

from __future__ import annotations

import gymnasium

__all__: list[str] = []

gymnasium.register(
    id="scopeval/BinnedRobot-v0",
    entry_point="experiments.robots.bins:make_binned_robot",
)

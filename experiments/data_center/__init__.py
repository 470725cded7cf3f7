"""A computer room on EnergyPlus: the environment, its weather, and controllers for it.

Importing it registers ``scopeval/DataCenter-v0`` with Gymnasium.
"""

from __future__ import annotations

import gymnasium

from experiments.data_center.controllers import Controller, operators, target_controllers
from experiments.data_center.environment import DataCenterEnv
from experiments.data_center.fleet import DataCenterFleet
from experiments.data_center.logs import recorded_logs
from experiments.data_center.weather import DAYS, Season

__all__ = [
    "DAYS",
    "Controller",
    "DataCenterEnv",
    "DataCenterFleet",
    "Season",
    "operators",
    "recorded_logs",
    "target_controllers",
]

gymnasium.register(
    id="scopeval/DataCenter-v0",
    entry_point="experiments.data_center.environment:DataCenterEnv",
)

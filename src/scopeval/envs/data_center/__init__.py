"""A computer room on EnergyPlus: the environment, its weather, and controllers for it."""

from __future__ import annotations

from scopeval.envs.data_center.controllers import Controller, operators, target_controllers
from scopeval.envs.data_center.environment import DataCenterEnv
from scopeval.envs.data_center.fleet import DataCenterFleet
from scopeval.envs.data_center.logs import recorded_logs
from scopeval.envs.data_center.weather import DAYS, Season

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

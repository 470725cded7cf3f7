"""Logs of the computer room that come with the package, to learn from without EnergyPlus."""

from __future__ import annotations

from pathlib import Path

from scopeval.logs.read import read_logs
from scopeval.logs.transitions import Transitions

__all__ = ["RECORDED", "recorded_logs"]

RECORDED = Path(__file__).with_name("logs.parquet")


def recorded_logs() -> Transitions:
    """300 days of ten `operators`, with the energy saved as reward.

    They are the ``logs.parquet`` that ``scopeval reproduce energy --logged 300`` writes.
    """
    return read_logs(RECORDED)

"""Logs of the computer room that come with the package, to learn from without EnergyPlus."""

from __future__ import annotations

from pathlib import Path

from scopeval.data.readers import read_logged
from scopeval.data.transitions import Transitions

__all__ = ["RECORDED", "recorded_logs"]

RECORDED = Path(__file__).with_name("logs.parquet")


def recorded_logs() -> Transitions:
    """300 days of ten `operators`, with the energy saved as reward.

    They are the ``logs.parquet`` that ``scopeval reproduce energy --logged 300`` writes.
    """
    return read_logged(RECORDED)

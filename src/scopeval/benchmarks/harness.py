"""Timing two things fairly, and the rows and files that come out of it.

The two take turns, so that a busy moment of the machine hits both, and the best time of each
counts: everything that disturbs a computation only makes it slower.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from scopeval.errors import InputError
from scopeval.provenance import machine, now, versions, write_json

__all__ = ["Row", "Times", "race", "save"]


@dataclass(frozen=True)
class Times:
    """Best wall-clock seconds of the two."""

    ours: float
    peer: float


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        name: what was compared.
        ours: seconds per `unit`.
        peer: seconds per `unit`.
        unit: what was timed: "row", "pass", "episode" ...
        sense: "slower": ratio = ours / peer, and the goal is an upper bound; "faster": ratio =
            peer / ours, and the goal is a lower bound.
        goal: bound on the ratio, None where there is none.
        note: what else the reader should know (sizes, agreement of the answers).
    """

    name: str
    ours: float
    peer: float
    unit: str
    sense: Literal["slower", "faster"]
    goal: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float:
        """How many times slower, or faster, ours is."""
        return self.ours / self.peer if self.sense == "slower" else self.peer / self.ours

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.goal is None:
            return None
        return self.ratio <= self.goal if self.sense == "slower" else self.ratio >= self.goal

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "ratio": self.ratio, "met": self.met}


def race(ours: Callable[[], object], peer: Callable[[], object], *, repeats: int) -> Times:
    """Time both in turn, `repeats` times, after one call of each that does not count."""
    if repeats < 1:
        raise InputError(f"repeats: got {repeats}, expected a whole number >= 1")
    ours(), peer()
    best = [float("inf"), float("inf")]
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            for k, call in enumerate((ours, peer)):
                began = time.perf_counter()
                call()
                best[k] = min(best[k], time.perf_counter() - began)
    finally:
        if enabled:
            gc.enable()
    return Times(*best)


def save(
    path: str | os.PathLike[str],
    name: str,
    command: str,
    rows: Sequence[Row],
    *,
    packages: Sequence[str] = (),
    **more: Any,
) -> Path:
    """Write the rows with the command, the machine, the versions and the date."""
    return write_json(
        path,
        {
            "benchmark": name,
            "command": command,
            "date": now(),
            "machine": machine(),
            "versions": versions(*packages),
            **more,
            "rows": [row.as_dict() for row in rows],
        },
    )

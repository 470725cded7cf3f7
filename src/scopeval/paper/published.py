"""Numbers of the paper's tables, which stand beside ours for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["GRIDWORLD", "ROBOTS", "Published", "as_json"]


class Published(NamedTuple):
    """One method in one of the paper's tables, relative to on-policy Monte Carlo."""

    variance: float
    cost: float
    needed: int
    """Cost for the accuracy of 1,000 on-policy episodes, in on-policy episodes."""

    @property
    def saved(self) -> float:
        """Share of the on-policy cost that is saved at equal accuracy."""
        return 1.0 - self.needed / 1000.0


def _methods(*rows: tuple[float, float, int]) -> dict[str, Published]:
    """The three methods of every table."""
    return {name: Published(*row) for name, row in zip(("scope", "odi", "ros"), rows, strict=True)}


#: Size of the Gridworld -> method -> numbers.
GRIDWORLD = {
    10: _methods((0.547, 0.861, 472), (0.460, 1.602, 738), (0.953, 1.083, 1035)),
    30: _methods((0.575, 0.849, 487), (0.484, 1.590, 765), (0.987, 1.067, 1049)),
}
#: Robot -> method -> numbers.
ROBOTS = {
    "Ant": _methods((0.835, 0.897, 746), (0.811, 1.397, 1136), (1.032, 1.033, 1063)),
    "Hopper": _methods((0.596, 0.930, 552), (0.542, 1.523, 824), (1.005, 1.021, 1026)),
    "InvertedDoublePendulum": _methods(
        (0.778, 0.876, 681), (0.724, 1.399, 1014), (0.992, 1.012, 1003)
    ),
    "InvertedPendulum": _methods((0.439, 0.961, 425), (0.351, 1.743, 615), (0.900, 0.990, 890)),
    "Walker2d": _methods((0.728, 0.953, 694), (0.696, 1.485, 1031), (0.908, 1.061, 960)),
}


def as_json(table: Mapping[str, Published]) -> dict[str, dict[str, float]]:
    """A table of the paper for a JSON file."""
    return {
        method: {"relative_variance": v, "relative_cost": c, "cost_needed": n}
        for method, (v, c, n) in table.items()
    }

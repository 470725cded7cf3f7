"""What the experiments write alike: the paper's numbers, mean curves, and tables as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scopeval.arrays import Floats
from scopeval.paper.curves import standard_errors

__all__ = ["Paper", "as_columns", "mean_curve", "published"]

#: Of one of the paper's tables: label -> (relative variance, relative cost, cost needed).
Paper = Mapping[str, tuple[float, float, int]]


def published(paper: Paper) -> dict[str, dict[str, float]]:
    """The paper's rows, for JSON."""
    return {
        label: {"relative_variance": v, "relative_cost": c, "cost_needed": n}
        for label, (v, c, n) in paper.items()
    }


def mean_curve(errors: Floats, costs: Floats) -> dict[str, list[float]]:
    """Curves [targets, grid] for JSON: means over targets, and the errors' standard errors."""
    return {
        "error": errors.mean(axis=0).tolist(),
        "standard_error": standard_errors(errors).tolist(),
        "cost": costs.mean(axis=0).tolist(),
    }


def as_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows with the same names, as one list for each name."""
    return {name: [row[name] for row in rows] for name in rows[0]}

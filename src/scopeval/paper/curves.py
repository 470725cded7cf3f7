"""Error curves: where one falls below another, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scopeval.arrays import Floats

__all__ = ["Crossing", "crossing_of", "standard_errors"]


@dataclass(frozen=True)
class Crossing:
    """The cost from which on a method is as accurate as on-policy is in the end.

    Attributes:
        cost: in on-policy episodes; None where the method never gets there.
        standard_error: by leaving out one target at a time; None where it is not defined.
    """

    cost: float | None
    standard_error: float | None


def crossing_of(errors: Floats, costs: Floats, own: Floats) -> Crossing:
    """Where the mean over targets of `errors` [K, G] falls below on-policy's last mean error.

    Between two points of the grid both axes are logarithmic. The standard error is the jackknife's
    over targets.
    """
    targets = len(errors)
    everyone = np.ones(targets, np.bool_)
    cost = _cross(errors, costs, own, everyone)
    if targets < 2 or cost is None:
        return Crossing(cost, None)
    without = [_cross(errors, costs, own, np.arange(targets) != k) for k in range(targets)]
    if any(one is None for one in without):
        return Crossing(cost, None)
    left = np.array(without, dtype=np.float64)
    spread = (targets - 1) / targets * ((left - left.mean()) ** 2).sum()
    return Crossing(cost, float(np.sqrt(spread)))


def _cross(errors: Floats, costs: Floats, own: Floats, which: Any) -> float | None:
    level = float(own[which, -1].mean())
    error, cost = errors[which].mean(axis=0), costs[which].mean(axis=0)
    above = np.flatnonzero(error > level)
    if len(above) == 0:
        return float(cost[0])
    last = int(above[-1])
    if last == len(error) - 1:
        return None
    e, c = np.log(error[last : last + 2]), np.log(cost[last : last + 2])
    share = (e[0] - np.log(level)) / (e[0] - e[1])
    return float(np.exp(c[0] + share * (c[1] - c[0])))


def standard_errors(values: Floats) -> Floats:
    """Standard errors over the first axis; zero for a single row."""
    rows = len(values)
    if rows < 2:
        return np.zeros(values.shape[1:])
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(rows))

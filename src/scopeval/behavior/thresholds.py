"""Every number that decides what is run; docs/numbers.md lists them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FLOOR", "THRESHOLDS", "Thresholds"]

#: Share of the target policy that is always mixed in: no importance ratio exceeds 1 / FLOOR.
FLOOR = 0.02


@dataclass(frozen=True)
class Thresholds:
    """Every number that decides what is run.

    Attributes:
        floors: shares of the target policy that the cross-check chooses among, from the setting on.
        cost_doubt: the predicted cost and the doubt about it (`unseen_cost`) together may be this
            much beyond what is allowed, relative to the target's cost; else the design falls back.
        least_support: share of the target policy's steps that logs of vectors must show; else fall
            back. Of state numbers a table knows which pairs the logs do not show: they need it
            only for points of a frontier where no design is confirmed.
        control_variate_variance: checked relative variance below which a design with a control
            variate is used: with rewards that the logs have wrong now and then, a control variate
            of less does harm that held-out logs, which have them wrong too, do not see.
        first_look_support: `least_support` in a first look, which ends clear cases only.
        noted_support: support below which a warning is given.
        noted_infeasible: share of logged states without an affordable answer that is noted.
    """

    floors: tuple[float, ...] = (0.02, 0.25, 0.5, 0.75)
    cost_doubt: float = 0.005
    least_support: float = 0.5
    control_variate_variance: float = 0.9
    first_look_support: float = 0.35
    noted_support: float = 0.9
    noted_infeasible: float = 0.01


THRESHOLDS = Thresholds()

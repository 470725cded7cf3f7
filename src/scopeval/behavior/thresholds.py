"""Every number that decides what is run; docs/numbers.md lists them."""

from __future__ import annotations

__all__ = [
    "CONTROL_VARIATE",
    "FLOOR",
    "FLOORS",
    "HARMLESS",
    "LEAST_GAIN",
    "LEAST_SUPPORT",
    "NOTED_INFEASIBLE",
    "NOTED_SUPPORT",
    "SLACK",
]

#: Share of the target policy that is always mixed in: no importance ratio exceeds 1 / FLOOR.
FLOOR = 0.02
#: Shares of the target policy that are compared, from the setting on.
FLOORS = (0.02, 0.25, 0.5, 0.75)
#: Relative variance that a design must save.
LEAST_GAIN = 0.03
#: Upper end of the relative variance below which a control variate is used with a departure. With
#: rewards that the logs have wrong now and then, one that saves less does harm that held-out logs,
#: which have them wrong too, do not see.
CONTROL_VARIATE = 0.8
#: Share of a control variate that may run with the target policy itself, whatever it saves: with a
#: share x of a q that is c times too large, (1 - x c)^2 of what the draws make is left, at most all
#: of it for c up to 2 / x = 4. It takes three quarters of what the whole of a right q would.
HARMLESS = 0.5
#: The cost and the doubt about it together may be this much beyond what is allowed, relative to the
#: target's cost.
SLACK = 0.005
#: Share of the target policy's steps that logs of vectors must show. Of state numbers a table knows
#: which pairs the logs do not show: they need it only for points of a frontier where no design is
#: confirmed.
LEAST_SUPPORT = 0.5
#: Support below which a warning is given, and share of logged states without an affordable answer
#: above which there is one.
NOTED_SUPPORT, NOTED_INFEASIBLE = 0.9, 0.01

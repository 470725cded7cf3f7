"""What the design methods are: which control variate, which recursion, which constraint.

Every method tilts the target by the same step, `tilt`: mu_a proportional to pi_a sqrt(X_a), within
a budget for the cost. They differ in three choices, and those are the fields of `Method`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats
from scopeval.errors import InputError
from scopeval.solver import Status, solve

__all__ = ["METHODS", "Method", "Tilt", "method_named", "tilt"]


@dataclass(frozen=True)
class Method:
    """A way to design behaviour policies.

    Attributes:
        name: as the user types it.
        control_variate: estimate with b = q (doubly robust) instead of b = 0 (PDIS).
        constrained: keep the expected cost within (1+eps) times the target's.
        tilted: whether it departs from the target at all.
        follows_behavior: the second moment X looks ahead along mu (True), or along pi as in ODI's
            own recursion (False).
    """

    name: str
    control_variate: bool = False
    constrained: bool = False
    tilted: bool = True
    follows_behavior: bool = True


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method("scope", constrained=True),
        Method("scope-dr", control_variate=True, constrained=True),
        Method("odi", follows_behavior=False),
        Method("dopt", control_variate=True),
        Method("on-policy", tilted=False),
    )
}


def method_named(name: str | Method) -> Method:
    """Look a method up by name."""
    if isinstance(name, Method):
        return name
    if not isinstance(name, str) or name not in METHODS:
        raise InputError(f"method: got {name!r}, expected one of {', '.join(METHODS)}")
    return METHODS[name]


@dataclass(frozen=True)
class Tilt:
    """mu [B, A] of one step, how each row ended (`Status`), and where the budget binds."""

    mu: Floats
    status: NDArray[np.int8]
    binding: NDArray[np.bool_]


def tilt(
    method: Method,
    target: Floats,
    second_moment: Floats,
    cost: Floats | None = None,
    budget: Floats | None = None,
) -> Tilt:
    """Behaviour probabilities at B states (paper: Eq. "optimization object rl"; Alg. 1, line 6).

    Args:
        method: which program.
        target: pi, [B, A].
        second_moment: X, [B, A], at least 0.
        cost: q^c, [B, A], and
        budget: delta, [B]; needed by constrained methods.

    Returns:
        Rows where the program has no answer (infeasible, or every second moment zero) hold pi.
    """
    rows = len(target)
    if not method.tilted:
        return Tilt(target, np.zeros(rows, np.int8), np.zeros(rows, np.bool_))
    weight = target * np.sqrt(second_moment)
    largest = weight.max(axis=1, keepdims=True)
    tiny = (largest > 0) & (largest < 1e-100)
    if tiny.any():  # the solver's reciprocals would overflow; the scale does not matter
        weight = np.divide(weight, largest, out=weight.copy(), where=tiny)
    if method.constrained:
        assert cost is not None
        assert budget is not None
        solution = solve(weight, cost, budget)
        mu, status, binding = solution.mu, solution.status, solution.binding
    else:
        total = weight.sum(axis=1, keepdims=True)
        keep = total[:, 0] == 0
        if not method.follows_behavior:
            # An action that pi takes but mu never would: ODI's authors keep pi at such a state.
            hole = (weight == 0) & (target > 0)
            keep |= hole.any(axis=1)
        mu = weight / np.where(total > 0, total, 1.0)
        status = np.where(keep, Status.INDIFFERENT, Status.SOLVED).astype(np.int8)
        binding = np.zeros(rows, np.bool_)
    return Tilt(np.where((status == Status.SOLVED)[:, None], mu, target), status, binding)

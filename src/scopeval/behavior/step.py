"""One step of every method: line 6 of Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats
from scopeval.behavior.methods import Method
from scopeval.solver.program import Status, solve, solve_priced

__all__ = ["Tilt", "tilt"]


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
    price: float | None = None,
) -> Tilt:
    """Behavior probabilities at B states (paper: Eq. "optimization object rl"; Alg. 1, line 6).

    Args:
        method: which program.
        target: pi, [B, A].
        second_moment: X, [B, A], at least 0.
        cost: q^c, [B, A], and
        budget: delta, [B]; needed by constrained methods, or instead
        price: of cost, where the budget is not each state's own.

    Returns:
        Rows where the program has no answer (infeasible, or every second moment zero) hold pi; with
        a price, those where every second moment is zero hold the cheapest actions.
    """
    rows = len(target)
    if not method.tilted:
        return Tilt(target, np.zeros(rows, np.int8), np.zeros(rows, np.bool_))
    weight = target * np.sqrt(second_moment)
    if price is not None:
        assert cost is not None
        solution = solve_priced(weight, cost, price)
        binding = (solution.status == Status.SOLVED) & (price > 0)
        return Tilt(solution.mu, solution.status, np.asarray(binding))
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

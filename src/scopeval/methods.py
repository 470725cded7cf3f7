"""What the design methods are: which control variate, which recursion, which constraint.

Every method tilts the target by the same step, `tilt`: mu_a proportional to pi_a sqrt(X_a), within
a budget for the cost. They differ in three choices, and those are the fields of `Method`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats
from scopeval.errors import InputError
from scopeval.solver import Status, solve, solve_priced

__all__ = [
    "BUDGETS",
    "METHODS",
    "Method",
    "Tilt",
    "check_budget",
    "find_price",
    "method_named",
    "tilt",
]

#: What the promise is about: the rest of the episode from every state on, or whole episodes.
BUDGETS = ("state", "episode")


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
    price: float | None = None,
) -> Tilt:
    """Behaviour probabilities at B states (paper: Eq. "optimization object rl"; Alg. 1, line 6).

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


def check_budget(budget: str, limit: object = None, constraint: str = "behavior") -> str:
    """What the promise is about; some settings are for every state's own budget only."""
    if not isinstance(budget, str) or budget not in BUDGETS:
        raise InputError(f"budget: got {budget!r}, expected {' or '.join(map(repr, BUDGETS))}")
    if budget == "episode" and limit is not None:
        raise InputError(
            f"limit: got {limit!r} with budget='episode', but a limit is for every state; "
            "try budget='state', or leave limit out"
        )
    if budget == "episode" and constraint != "behavior":
        raise InputError(
            f"constraint: got {constraint!r} with budget='episode', expected 'behavior': what an "
            "episode costs is what the behaviour policy spends"
        )
    return budget


def find_price(
    spent: Callable[[list[float]], Sequence[float]],
    allowed: float,
    unit: float,
    *,
    slack: float = 0.0,
    rounds: int = 12,
) -> float | None:
    """The least price at which whole episodes cost no more than is allowed.

    Args:
        spent: expected costs of episodes at some prices; they fall as prices rise.
        allowed: what they may cost.
        unit: a price to begin with.
        slack: what may be left unspent.
        rounds: of refinement at most, three prices each.

    Returns:
        None if no price saves enough. That something must be saved is taken for granted.
    """
    unit = unit if 0.0 < unit < np.inf else 1.0
    low, high = (0.0, np.inf), (np.inf, -np.inf)  # price and cost: too dear, affordable

    def look(prices: list[float]) -> None:
        nonlocal low, high
        for price, cost in zip(prices, spent(prices), strict=True):
            if cost <= allowed and price < high[0]:
                high = price, cost
            elif cost > allowed and low[0] < price < high[0]:
                low = price, cost

    look([unit * part for part in (0.25, 1.0, 4.0)])
    if low[0] == 0.0:
        look([unit * part for part in (0.0625, 0.0156, 0.0039)])
    for parts in ((16.0, 64.0, 256.0), (1e3, 1e4, 1e6)):
        if high[0] == np.inf:
            look([unit * part for part in parts])
    if high[0] == np.inf:
        return None
    if low[0] == 0.0:
        low = high[0] * 1e-3, low[1]
    for k in range(rounds):
        ratio = high[0] / low[0]
        if ratio <= 1.0 + 1e-13 or allowed - high[1] <= slack:
            break
        # between the two by their costs; in turns close to that point and far around it
        part = (low[1] - allowed) / (low[1] - high[1]) if low[1] < np.inf else 0.5
        part = min(max(part, 0.05), 0.95)
        around = (0.95 * part, part, part + 0.05 * (1 - part))
        far = (0.5 * part, part, part + 0.5 * (1 - part))
        look([low[0] * ratio**one for one in (far if k % 2 else around)])
    return high[0]

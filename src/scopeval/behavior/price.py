"""The price of cost at which whole episodes cost no more than allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["find_price"]


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
    bracket = _Bracket(spent, allowed)
    unit = unit if 0.0 < unit < np.inf else 1.0
    bracket.look([unit * part for part in (0.25, 1.0, 4.0)])
    if bracket.low == 0.0:
        bracket.look([unit * part for part in (0.0625, 0.0156, 0.0039)])
    for parts in ((16.0, 64.0, 256.0), (1e3, 1e4, 1e6)):
        if bracket.high == np.inf:
            bracket.look([unit * part for part in parts])
    if bracket.high == np.inf:
        return None
    if bracket.low == 0.0:
        bracket.low = bracket.high * 1e-3
    for k in range(rounds):
        if bracket.high / bracket.low <= 1.0 + 1e-13 or allowed - bracket.high_cost <= slack:
            break
        bracket.refine(far=k % 2 == 1)
    return bracket.high


class _Bracket:
    """Two prices: at the lower one episodes cost too much, at the higher one they do not."""

    def __init__(self, spent: Callable[[list[float]], Sequence[float]], allowed: float) -> None:
        self.spent, self.allowed = spent, allowed
        self.low, self.low_cost = 0.0, np.inf
        self.high, self.high_cost = np.inf, -np.inf

    def look(self, prices: list[float]) -> None:
        """Try some prices, and narrow the bracket by what they cost."""
        for price, cost in zip(prices, self.spent(prices), strict=True):
            if cost <= self.allowed and price < self.high:
                self.high, self.high_cost = price, cost
            elif cost > self.allowed and self.low < price < self.high:
                self.low, self.low_cost = price, cost

    def refine(self, far: bool) -> None:
        """Try prices between the two, by their costs: close to that point, or far around it."""
        part, quotient = 0.5, self.high / self.low
        if self.low_cost < np.inf:
            part = (self.low_cost - self.allowed) / (self.low_cost - self.high_cost)
        part = min(max(part, 0.05), 0.95)
        around = (0.95 * part, part, part + 0.05 * (1 - part))
        wide = (0.5 * part, part, part + 0.5 * (1 - part))
        self.look([self.low * quotient**one for one in (wide if far else around)])

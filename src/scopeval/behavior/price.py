"""The price of cost at which whole episodes cost no more than allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scopeval.arrays import Floats

__all__ = ["approach", "find_price"]

#: What `approach` leaves unspent, as a share of what is allowed, and how many prices it tries.
SLACK, TRIES = 2e-3, 12


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


def approach(
    spent: Callable[[float], float],
    allowed: float,
    places: Floats,
    costs: Floats,
) -> float:
    """The log price at which episodes cost what is allowed, or a little less.

    For costs that take a while to compute, and are nearly known: where the known ones change by
    what is missing, and by the secant once both sides have been tried.

    Args:
        spent: cost at a log price; it falls as prices rise.
        allowed: what it may be.
        places: log prices, ascending, of
        costs: that are about those of `spent`.

    Returns:
        The best of those tried that costs no more; the most expensive price tried if none does.
    """
    falling = np.minimum.accumulate(costs)

    def place_of(cost: float) -> float:
        return float(np.interp(-cost, -falling, places))

    x = place_of(allowed)
    tried: dict[float, float] = {}
    for _ in range(TRIES):
        tried[x] = gap = spent(x) - allowed
        if -SLACK * allowed <= gap <= 1e-6 * allowed:
            break
        fine = [one for one, far in tried.items() if far <= 1e-6 * allowed]
        over = [one for one, far in tried.items() if far > 1e-6 * allowed]
        if fine and over:
            high, low = min(fine), max(over)
            part = (tried[low] + 0.3 * SLACK * allowed) / max(tried[low] - tried[high], 1e-300)
            ahead = low + min(max(part, 0.1), 0.9) * (high - low)
        else:
            nearly = float(np.interp(x, places, falling))
            ahead = place_of(nearly - gap - 0.5 * SLACK * allowed)
        if ahead in tried:
            break
        x = ahead
    fine = [one for one, far in tried.items() if far <= 1e-6 * allowed]
    return min(fine) if fine else max(tried)


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

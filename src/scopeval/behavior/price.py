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

"""The compiled part of `scopeval.exact.weighted_design`: mu between the prices of a table."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def weigh_row(table: Any, pi: Any, place: float, share: float, mu: Any) -> None:
    """Probabilities between two prices of a table [U, A], at least `share` of pi.

    Args:
        table: mu at every price.
        pi: [A].
        place: where on the grid, beyond its ends too.
        share: in 0..1. At most the answer is pi itself.
        mu: [A], the answer: the mixture of the table's two neighbors; where that is below the
            bound it is raised, and what lies above the bound elsewhere pays for it.
    """
    A, points = len(pi), len(table)
    place = min(max(place, 0.0), points - 1.0)
    i = min(int(place), points - 2)
    part = place - i
    above = 0.0
    for a in range(A):
        mu[a] = table[i, a] + part * (table[i + 1, a] - table[i, a])
        above += max(mu[a] - share * pi[a], 0.0)
    scale = (1.0 - share) / above if above > 0.0 else 0.0
    for a in range(A):
        mu[a] = share * pi[a] + scale * max(mu[a] - share * pi[a], 0.0)


@compiled  # type: ignore[untyped-decorator]
def weigh_rows(
    tables: Any,  # [T, S, U, A]
    times: Any,  # [B]
    states: Any,  # [B]
    weights: Any,  # [B]
    pi: Any,  # [B, A]
    grid: Any,  # place of weight 1 at t = 0, grid step in log price, -log(gamma) in steps
    floor: float,
    cap: float,
    mu: Any,  # out [B, A]
) -> None:
    """`weigh_row` for episodes of given weights."""
    for n in range(len(pi)):
        place, share = price_of(weights[n], times[n], grid, floor, cap)
        weigh_row(tables[times[n], states[n]], pi[n], place, share, mu[n])


@compiled  # type: ignore[untyped-decorator]
def price_of(weight: float, t: int, grid: Any, floor: float, cap: float) -> Any:
    """Where the price of an episode of this weight lies on the grid, and the least share of pi."""
    origin, width, shift = grid
    place = origin + t * shift - 2.0 * np.log(weight) / width if weight > 0.0 else np.inf
    return place, min(max(floor, weight / cap), 1.0)

"""The betting sequence against its definition, evaluated with nothing but a loop."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scopeval.estimation.betting import BettingSequence


def interval_by_definition(values, alpha, side, cells):
    """Nearest rejected candidates on the grid, by the formulas of Waudby-Smith and Ramdas."""
    threshold = (2 if side == "both" else 1) / alpha
    low, high = 0, cells
    candidates = np.arange(cells + 1) / cells
    up, down = np.ones(cells + 1), np.ones(cells + 1)
    total, squares = 0.0, 0.0
    for i, x in enumerate(values, start=1):
        variance = (0.25 + squares) / i  # of the values before this one
        bet = math.sqrt(2 * math.log(threshold) / (variance * i * math.log(1 + i)))
        for k in range(1, cells):
            m = candidates[k]
            up[k] *= 1 + min(bet, 0.5 / m) * (x - m)
            down[k] *= 1 - min(bet, 0.5 / (1 - m)) * (x - m)
            if side != "upper" and up[k] >= threshold:
                low = max(low, k)
            if side != "lower" and down[k] >= threshold:
                high = min(high, k)
        total += x
        squares += (x - (0.5 + total) / (i + 1)) ** 2
    return candidates[low], candidates[high]


@pytest.mark.parametrize("side", ["both", "lower", "upper"])
@pytest.mark.parametrize("seed", range(4))
def test_intervals_are_those_of_the_definition(side, seed):
    rng = np.random.default_rng(seed)
    values = rng.beta(*rng.uniform(0.3, 3.0, 2), size=60)
    alpha, cells = (0.05, 0.2)[seed % 2], 40
    sequence = BettingSequence(alpha, side=side, grid=cells)
    for count in (5, 20, 60):
        sequence = BettingSequence(alpha, side=side, grid=cells)
        found = sequence.update(values[:count])
        low, high = interval_by_definition(values[:count], alpha, side, cells)
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    assert high - low < 0.9 or side != "both"  # it learned something

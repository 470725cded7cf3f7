"""Bets against hypotheses about means: valid for every number of values and every distribution.

For values x >= -L with E[x] <= 0 given the earlier values, and any fraction 0 <= f <= 1,

    prod_i (1 + f x_i / L)

is never negative and does not grow in expectation: the capital of a gambler who bets the share f
of it on "x is positive". So is the mean of several such gamblers. By Ville's inequality it ever
reaches 1 / alpha with probability alpha at most, so a capital of 1 / alpha refutes E[x] <= 0. Only
the *lower* end of x must be known; above, x may have any tail.

The mean over a geometric grid of fractions f replaces a choice of f from the data: it loses a
factor of at most the number of fractions against the best of them. The product does not depend on
the order of the values, so the capital is a function of the set of values seen.
"""

from __future__ import annotations

import numpy as np

from scopeval.arrays import Floats

__all__ = ["FRACTIONS", "Capital", "mean_capital"]

#: Shares of the capital that the gamblers bet. The smallest ones serve a million values.
FRACTIONS: Floats = 0.98 * 2.0 ** -np.arange(15.0)

_TOGETHER = 16  # values multiplied before a logarithm: at worst 0.02^16, far from underflow
_ROWS = 128  # values in one block of values x hypotheses x fractions


class Capital:
    """The capital of bets against C hypotheses E[x_c] <= 0, with x_c >= -loss_c.

    Args:
        loss: [C] the largest possible loss, above 0.
    """

    def __init__(self, loss: Floats) -> None:
        self._scale = 1.0 / np.asarray(loss, np.float64)
        self._log: Floats = np.zeros((len(self._scale), len(FRACTIONS)))

    def update(self, x: Floats) -> None:
        """Take in k values for every hypothesis, [k, C]; the caller checks x >= -loss."""
        for start in range(0, len(x), _ROWS):
            part = np.maximum(x[start : start + _ROWS] * self._scale, -1.0)  # rounding
            growth = 1.0 + part[:, :, None] * FRACTIONS
            edges = np.arange(0, len(part), _TOGETHER)
            self._log += np.log(np.multiply.reduceat(growth, edges, axis=0)).sum(axis=0)

    @property
    def logarithm(self) -> Floats:
        """[C] logarithm of the capital, from a start of 1."""
        return mean_capital(self._log.T)


def mean_capital(logs: Floats) -> Floats:
    """Logarithm of the mean over the first axis of capitals given by logarithms."""
    highest = logs.max(axis=0)
    return np.asarray(highest + np.log(np.exp(logs - highest).mean(axis=0)))

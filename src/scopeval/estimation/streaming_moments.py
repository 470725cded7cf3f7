"""Running moments: what is known of many values, in memory that does not grow with them.

Batches are merged by the pairwise formulas of Chan, Golub and LeVeque (1983) and Pebay (2008),
which lose no digits to a large mean. The order and the size of the batches do not matter, up to
rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Moments", "Scatter"]

FloatArray = npt.NDArray[np.float64]


@dataclass(slots=True)
class Moments:
    """Count, mean and central sums of powers of single numbers.

    square = sum (x - mean)^2 and cube = sum (x - mean)^3.
    """

    n: int = 0
    mean: float = 0.0
    square: float = 0.0
    cube: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def merge(self, x: FloatArray) -> None:
        """Take in the values x, shape [k]."""
        k = x.size
        if k == 0:
            return
        mean = float(x.mean())
        centred = x - mean
        square = float(np.dot(centred, centred))
        cube = float(np.dot(centred * centred, centred))
        n, total = self.n, self.n + k
        gap = mean - self.mean
        self.cube += (
            cube
            + gap * gap * gap * n * k * (n - k) / total**2
            + 3 * gap * (n * square - k * self.square) / total
        )
        self.square += square + gap * gap * n * k / total
        self.mean += gap * k / total
        self.n = total
        self.low = min(self.low, float(x.min()))
        self.high = max(self.high, float(x.max()))

    @property
    def constant(self) -> bool:
        """Whether all values so far are equal."""
        return self.low == self.high

    @property
    def std(self) -> float:
        """Sample standard deviation (n - 1); 0 for fewer than two values."""
        return 0.0 if self.n < 2 or self.constant else math.sqrt(self.square / (self.n - 1))

    @property
    def skewness(self) -> float:
        """Sample skewness: the third standardized moment; 0 for equal values."""
        if self.constant or self.square <= 0.0:
            return 0.0
        return self.cube / self.square * math.sqrt(self.n / self.square)


class Scatter:
    """Means and covariances of rows of k numbers."""

    def __init__(self, width: int) -> None:
        self.n = 0
        self.mean: FloatArray = np.zeros(width)
        self._square: FloatArray = np.zeros((width, width))

    def merge(self, rows: FloatArray) -> None:
        """Take in rows, shape [k, width]."""
        k = len(rows)
        if k == 0:
            return
        mean = rows.mean(axis=0)
        centred = rows - mean
        gap = mean - self.mean
        total = self.n + k
        self._square += centred.T @ centred + np.outer(gap, gap) * (self.n * k / total)
        self.mean = self.mean + gap * (k / total)
        self.n = total

    @property
    def covariance(self) -> FloatArray:
        """Sample covariances (n - 1), [width, width]; 0 for fewer than two rows."""
        return self._square / max(self.n - 1, 1)

"""Running means and covariances of rows of numbers."""

from __future__ import annotations

import math

import numpy as np

from scopeval.estimation.running_moments import FloatArray

__all__ = ["Scatter"]


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

    def error(self, direction: FloatArray) -> float:
        """Standard error of a linear combination of the means; inf for fewer than two rows."""
        spread = float(direction @ self.covariance @ direction)
        return math.sqrt(max(spread, 0.0) / self.n) if self.n > 1 else math.inf

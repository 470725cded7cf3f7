"""The linear part of the networks' critics: ridge regression for each action, solved exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints

__all__ = ["ONE_HOT_NOISE_RIDGE", "ONE_HOT_RIDGE", "Ridge"]

#: Pseudo-rows at the mean that every one-hot pair starts with, ...
ONE_HOT_RIDGE = 0.1
#: ... and for the noise, which takes more rows to learn.
ONE_HOT_NOISE_RIDGE = 2.0


class Ridge:
    """Linear regression for each action, its normal equations factorized once.

    Args:
        x: [n, d] inputs; not used for state numbers.
        code: [n] state numbers, which stand for one-hot inputs; not used for vectors.
        act: [n] actions.
        weight: [n] of the rows.
        states: number of states; None for vectors.
        actions: number of actions.
    """

    def __init__(
        self,
        x: NDArray[Any],
        code: Ints,
        act: Ints,
        weight: Floats,
        states: int | None,
        actions: int,
    ) -> None:
        self.weight, self.states, self.A = weight, states, actions
        if states is not None:  # one-hot: the normal equations are a count
            self.pair = code * actions + act
            self.count = np.bincount(self.pair, weight, states * actions)
            return
        self.parts = []
        for a in range(actions):
            rows = np.flatnonzero(act == a)
            z = np.column_stack([np.ones(len(rows)), x[rows]]).astype(np.float64)
            zw = z * weight[rows, None]
            gram = z.T @ zw
            gram[1:, 1:] += (1.0 + 1e-3 * weight[rows].sum()) * np.eye(x.shape[1])
            gram[0, 0] += 1e-3
            self.parts.append((rows, np.linalg.solve(gram, zw.T)))

    def solve(
        self, y: NDArray[np.float32], one_hot_ridge: float = ONE_HOT_RIDGE
    ) -> tuple[Floats, Floats]:
        """Intercepts [H, A] and slopes [H, A, d] for targets [n, H]."""
        H = y.shape[1]
        if self.states is not None:
            slope = np.empty((H, self.A, self.states))
            for head in range(H):
                total = np.bincount(self.pair, self.weight * y[:, head], len(self.count))
                table = total / (self.count + one_hot_ridge)
                slope[head] = table.reshape(self.states, self.A).T
            return np.zeros((H, self.A)), slope
        solved = [inverse @ y[rows] for rows, inverse in self.parts]  # [1 + d, H] each
        both = np.stack(solved, axis=1)  # [1 + d, A, H]
        return both[0].T, np.moveaxis(both[1:], (0, 1, 2), (2, 1, 0))

"""The compiled part of `behavior.sweep`: what a step of the sweep carries on, row by row."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def values(pi: Any, q: Any, cost: Any, error: Any) -> Any:
    """Value and cost of the target [B], and the squared error of the value [B]."""
    B, A = pi.shape
    v, v_cost, unsure = np.empty(B), np.empty(B), np.empty(B)
    for i in range(B):
        value, paid, wrong = 0.0, 0.0, 0.0
        for a in range(A):
            value += pi[i, a] * q[i, a]
            paid += pi[i, a] * cost[i, a]
            wrong += pi[i, a] * pi[i, a] * error[i, a]
        v[i], v_cost[i], unsure[i] = value, paid, wrong
    return v, v_cost, unsure


@compiled  # type: ignore[untyped-decorator]
def follow(
    pi: Any,
    mu: Any,
    b: Any,
    q: Any,
    noise: Any,
    carried: Any,
    cost: Any,
    v: Any,
    unsure: Any,
    j: int,
    variance: Any,
    paid: Any,
    same: Any,
) -> None:
    """Variance and cost of behavior j from here on, [B, k]; and where mu is pi, [B].

    The variance is E_mu[rho^2 ((q - b)^2 + noise + carried)] - (v - E_pi[b])^2, less the squared
    error of v, for E[v^2] is larger than v^2.
    """
    B, A = pi.shape
    for i in range(B):
        second, lead, spent, kept = 0.0, v[i], 0.0, True
        for a in range(A):
            p, m = pi[i, a], mu[i, a]
            rest = q[i, a] - b[i, a]
            ratio = p / m if m > 0.0 else 0.0
            second += p * ratio * (rest * rest + noise[i, a] + carried[i, a, j])
            lead -= p * b[i, a]
            spent += m * cost[i, a, j]
            kept = kept and abs(m - p) < 1e-12
        left = second - lead * lead - unsure[i]
        variance[i, j] = 0.0 if left < 0.0 else left  # NaN stays
        paid[i, j] = spent
        same[i] = kept

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
    v, v_cost, v_error = np.empty(B), np.empty(B), np.empty(B)
    for i in range(B):
        value, paid, wrong = 0.0, 0.0, 0.0
        for a in range(A):
            value += pi[i, a] * q[i, a]
            paid += pi[i, a] * cost[i, a]
            wrong += pi[i, a] * pi[i, a] * error[i, a]
        v[i], v_cost[i], v_error[i] = value, paid, wrong
    return v, v_cost, v_error


@compiled  # type: ignore[untyped-decorator]
def carry_on(
    pi: Any, mu: Any, q: Any, b: Any, noise: Any, carried: Any, cost: Any, v_error: Any,
    variance: Any, paid: Any,
) -> Any:  # fmt: skip
    """Variance and cost of a behavior from here on, [B] each; returned: where mu is pi, [B].

    With rest = q - b and lead = E_pi[rest], the variance E_mu[rho^2 X] - lead^2 is written
    E_mu[(rho rest - lead)^2] + E_mu[rho^2 (noise + carried)]: a large mean takes no digits away.
    The squared error of v is subtracted, for E[v^2] is larger than v^2.
    """
    B, A = pi.shape
    same = np.empty(B, np.bool_)
    for i in range(B):
        lead, spent, kept = 0.0, 0.0, True
        for a in range(A):
            p, m = pi[i, a], mu[i, a]
            lead += p * (q[i, a] - b[i, a]) if m > 0.0 else 0.0
            spent += m * cost[i, a]
            kept = kept and abs(m - p) < 1e-12
        left = -v_error[i]
        for a in range(A):
            p, m = pi[i, a], mu[i, a]
            rho = p / m if m > 0.0 else 0.0
            gap = rho * (q[i, a] - b[i, a]) - lead
            left += (m * gap) * gap + p * rho * (noise[i, a] + carried[i, a])
        variance[i] = 0.0 if left < 0.0 else left  # NaN stays
        paid[i] = spent
        same[i] = kept
    return same

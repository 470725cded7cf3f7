"""The compiled part of `behavior.cost_error`: episodes one step on, and what each row says."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from scopeval.behavior._frontier_kernel import between, place

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def one_step(
    pairs: Any, rows: Any, here: Any, own: Any, mu: Any, pi: Any, ahead: Any, ratio: float,
    scale: float, gamma: float, step: float, changes: Any, apart: Any,
) -> Any:  # fmt: skip
    """Move both distributions by one step; returns those of the next step.

    Args:
        pairs: (order, begin) of the rows by pair s A + a.
        rows: (next_obs, alive, share, cost): share is a row's part of its pair.
        here: [S, U] chance of being in s with a price at place j, under the behavior policy.
        own: [S] chance under the target policy.
        mu: [U, S, A].
        pi: [S, A].
        ahead: [S, 1 + U] expected cost from the next step on; index 0: the target's.
        ratio: relative cost of the behavior policy.
        scale: gamma^t.
        gamma: discount.
        step: log ratio of neighboring prices.
        changes: [rows], added to: what the relative cost would change by, were the pair's outcome
            always that of this row.
        apart: [S A, 2], added to: how often the pair is taken more than `ratio` times as often as
            by the target policy, with its sign and without.
    """
    order, begin = pairs
    next_obs, alive, share, cost = rows
    U, S, A = mu.shape
    top, per_log = float(U - 1), 1.0 / step
    shift = -np.log(gamma) * per_log
    then, own_then = np.zeros((S, U)), np.zeros(S)
    taken, where = np.empty(U), np.empty(U)
    for s in range(S):
        most = 0.0
        for j in range(U):
            most = max(most, here[s, j])
        if most <= 0.0 and own[s] <= 0.0:
            continue
        for a in range(A):
            p = s * A + a
            total = 0.0
            for j in range(U):
                taken[j] = here[s, j] * mu[j, s, a]
                total += taken[j]
                if taken[j] > 0.0:
                    where[j] = place(float(j), mu[j, s, a], pi[s, a], shift, per_log, top)
            target = own[s] * pi[s, a]
            apart[p, 0] += scale * (total - ratio * target)
            apart[p, 1] += scale * abs(total - ratio * target)
            for r in range(begin[p], begin[p + 1]):
                i = order[r]
                to, goes_on = next_obs[i], alive[i]
                value = -ratio * target * (cost[i] + gamma * goes_on * ahead[to, 0])
                own_then[to] += goes_on * share[i] * target
                for j in range(U):
                    if taken[j] <= 0.0:
                        continue
                    follows = between(ahead[to], where[j])
                    value += taken[j] * (cost[i] + gamma * goes_on * follows)
                    k = min(int(where[j]), U - 2)
                    part = where[j] - k
                    flow = goes_on * share[i] * taken[j]
                    then[to, k] += (1.0 - part) * flow
                    then[to, k + 1] += part * flow
                changes[i] += scale * value
    return then, own_then

"""The compiled part of `experiments.baselines.ros`: independent runs of tabular ROS."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from scopeval._simulate_kernel import draw, step
from scopeval.policies._random_kernel import drawn, stream, uniform

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def run_ros(
    seed: int,
    first: int,
    gamma: float,
    alpha: float,
    horizon: int,
    model: Any,  # `simulate.ModelArrays`
    ends: Any,  # [S] absorbing states
    pi: Any,  # [T or 1, S, A]
    offline: Any,  # [T or 1, S, A] action counts to begin with
    reset: bool,
    returns: Any,  # out [runs, episodes]
    costs: Any,  # out [runs, episodes]
) -> None:
    """Runs first, first + 1, ...; run r is a pure function of (seed, r)."""
    runs, episodes = returns.shape
    depth, S, A = pi.shape
    noisy = model.spread.max() > 0.0
    log_pi = np.log(pi)
    before = offline.sum()
    weight = np.empty(A)
    trail = np.empty((horizon, 2), np.int64)
    for r in range(runs):
        run_key = stream(seed, first + r)
        taken = offline.copy()  # n(s, a)
        visits = np.zeros((depth, S))  # n(s)
        for d in range(depth):
            for i in range(S):
                visits[d, i] = offline[d, i].sum()
        steps = before  # N
        for e in range(episodes):
            key = stream(run_key, e)
            s = draw(model.start, 0, len(model.start), uniform(key, 0))
            total = 0.0
            paid = 0.0
            discount = 1.0
            length = 0
            for t in range(horizon):
                if ends[s]:
                    break
                d = t % depth
                scale = alpha / steps if steps > 0 else 0.0
                # logit_b = log pi - alpha (n(s,a) - n(s) pi) / N
                top = -np.inf
                for a in range(A):
                    weight[a] = log_pi[d, s, a] - scale * (
                        taken[d, s, a] - visits[d, s] * pi[d, s, a]
                    )
                    top = max(top, weight[a])
                mass = 0.0
                for a in range(A):
                    weight[a] = np.exp(weight[a] - top)
                    mass += weight[a]
                chosen = drawn(weight, uniform(key, 4 * t + 1) * mass)
                reward, cost, following = step(model, key, t, s, chosen, noisy)
                total += discount * reward
                paid += discount * cost
                discount *= gamma
                taken[d, s, chosen] += 1
                visits[d, s] += 1
                steps += 1
                trail[t, 0] = s
                trail[t, 1] = chosen
                length += 1
                s = following
            returns[r, e] = total
            costs[r, e] = paid
            if reset:
                for t in range(length):
                    taken[t % depth, trail[t, 0], trail[t, 1]] -= 1
                    visits[t % depth, trail[t, 0]] -= 1
                steps = before

"""The compiled part of `experiments.baselines.bps`: independent runs of tabular policy search."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from scopeval._simulate_kernel import draw, step
from scopeval.policies._random_kernel import drawn, stream, uniform

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def softmax_rows(theta: Any, probs: Any) -> bool:
    """Write softmax(theta) into probs; False, and probs unchanged, if theta is not finite."""
    depth, S, A = theta.shape
    for d in range(depth):
        for s in range(S):
            for a in range(A):
                if not theta[d, s, a] < np.inf:
                    return False
    for d in range(depth):
        for s in range(S):
            top = theta[d, s].max()
            mass = 0.0
            for a in range(A):
                probs[d, s, a] = np.exp(theta[d, s, a] - top)
                mass += probs[d, s, a]
            probs[d, s] /= mass
    return True


@compiled  # type: ignore[untyped-decorator]
def run_bps(
    seed: int,
    first: int,
    gamma: float,
    rate: float,
    batch: int,
    search: int,
    horizon: int,
    model: Any,  # `simulate.ModelArrays`
    ends: Any,  # [S] absorbing states
    pi: Any,  # [T or 1, S, A]
    values: Any,  # out [runs, episodes]
    costs: Any,  # out [runs, episodes]
    found: Any,  # out [runs, T or 1, S, A]
    diverged: Any,  # out [runs]
) -> None:
    """Runs first, first + 1, ...; run r is a pure function of (seed, r)."""
    runs, episodes = values.shape
    A = pi.shape[2]
    depth = pi.shape[0]
    noisy = model.spread.max() > 0.0
    trail = np.empty((horizon, 2), np.int64)
    for r in range(runs):
        run_key = stream(seed, first + r)
        theta = np.log(pi)
        mu = pi.copy()
        slope = np.zeros(pi.shape)
        gathered = 0
        diverged[r] = False
        for e in range(episodes):
            key = stream(run_key, e)
            s = draw(model.start, 0, len(model.start), uniform(key, 0))
            total = 0.0
            paid = 0.0
            discount = 1.0
            weight = 1.0
            length = 0
            for t in range(horizon):
                if ends[s]:
                    break
                d = t % depth
                chosen = drawn(mu[d, s], uniform(key, 4 * t + 1))
                weight *= pi[d, s, chosen] / mu[d, s, chosen]
                reward, cost, following = step(model, key, t, s, chosen, noisy)
                total += discount * reward
                paid += discount * cost
                discount *= gamma
                trail[t, 0] = s
                trail[t, 1] = chosen
                length += 1
                s = following
            value = weight * total
            values[r, e] = value
            costs[r, e] = paid
            if e >= search or diverged[r]:
                continue
            # -IS^2 sum_t grad log mu_theta(A|S), grad = e_A - mu
            for t in range(length):
                d, x = t % depth, trail[t, 0]
                for a in range(A):
                    slope[d, x, a] += value * value * mu[d, x, a]
                slope[d, x, trail[t, 1]] -= value * value
            gathered += 1
            if gathered == batch:
                theta -= rate / batch * slope
                if not softmax_rows(theta, mu):
                    diverged[r] = True
                slope[:] = 0.0
                gathered = 0
        found[r] = mu

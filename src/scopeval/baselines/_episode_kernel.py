"""One step of an episode in a finite MDP, for the compiled baselines."""

from __future__ import annotations

from typing import Any

import numba as nb

from scopeval._simulate_kernel import added, draw, normal, uniform

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def take_step(
    model: Any,  # `simulate.ModelArrays`
    key: Any,  # of the episode's random stream, with the numbers of `simulate`
    t: int,
    s: int,
    a: int,
    noisy: bool,
    discount: float,
    total: float,
    paid: float,
) -> Any:
    """Take action a in state s: the return and the cost so far, and the next state."""
    k = 4 * t + 1
    total += discount * model.reward[t % len(model.reward), s, a]
    if noisy:
        sd = model.spread[t % len(model.spread), s, a]
        total += discount * sd * normal(key, k + 2)
    paid += discount * model.cost[t % len(model.cost), s, a]
    row = s * model.reward.shape[2] + a
    entry = draw(model.chance, model.indptr[row], model.indptr[row + 1], uniform(key, k + 1))
    total += discount * added(model.next_reward, t, entry)
    paid += discount * added(model.next_cost, t, entry)
    return total, paid, model.following[entry]

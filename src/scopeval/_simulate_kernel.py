"""The compiled part of `scopeval.simulate`: episodes of a finite MDP, one random stream each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np

from scopeval.exact._weighted_kernel import price_of, weigh_row
from scopeval.policies._random_kernel import drawn, stream, uniform

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")
#: For what is called at every step: a call with the model's arrays takes as long as the step.
inlined = nb.njit(cache=True, nogil=True, error_model="numpy", forceinline=True)


@compiled  # type: ignore[untyped-decorator]
def draw(cumulative: Any, lo: int, hi: int, u: float) -> int:
    """First index in lo..hi-1 whose cumulative probability exceeds u."""
    if hi - lo > 16:
        while lo < hi - 1:
            mid = (lo + hi - 1) // 2
            if cumulative[mid] > u:
                hi = mid + 1
            else:
                lo = mid + 1
        return lo
    while lo < hi - 1 and cumulative[lo] <= u:
        lo += 1
    return lo


@compiled  # type: ignore[untyped-decorator]
def added(table: Any, t: int, entry: int) -> float:
    """What the next state adds to a reward or cost: the table's number of this entry of p."""
    if table.shape[1] == 0:
        return 0.0
    return float(table[t % len(table), entry])


@compiled  # type: ignore[untyped-decorator]
def normal(key: Any, index: Any) -> float:
    """A standard normal number from the uniforms index and index + 1 (Box and Muller)."""
    radius = np.sqrt(-2.0 * np.log(1.0 - uniform(key, index)))
    return float(radius * np.cos(2.0 * np.pi * uniform(key, index + 1)))


@inlined  # type: ignore[untyped-decorator]
def step(
    model: Any,  # `simulate.ModelArrays`
    key: Any,  # of the episode's random stream
    t: int,
    s: int,
    a: int,
    noisy: bool,
) -> Any:
    """Take action a in state s: the reward, the cost, and the next state.

    Of the stream's numbers, 4 t + 1 drew the action; the next three are for this step.
    """
    k = 4 * t + 1
    r = model.reward[t % len(model.reward), s, a]
    if noisy:
        r += model.spread[t % len(model.spread), s, a] * normal(key, k + 2)
    row = s * model.reward.shape[2] + a
    entry = draw(model.chance, model.indptr[row], model.indptr[row + 1], uniform(key, k + 1))
    r += added(model.next_reward, t, entry)
    c = model.cost[t % len(model.cost), s, a] + added(model.next_cost, t, entry)
    return r, c, model.following[entry]


class Sums(NamedTuple):
    """What is known of an episode so far: the fields of `simulate.Summaries` but the last."""

    estimate: float
    paid: float
    due: float
    returned: float
    weight: float
    spent: float
    owed: float
    exposed: float
    controlled: float


BEFORE = Sums(0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0)


@inlined  # type: ignore[untyped-decorator]
def after_step(
    sums: Any,
    discount: float,
    rho: float,
    r: float,
    b: float,
    bbar: float,
    c: float,
    known: float,  # b of the cost, and
    mean: float,  # its mean under pi
) -> Any:
    """The sums after one more step.

    G = sum_t gamma^t W_{t-1} (bbar_t + rho_t (R - b_t)), W_t = rho_0 ... rho_t: the backward
    recursion of `exact` unrolled forwards.
    """
    before, weight = sums.weight, sums.weight * rho
    return Sums(
        sums.estimate + discount * before * (bbar + rho * (r - b)),
        sums.paid + discount * c,
        sums.due + discount * weight * c,
        sums.returned + discount * r,
        weight,
        sums.spent + c,
        sums.owed + weight * c,
        sums.exposed + discount * weight,
        sums.controlled + discount * before * (mean + rho * (c - known)),
    )


@compiled  # type: ignore[untyped-decorator]
def run(
    seed: int,
    first: int,
    gamma: float,
    model: Any,  # `simulate.ModelArrays`
    tables: Any,  # [T, S, U, A] mu at every price; U = 1: mu does not depend on the weight
    grid: Any,  # of prices: see `exact.WeightedDesign`
    floor: float,
    cap: float,
    pi: Any,  # [T, S, A]
    control: Any,  # [T or 1, S, A] b
    baseline: Any,  # [T or 1, S] bbar
    cost_control: Any,  # [T or 1, S, A] b of the cost
    cost_baseline: Any,  # [T or 1, S] its mean under pi
    states: Any,  # out [N, T + 1], and
    actions: Any,  # out [N, T]
    rewards: Any,  # out [N, T]
    costs: Any,  # out [N, T]
    chosen: Any,  # out [N, T] mu of the action; or all of them [0, ...]
    out: Any,  # out [10, N]: the fields of `simulate.Summaries`; or [10, 0]
) -> None:
    """Episodes first, first + 1, ...: whole, or reduced on the way to ten numbers each, or both."""
    T, _, points, A = tables.shape
    noisy = model.spread.max() > 0.0
    whole, summed = len(states) > 0, out.shape[1] > 0
    room = np.empty(A)
    for n in range(max(len(states), out.shape[1])):
        key = stream(seed, first + n)
        s = draw(model.start, 0, len(model.start), uniform(key, 0))
        if whole:
            states[n, 0] = s
        sums = BEFORE
        own = 0.0
        discount = 1.0
        for t in range(T):
            mu = tables[t, s, 0]
            if points > 1:
                place, share = price_of(sums.weight, t, grid, floor, cap)
                weigh_row(tables[t, s], pi[t, s], place, share, room)
                mu = room
            a = drawn(mu, uniform(key, 4 * t + 1))
            r, c, after = step(model, key, t, s, a, noisy)
            if whole:
                actions[n, t], chosen[n, t] = a, mu[a]
                rewards[n, t], costs[n, t] = r, c
                states[n, t + 1] = after
            b = control[t % len(control), s, a]
            bbar = baseline[t % len(baseline), s]
            known = cost_control[t % len(cost_control), s, a]
            mean = cost_baseline[t % len(cost_baseline), s]
            sums = after_step(sums, discount, pi[t, s, a] / mu[a], r, b, bbar, c, known, mean)
            if summed:
                own += discount * (c - known)
                for other in range(A):
                    own += discount * mu[other] * cost_control[t % len(cost_control), s, other]
            discount *= gamma
            s = after
        if summed:
            for field in range(9):
                out[field, n] = sums[field]
            out[9, n] = own

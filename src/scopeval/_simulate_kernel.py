"""The compiled part of `scopeval.simulate`: episodes of a finite MDP, one random stream each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np

from scopeval.exact._frontier_kernel import price_of, weigh_row

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")
#: For what is called at every step: a call with the model's arrays takes as long as the step.
inlined = nb.njit(cache=True, nogil=True, error_model="numpy", forceinline=True)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)


@compiled  # type: ignore[untyped-decorator]
def mix(x: Any) -> Any:
    """SplitMix64's output function (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))


@compiled  # type: ignore[untyped-decorator]
def stream(seed: Any, episode: Any) -> Any:
    """Where episode `episode` of run `seed` starts its random stream."""
    return mix(mix(np.uint64(seed) + _GOLDEN) + np.uint64(episode) * _GOLDEN)


@compiled  # type: ignore[untyped-decorator]
def uniform(state: Any, index: Any) -> Any:
    """The index-th number in [0, 1) of a stream; any of them can be had without the others."""
    x = mix(state + (np.uint64(index) + np.uint64(1)) * _GOLDEN)
    return (x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


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


@compiled  # type: ignore[untyped-decorator]
def run(
    seed: int,
    first: int,
    model: Any,  # `simulate.ModelArrays`
    mu: Any,  # [T, S, A] cumulative
    states: Any,  # out [N, T+1]
    actions: Any,  # out [N, T]
    rewards: Any,  # out [N, T]
    costs: Any,  # out [N, T]
) -> None:
    """Whole trajectories."""
    N, T = actions.shape
    A = mu.shape[2]
    noisy = model.spread.max() > 0.0
    for n in range(N):
        key = stream(seed, first + n)
        s = draw(model.start, 0, len(model.start), uniform(key, 0))
        states[n, 0] = s
        for t in range(T):
            a = draw(mu[t, s], 0, A, uniform(key, 4 * t + 1))
            actions[n, t] = a
            rewards[n, t], costs[n, t], s = step(model, key, t, s, a, noisy)
            states[n, t + 1] = s


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
def run_estimates(
    seed: int,
    first: int,
    gamma: float,
    model: Any,  # `simulate.ModelArrays`
    mu: Any,
    ratio: Any,  # [T, S, A] pi / mu
    control: Any,  # [T or 1, S, A] b
    baseline: Any,  # [T or 1, S] bbar
    cost_control: Any,  # [T or 1, S, A] b of the cost
    cost_baseline: Any,  # [T or 1, S] its mean under pi
    own_baseline: Any,  # [T or 1, S] its mean under mu
    out: Any,  # out [10, N]: the fields of `simulate.Summaries`
) -> None:
    """The same episodes, reduced on the way to ten numbers each."""
    N = out.shape[1]
    T, _, A = mu.shape
    noisy = model.spread.max() > 0.0
    for n in range(N):
        key = stream(seed, first + n)
        s = draw(model.start, 0, len(model.start), uniform(key, 0))
        sums = BEFORE
        own = 0.0
        discount = 1.0
        for t in range(T):
            a = draw(mu[t, s], 0, A, uniform(key, 4 * t + 1))
            r, c, after = step(model, key, t, s, a, noisy)
            b = control[t % len(control), s, a]
            bbar = baseline[t % len(baseline), s]
            known = cost_control[t % len(cost_control), s, a]
            mean = cost_baseline[t % len(cost_baseline), s]
            sums = after_step(sums, discount, ratio[t, s, a], r, b, bbar, c, known, mean)
            own += discount * (own_baseline[t % len(own_baseline), s] + c - known)
            discount *= gamma
            s = after
        for field in range(9):
            out[field, n] = sums[field]
        out[9, n] = own


@compiled  # type: ignore[untyped-decorator]
def run_weight_aware(
    seed: int,
    first: int,
    gamma: float,
    model: Any,  # `simulate.ModelArrays`
    tables: Any,  # [T, S, U, A] mu at every price
    origin: float,  # place of weight 1 on the grid of prices
    width: float,  # of the grid, in log price
    floor: float,
    cap: float,
    pi: Any,  # [T, S, A]
    control: Any,  # [T or 1, S, A] b
    baseline: Any,  # [T or 1, S] bbar
    cost_control: Any,  # [T or 1, S, A] b of the cost
    cost_baseline: Any,  # [T or 1, S] its mean under pi
    out: Any,  # out [10, N]: the fields of `simulate.Summaries`
) -> None:
    """`run_estimates` for a behavior policy that depends on the weight of the episode so far."""
    T, _, A = pi.shape
    noisy = model.spread.max() > 0.0
    mu = np.empty(A)
    for n in range(out.shape[1]):
        key = stream(seed, first + n)
        s = draw(model.start, 0, len(model.start), uniform(key, 0))
        sums = BEFORE
        own = 0.0
        discount = 1.0
        for t in range(T):
            place, share = price_of(sums.weight, origin, width, floor, cap)
            weigh_row(tables[t, s], pi[t, s], place, share, mu)
            a = drawn(mu, uniform(key, 4 * t + 1))
            r, c, after = step(model, key, t, s, a, noisy)
            b = control[t % len(control), s, a]
            bbar = baseline[t % len(baseline), s]
            known = cost_control[t % len(cost_control), s, a]
            mean = cost_baseline[t % len(cost_baseline), s]
            sums = after_step(sums, discount, pi[t, s, a] / mu[a], r, b, bbar, c, known, mean)
            own += discount * (c - known)
            for other in range(A):
                own += discount * mu[other] * cost_control[t % len(cost_control), s, other]
            discount *= gamma
            s = after
        for field in range(9):
            out[field, n] = sums[field]
        out[9, n] = own


@compiled  # type: ignore[untyped-decorator]
def run_whole_weight_aware(
    seed: int,
    first: int,
    model: Any,  # `simulate.ModelArrays`
    tables: Any,  # [T, S, U, A] mu at every price
    origin: float,  # place of weight 1 on the grid of prices
    width: float,  # of the grid, in log price
    floor: float,
    cap: float,
    pi: Any,  # [T, S, A]
    states: Any,  # out [N, T+1]
    actions: Any,  # out [N, T]
    rewards: Any,  # out [N, T]
    costs: Any,  # out [N, T]
    chosen: Any,  # out [N, T] mu of the action
) -> None:
    """Whole trajectories of the episodes of `run_weight_aware`."""
    T, _, A = pi.shape
    noisy = model.spread.max() > 0.0
    mu = np.empty(A)
    for n in range(len(actions)):
        key = stream(seed, first + n)
        s = draw(model.start, 0, len(model.start), uniform(key, 0))
        states[n, 0] = s
        weight = 1.0
        for t in range(T):
            place, share = price_of(weight, origin, width, floor, cap)
            weigh_row(tables[t, s], pi[t, s], place, share, mu)
            a = drawn(mu, uniform(key, 4 * t + 1))
            actions[n, t] = a
            chosen[n, t] = mu[a]
            weight *= pi[t, s, a] / mu[a]
            rewards[n, t], costs[n, t], s = step(model, key, t, s, a, noisy)
            states[n, t + 1] = s


@compiled  # type: ignore[untyped-decorator]
def drawn(probs: Any, u: float) -> int:
    """The action of a uniform number; never one of probability zero."""
    chosen = 0
    running = 0.0
    for a in range(len(probs)):
        if probs[a] > 0.0:
            chosen = a
            running += probs[a]
            if u < running:
                break
    return chosen

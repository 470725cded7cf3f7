"""A compiled simulator of finite MDPs: millions of episodes of any tabular policy.

Episode i of seed s draws from a random stream of its own, a pure function of (s, i): the same
episodes come out whatever the number of threads, whichever block they are asked for in, and whether
whole trajectories or only their estimates are wanted. Within an episode, uniform number 0 draws the
first state; at step t, number 4t+1 draws the action, 4t+2 the next state, and 4t+3, 4t+4 the noise
of the reward (normal, with the MDP's `reward_variance`). All draws invert cumulative probabilities.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scopeval._parallel import fan_out
from scopeval.arrays import Floats, Ints, check_whole
from scopeval.errors import InputError
from scopeval.exact import TabularMDP, WeightedDesign, control_table, policy_table
from scopeval.policies.adapters import TabularPolicy

__all__ = ["Moments", "Summaries", "Trajectories", "moments", "summaries", "trajectories"]

#: Episodes in one piece of work.
BLOCK = 16384


@dataclass(frozen=True)
class Trajectories:
    """N whole episodes: states [N, T+1], actions, rewards and costs [N, T].

    `chosen` [N, T] is the probability that each action was taken with.
    """

    states: Ints
    actions: Ints
    rewards: Floats
    costs: Floats
    chosen: Floats


@dataclass(frozen=True)
class Summaries:
    """One number per episode, [N] each.

    Attributes:
        estimate: of J(pi), by the family of `exact` (b = 0: PDIS; on-policy: the return).
        cost: what the episode cost.
        weighted_cost: importance-weighted cost, an unbiased estimate of J^c(pi) where mu covers
            pi. A mu that leaves out actions of pi (its second moment there is 0, so the *value*
            loses nothing) makes it too small.
        returned: the return, discounted.
        weight: importance weight of the whole episode.
        spent: what the episode cost, not discounted.
        weighted_spent: the same importance-weighted.
        exposure: sum_t gamma^t W_t of the weights after each step; mean sum_t gamma^t where mu
            covers pi.
        target_controlled: as `weighted_cost`, with the control variate for the cost.
        own_controlled: as `cost`, likewise.
    """

    estimate: Floats
    cost: Floats
    weighted_cost: Floats
    returned: Floats
    weight: Floats
    spent: Floats
    weighted_spent: Floats
    exposure: Floats
    target_controlled: Floats
    own_controlled: Floats


@dataclass(frozen=True)
class Moments:
    """Means and (co)variances over many episodes, gathered without keeping them."""

    episodes: int
    estimate: float
    variance: float
    cost: float
    cost_variance: float
    weighted_cost: float
    weighted_cost_variance: float


def trajectories(
    mdp: TabularMDP,
    behavior: ArrayLike | TabularPolicy | WeightedDesign,
    *,
    episodes: int,
    seed: int = 0,
    first: int = 0,
    threads: int | None = None,
) -> Trajectories:
    """Run episodes first .. first+episodes-1 of `behavior` and keep everything."""
    _check_numbers(seed, first)
    N, T = check_whole("episodes", episodes, 0), mdp.horizon
    tables = _tables(mdp, behavior)
    pi = behavior.target if isinstance(behavior, WeightedDesign) else tables[0][:, :, 0]
    kept = Trajectories(
        np.empty((N, T + 1), np.int64),
        np.empty((N, T), np.int64),
        np.empty((N, T)),
        np.empty((N, T)),
        np.empty((N, T)),
    )
    nothing = np.zeros((1, mdp.states, mdp.actions))

    def whole(part: slice) -> tuple[Any, ...]:
        parts = (kept.states, kept.actions, kept.rewards, kept.costs, kept.chosen)
        return (*(x[part] for x in parts), np.empty((10, 0)))

    _run(mdp, tables, pi, nothing, nothing, seed, first, N, threads, whole)
    return kept


def summaries(
    mdp: TabularMDP,
    target: ArrayLike | TabularPolicy,
    behavior: ArrayLike | TabularPolicy | WeightedDesign | None = None,
    *,
    episodes: int,
    control_variate: ArrayLike | None = None,
    cost_control: ArrayLike | None = None,
    seed: int = 0,
    first: int = 0,
    threads: int | None = None,
) -> Summaries:
    """Run episodes of `behavior` (default: the target itself) and keep one estimate for each.

    Args:
        mdp: the model.
        target: pi.
        behavior: mu; a table, or a `WeightedDesign` for this target.
        episodes: how many.
        control_variate: b, [S, A] or [T, S, A]; None is b = 0.
        cost_control: likewise for the cost, an estimate of q^c; None is 0.
        seed: of the run.
        first: number of the first episode.
        threads: how many may work (default: all cores); the result does not depend on it.
    """
    pi = policy_table(mdp, "target", target)
    b = np.ascontiguousarray(control_table(mdp, control_variate))
    costs = np.zeros((1, mdp.states, mdp.actions))
    if cost_control is not None:
        costs = np.ascontiguousarray(control_table(mdp, cost_control))
    _check_numbers(seed, first)
    N = check_whole("episodes", episodes, 0)
    tables = _tables(mdp, pi if behavior is None else behavior)
    if isinstance(behavior, WeightedDesign) and np.abs(behavior.target - pi).max() > 1e-12:
        raise InputError("behavior: designed for another target policy; expected this one")
    blocks = {0: np.empty((10, 0))}
    none = (np.empty((0, 1), np.int64),) * 2 + (np.empty((0, 1)),) * 3

    def reduced(part: slice) -> tuple[Any, ...]:
        blocks[part.start] = np.empty((10, part.stop - part.start))
        return (*none, blocks[part.start])

    _run(mdp, tables, pi, b, costs, seed, first, N, threads, reduced)
    return Summaries(*np.concatenate([blocks[start] for start in sorted(blocks)], axis=1))


def _tables(
    mdp: TabularMDP, behavior: ArrayLike | TabularPolicy | WeightedDesign
) -> tuple[Floats, tuple[float, float, float], float, float]:
    """Tables [T, S, U, A] and their grid of prices: one that ignores the weight has U = 1."""
    if not isinstance(behavior, WeightedDesign):
        table = policy_table(mdp, "behavior", behavior)
        return _plain(table)[:, :, None], (0.0, 1.0, 0.0), 0.0, np.inf
    wanted = (mdp.horizon, mdp.states, mdp.actions)
    if behavior.target.shape != wanted:
        raise InputError(f"behavior: got tables of {behavior.target.shape}, expected {wanted}")
    return behavior.mu, behavior.grid, behavior.floor, behavior.cap


def _run(
    mdp: TabularMDP,
    tables: tuple[Floats, tuple[float, float, float], float, float],
    pi: Floats,
    b: Floats,
    costs: Floats,
    seed: int,
    first: int,
    episodes: int,
    threads: int | None,
    arrays: Callable[[slice], tuple[Any, ...]],
) -> None:
    """Run episodes with control variates b and `costs`; `arrays` holds some of them, [N, ...]."""
    from scopeval._simulate_kernel import run

    model, pi, b, costs = plain_arrays(mdp), _plain(pi), _plain(b), _plain(costs)
    means = (pi * b).sum(axis=2), (pi * costs).sum(axis=2)
    given = (*tables, pi, b, means[0], costs, means[1])

    def work(lo: int, hi: int) -> None:
        run(seed, first + lo, mdp.gamma, model, *given, *arrays(slice(lo, hi)))

    _spread(work, episodes, threads)


def moments(
    mdp: TabularMDP,
    target: ArrayLike | TabularPolicy,
    behavior: ArrayLike | TabularPolicy | WeightedDesign | None = None,
    *,
    episodes: int,
    control_variate: ArrayLike | None = None,
    seed: int = 0,
    threads: int | None = None,
    block: int = 1 << 18,
) -> Moments:
    """Mean and variance over any number of episodes, in memory that does not grow with it."""
    episodes = check_whole("episodes", episodes, 1)
    count, mean, square = 0, np.zeros(3), np.zeros(3)
    for first in range(0, episodes, check_whole("block", block, 1)):
        n = min(block, episodes - first)
        part = summaries(
            mdp,
            target,
            behavior,
            episodes=n,
            control_variate=control_variate,
            seed=seed,
            first=first,
            threads=threads,
        )
        rows = np.stack([part.estimate, part.cost, part.weighted_cost])
        centre = rows.mean(axis=1)
        shift = centre - mean
        square += ((rows - centre[:, None]) ** 2).sum(axis=1) + shift**2 * count * n / (count + n)
        mean += shift * n / (count + n)
        count += n
    variance = square / max(count - 1, 1)
    return Moments(count, *(float(x) for pair in zip(mean, variance, strict=True) for x in pair))


class ModelArrays(NamedTuple):
    """What kernels need of an MDP, as plain arrays.

    Attributes:
        start: [S] cumulative.
        indptr: where the rows (s, a) of the transition matrix begin,
        following: the next states of its N entries, and
        chance: their cumulative probabilities.
        reward: [T or 1, S, A] mean.
        spread: [T or 1, S, A] standard deviation of the reward.
        cost: [T or 1, S, A] mean.
        next_reward: [T or 1, N] what the next state adds to the reward; [1, 0] for nothing.
        next_cost: likewise for the cost.
    """

    start: Floats
    indptr: Ints
    following: Ints
    chance: Floats
    reward: Floats
    spread: Floats
    cost: Floats
    next_reward: Floats
    next_cost: Floats


def plain_arrays(mdp: TabularMDP) -> ModelArrays:
    """What kernels need of an MDP."""
    p = mdp.transition
    indptr = p.indptr.astype(np.int64)

    def timed(table: Floats) -> Floats:
        return _plain(table if table.ndim == 3 else table[None])

    nothing = np.zeros((1, 0))
    return ModelArrays(
        cumulative(mdp.initial),
        indptr,
        p.indices.astype(np.int64),
        cumulative_rows(p.data, indptr),
        timed(mdp.reward),
        timed(np.sqrt(mdp.reward_variance)),
        timed(mdp.cost),
        nothing if mdp.next_reward is None else _plain(mdp.next_reward),
        nothing if mdp.next_cost is None else _plain(mdp.next_cost),
    )


def _plain(table: Floats) -> Floats:
    """A copy in C order: for one that may not be written, kernels would be compiled once more."""
    return np.array(table, np.float64, order="C")


def _check_numbers(seed: int, first: int) -> None:
    """Streams are numbered by 64-bit integers."""
    for name, value in (("seed", seed), ("first", first)):
        if check_whole(name, value, 0) >= 2**63 or not hasattr(value, "__index__"):
            raise InputError(f"{name}: got {value!r}, expected an integer in 0 .. 2^63 - 1")


def cumulative(probs: Floats) -> Floats:
    """Running sums along the last axis, for draws by inversion.

    They reach 1 at the last entry of positive probability: rounding never draws an impossible one.
    """
    sums = np.cumsum(probs, axis=-1)
    sums[sums == sums[..., -1:]] = 1.0
    return sums


def cumulative_rows(data: Floats, indptr: Ints) -> Floats:
    """`cumulative` of every row of a CSR matrix."""
    sums = np.array(data)
    begin, length = indptr[:-1], np.diff(indptr)
    for k in range(1, int(length.max())):
        at = begin[length > k] + k
        sums[at] += sums[at - 1]
    sums[sums == np.repeat(sums[indptr[1:] - 1], length)] = 1.0
    return sums


def _spread(work: Callable[[int, int], None], episodes: int, threads: int | None) -> None:
    """Share the episodes among threads; the kernels hold no lock."""
    edges = [*range(0, episodes, BLOCK), episodes]
    fan_out(lambda span: work(*span), itertools.pairwise(edges), threads=threads)

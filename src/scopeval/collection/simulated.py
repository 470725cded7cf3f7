"""Collect episodes of a `TabularMDP` with the compiled simulator.

A finite MDP as many environments that one call steps together.

For behavior policies that no table [T, S, A] holds, because they depend on the episode's weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints, check_whole
from scopeval.behavior.methods import METHODS
from scopeval.collection.episodes import Episodes
from scopeval.errors import InputError
from scopeval.exact import Design, TabularMDP, WeightedDesign, behavior_tables, policy_table
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.drawing import draw_actions
from scopeval.policies.protocols import Behavior, ContinuousPolicy, Policy
from scopeval.simulate import cumulative_rows

__all__ = ["MANY", "TabularFleet", "TabularStep", "absorbing", "simulated_episodes"]


def simulated_episodes(
    mdp: TabularMDP,
    target: Policy | ContinuousPolicy,
    behavior: Behavior | Policy | None,
    *,
    horizon: int | None = None,
    episodes: int,
    seed: int,
    first: int,
    free: bool = False,
) -> Episodes:
    """Run episodes number first .. first+episodes-1; `free`: costs count as 0.

    An absorbing state without reward and cost ends the episode. A behavior policy that depends on
    the weight of the episode must be a `WeightedDesign`.
    """
    from scopeval.simulate import trajectories

    if isinstance(target, ContinuousPolicy):
        raise InputError("policy: has continuous actions, the TabularMDP finitely many")
    T = mdp.horizon if horizon is None else check_whole("horizon", horizon, 1)
    if mdp.horizon < T:
        raise InputError(f"horizon: got {T}, expected at most the MDP's {mdp.horizon}")
    if not isinstance(target, TabularPolicy):
        target = TabularPolicy(policy_table(mdp, "target", target))
    if not isinstance(behavior, TabularPolicy | WeightedDesign | None):
        mdp = mdp.shortened(T)
        mu, b = behavior_tables(mdp, policy_table(mdp, "target", target), behavior)
        nothing = np.zeros(mu.shape[:2], np.bool_)
        behavior = Design(mu, METHODS["on-policy"], b, nothing, nothing)
    run = trajectories(mdp, behavior or target, episodes=episodes, seed=seed, first=first)
    over = absorbing(mdp)[run.states[:, 1 : T + 1]]
    length = np.where(over.any(axis=1), np.argmax(over, axis=1) + 1, T)
    times = np.arange(T)
    steps = times < length[:, None]
    states, actions = run.states[:, :T] * steps, run.actions[:, :T] * steps
    pi = target.table(T)
    if isinstance(behavior, WeightedDesign) and np.abs(pi - behavior.target[:T]).max() > 1e-12:
        raise InputError("behavior: designed for another target policy; expected this one")
    control = baseline = None
    if isinstance(behavior, Design | WeightedDesign) and behavior.control is not None:
        b = behavior.control[:T]
        control = b[times, states, actions] * steps
        baseline = (pi * b).sum(axis=2)[times, states] * steps
    return Episodes(
        obs=states,
        action=actions,
        reward=run.rewards[:, :T] * steps,
        cost=run.costs[:, :T] * (steps & (not free)),
        behavior_prob=np.where(steps, run.chosen[:, :T], 1.0),
        target_prob=np.where(steps, pi[times, states, actions], 1.0),
        length=length,
        last_obs=run.states[np.arange(episodes), length],
        terminated=np.asarray(over.any(axis=1)),
        control=control,
        baseline=baseline,
        by_target=np.full(episodes, behavior is None),
        index=np.arange(first, first + episodes),
    )


def absorbing(mdp: TabularMDP) -> Bools:
    """States that end an episode: never left, without reward and cost. [S]."""
    S, A = mdp.states, mdp.actions
    stays = mdp.transition[np.arange(S * A), np.repeat(np.arange(S), A)]
    ends = (np.asarray(stays).reshape(S, A) > 1 - 1e-12).all(axis=1)
    for table in (mdp.reward, mdp.cost, mdp.reward_variance):
        ends &= (table == 0).reshape(-1, S, A).all(axis=(0, 2))
    return np.asarray(ends)


# -- a finite mdp as many environments that one call steps together --------------------------------

#: Episodes that run side by side, unless somebody knows better.
MANY = 256


@dataclass(frozen=True)
class TabularStep:
    """The result of one step of B environments; see `FleetStep`."""

    obs: Ints
    reward: Floats
    cost: Floats
    terminated: Bools


class TabularFleet:
    """Environments of a `TabularMDP`; an absorbing state without reward and cost ends an episode.

    Args:
        mdp: the model.
        count: how many run side by side.
    """

    def __init__(self, mdp: TabularMDP, count: int = MANY) -> None:
        self._mdp, self._count = mdp, count
        p = mdp.transition
        self._begin = p.indptr.astype(np.int64)
        self._last = np.diff(self._begin) - 1
        self._following = p.indices.astype(np.int64)
        self._chance = cumulative_rows(p.data, self._begin)
        self._over = absorbing(mdp)
        self._state = np.zeros(count, np.int64)
        self._time = np.zeros(count, np.int64)
        self._uniforms = np.zeros((count, mdp.horizon))
        self._normals = np.zeros((count, mdp.horizon))

    def __len__(self) -> int:
        return self._count

    def reset(self, seeds: Sequence[int], which: Ints) -> Ints:
        """Begin an episode in each of `which`; all of its random numbers are drawn now."""
        first = np.empty(len(which))
        for i, (seed, row) in enumerate(zip(seeds, which, strict=True)):
            rng = np.random.default_rng(seed)
            first[i] = rng.random()
            self._uniforms[row] = rng.random(self._mdp.horizon)
            self._normals[row] = rng.standard_normal(self._mdp.horizon)
        self._state[which] = draw_actions(self._mdp.initial[None], first)
        self._time[which] = 0
        return self._state[which]

    def step(self, actions: NDArray[np.int64], which: Ints) -> TabularStep:
        """Take an action in each of `which`."""
        mdp, s, t = self._mdp, self._state[which], self._time[which]
        row = s * mdp.actions + actions
        entry = self._entries(row, self._uniforms[which, t])
        reward, cost = _at(mdp.reward, t, s, actions), _at(mdp.cost, t, s, actions)
        spread = np.sqrt(_at(mdp.reward_variance, t, s, actions))
        reward = reward + spread * self._normals[which, t]
        if mdp.next_reward is not None:
            reward = reward + mdp.next_reward[t % len(mdp.next_reward), entry]
        if mdp.next_cost is not None:
            # sums of a mean and its deviation may round to less than zero
            cost = np.maximum(cost + mdp.next_cost[t % len(mdp.next_cost), entry], 0.0)
        self._state[which] = self._following[entry]
        self._time[which] = t + 1
        after = self._state[which]
        return TabularStep(after, reward, cost, self._over[after])

    def _entries(self, row: Ints, uniforms: Floats) -> Ints:
        """The entry of p that each row's uniform number draws."""
        entry: Ints = self._begin[row]
        last = entry + self._last[row]
        while True:
            on = (entry < last) & (self._chance[entry] <= uniforms)
            if not on.any():
                return entry
            entry = entry + on


def _at(table: Floats, t: Ints, s: Ints, a: Ints) -> Floats:
    """Entries of a table [S, A] or [T, S, A]."""
    return np.asarray(table[s, a] if table.ndim == 2 else table[t % len(table), s, a])

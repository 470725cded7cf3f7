"""Collect episodes of a `TabularMDP` with the compiled simulator."""

from __future__ import annotations

import numpy as np

from scopeval.arrays import Bools, check_whole
from scopeval.behavior.methods import METHODS
from scopeval.collection.episodes import Episodes
from scopeval.errors import InputError
from scopeval.exact import Design, TabularMDP, WeightedDesign, behavior_tables, policy_table
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import Behavior, ContinuousPolicy, Policy

__all__ = ["absorbing", "simulated_episodes"]


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
        raise InputError("target: has continuous actions, the TabularMDP finitely many")
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

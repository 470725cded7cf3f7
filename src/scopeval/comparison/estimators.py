r"""Three estimators, each with an unbiased value of every policy from every episode.

With the running weights u_k of `mixture`, the return G = sum_t gamma^t R_t and anything with index
k fixed before the episode:

    full trajectory     Y_k = c_k + u_k(T) (G - c_k)
    per decision        Y_k = sum_t gamma^t ( u_k(t+1) (R_t - b_k(t)) + u_k(t) b_k(t) )
    doubly robust       Y_k = sum_t gamma^t ( u_k(t+1) (R_t - b_k(t, S, A)) + u_k(t) bbar_k(t, S) )

where u_k(t) is the weight before step t and bbar_k = sum_a pi_k(a|S) b_k(t, S, a).

*Full trajectory* is the A/B test's value c_k + 1{label = k} / p_k (G - c_k) averaged over the label
given the episode: by Rao and Blackwell the variance of every contrast of Y is at most that of the
A/B test with the same centers c. It is the floor. *Per decision* is usually far better, but not
always: with R_1 = -R_0 and policies that differ at t = 1 only, it has variance where the A/B test
has none. With b_k near the action values of policy k it is safe. Held-out episodes choose.
"""

from __future__ import annotations

import numpy as np

from scopeval.arrays import Floats
from scopeval.collection.episodes import discounts
from scopeval.comparison.mixture_episodes import MixtureEpisodes

__all__ = [
    "ab_variance",
    "centers_of",
    "doubly_robust",
    "full_trajectory",
    "levels_of",
    "per_decision",
    "weighted_costs",
]


def full_trajectory(episodes: MixtureEpisodes, gamma: float, centers: Floats) -> Floats:
    """Y_k = c_k + u_k(T) (G - c_k), [N, K]; `centers` c is [K]."""
    final = episodes.weights[:, -1]
    returns = episodes.returns(gamma)
    return np.asarray(centers + final * (returns[:, None] - centers))


def per_decision(episodes: MixtureEpisodes, gamma: float, levels: Floats) -> Floats:
    """The value with b_k(t), [N, K]; `levels` b is [T, K]."""
    b = levels * episodes.steps[:, :, None]
    return _recursion(episodes.reward, episodes.weights, gamma, b, b)


def doubly_robust(
    episodes: MixtureEpisodes, gamma: float, control: Floats, baseline: Floats
) -> Floats:
    """The value with b_k(t, S, A) and bbar_k(t, S), both [N, T, K]; 0 after an episode's end."""
    return _recursion(episodes.reward, episodes.weights, gamma, control, baseline)


def weighted_costs(episodes: MixtureEpisodes, gamma: float = 1.0) -> Floats:
    """sum_t gamma^t u_k(t+1) C_t, [N, K]: an unbiased value of every policy's cost."""
    none = np.zeros((*episodes.cost.shape, 1))
    return _recursion(episodes.cost, episodes.weights, gamma, none, none)


def _recursion(
    signal: Floats, weights: Floats, gamma: float, control: Floats, baseline: Floats
) -> Floats:
    before, after = weights[:, :-1], weights[:, 1:]
    each = after * (signal[:, :, None] - control) + before * baseline
    return np.asarray(np.einsum("t,ntk->nk", discounts(gamma, signal.shape[1]), each))


def centers_of(episodes: MixtureEpisodes, gamma: float) -> Floats:
    """c_k for *other* episodes, [K]: the weighted mean return, sum u_k G / sum u_k."""
    final, returns = episodes.weights[:, -1], episodes.returns(gamma)
    total = final.sum(axis=0)
    mean = final.T @ returns / np.where(total > 0, total, 1.0)
    return np.where(total > 0, mean, returns.mean())


def levels_of(episodes: MixtureEpisodes, gamma: float) -> Floats:
    """b_k(t) for *other* episodes, [T, K]: mean return from t on of those that reach t."""
    ahead = np.zeros(episodes.reward.shape)
    follows = np.zeros(len(ahead))
    for t in reversed(range(episodes.horizon)):
        ahead[:, t] = follows = episodes.reward[:, t] + gamma * follows
    final, steps = episodes.weights[:, -1], episodes.steps
    total = steps.T.astype(np.float64) @ final
    levels = (steps * ahead).T @ final / np.where(total > 0, total, 1.0)
    return np.where(total > 0, levels, 0.0)


def ab_variance(episodes: MixtureEpisodes, gamma: float, shares: Floats) -> tuple[Floats, Floats]:
    """What an A/B test with these shares would give, from the same episodes.

    Returns:
        [K] variance of one episode's value c_k + 1{label = k} / p_k (G - c_k) with c_k = J_k, which
        is s_k^2 / p_k; the contrast of two policies has the sum of both. And [K] s_k^2 itself, the
        variance of policy k's return.
    """
    final, returns = episodes.weights[:, -1], episodes.returns(gamma)
    total = np.maximum(final.sum(axis=0), 1e-300)
    away = returns[:, None] - centers_of(episodes, gamma)
    spread = (final * away**2).sum(axis=0) / total
    with np.errstate(divide="ignore"):
        return np.where(shares > 0, spread / np.where(shares > 0, shares, 1.0), np.inf), spread

"""Fitted Q evaluation of finite worlds, the model-based baseline beside weighted episodes.

From the last time step backward, over all rows (S, A, R, S') of the episodes, n(s, a) of them at
(s, a), as if the world were the same at every time (Le, Voloshin and Yue 2019; for tables it is the
value in the model that the episodes make, certainty equivalence):

    Q_t(s, a) = mean over the rows at (s, a) of  R + gamma V_{t+1}(S'),
    V_t(s)    = sum_a pi_t(a|s) Q_t(s, a),     Q_t(s, a) = 0 where n(s, a) = 0.

The estimate is the mean of V_0 over the starts. It takes no probability of what ran, has less
variance than weighting, and is biased: by every pair (s, a) that pi needs and the episodes lack,
and by rewards and moves that change with time. No interval shows this.
"""

from __future__ import annotations

import numpy as np

from scopeval.arrays import Floats
from scopeval.collection.episodes import Episodes
from scopeval.errors import InputError
from scopeval.policies.protocols import Policy, probs_of

__all__ = ["fitted_q"]


def fitted_q(episodes: Episodes, gamma: float, target: Policy) -> Floats:
    """Values of episodes with fitted Q evaluation's estimate as their mean.

    The value of an episode is what it adds (delta method): V_0(S_0), and for each of its rows
    sum_t gamma^t u_t (R + gamma V_{t+1}(S') - Q_t), with u_t = N d_t(s, a) / n(s, a) and d_t the
    share of the target's episodes that is at (s, a) by the same model. The residuals of a pair sum
    to 0, so that the mean is the estimate, and their spread is its error, but for the bias.

    Args:
        episodes: of state numbers and action numbers.
        gamma: discount.
        target: pi.
    """
    if episodes.obs.ndim != 2 or episodes.obs.dtype.kind not in "iu" or episodes.action.ndim != 2:
        raise InputError(
            "estimator: 'fqe' is a table, and needs state numbers and action numbers; of vectors "
            "try a function of your own, or q= with 'dr', which takes a q-hat and has no bias"
        )
    N, T = len(episodes), episodes.horizon
    alive = np.arange(T) < episodes.length[:, None]
    after = np.concatenate([episodes.obs[:, 1:], episodes.last_obs[:, None]], axis=1)
    after[np.arange(N), episodes.length - 1] = episodes.last_obs
    ended = np.zeros((N, T), np.bool_)
    ended[np.arange(N), episodes.length - 1] = episodes.terminated
    goes_on = ~ended[alive]
    s, following, reward = episodes.obs[alive], after[alive], episodes.reward[alive]
    S = int(max(s.max(), following.max())) + 1
    seen = np.unique(s)  # the policy is asked where the episodes were

    A = probs_of(target, seen[:1], 0).shape[1]
    pair = s * A + episodes.action[alive]
    count = np.maximum(np.bincount(pair, minlength=S * A), 1)
    probs, residuals, ahead = np.zeros((T, S, A)), [], np.zeros(S)
    for t in reversed(range(T)):
        probs[t, seen] = probs_of(target, seen, t)
        outcome = reward + gamma * np.where(goes_on, ahead[following], 0.0)
        q = np.bincount(pair, outcome, S * A) / count
        residuals.append(outcome - q[pair])
        ahead = (probs[t] * q.reshape(S, A)).sum(axis=1)
    value = ahead[episodes.obs[:, 0]]  # V_0
    share = np.bincount(episodes.obs[:, 0], minlength=S) / N  # d_t(s)
    adds = np.zeros(len(s))
    for t, residual in enumerate(reversed(residuals)):
        mass = ((share[:, None] * probs[t]).ravel() / count)[pair]
        adds += gamma**t * N * mass * residual
        share = np.bincount(following[goes_on], mass[goes_on], S).astype(np.float64)
    return np.asarray(value + np.bincount(np.nonzero(alive)[0], adds, N))

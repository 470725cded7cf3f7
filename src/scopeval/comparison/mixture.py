r"""The mixture of episodes: one set of episodes that serves K policies at once.

Policies pi_1 ... pi_K have shares p_k that are fixed before an episode. An A/B test draws one of
them for each episode. Seen without the label, its actions come from

    mu(a | history) = sum_k p_k u_k pi_k(a | s) / sum_k p_k u_k,     u_k = prod pi_k / mu

with the running weights u_k, 1 at the start. Always sum_k p_k u_k = 1, so that no weight exceeds
1 / p_k: p_k u_k is the probability, given the episode so far, that it is an episode of policy k.
Nothing is ever run but the policies themselves.
"""

from __future__ import annotations

import numpy as np

from scopeval.arrays import Floats
from scopeval.policies.episode_state import EpisodeState, log_sum

__all__ = ["EpisodeState", "mixture_probs", "running_weights"]


def mixture_probs(acting: Floats, probs: Floats) -> Floats:
    """Mu [N, A] of finite actions: sum_k of the posterior [N, K] times pi_k [N, K, A]."""
    return np.asarray(np.einsum("nk,nka->na", acting, probs))


def running_weights(log_probs: Floats, shares: Floats) -> Floats:
    """u_k before every step and after the last, [N, T + 1, K], of recorded episodes.

    The products telescope: u_k = prod pi_k / sum_j p_j prod pi_j.

    Args:
        log_probs: log pi_k of the actions taken, [N, T, K]; 0 after the end of an episode.
        shares: p, [K], positive.
    """
    N, T, K = log_probs.shape
    path = np.zeros((N, T + 1, K))
    np.cumsum(log_probs, axis=1, out=path[:, 1:])
    with np.errstate(invalid="ignore"):
        mixed = log_sum((path + np.log(shares)).reshape(-1, K)).reshape(N, T + 1, 1)
        weights = np.exp(path - mixed)
    return np.asarray(np.nan_to_num(weights, nan=0.0))

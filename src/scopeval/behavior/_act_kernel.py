"""One action for one observation, in one compiled call: a controller is waiting.

The same functions, and so the same bits, as for many rows. Apart they would be three calls, and
each of them takes microseconds just to take its arrays.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from scopeval.behavior._step_kernel import weigh
from scopeval.models._fast_estimates_kernel import from_model
from scopeval.policies._random_kernel import drawn

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def act_by_model(given: Any, pi: Any, uniform: float, how: Any) -> Any:
    """An action's number, its mu, pi and b, and then b of all actions and why (`settle`).

    Args:
        given: arrays of a `ModelCritic`, observation [1, d], actions [1, K, m].
        pi: [1, K].
        uniform: which action is drawn.
        how: which estimates are needed (follows, own_cost), and what `weigh` needs besides them.
    """
    arrays, obs, vectors = given
    follows, own_cost, share, rule, kind, floor = how
    e, sure = np.empty((5, *pi.shape)), np.empty(pi.shape, np.bool_)
    from_model(arrays, obs, vectors, follows, own_cost, e, sure, 0, 1)
    mu, why = weigh(e, sure, pi, share, rule, kind, floor)
    k = drawn(mu[0], uniform)
    return k, mu[0, k], pi[0, k], e[0, 0, k], e[0, 0], why[0]

"""Critics' estimates while a behavior policy runs: fast, for one observation or a few hundred.

A controller waits for one action. With numpy, most of the time for one row would go into creating
arrays. Here the same numbers come from one compiled call, which computes only what the behavior
policy needs. Many rows are shared among threads; the result does not depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import fan_out_rows
from scopeval.arrays import Bools, Floats
from scopeval.models import _fast_estimates_kernel as kernel
from scopeval.models.model.critic import ModelCritic
from scopeval.models.protocols import Critic
from scopeval.models.table import TableCritic
from scopeval.policies.protocols import Observations

__all__ = ["look", "model_inputs"]

#: Fewer observations than this are not worth a second thread, for networks.
ROWS_PER_THREAD = 128

#: (follows, own_cost, e, sure, start, stop): writes rows start .. stop - 1 of e and sure.
Kernel = Callable[[bool, bool, Floats, Bools, int, int], None]


def look(
    critic: Critic,
    obs: Observations,
    actions: NDArray[Any] | None,
    count: int,
    *,
    follows: bool,
    own_cost: bool,
) -> tuple[Floats, Bools] | None:
    """The numbers that `behavior.step.Weigher` needs; None: use ``critic.at``.

    Args:
        critic: of the time step.
        obs: [B] state numbers or [B, d].
        actions: candidates [B, K, m]; None: all actions of a finite set.
        count: how many actions are offered.
        follows: whether the variance to come is the behavior's own, or the target's.
        own_cost: whether the cost in the constraint is the behavior's own, or the target's.

    Returns:
        [5, B, K] q, noise, carried variance, the target's cost, the cost in the constraint; and
        [B, K] whether they are known.
    """
    rows = len(obs)
    work = _kernel(critic, obs, actions, count)
    if work is None:
        return None
    e, sure = np.empty((5, rows, count)), np.empty((rows, count), np.bool_)
    if rows < 2 * ROWS_PER_THREAD or isinstance(critic, TableCritic):
        work(follows, own_cost, e, sure, 0, rows)  # the usual case while a controller waits
    else:
        fan_out_rows(
            lambda start, stop: work(follows, own_cost, e, sure, start, stop),
            rows,
            least=ROWS_PER_THREAD,
        )
    return e, sure


def _kernel(
    critic: Critic, obs: Observations, actions: NDArray[Any] | None, count: int
) -> Kernel | None:
    """The compiled call for these observations, if there is one."""
    given = model_inputs(critic, obs, actions, count)
    if given is not None:
        return lambda *rest: kernel.from_model(*given, *rest)
    if actions is not None:
        return None
    if type(critic) is TableCritic and critic.q.shape[1] == count and obs.ndim == 1:
        states = np.ascontiguousarray(obs, np.int64)
        return lambda *rest: kernel.from_table(tuple(critic.compiled), states, *rest)
    return None


def model_inputs(
    critic: Critic, obs: Observations, actions: NDArray[Any] | None, count: int
) -> tuple[Any, ...] | None:
    """What compiled code needs of learned dynamics: arrays, observations, actions; None: no such.

    A simulator is Python code, which cannot be compiled.
    """
    if type(critic) is not ModelCritic:
        return None
    model = critic.model
    if not model.dynamics.learned:
        return None
    vectors = model.dynamics.encoder.embedding[None] if actions is None else actions
    if vectors.shape[1] != count or obs.shape[1:] != model.low.shape:
        return None
    return (
        critic.compiled,
        np.ascontiguousarray(obs, np.float64),
        np.ascontiguousarray(vectors, np.float64),
    )

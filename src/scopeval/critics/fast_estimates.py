"""Critics' answers while a behavior policy runs: quickly, for one observation or a few hundred.

A controller waits for one action, and arrays of one row spend their time on being arrays; networks
asked by numpy write every layer to memory. The same numbers come from one compiled call, which
computes only what the behavior needs. Many rows are shared among threads; the result does not
depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import fan_out_rows
from scopeval.arrays import Bools, Floats
from scopeval.critics import _fast_estimates_kernel as kernel
from scopeval.critics.mlp.regression import MLPCritic
from scopeval.critics.model.regression import ModelCritic
from scopeval.critics.protocols import Critic
from scopeval.critics.table import TableCritic
from scopeval.policies.protocols import Observations

__all__ = ["look"]

#: Fewer observations than this are not worth a second thread, for networks.
ROWS_PER_THREAD = 128


def look(
    critic: Critic,
    obs: Observations,
    actions: NDArray[Any] | None,
    count: int,
    *,
    follows: bool,
    own_cost: bool,
) -> tuple[Floats, Bools] | None:
    """The numbers that `behavior.weigh_parts` needs, or None: ask ``critic.at``.

    Args:
        critic: of the time step.
        obs: [B] state numbers or [B, d].
        actions: candidates [B, K, m]; None: all actions of a finite set.
        count: how many actions are offered.
        follows: whether the variance to come is the behavior's own, or the target's.
        own_cost: whether the cost in the constraint is the behavior's own, or the target's.
    """
    rows = len(obs)
    work = _work(critic, obs, actions, count)
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


def _work(
    critic: Critic, obs: Observations, actions: NDArray[Any] | None, count: int
) -> Callable[..., None] | None:
    """What computes some rows, where it is known how."""
    if type(critic) is ModelCritic:
        return _ahead(critic, obs, actions, count)
    if actions is not None:
        return None
    if type(critic) is TableCritic and critic.q.shape[1] == count and obs.ndim == 1:
        states = np.ascontiguousarray(obs, np.int64)
        table = (
            critic.q,
            critic.cost_target,
            critic.cost_behavior,
            critic.carried,
            critic.noise,
            critic.known,
        )
        return lambda *rest: kernel.from_table(table, states, *rest)
    if (
        type(critic) is MLPCritic
        and obs.ndim == 2
        and critic.slope.shape[1:] == (count, obs.shape[1])
    ):
        vectors = np.ascontiguousarray(obs, np.float64)
        networks = (
            *(critic.net, critic.intercept, critic.slope, critic.centre, critic.spread),
            *(critic.mean, critic.scale, critic.low, critic.high, critic.pairs),
            int(critic.followed),
        )
        return lambda *rest: kernel.from_network(networks, vectors, *rest)
    return None


def _ahead(
    critic: ModelCritic, obs: Observations, actions: NDArray[Any] | None, count: int
) -> Callable[..., None] | None:
    """The same by a model of the world, if it was learned: a simulator cannot be compiled."""
    if not critic.dynamics.learned:
        return None
    vectors = critic.dynamics.encoder.embedding[None] if actions is None else actions
    if vectors.shape[1] != count or obs.shape[1:] != critic.low.shape:
        return None
    seen = np.ascontiguousarray(obs, np.float64), np.ascontiguousarray(vectors, np.float64)
    return lambda *rest: kernel.from_model(*critic.readied, *seen, *rest)

"""A critic's answer at one observation, for a controller that waits for one action.

Arrays of one row spend their time on being arrays: the same numbers come from one compiled call.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats
from scopeval.critic_mlp import MLPCritic
from scopeval.critic_model import MOST_FEATURES, REACH, ModelCritic
from scopeval.critic_model import _directions as directions
from scopeval.critic_table import TableCritic
from scopeval.critics import Critic

__all__ = ["look"]


def look(
    critic: Critic, obs: Any, offered: NDArray[Any], *, follows: bool, own_cost: bool
) -> tuple[Floats, Bools] | None:
    """The numbers that `behavior.weigh_parts` needs, or None: ask ``critic.at``.

    Args:
        critic: of the time step.
        obs: one observation.
        offered: what the target offers there: all action numbers [A], or candidates [K, m].
        follows: whether the variance to come is the behaviour's own, or the target's.
        own_cost: whether the cost in the constraint is the behaviour's own, or the target's.
    """
    from scopeval import _acting_kernel as kernel

    found: tuple[Floats, Bools]
    actions = len(offered)
    if type(critic) is ModelCritic:
        return _look_ahead(critic, obs, offered, follows, own_cost)
    if offered.ndim > 1:
        return None
    if type(critic) is TableCritic and critic.q.shape[1] == actions:
        tables = critic.q, critic.cost_target, critic.cost_behavior, critic.carried, critic.noise
        found = kernel.from_table(*tables, critic.known, int(obs), follows, own_cost)
        return found
    if type(critic) is MLPCritic and critic.slope.shape[1:] == (actions, np.size(obs)):
        found = kernel.from_network(
            critic.net,
            critic.intercept,
            critic.slope,
            critic.centre,
            critic.spread,
            critic.mean,
            critic.scale,
            critic.low,
            critic.high,
            critic.pairs,
            int(critic.followed),
            np.ascontiguousarray(obs, np.float64),
            follows,
            own_cost,
        )
        return found
    return None


def _look_ahead(
    critic: ModelCritic, obs: Any, offered: NDArray[Any], follows: bool, own_cost: bool
) -> tuple[Floats, Bools] | None:
    """The same by a model of the world."""
    from scopeval._acting_kernel import from_model

    dynamics = critic.dynamics
    encoder = dynamics.encoder
    vectors = encoder.embedding if offered.ndim == 1 else np.ascontiguousarray(offered, np.float64)
    if len(vectors) != len(offered) or np.shape(obs) != critic.low.shape:
        return None
    d = len(critic.mean)
    found: tuple[Floats, Bools] = from_model(
        *dynamics.stacked,
        encoder.world,
        np.ascontiguousarray(obs, np.float64),
        vectors,
        critic.t / encoder.horizon if encoder.horizon else 0.0,
        np.ascontiguousarray(critic.heads.T, np.float32),
        critic.mean,
        critic.scale,
        critic.least,
        critic.most,
        critic.low,
        critic.high,
        float(critic.reward_noise),
        int(critic.followed),
        *_soft_steps(d),
        REACH,
        1 + d + d * (d + 1) // 2 <= MOST_FEATURES,
        follows,
        own_cost,
    )
    return found


@cache
def _soft_steps(d: int) -> tuple[NDArray[np.float32], ...]:
    return tuple(part.astype(np.float32) for part in directions(d))

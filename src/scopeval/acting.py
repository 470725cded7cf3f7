"""A critic's answer at one observation, for a controller that waits for one action.

Arrays of one row spend their time on being arrays: the same numbers come from one compiled call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scopeval.arrays import Bools, Floats
from scopeval.critic_mlp import MLPCritic
from scopeval.critic_table import TableCritic
from scopeval.critics import Critic

__all__ = ["look"]


def look(
    critic: Critic, obs: Any, actions: int, *, follows: bool, own_cost: bool
) -> tuple[Floats, Bools] | None:
    """The numbers that `behavior.weigh_parts` needs, or None: ask ``critic.at``.

    Args:
        critic: of the time step.
        obs: one observation.
        actions: how many the target offers.
        follows: whether the variance to come is the behaviour's own, or the target's.
        own_cost: whether the cost in the constraint is the behaviour's own, or the target's.
    """
    from scopeval import _acting_kernel as kernel

    found: tuple[Floats, Bools]
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

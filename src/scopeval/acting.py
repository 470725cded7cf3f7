"""One observation at a time: what `behavior.weigh_rows` computes, without machinery for batches.

A controller asks for one action and waits. Arrays of one row spend their time on being arrays, so
three compiled calls do the work instead: the critics and the program's numbers, the solver, the
draw. Critics that they do not know are left to the general way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scopeval.arrays import Floats
from scopeval.critic_mlp import MLPCritic
from scopeval.critic_table import TableCritic
from scopeval.critics import Critic
from scopeval.methods import Method
from scopeval.solver import Status

__all__ = ["Drawn", "Rules", "draw"]


@dataclass(frozen=True)
class Rules:
    """What the recipe of a behaviour policy means for one row.

    Attributes:
        method: which program.
        floor: share of the target that stays.
        own_cost: whether the constraint looks at the behaviour's own cost, or at the target's.
        share: how many times the target's cost may be spent.
        limit: what may be spent instead, NaN: no such limit.
        largest: larger numbers are not believed.
    """

    method: Method
    floor: float
    own_cost: bool
    share: float
    limit: float
    largest: float

    @property
    def packed(self) -> tuple[bool, bool, bool, float, float, float]:
        """For the kernels."""
        method = self.method
        flags = method.control_variate, method.follows_behavior, self.own_cost
        return (*flags, self.share, self.limit, self.largest)


class Drawn(NamedTuple):
    """An action, its probability, b, the mean of b, and which doubts there were."""

    action: int
    probability: float
    control: float
    baseline: float
    not_finite: bool
    unseen: bool
    infeasible: bool


def draw(critic: Critic, rules: Rules, obs: Any, pi: Floats, u: float) -> Drawn | None:
    """Weigh one observation and draw by the uniform number u; None: not known how."""
    from scopeval import _acting_kernel as kernel
    from scopeval._solver_kernel import solve_rows

    packed, method = rules.packed, rules.method
    if type(critic) is TableCritic and critic.q.shape[1] == len(pi):
        tables = critic.q, critic.cost_target, critic.cost_behavior, critic.carried, critic.noise
        row = kernel.from_table(*tables, critic.known, int(obs), pi, packed)
    elif type(critic) is MLPCritic and critic.slope.shape[1:] == (len(pi), np.size(obs)):
        row = kernel.from_network(
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
            pi,
            packed,
        )
    else:
        return None
    weight, cost, budget, b, known, mass, finite = row
    mu, status = np.empty_like(weight), np.array([Status.INDIFFERENT], np.int8)
    if method.constrained:
        if solve_rows(weight, cost, budget, mu, np.empty(1), status, 0, 1) >= 0:
            return None
    elif method.tilted:
        kernel.in_proportion(weight, known, pi, packed, mu, status)
    return Drawn(*kernel.choose(mu, status, b, known, mass, finite, pi, rules.floor, u))

r"""Algorithm 1 of the paper on one page: the backward sweep over time steps.

For every step t, from the last to the first, with pi the target policy and mu_j the behavior
policies that are followed:

    critics      q, q^c under pi, q^c under mu_j, outcome noise and E[gamma^2 V_j(S')], by a model
    line 6       mu_j, with its control variate b: `step.weigh_rows`, or fixed in a cross-check
    X            (q - b)^2 + noise + E[gamma^2 V_j(S')]: the second moment of one action's outcome;
                 for b = 0 and gamma = 1 the paper's extended reward r~
    V_j          sum_a pi^2/mu_j X - (v - sum_a pi b)^2: variance of the estimate from t on
    cost_j       sum_a mu_j q^c_mu_j: expected cost from t on

The model is a table of the logs, networks, learned or simulated dynamics, or a known MDP
(`exact.known`): then this is dynamic programming, and mu is the optimum.

Differs from the paper: X is learned in these parts instead of as r~, because each part is at least
zero and none needs a model of the reward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats
from scopeval.behavior.step import Recipe, weigh_rows
from scopeval.models.protocols import Critic, Estimates, Points, SweepData, Targets
from scopeval.question.question import discount

__all__ = [
    "Follow",
    "Followed",
    "Kind",
    "SweepStep",
    "Swept",
    "followed_target",
    "line_6",
    "ratio",
    "sweep",
]


class Followed(NamedTuple):
    """One behavior policy at the points of a step, and what the critics say will follow, [B, A]."""

    mu: Floats
    control: Floats  # b
    carried: Floats  # E[gamma^2 V(S')] under it
    cost: Floats  # q^c under it
    why: NDArray[np.uint8] | None = None  # [B] bits of `Why`, where line 6 was solved


#: (t, points, pi, estimates) -> the behavior policies whose variance and cost are carried along
Follow = Callable[[int, Points, Floats, Estimates], list[Followed]]


class SweepStep(NamedTuple):
    """One time step of a sweep, at its P points."""

    t: int
    critic: Critic
    points: Points
    pi: Floats  # [P, A]
    estimates: Estimates
    behaviors: list[Followed]
    value: Floats  # [P] v of the target
    variance: Floats  # [P, k] from here on, per followed behavior
    cost: Floats  # [P, k] likewise


@dataclass(frozen=True)
class Swept:
    """What a backward sweep found.

    Attributes:
        critics: one per time step.
        variance: [k] variance of one episode's estimate, per followed behavior.
        cost: [k] expected cost of an episode, likewise; index 0 is the target itself, b = 0.
        unchanged: share of logged states where mu is pi, mean over time; of the last behavior.
        start_spread: [k] how much the cost, less its ratio times the target's, differs between
            first observations, in units of the target's cost: standard deviation.
    """

    critics: list[Critic]
    variance: Floats
    cost: Floats
    unchanged: float
    start_spread: Floats


@np.errstate(over="ignore", invalid="ignore")  # critics that are not finite: line 6 counts them
def sweep(
    data: SweepData,
    follow: Follow,
    followed: int,
    *watch: Callable[[SweepStep], None],
    keep: bool = True,
) -> Swept:
    """Algorithm 1 for the target and some behavior policies: what they are worth.

    Args:
        data: the question; the rows to learn from at each time step; the points where values are
            needed.
        follow: line 6, for every followed behavior policy; the first is mostly the target itself.
        followed: how many behavior policies `follow` returns.
        watch: called with every time step.
        keep: the critics.
    """
    from scopeval.behavior import _step_kernel as kernel

    T, gamma, target = data.horizon, discount(data.question), data.question.policy
    learners = {} if data.learners is None else data.learners
    critics: list[Critic] = []
    unchanged = 0.0
    v = np.zeros(len(data.at(T).obs))  # after the last step nothing is worth anything
    v_cost, V, cost = np.zeros_like(v), *np.zeros((2, len(v), followed))
    for t in reversed(range(T)):  # Alg. 1, line 4
        rows, to, learner = data.step(t, learners)
        ahead = gamma * rows.alive
        critic = learner.fit(  # Alg. 1, lines 3 and 5
            Targets(
                reward=rows.reward + ahead * v[to],
                cost_target=rows.cost + ahead * v_cost[to],
                cost_behavior=rows.cost[:, None] + ahead[:, None] * cost[to],
                carried=(gamma * ahead)[:, None] * V[to],
                reward_noise=rows.reward_noise,
            )
        )
        points = data.at(t)
        e = points.estimates(critic)
        pi = np.ascontiguousarray(points.target(target, t))
        behaviors = follow(t, points, pi, e)  # Alg. 1, line 6
        v, v_cost, v_error = kernel.values(pi, e.q, e.cost_target, e.error)
        V, cost = np.empty((2, len(v), len(behaviors)))
        same = np.ones(len(v), np.bool_)
        for j, one in enumerate(behaviors):  # X, V_j and cost_j
            # copies: for arrays of another layout, kernels would be compiled once more
            mu, b, carried, paid = (np.array(x, order="C") for x in one[:4])
            V[:, j], cost[:, j], same = kernel.carry_on(
                pi, mu, e.q, b, e.noise, carried, paid, v_error
            )
        if keep:
            critics.append(critic)
        unchanged += float(points.logged @ same) / T
        step = SweepStep(t, critic, points, pi, e, behaviors, v, V, cost)
        for seen in watch:
            seen(step)
        data.tick()
    start = data.at(0).initial
    expected = start @ cost
    away = cost - ratio(expected, expected[0]) * cost[:, :1]
    return Swept(
        critics=critics[::-1],
        variance=start @ V + float(start @ (v - start @ v) ** 2),
        cost=expected,
        unchanged=unchanged,
        start_spread=np.sqrt(start @ away**2) / (expected[0] if expected[0] > 0 else 1.0),
    )


class Kind(NamedTuple):
    """Behavior policies that differ only in the share of the target policy that is mixed in.

    Line 6 is solved once, for the first share: it looks ahead to what follows with that one.
    """

    recipe: Recipe
    floors: tuple[float, ...] = ()  # the shares; none: the recipe's own

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the target policy."""
        return self.floors or (self.recipe.floor,)


def line_6(kinds: Sequence[Kind], critics: Sequence[Critic] | None = None) -> Follow:
    """Follow the target and the behavior policies that critics imply by line 6.

    Args:
        kinds: of behavior policies.
        critics: of all time steps; None: those of the sweep itself. In a cross-check they are what
            another sweep with the same kinds learned from other logs, and mu and b are given.
    """
    solved_for = [(replace(kind.recipe, floor=0.0), kind.shares) for kind in kinds]

    def behaviors(t: int, points: Points, pi: Floats, e: Estimates) -> list[Followed]:
        said = e if critics is None else points.estimates(critics[t])
        followed = [followed_target(pi, e)]
        for recipe, shares in solved_for:
            solved, b, why = weigh_rows(recipe, pi, said.following(len(followed)))
            for share in shares:
                j, mu = len(followed), (1.0 - share) * solved + share * pi
                followed.append(Followed(mu, b, e.carried[..., j], e.cost_behavior[..., j], why))
        return followed

    return behaviors


def followed_target(pi: Floats, e: Estimates) -> Followed:
    """The target itself, without a control variate: what everything is compared with."""
    return Followed(pi, np.zeros_like(pi), e.carried[..., 0], e.cost_behavior[..., 0])


def ratio(value: Any, base: Any) -> Any:
    """Value / base; 1 where both are zero: nothing to gain, nothing to pay."""
    value, base = np.asarray(value, dtype=float), np.asarray(base, dtype=float)
    safe = np.where(base > 0, base, 1.0)
    return np.where(base > 0, value / safe, np.where(value > 0, np.inf, 1.0))

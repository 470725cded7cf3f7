"""What policies are worth in a known MDP: values, and variance and cost of running a behavior."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import Bools, Floats
from scopeval.exact.model import TabularMDP
from scopeval.exact.tables import (
    AnyBehavior,
    AnyPolicy,
    behavior_tables,
    control_table,
    policy_table,
)

if TYPE_CHECKING:
    from scopeval.models.protocols import Critic, Estimates, Points

__all__ = ["Assessment", "Values", "assess", "cost_values", "values"]


@dataclass(frozen=True)
class Values:
    """Action values q [T, S, A] and state values v [T+1, S] of a policy; v[T] = 0."""

    q: Floats
    v: Floats


def values(mdp: TabularMDP, policy: AnyPolicy) -> Values:
    """Q and v of a policy: q_t = r_t + gamma E[v_{t+1}(S')], v_t = sum_a pi q_t."""
    return _values(mdp, policy, "q")


def cost_values(mdp: TabularMDP, policy: AnyPolicy) -> Values:
    """q^c and v^c of a policy: the same for costs."""
    return _values(mdp, policy, "cost_target")


def _values(mdp: TabularMDP, policy: AnyPolicy, name: str) -> Values:
    from scopeval.behavior.sweep import SweepStep, followed_target, sweep
    from scopeval.exact.known import KnownMDP

    pi = policy_table(mdp, "policy", policy)
    q, v = np.empty(pi.shape), np.zeros((mdp.horizon + 1, mdp.states))

    def look(step: SweepStep) -> None:
        q[step.t] = getattr(step.estimates, name)
        v[step.t] = (step.pi * q[step.t]).sum(axis=1)

    sweep(
        KnownMDP(mdp).data(pi), lambda _, __, pi, e: [followed_target(pi, e)], 1, look, keep=False
    )
    return Values(q, v)


@dataclass(frozen=True)
class Assessment:
    """What a behavior policy is worth, exactly.

    Attributes:
        value: J(pi).
        expectation: mean of the estimator; equal to `value` where the behavior covers the target.
        variance: variance of one episode's estimate.
        cost: expected cost of one episode, J^c(mu).
        variances: V, [T+1, S].
        second_moments: X, [T, S, A].
    """

    value: float
    expectation: float
    variance: float
    cost: float
    variances: Floats
    second_moments: Floats

    @property
    def bias(self) -> float:
        """Mean of the estimator minus J(pi)."""
        return self.expectation - self.value


def assess(
    mdp: TabularMDP,
    target: AnyPolicy,
    behavior: AnyBehavior,
    control_variate: ArrayLike | None = "own",
) -> Assessment:
    """Value, variance and cost of evaluating `target` by running `behavior`.

    Args:
        mdp: the model.
        target: pi, a table or any finite policy.
        behavior: mu: a table, a policy, or a behavior such as `Design` or `BehaviorPolicy`.
        control_variate: b, [S, A] or [T, S, A]; None is b = 0 (PDIS); "own" is the behavior's
            own, the one it was designed for, which is b = 0 for a plain policy.
    """
    from scopeval.behavior.sweep import Followed, SweepStep, sweep
    from scopeval.exact.known import KnownMDP

    pi = policy_table(mdp, "target", target)
    mu, own = behavior_tables(mdp, pi, behavior)
    if isinstance(control_variate, str) and control_variate == "own":
        control_variate = own
    b = control_table(mdp, control_variate)

    def follow(t: int, points: Points, _: Floats, e: Estimates) -> list[Followed]:
        return [Followed(mu[t], b[t], e.carried[..., 0], e.cost_behavior[..., 0])]

    data = KnownMDP(mdp).data(pi)
    skipped = (mu == 0.0) & (pi > 0.0)
    if skipped.any():
        at = data.points[0]
        answers = [partial(_skipping, at, skipped[t], b[t]) for t in range(mdp.horizon)]
        data = replace(data, points=[replace(at, answer=one) for one in answers])
    means, variances = np.zeros((2, mdp.horizon + 1, mdp.states))
    moments = np.empty(pi.shape)

    def look(step: SweepStep) -> None:
        q, e = step.critic.at(step.points.obs).q, step.estimates
        moments[step.t] = (q - b[step.t]) ** 2 + e.noise + e.carried[..., 0]
        means[step.t], variances[step.t] = step.value, step.variance[:, 0]

    swept = sweep(data, follow, 1, look, keep=False)
    expectation = float(mdp.initial @ means[0])
    return Assessment(
        value=float(mdp.initial @ values(mdp, pi).v[0]) if skipped.any() else expectation,
        expectation=expectation,
        variance=float(swept.variance[0]),
        cost=float(swept.cost[0]),
        variances=variances,
        second_moments=moments,
    )


def _skipping(points: Points, skipped: Bools, control: Floats, critic: Critic) -> Estimates:
    """What a critic says of a behavior that never takes some actions: there only b is estimated.

    With b in the place of q the sweep carries the mean of the estimate instead of v.
    """
    e = critic.at(points.obs)
    return replace(e, q=np.where(skipped, control, e.q))

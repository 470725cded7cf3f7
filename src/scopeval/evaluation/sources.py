"""Where evaluation gets its episodes from: numbers per episode, in batches, by either policy.

Two sources give the same `Batch`: the compiled simulator for a `TabularMDP` (`Simulated`, nothing
but the numbers is kept) and Gymnasium environments (`Collected`). Both can be asked at any time to
let the target itself run; the control variate, if there is one, stays, for it does no harm.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scopeval.behavior.methods import METHODS
from scopeval.collection.environment_pool import CostFunction
from scopeval.errors import InputError
from scopeval.evaluation.batches import Source
from scopeval.evaluation.gymnasium_source import Collected
from scopeval.evaluation.simulated_source import Simulated, _holes, _tables
from scopeval.exact import Design, TabularMDP
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import (
    ContinuousPolicy,
    Policy,
)
from scopeval.safety.guard import Guard

__all__ = ["open_source"]


def open_source(
    env: Any,
    target: Policy | ContinuousPolicy,
    behavior: Any,
    *,
    horizon: int | None,
    gamma: float,
    estimator: str,
    cost: str | CostFunction | None,
    seed: int,
    batch: int | None,
    keep: bool,
    guard: Guard | None,
) -> Source:
    """The source for an environment; arguments as in `evaluate`."""
    limited = guard is not None and guard.limited
    if not isinstance(env, TabularMDP):
        if horizon is None:
            horizon = getattr(getattr(behavior, "recipe", None), "horizon", None)
        return Collected(
            env,
            target,
            behavior,
            horizon=horizon,
            gamma=gamma,
            estimator=estimator,
            cost=cost,
            batch=batch,
            seed=seed,
            guard_step=guard.steps_exceeded if guard is not None and limited else None,
            uncovered=_holes(target, behavior),
        )
    if limited or batch is not None or not (cost is None or cost == "none"):
        raise InputError(
            "env: a TabularMDP is run by the compiled simulator, which runs whole episodes and "
            "knows no limits within them, no batch and no cost function; try env=TabularEnv(mdp)"
        )
    if isinstance(target, ContinuousPolicy):
        raise InputError("target: has continuous actions, the TabularMDP finitely many")
    mdp = env if horizon is None else _cut(env, horizon)
    free = cost == "none"
    simulated = Simulated(mdp, target, behavior, estimator=estimator, free=free, seed=seed)
    if not keep:
        return simulated
    pi, mu, b = _tables(mdp, target, behavior)
    tilted = behavior is not None
    nothing = np.zeros(mu.shape[:2], np.bool_)
    return Collected(
        mdp,
        TabularPolicy(pi),
        Design(mu, METHODS["on-policy"], b, nothing, nothing) if tilted else None,
        horizon=None,
        gamma=gamma,
        estimator=estimator,
        cost=cost,
        batch=None,
        seed=seed,
        uncovered=simulated.uncovered,
    )


def _cut(mdp: TabularMDP, horizon: int) -> TabularMDP:
    """The first steps of an MDP."""
    if not 1 <= horizon <= mdp.horizon:
        raise InputError(f"horizon: got {horizon}, expected 1 to the MDP's {mdp.horizon}")
    return mdp.shortened(horizon)

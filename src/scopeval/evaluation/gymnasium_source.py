"""Episodes from Gymnasium environments, in batches, by either policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from scopeval.collection.collector import NoEpisodeError, collect
from scopeval.collection.environment_pool import CostFunction, plants
from scopeval.collection.rollout import GuardStep
from scopeval.evaluation.batches import Batch, summarize
from scopeval.exact import TabularMDP
from scopeval.policies.protocols import (
    Behavior,
    Candidates,
    ContinuousPolicy,
    Observations,
    Policy,
    Time,
    Weighing,
    weigh,
)

__all__ = ["Collected"]


class Collected:
    """Episodes in Gymnasium environments, by `collect`; also of a `TabularMDP` to be kept."""

    def __init__(
        self,
        env: Any,
        target: Policy | ContinuousPolicy,
        behavior: Any,
        *,
        horizon: int | None,
        gamma: float,
        estimator: str,
        cost: str | CostFunction | None,
        batch: int | None,
        seed: int,
        guard_step: GuardStep | None = None,
        uncovered: str | None = None,
    ) -> None:
        self.quick = simulated = isinstance(env, TabularMDP)
        self._env = env if simulated else plants(env, batch, cost)
        self._cost = cost if simulated else None
        self.side_by_side = 1 if simulated else len(self._env)
        self._target, self._behavior = target, behavior
        self._kept = None if behavior is None else _kept(behavior, simulated)
        self._horizon, self._gamma, self._estimator = horizon, gamma, estimator
        self._seed, self._guard_step = seed, guard_step
        self.uncovered = uncovered

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        try:
            episodes = collect(
                self._env,
                self._target,
                self._kept if by_target else self._behavior,
                horizon=self._horizon,
                episodes=count,
                seed=self._seed,
                first=first,
                cost=self._cost,
                guard_step=None if by_target else self._guard_step,
            )
        except NoEpisodeError as error:
            if first == 0:
                raise
            episodes = error.episodes
        if by_target:
            episodes = replace(episodes, by_target=np.ones(len(episodes), np.bool_))
        return summarize(episodes, self._gamma, self._estimator)

    def close(self) -> None:
        """Close the environments that were made here."""
        if not isinstance(self._env, TabularMDP):
            self._env.close()


class _Kept:
    """The target itself, with the control variate of a behavior policy."""

    def __init__(self, behavior: Behavior) -> None:
        self._behavior = behavior

    def weigh(self, offered: Candidates, obs: Observations, t: Time) -> Weighing:
        return Weighing(offered.probs, weigh(self._behavior, offered, obs, t).control)


def _kept(behavior: Any, simulated: bool) -> Any:
    """What runs once the behavior policy may not; None: the bare target."""
    return _Kept(behavior) if isinstance(behavior, Behavior) and not simulated else None

"""What a backward sweep works on: rows to learn from, and points where values are needed.

There are two kinds. *Logged* data are the log itself: every row serves every time step or, where
the problem changes with time, the rows of that step. *Simulated* data are episodes of the target
policy in a model of the world (`models.model.simulated_data`): rows of step t lead to the points
of step t + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints
from scopeval.errors import InputError
from scopeval.models.protocols import Critic, Estimates, Learner, Regression, Rows
from scopeval.policies.protocols import ContinuousPolicy, Observations, Policy, probs_of

__all__ = ["Points", "Stored", "SweepData", "logged_sweep_data"]


class Stored(Protocol):
    """The part of critics' answers at some points that is the same in every sweep."""

    def estimates(self, critic: Critic) -> Estimates:
        """What a critic says at these points."""
        ...


@dataclass(frozen=True)
class Points:
    """Observations at which a sweep needs values.

    Attributes:
        obs: [P] state numbers or [P, d].
        initial: [P] distribution of the first observation.
        logged: [P] how often each was met, as shares.
        actions: [P, K, m] candidates of a continuous target; None: all actions of a finite set.
        stored: what need not be computed again in every sweep, if anything.
    """

    obs: Observations
    initial: Floats
    logged: Floats
    actions: NDArray[Any] | None = None
    stored: Stored | None = None

    def target(self, policy: Policy | ContinuousPolicy, t: int) -> Floats:
        """Pi over the actions or candidates."""
        if self.actions is not None:
            K = self.actions.shape[1]
            return np.full((len(self.obs), K), 1.0 / K)
        assert isinstance(policy, Policy)
        return probs_of(policy, self.obs, t)

    def estimates(self, critic: Critic) -> Estimates:
        """What a critic says at these points."""
        if self.stored is not None:
            return self.stored.estimates(critic)
        return critic.at(self.obs, self.actions)


@dataclass(frozen=True)
class SweepData:
    """Rows, points and what leads where; one entry that serves every time step, or one for each.

    Attributes:
        rows: to learn from.
        points: where values are needed.
        successor: for each entry of rows, where every row's next observation is among the points
            of the step after.
        regression: how critics are learned here.
        learners: by step, for a regression whose learners do not change when they fit; None: every
            sweep makes its own.
    """

    rows: Sequence[Rows]
    points: Sequence[Points]
    successor: Sequence[Ints]
    regression: Regression
    learners: dict[int, Learner] | None = None

    def learner(self, step: int, actions: int, seed: int) -> Learner:
        """A learner for the rows of a step."""
        if self.learners is None:
            return self.regression.learner(self.rows[step], actions, seed)
        if step not in self.learners:
            self.learners[step] = self.regression.learner(self.rows[step], actions, seed)
        return self.learners[step]

    def at(self, t: int) -> Points:
        """The points of step t."""
        return self.points[min(t, len(self.points) - 1)]


def logged_sweep_data(
    rows: Rows,
    starts: Rows,
    regression: Regression,
    *,
    actions: int,
    steps: int,
    states: int | None = None,
    everything: Rows | None = None,
) -> SweepData:
    """The log as data for a sweep.

    Args:
        rows: of the log, or of a half.
        starts: first observations.
        regression: how critics are learned.
        actions: number of actions.
        steps: time steps that need rows of their own; 1: every row serves every step.
        states: number of states, at least; None for vectors.
        everything: rows whose states are needed as points (default: these).
    """
    which = [np.flatnonzero(rows.t == t) for t in range(steps)]
    if steps == 1:
        which = [np.arange(len(rows))]
    for t, some in enumerate(which):
        if len(some) == 0:
            raise InputError(
                f"logged: no rows of time step {t}, expected some for every step of the horizon "
                f"{steps}; try time_varying=False if rewards and dynamics do not depend on t"
            )
    parts = [regression.prepare(rows.select(some), actions) for some in which]
    if rows.obs.ndim == 1:
        # every state is a point, so a row's next state is its own place among the points
        size = max(states or 0, *(1 + int(max(p.obs.max(), p.next_obs.max())) for p in parts))
        counted = everything if everything is not None else rows
        size = max(size, 1 + int(max(counted.obs.max(), counted.next_obs.max())))
        initial = np.bincount(starts.obs, starts.weight, size)
        logged = np.bincount(counted.obs, counted.weight, size)
        points = Points(np.arange(size), initial / initial.sum(), logged / logged.sum())
        return SweepData(parts, [points], [part.next_obs for part in parts], regression)
    # vectors never repeat: the points are the rows' next observations, then the first ones
    obs = np.concatenate([rows.next_obs, starts.obs])
    initial = np.concatenate([np.zeros(len(rows)), starts.weight])
    logged = np.concatenate([rows.weight, np.zeros(len(starts))])
    points = Points(obs, initial / initial.sum(), logged / logged.sum())
    return SweepData(parts, [points], which, regression)

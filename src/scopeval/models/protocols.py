r"""Critics: what the logs say about every (observation, action) at one time step.

The backward sweep of `behavior.sweep` hands a learner one regression target per logged row and
asks for the conditional means at any observation. The targets at time t, with v, v^c, V of time t+1
taken at the row's next observation:

    reward           y_q = r + gamma v(s')                         -> q
    cost, target     y_c = c + gamma v^c_pi(s')                    -> q^c under pi
    cost, behavior   y_j = c + gamma v^c_j(s')                     -> q^c under mu_j, for each j
    carried          u_j = gamma^2 V_j(s')                         -> E[gamma^2 V_j(S')], for each j
    noise            (y_q - q)^2, with a q that has not seen y_q   -> outcome noise + error of q

A q that has seen y_q understates the noise, most where it has few rows, and a behavior policy built
on that departs from the target policy in the wrong places. Hence "has not seen": a table divides by
n - 1 and not n, the others fit the noise to residuals of the other fold.

A sweep works on rows to learn from, and on points where values are needed. There are two kinds.
*Logged* data are the log itself: every row serves every time step or, where the problem changes
with time, the rows of that step. A row without a successor serves the last step of the horizon,
after which nothing has a value, and the means of rewards and costs by state and action. *Simulated*
data are episodes of the target policy in a model of the world (`models.networks`): rows
of step t lead to the points of step t + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.errors import InputError
from scopeval.models.rows import Rows, those_that_lead_on
from scopeval.policies.protocols import ContinuousPolicy, Observations, Policy, probs_of
from scopeval.question.question import Question

__all__ = [
    "Critic",
    "Estimates",
    "HalvedData",
    "Learner",
    "Points",
    "Regression",
    "SweepData",
    "Targets",
    "logged_sweep_data",
]


@dataclass(frozen=True)
class Targets:
    """Regression targets of one time step for n rows and k behaviors that are followed."""

    reward: Floats  # [n]
    cost_target: Floats  # [n]
    cost_behavior: Floats  # [n, k]
    carried: Floats  # [n, k]
    reward_noise: Floats  # [n] variance within merged rows

    @property
    def columns(self) -> Floats:
        """[n, 2 + 2 k] all that conditional means are needed of, beside each other."""
        return np.column_stack([self.reward, self.cost_target, self.cost_behavior, self.carried])


@dataclass(frozen=True)
class Estimates:
    """A critic's answer at B observations for A actions (or K offered candidates).

    Attributes:
        q: [B, A] action values of the target.
        cost_target: [B, A] q^c under the target.
        cost_behavior: [B, A, k] q^c under each followed behavior.
        carried: [B, A, k] E[gamma^2 V_j(S')].
        noise: [B, A] variance of the outcome plus squared error of q.
        error: [B, A] the squared error of q alone.
        known: [B, A] False where the logs say nothing: the target policy is used there.
    """

    q: Floats
    cost_target: Floats
    cost_behavior: Floats
    carried: Floats
    noise: Floats
    error: Floats
    known: Bools

    @classmethod
    def of(cls, means: Floats, noise: Floats, error: Floats, known: Bools) -> Self:
        """From conditional means [B, A, 2 + 2 k] of the columns of `Targets`.

        Args:
            means: them; no cost and no variance is below zero.
            noise: [B, A] mean squared distance of the reward target from its mean.
            error: [B, A] squared error of q, which is added to the noise.
            known: [B, A].
        """
        k = means.shape[-1] // 2 - 1
        return cls(
            q=np.ascontiguousarray(means[..., 0]),
            cost_target=np.maximum(means[..., 1], 0.0),
            cost_behavior=np.maximum(means[..., 2 : 2 + k], 0.0),
            carried=np.maximum(means[..., 2 + k :], 0.0),
            noise=noise + error,
            error=error,
            known=known,
        )

    def select(self, which: NDArray[Any] | slice) -> Estimates:
        """The answer at some of the observations."""
        return Estimates(
            self.q[which],
            self.cost_target[which],
            self.cost_behavior[which],
            self.carried[which],
            self.noise[which],
            self.error[which],
            self.known[which],
        )

    def following(self, behavior: int) -> Estimates:
        """The same for the target and one of the followed behaviors alone."""
        if behavior == self.carried.shape[-1] - 1 == 1:
            return self
        both = [0, behavior]
        carried, cost = self.carried[..., both], self.cost_behavior[..., both]
        return replace(self, carried=carried, cost_behavior=cost)


class Critic(Protocol):
    """The critics of one time step, ready to answer."""

    def at(self, obs: Observations, actions: NDArray[Any] | None = None) -> Estimates:
        """Estimates for every action, or for the given candidates [B, K, d]."""
        ...


class Learner(Protocol):
    """Holds the inputs of a set of rows and fits targets to them, step after step."""

    def fit(self, targets: Targets) -> Critic:
        """Fit one time step."""
        ...


@dataclass(frozen=True)
class Caution:
    """How far critics are trusted; a regression may have its own, as an attribute `caution`.

    Attributes:
        shares: of the critics' differences between actions that a control variate may take over
            (see `behavior.step.Recipe`); the cross-check chooses one.
        margin: part of the cost budget that is always left unspent, relative to the target's cost.
        least: relative variance from which on the design falls back to the target policy.
        optimism: which parts of what the halves say too much are left with all logs: expected, and
            at most (see `behavior.decision`). Where errors are chance a quarter and a half.
    """

    shares: tuple[float, ...] = (1.0,)
    least: float = 1.0
    margin: float = 0.0
    optimism: tuple[float, float] = (0.25, 0.5)

    def __post_init__(self) -> None:
        if not self.shares or not all(0.0 <= share <= 1.0 for share in self.shares):
            raise InputError(
                f"caution: got shares {self.shares!r}, expected at least one, each between 0 and 1"
            )


@runtime_checkable
class Regression(Protocol):
    """A way to learn critics."""

    @property
    def name(self) -> str:
        """What summaries call it."""
        ...

    def prepare(self, rows: Rows, actions: int) -> Rows:
        """Rows to learn from: merged, filled in, or as they are."""
        ...

    def learner(self, rows: Rows, actions: int, seed: int) -> Learner:
        """A learner for the prepared rows; `fit` is then called for every time step."""
        ...


# -- what a sweep works on ------------------------------------------------------------------------


@dataclass(frozen=True)
class Points:
    """Observations at which a sweep needs values.

    Attributes:
        obs: [P] state numbers or [P, d].
        initial: [P] distribution of the first observation.
        logged: [P] how often each was met, as shares.
        actions: [P, K, m] candidates of a continuous target; None: all actions of a finite set.
        predicted: what models of the world predict at these points, by the number of the model.
            Critics change from sweep to sweep, models do not: it is computed once.
        answer: what a critic says here, where it is not `Critic.at(obs, actions)`.
    """

    obs: Observations
    initial: Floats
    logged: Floats
    actions: NDArray[Any] | None = None
    predicted: Mapping[int, tuple[Any, ...]] | None = None
    answer: Callable[[Critic], Estimates] | None = None

    def target(self, policy: Policy | ContinuousPolicy, t: int) -> Floats:
        """Pi over the actions or candidates."""
        if self.actions is not None:
            K = self.actions.shape[1]
            return np.full((len(self.obs), K), 1.0 / K)
        assert isinstance(policy, Policy)
        return probs_of(policy, self.obs, t)

    def estimates(self, critic: Critic) -> Estimates:
        """What a critic says at these points."""
        if self.answer is not None:
            return self.answer(critic)
        if self.predicted is None:
            return critic.at(self.obs, self.actions)
        by_model: Any = critic  # a `ModelCritic`
        estimates: Estimates = by_model.given(self.obs, *self.predicted[by_model.model.number])
        return estimates


@dataclass(frozen=True)
class SweepData:
    """Rows, points and what leads where; one entry that serves every time step, or one for each.

    Attributes:
        rows: to learn from.
        points: where values are needed.
        successor: for each entry of rows, where every row's next observation is among the points
            of the step after.
        regression: how critics are learned here.
        question: the target policy, the horizon and the discount.
        actions: number of actions, or of candidates.
        seed: of whatever the regression draws.
        learners: by step, for a regression whose learners do not change when they fit; None: every
            sweep makes its own.
        last: rows for the last step of the horizon, if they are others than those of `rows`: some
            have no successor, and after this step none is needed.
        tick: called when a time step was swept.
    """

    rows: Sequence[Rows]
    points: Sequence[Points]
    successor: Sequence[Ints]
    regression: Regression
    question: Question
    actions: int
    seed: int
    learners: dict[int, Learner] | None = None
    last: Rows | None = None
    tick: Callable[[], None] = lambda: None

    @property
    def horizon(self) -> int:
        """T."""
        assert self.question.horizon is not None
        return self.question.horizon

    def step(self, t: int, learners: dict[int, Learner]) -> tuple[Rows, Ints, Learner]:
        """The rows of step t, where each leads among the points of step t + 1, and their learner.

        Learners that are there serve again: where all steps have the same rows there is one.
        """
        place = min(t, len(self.rows) - 1)
        rows, to = self.rows[place], self.successor[place]
        if t == self.horizon - 1 and self.last is not None:  # nothing counts wherever a row leads
            place, rows, to = -1, self.last, np.zeros(len(self.last), np.int64)
        if place not in learners:
            learners[place] = self.regression.learner(rows, self.actions, self.seed)
        return rows, to, learners[place]

    def at(self, t: int) -> Points:
        """The points of step t."""
        return self.points[min(t, len(self.points) - 1)]


@dataclass(frozen=True)
class HalvedData:
    """What sweeps need: data of each half of the logs, which share no row, and of all.

    Attributes:
        halves: of each half.
        whole: of all logs.
        held_out_errors: of the dynamics, by name.
        finish: called when the designs are done.
    """

    halves: list[SweepData]
    whole: SweepData
    held_out_errors: dict[str, float] = field(default_factory=dict)
    finish: Callable[[], None] = lambda: None


def logged_sweep_data(
    rows: Rows,
    starts: Rows,
    regression: Regression,
    question: Question,
    *,
    actions: int,
    seed: int = 0,
    steps: int,
    states: int | None = None,
    everything: Rows | None = None,
) -> SweepData:
    """The log as data for a sweep.

    Args:
        rows: of the log, or of a half.
        starts: first observations.
        regression: how critics are learned.
        question: the target policy, the horizon and the discount.
        actions: number of actions.
        seed: of the regression.
        steps: time steps that need rows of their own; 1: every row serves every step.
        states: number of states, at least; None for vectors.
        everything: rows whose states are needed as points (default: these).
    """
    asked = regression, question, actions, seed
    every, last = rows, None
    if not rows.has_next.all():
        rows = those_that_lead_on(every)
        last = every if steps == 1 else every.select(every.t == steps - 1)
    which = [np.flatnonzero(rows.t == t) for t in range(steps)]
    if steps == 1:
        which = [np.arange(len(rows))]
    for t, some in enumerate(which):
        if len(some) == 0 and not (last is not None and len(last) and 0 < t == steps - 1):
            raise InputError(
                f"logs: no rows of time step {t}, expected some for every step of the horizon "
                f"{steps}; try time_varying=False if rewards and dynamics do not depend on t"
            )
    parts = [regression.prepare(rows.select(some), actions) for some in which if len(some)]
    if last is not None:
        last = regression.prepare(last, actions)
        parts = [*parts[: steps - 1], last] if steps > 1 else parts
    if rows.obs.ndim == 1:
        # every state is a point, so a row's next state is its own place among the points
        size = max(states or 0, *(1 + int(max(p.obs.max(), p.next_obs.max())) for p in parts))
        counted = everything if everything is not None else every
        size = max(size, 1 + int(max(counted.obs.max(), counted.next_obs.max())))
        initial = np.bincount(starts.obs, starts.weight, size)
        logged = np.bincount(counted.obs, counted.weight, size)
        points = Points(np.arange(size), initial / initial.sum(), logged / logged.sum())
        successor = [part.next_obs for part in parts]
        return SweepData(parts, [points], successor, *asked, last=last)
    # vectors never repeat: the points are the rows' next observations, then the first ones
    obs = np.concatenate([rows.next_obs, starts.obs])
    initial = np.concatenate([np.zeros(len(rows)), starts.weight])
    logged = np.concatenate([rows.weight, np.zeros(len(starts))])
    points = Points(obs, initial / initial.sum(), logged / logged.sum())
    return SweepData(parts, [points], which, *asked, last=last)

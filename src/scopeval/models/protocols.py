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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.errors import InputError
from scopeval.logs.transitions import Transitions
from scopeval.policies.protocols import Observations

__all__ = ["Critic", "Estimates", "Learner", "Regression", "Rows", "Targets"]


@dataclass(frozen=True)
class Rows:
    """Logged rows as the learners see them; equal rows of a table problem are merged.

    Attributes:
        t: [n] time steps.
        obs: [n] state numbers or [n, d].
        action: [n] action numbers, or [n, k] continuous actions.
        reward: [n] reward (mean of the merged rows).
        reward_noise: [n] variance of the reward within the merged rows.
        cost: [n].
        next_obs: like obs.
        alive: [n] 1.0 where the episode goes on, 0.0 where it terminated.
        weight: [n] how many logged rows this one stands for.
        borrowed: [n] True for rows that a table copied from neighbors of a pair that was never
            logged; they are a guess, not evidence.
    """

    t: Ints
    obs: Observations
    action: NDArray[Any]
    reward: Floats
    reward_noise: Floats
    cost: Floats
    next_obs: Observations
    alive: Floats
    weight: Floats
    borrowed: Bools

    @classmethod
    def of(cls, log: Transitions) -> Rows:
        """Every row of a log as it is: nothing is merged."""
        n = len(log)
        return cls(
            t=log.t,
            obs=log.obs,
            action=log.action,
            reward=log.reward,
            reward_noise=np.zeros(n),
            cost=log.cost,
            next_obs=log.next_obs,
            alive=(~log.terminated).astype(np.float64),
            weight=np.ones(n),
            borrowed=np.zeros(n, np.bool_),
        )

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of all parts, one part after the other."""
        names = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.t)

    def select(self, which: NDArray[Any] | slice) -> Rows:
        """Some of the rows."""
        return Rows(
            self.t[which],
            self.obs[which],
            self.action[which],
            self.reward[which],
            self.reward_noise[which],
            self.cost[which],
            self.next_obs[which],
            self.alive[which],
            self.weight[which],
            self.borrowed[which],
        )


@dataclass(frozen=True)
class Targets:
    """Regression targets of one time step for n rows and k behaviors that are followed."""

    reward: Floats  # [n]
    cost_target: Floats  # [n]
    cost_behavior: Floats  # [n, k]
    carried: Floats  # [n, k]
    reward_noise: Floats  # [n] variance within merged rows


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

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `save` must write to restore this critic."""
        ...


class Learner(Protocol):
    """Holds the inputs of a set of rows and fits targets to them, step after step."""

    def fit(self, targets: Targets) -> Critic:
        """Fit one time step."""
        ...


@dataclass(frozen=True)
class Caution:
    """How far critics are trusted; a regression may have its own `caution`.

    Attributes:
        shares: of the critics' differences between actions that a control variate may take over
            (see `behavior.step.Recipe`); the cross-check chooses one.
        trust: checked relative variance below which a control variate is used whatever was
            predicted.
        margin: part of the cost budget that is always left unspent, relative to the target's cost.
        least: checked relative variance from which on the design falls back to the target policy.
    """

    shares: tuple[float, ...] = (1.0,)
    trust: float = 0.75
    least: float = 1.0
    margin: float = 0.0

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


#: For regressions without a caution of their own.
USUAL_CAUTION = Caution()


@runtime_checkable
class Cautious(Protocol):
    """A regression that says how far its critics are to be trusted."""

    @property
    def caution(self) -> Caution:
        """How far."""
        ...

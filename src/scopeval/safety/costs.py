"""What certificate and guard are functions of: a few numbers per finished episode.

Expected costs with q^c as control variate: the same means, far less noise.

With b an estimate of the target's expected cost to go q^c, an episode of mu gives

    P^b = sum_t gamma^t [ W_{t-1} bbar_t + W_t (c_t - b_t) ]    bbar = sum_a pi b
    C^b = sum_t gamma^t [ bmu_t + (c_t - b_t) ]                 bmu = sum_a mu b

whose means are the target's expected cost and mu's, whatever b is, as long as b is known before the
action is drawn: E[rho_t b_t(A) | past] = bbar_t and E[b_t(A) | past] = bmu_t. The same b in both
keeps what the two have in common, so that their difference is precise both where mu is close to pi
and where it is far from it.

b may be scaled by any factor a_t that is known before the action. Such factors keep the sums
between known ends, however large weights and errors of b are. Both sums are of the form above; for
C^b all weights are 1. S is the sum so far.

- **Not below -m**: in step t S falls by a_t gamma^t W_{t-1} (h_t - bbar_t) at most, where
  h_t = max_a rho_t(a) b_t(a). The largest factor up to 1 that keeps S >= -m is taken.
- **Not above U = (K + 1/4) B**, where no weight exceeds K and no episode costs more than B: in step
  t S rises by a_t gamma^t W_{t-1} bbar_t and by W_t times the cost, b being at least 0. With r the
  most that the rest of the episode can still cost, the largest factor up to 1 that keeps
  S + K r <= U after the first of them is taken; costs then use up K r and nothing else.

Where b is any good the factors are 1 nearly always.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from scopeval.arrays import Floats
from scopeval.collection.episodes import Episodes, discounts
from scopeval.errors import InputError
from scopeval.estimation.estimators import pdis_cost, step_weights
from scopeval.estimation.moments import finite_column
from scopeval.policies.protocols import (
    Candidates,
    ContinuousPolicy,
    EpisodeState,
    LearnedBehavior,
    Policy,
    probs_of,
)
from scopeval.question.promise import Promise

__all__ = [
    "RESOLUTION",
    "ROOM",
    "ControlledSum",
    "CostControl",
    "CostSteps",
    "EpisodeCosts",
    "cost_control_of",
    "costs_of",
    "limit_costs",
]

#: Products of many ratios are rounded by up to this part of themselves.
RESOLUTION = 1e-6

#: How far below 0 an estimate may go, and above K times the bound, in units of the bound.
ROOM = 0.25


@dataclass(frozen=True)
class ControlledSum:
    """Step by step what P^b or C^b is made of, [k, T] each.

    Attributes:
        weights: W_t; an ended episode keeps its weight. All 1 for C^b.
        cost: c_t.
        control: b_t of the action taken, at least 0.
        baseline: bbar_t, or bmu_t.
        peak: h_t = max_a rho_t(a) b_t(a); for C^b max_a b_t(a).
        discount: gamma^t, [T].
    """

    weights: Floats
    cost: Floats
    control: Floats
    baseline: Floats
    peak: Floats
    discount: Floats

    def select(self, rows: Any) -> ControlledSum:
        """Some of the episodes, by mask or numbers."""
        return replace(
            self,
            weights=self.weights[rows],
            cost=self.cost[rows],
            control=self.control[rows],
            baseline=self.baseline[rows],
            peak=self.peak[rows],
        )

    def plain(self) -> Floats:
        """The sum, [k]."""
        before = self._before()
        terms = before * self.baseline + self.weights * (self.cost - self.control)
        return np.asarray(terms @ self.discount)

    def not_below(self, floor: float) -> Floats:
        """With factors that keep it at or above -floor, [k]."""
        before, total = self._before(), np.zeros(len(self.cost))
        for t, g in enumerate(self.discount):
            fall = g * before[:, t] * (self.peak[:, t] - self.baseline[:, t])
            factor = _share(total + floor, fall)
            total = total + self._step(before, t, factor)
        return total

    def not_above(self, largest_weight: float, episode: float, step: float | None) -> Floats:
        """With factors that keep it at or below (K + 1/4) B, [k]."""
        before, total = self._before(), np.zeros(len(self.cost))
        most = (largest_weight + ROOM) * episode
        left = np.full(len(self.cost), episode)  # the most that the rest can still cost
        for t, g in enumerate(self.discount):
            if step is not None:
                left = np.minimum(left, step * self.discount[t:].sum())
            rise = g * before[:, t] * self.baseline[:, t]
            factor = _share(most - largest_weight * left - total, rise)
            total = total + self._step(before, t, factor)
            left = left - g * self.cost[:, t]
        return total

    def _before(self) -> Floats:
        """W_{t-1}."""
        before = np.ones_like(self.weights)
        before[:, 1:] = self.weights[:, :-1]
        return before

    def _step(self, before: Floats, t: int, factor: Floats) -> Floats:
        controlled = before[:, t] * self.baseline[:, t] - self.weights[:, t] * self.control[:, t]
        return np.asarray(
            self.discount[t] * (factor * controlled + self.weights[:, t] * self.cost[:, t])
        )


def _share(room: Floats, need: Floats) -> Floats:
    """The largest factor in [0, 1] with factor * need <= room."""
    room = np.maximum(room, 0.0)
    return np.where(need > room, room / np.where(need > 0, need, 1.0), 1.0)


@dataclass(frozen=True)
class CostSteps:
    """Both sums of the same episodes.

    Attributes:
        behavior: C^b, whose mean is the behavior policy's expected cost.
        target: P^b, whose mean is the target's.
    """

    behavior: ControlledSum
    target: ControlledSum

    def select(self, rows: Any) -> CostSteps:
        """Some of the episodes, by mask or numbers."""
        return CostSteps(self.behavior.select(rows), self.target.select(rows))


@dataclass(frozen=True)
class CostControl:
    """Finds b of recorded episodes: finite action sets, critics that did not see the episodes.

    Attributes:
        target: pi.
        critic: the behavior policy, which brings an estimate of q^c.
    """

    target: Policy
    critic: LearnedBehavior

    def steps(self, episodes: Episodes, gamma: float) -> CostSteps | None:
        """Of the episodes; None where actions are continuous.

        Nor where the behavior policy failed at some step: which probabilities were used there is
        not known afterwards.
        """
        finite = episodes.action.ndim == 2 and np.issubdtype(episodes.action.dtype, np.integer)
        if not finite or not len(episodes) or episodes.fallbacks.any():
            return None
        weights = np.cumprod(episodes.ratios, axis=1, dtype=np.float64)
        b, mean, behavior_mean, peak, behavior_peak = np.zeros((5, *episodes.cost.shape))
        for t in range(episodes.horizon):
            rows = np.flatnonzero(episodes.length > t)
            if not len(rows):
                break
            obs, action = episodes.obs[rows, t], episodes.action[rows, t]
            pi: Floats = probs_of(self.target, obs, t)
            q = self.critic.cost_to_go(obs, t)
            if q.shape != pi.shape:
                raise InputError(f"cost_to_go: got shape {q.shape} at t={t}, expected {pi.shape}")
            every = np.broadcast_to(np.arange(pi.shape[1]), pi.shape)
            so_far = np.ones(len(rows)) if t == 0 else weights[rows, t - 1]
            state = EpisodeState.of_weights(so_far)
            designed = self.critic.weigh(Candidates(every, pi), obs, t, state).probs
            # from there on a guard, or the target's turn, gave the steps to the target
            given = episodes.by_target[rows] | (t >= (episodes.length - episodes.guarded)[rows])
            mu: Floats = np.where(given[:, None], pi, designed)
            ratio = np.divide(pi, mu, out=np.zeros_like(pi), where=mu > 0)
            b[rows, t] = q[np.arange(len(rows)), action]
            mean[rows, t], behavior_mean[rows, t] = (pi * q).sum(axis=1), (mu * q).sum(axis=1)
            peak[rows, t], behavior_peak[rows, t] = (ratio * q).max(axis=1), q.max(axis=1)
        g, c = discounts(gamma, episodes.horizon), episodes.cost
        return CostSteps(
            ControlledSum(np.ones_like(c), c, b, behavior_mean, behavior_peak, g),
            ControlledSum(weights, c, b, mean, peak, g),
        )


def cost_control_of(target: Any, behavior: Any) -> CostControl | None:
    """For a behavior policy that knows costs, and a target with finitely many actions."""
    if isinstance(target, ContinuousPolicy) or not isinstance(behavior, LearnedBehavior):
        return None
    return CostControl(target, behavior)


# -- the costs of episodes, with and without it ----------------------------------------------------

#: One number per episode each.
_COLUMNS = (
    "cost",
    "weighted_cost",
    "weight",
    "exposure",
    "largest_step",
    "own_controlled",
    "target_controlled",
)


@dataclass(frozen=True)
class EpisodeCosts:
    """Costs of k finished episodes of the behavior policy, [k] each.

    Attributes:
        cost: C = sum_t gamma^t c_t.
        weighted_cost: P = sum_t gamma^t W_t c_t, W_t = rho_0 ... rho_t: the target's, unbiased
            where the behavior policy covers the target.
        weight: of the whole episode; None: unknown.
        exposure: sum_{t<T} gamma^t W_t, where an ended episode keeps its weight; None: unknown.
        largest_step: the most that one of its steps cost; None: unknown.
        own_controlled: the cost with q^c as control variate (`cost_control`); None: no critic.
        target_controlled: the target's, likewise; None exactly when `own_controlled` is.
        steps: what it is made of, for proofs; None: unknown.
        limit: the promise is about this limit, which `weighted_cost` then holds; None: about the
            cost of a policy.
        covered: no action of the policy that the promise is about is known to be left out.
        finished: False: the episodes were cut, and the columns are sums over the steps seen.
        cap: the weight that none of them can exceed, as the behavior policy states; inf: unknown.
    """

    cost: Floats
    weighted_cost: Floats
    weight: Floats | None = None
    exposure: Floats | None = None
    largest_step: Floats | None = None
    own_controlled: Floats | None = None
    target_controlled: Floats | None = None
    steps: CostSteps | None = None
    limit: float | None = None
    covered: bool = True
    finished: bool = True
    cap: float = math.inf

    def __post_init__(self) -> None:
        for name in _COLUMNS:
            column = getattr(self, name)
            if column is None:
                continue
            column = finite_column(column, name)
            if name != "cost" and column.size != self.cost.size:
                raise InputError(
                    f"cost and {name} must describe the same episodes, got {self.cost.size} and "
                    f"{column.size}"
                )
            object.__setattr__(self, name, column)

    @staticmethod
    def of(cost: npt.ArrayLike, weighted_cost: npt.ArrayLike) -> EpisodeCosts:
        """Of two columns of numbers."""
        return EpisodeCosts(np.asarray(cost), np.asarray(weighted_cost))

    @staticmethod
    def of_columns(rows: Sequence[Mapping[str, Any]]) -> EpisodeCosts:
        """Of `columns`, one row per episode; a number that some row lacks is unknown."""
        columns: dict[str, Any] = {
            name: np.array([row[name] for row in rows], np.float64)
            if name in ("cost", "weighted_cost") or all(name in row for row in rows)
            else None
            for name in _COLUMNS
        }
        return EpisodeCosts(**columns)

    @staticmethod
    def of_cut(seen: Mapping[str, float]) -> EpisodeCosts:
        """Of an episode that was cut: cost, weighted_cost, exposure and largest_step so far."""
        columns: dict[str, Any] = {
            name: np.array([seen[name]], np.float64)
            for name in ("cost", "weighted_cost", "exposure", "largest_step")
        }
        return EpisodeCosts(**columns, finished=False)

    def columns(self) -> dict[str, Floats]:
        """The columns that are known, by name."""
        every = {name: getattr(self, name) for name in _COLUMNS}
        return {name: column for name, column in every.items() if column is not None}

    def __len__(self) -> int:
        return self.cost.size

    def select(self, rows: Any) -> EpisodeCosts:
        """Some of the episodes, by mask or numbers."""
        columns: dict[str, Any] = {
            name: None if getattr(self, name) is None else getattr(self, name)[rows]
            for name in _COLUMNS
        }
        steps = None if self.steps is None else self.steps.select(rows)
        return replace(self, **columns, steps=steps)

    @property
    def pair(self) -> tuple[Floats, Floats]:
        """The best estimates of both expected costs: with a control variate, or the plain ones."""
        if self.own_controlled is None or self.target_controlled is None:
            return self.cost, self.weighted_cost
        return self.own_controlled, self.target_controlled


def costs_of(
    episodes: Episodes,
    gamma: float = 1.0,
    control: CostControl | None = None,
    promise: Promise | None = None,
    target: Policy | None = None,
) -> EpisodeCosts:
    """Of recorded episodes.

    Args:
        episodes: finished.
        gamma: discount.
        control: finds the control variate; None: none. For the target's cost only.
        promise: what they are compared with; None: the target's cost.
        target: the target policy, to check whether a reference policy is covered.
    """
    if not len(episodes):
        none = np.empty(0)
        return EpisodeCosts(none, none, none, none, none)
    largest, covered = episodes.cost.max(axis=1), True
    if promise is not None and promise.limit is not None:
        return limit_costs(episodes.costs(gamma), promise.limit, largest)
    if promise is not None and promise.compared == "reference":
        (episodes, covered), control = _about(promise.of, episodes, target), None
    steps = None if control is None else control.steps(episodes, gamma)
    return EpisodeCosts(
        episodes.costs(gamma),
        pdis_cost(episodes, gamma),
        episodes.weights,
        step_weights(episodes) @ discounts(gamma, episodes.horizon),
        largest,
        None if steps is None else steps.behavior.plain(),
        None if steps is None else steps.target.plain(),
        steps,
        covered=covered,
    )


def limit_costs(cost: Floats, limit: float, largest_step: Floats | None = None) -> EpisodeCosts:
    """Costs that are compared with a limit per episode: weights do not matter."""
    return EpisodeCosts(cost, np.full(len(cost), limit), largest_step=largest_step, limit=limit)


def _about(reference: Policy, episodes: Episodes, target: Policy | None) -> tuple[Episodes, bool]:
    """The same episodes as evidence about another policy, and whether they cover it.

    The behavior policy takes every action of the target. Where the other policy takes others, its
    cost is underestimated. Without a `target` coverage is not checked.
    """
    if episodes.action.ndim != 2 or not np.issubdtype(episodes.action.dtype, np.integer):
        raise InputError("reference: needs a finite action set, the episodes have vectors")
    probs, covered = np.ones_like(episodes.target_prob), True
    for t in range(episodes.horizon):
        rows = np.flatnonzero(episodes.length > t)
        if not len(rows):
            break
        obs = episodes.obs[rows, t]
        table = probs_of(reference, obs, t)
        probs[rows, t] = table[np.arange(len(rows)), episodes.action[rows, t]]
        if target is not None:
            covered &= not ((table > 0) & (probs_of(target, obs, t) <= 0)).any()
    none = np.zeros(len(episodes), np.bool_)
    changed = replace(episodes, target_prob=probs, control=None, baseline=None, by_target=none)
    return changed, covered

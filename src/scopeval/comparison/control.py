"""Learned control variates b_k: action values of every policy, from logs or other episodes.

One set of rows serves all policies: K backward sweeps (Algorithm 1 without its line 6, every policy
follows itself) over the same learners, for vectors over one learned world.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats
from scopeval.comparison.mixture_episodes import MixtureEpisodes
from scopeval.comparison.policy_set import PolicySet
from scopeval.errors import ScopevalError
from scopeval.logs.transitions import Transitions
from scopeval.models.protocols import Critic
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import Observations, Policy, Time

__all__ = [
    "ControlLearner",
    "Controls",
    "TableLearner",
    "WorldLearner",
    "controls_at",
    "learner_for",
]


class Controls(Protocol):
    """b_k(t, s, a) of every policy."""

    def at(self, policy: int, obs: Observations, t: int) -> Floats:
        """[B, A]; 0 where nothing is known."""
        ...


class ControlLearner(Protocol):
    """Learns control variates.

    `quick`: in milliseconds, so that every fold of the episodes can have its own; else they are
    learned from logs and earlier episodes only.
    """

    @property
    def quick(self) -> bool:
        """Whether learning takes milliseconds."""
        ...

    def learn(self, rows: Sequence[Transitions]) -> Controls | None:
        """From all of these logs; None: there are none, or they are of no use."""
        ...


def controls_at(
    controls: Controls, policies: PolicySet, episodes: MixtureEpisodes
) -> tuple[Floats, Floats]:
    """b_k of the actions taken and bbar_k, both [N, T, K]; 0 after an episode's end.

    Likewise where the baseline has control, whose actions are not those of the policies.
    """
    N, T, K = len(episodes), episodes.horizon, len(policies)
    control, baseline = np.zeros((N, T, K)), np.zeros((N, T, K))
    for t in range(T):
        rows = np.flatnonzero((episodes.length > t) & (episodes.back > t))
        if not len(rows):
            break
        obs, action = episodes.obs[rows, t], episodes.action[rows, t]
        for k in range(K):
            if episodes.failed[:, k].any():
                continue  # it has no value
            probs, usable = policies.probs_of(k, obs, t)
            b = controls.at(k, obs, t) * usable[:, None]
            control[rows, t, k] = b[np.arange(len(rows)), action]
            baseline[rows, t, k] = (probs * b).sum(axis=1)
    return control, baseline


@dataclass(frozen=True)
class _Asked:
    """A policy to learn with.

    A learned world also shows it what the plant never does: it is asked within the range of the
    logged observations. Where it has no answer it decides at random. Whatever is learned then,
    values stay unbiased.

    Attributes:
        policy: to ask.
        low: least logged value of each dimension.
        high: the largest.
        actions: number of actions.
    """

    policy: Policy
    low: NDArray[Any]
    high: NDArray[Any]
    actions: int

    def probs(self, obs: Observations, t: Time) -> Floats:
        """[B, A]."""
        probs = np.full((len(obs), self.actions), 1.0 / self.actions)
        with contextlib.suppress(Exception):  # it fails, and has no value
            probs = np.asarray(self.policy.probs(np.clip(obs, self.low, self.high), t), np.float64)
        return probs


@dataclass(frozen=True)
class CriticControls:
    """The critics of K sweeps, one for each policy and step."""

    critics: Sequence[Sequence[Critic]]

    def at(self, policy: int, obs: Observations, t: int) -> Floats:
        """[B, A]; 0 where the critic is not finite."""
        q = np.asarray(self.critics[policy][t].at(obs).q, np.float64)
        return np.where(np.isfinite(q), q, 0.0)


@dataclass(frozen=True)
class TableControls:
    """Tables [K, T, S, A]."""

    tables: Floats

    def at(self, policy: int, obs: Observations, t: int) -> Floats:
        """[B, A]; 0 for states that are not in the tables."""
        table = self.tables[policy, t]
        states = np.asarray(obs)
        inside = (states >= 0) & (states < len(table))
        return np.asarray(table[np.where(inside, states, 0)] * inside[:, None])


@dataclass(frozen=True)
class TableLearner:
    """State numbers: critics by counting."""

    policies: PolicySet
    horizon: int
    gamma: float
    actions: int
    features: NDArray[np.float64] | None = None
    quick: bool = True

    def learn(self, rows: Sequence[Transitions]) -> Controls | None:
        """One table for each policy and step."""
        from scopeval.behavior.sweep import followed_target, sweep
        from scopeval.models.protocols import logged_sweep_data
        from scopeval.models.rows import Rows
        from scopeval.models.table import Table

        some = [Rows.of(part) for part in rows if len(part)]
        if not some:
            return None
        log = Rows.joined(some)
        states = [p.states for p in self.policies.policies if isinstance(p, TabularPolicy)]
        S = max([*states, 1 + int(log.obs.max()), 1 + int(log.next_obs.max())])
        starts = log.select(log.t == 0) if (log.t == 0).any() else log
        regression = Table(states=S, features=self.features)
        data = logged_sweep_data(
            replace(log, t=np.zeros_like(log.t)), starts, regression,
            actions=self.actions, steps=1, states=S,
        )  # fmt: skip
        data = replace(data, learners={})
        tables = np.zeros((len(self.policies), self.horizon, S, self.actions))
        for k, policy in enumerate(self.policies.policies):
            assert isinstance(policy, Policy)
            asked = policy
            if not isinstance(policy, TabularPolicy):
                asked = _Asked(policy, np.array(0), np.array(S - 1), self.actions)
            try:
                swept = sweep(
                    data,
                    asked,
                    lambda t, points, pi, e: [followed_target(pi, e)],
                    horizon=self.horizon,
                    gamma=self.gamma,
                    actions=self.actions,
                    followed=1,
                    seed=0,
                )
            except ScopevalError:
                continue  # it gives no probabilities in some state: b_k = 0
            every = np.arange(S)
            for t, critic in enumerate(swept.critics):
                tables[k, t] = critic.at(every).q
        return TableControls(np.nan_to_num(tables, nan=0.0, posinf=0.0, neginf=0.0))


@dataclass(frozen=True)
class WorldLearner:
    """Vectors: critics in one learned model of the world."""

    policies: PolicySet
    horizon: int
    gamma: float
    seed: int = 0
    quick: bool = False

    def learn(self, rows: Sequence[Transitions]) -> Controls | None:
        """One world, and a sweep of every policy in it."""
        from scopeval.behavior.designer import design
        from scopeval.models.model.world import World

        if not rows:
            return None
        log = Transitions.concat(rows)
        try:
            many = self.policies.actions_at(log.obs[:1])
            world = World.learn(log, actions=many, seed=self.seed)
            made = [
                design(
                    world,
                    _Asked(policy, log.obs.min(axis=0), log.obs.max(axis=0), many),
                    horizon=self.horizon,
                    method="on-policy",
                    gamma=self.gamma,
                )
                for policy in self.policies.policies
                if isinstance(policy, Policy)
            ]
        except ScopevalError:
            return None  # the other estimators need no critics
        return CriticControls([each.critics for each in made])


def learner_for(
    policies: PolicySet, episodes: MixtureEpisodes, *, gamma: float, seed: int
) -> ControlLearner | None:
    """How control variates are learned for episodes like these; None: they are not."""
    if policies.continuous:
        return None
    horizon = episodes.horizon
    if episodes.obs.ndim == 2:
        obs = episodes.obs[:1, 0]
        actions = policies.ask(obs, 0).probs.shape[2]
        return TableLearner(policies, horizon, gamma, actions)
    return WorldLearner(policies, horizon, gamma, seed)

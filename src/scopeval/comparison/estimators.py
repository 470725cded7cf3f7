r"""Three estimators, each with an unbiased value of every policy from every episode.

With the running weights u_k of `mixture`, the return G = sum_t gamma^t R_t and anything with index
k fixed before the episode:

    full trajectory     Y_k = c_k + u_k(T) (G - c_k)
    per decision        Y_k = sum_t gamma^t ( u_k(t+1) (R_t - b_k(t)) + u_k(t) b_k(t) )
    doubly robust       Y_k = sum_t gamma^t ( u_k(t+1) (R_t - b_k(t, S, A)) + u_k(t) bbar_k(t, S) )

where u_k(t) is the weight before step t and bbar_k = sum_a pi_k(a|S) b_k(t, S, a).

*Full trajectory* is the A/B test's value c_k + 1{label = k} / p_k (G - c_k) averaged over the label
given the episode: by Rao and Blackwell the variance of every contrast of Y is at most that of the
A/B test with the same centers c. It is the floor. *Per decision* is usually far better, but not
always: with R_1 = -R_0 and policies that differ at t = 1 only, it has variance where the A/B test
has none. With b_k near the action values of policy k it is safe. Held-out episodes choose.

What is learned for them comes from other episodes and from logs: centers c_k, levels b_k(t), and
control variates b_k(t, s, a), which are action values of policy k. The same rows serve all
policies. For state numbers b_k are the values in the world that the rows show (`counted_model`);
many worlds, one for each fold that is left out, are learned at once. For vectors they come from a
sweep of every policy in one learned world.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats
from scopeval.collection.episodes import discounts
from scopeval.comparison.counted_model import CountedParts, learned_model, value_tables
from scopeval.comparison.mixture import MixtureEpisodes
from scopeval.comparison.policy_set import PolicySet
from scopeval.errors import ScopevalError
from scopeval.exact import TabularMDP
from scopeval.logs.transitions import Transitions
from scopeval.models.rows import Rows
from scopeval.policies.protocols import Observations, Policy, Time

__all__ = [
    "AskedControls",
    "ControlLearner",
    "Controls",
    "TableControls",
    "TableLearner",
    "WorldLearner",
    "ab_variance",
    "centers_of",
    "doubly_robust",
    "full_trajectory",
    "learner_for",
    "levels_of",
    "per_decision",
    "weighted_costs",
]


def full_trajectory(episodes: MixtureEpisodes, gamma: float, centers: Floats) -> Floats:
    """Y_k = c_k + u_k(T) (G - c_k), [N, K]; `centers` c is [K]."""
    final = episodes.weights[:, -1]
    returns = episodes.returns(gamma)
    return np.asarray(centers + final * (returns[:, None] - centers))


def per_decision(episodes: MixtureEpisodes, gamma: float, levels: Floats) -> Floats:
    """The value with b_k(t), [N, K]; `levels` b is [T, K]."""
    b = levels * episodes.steps[:, :, None]
    return _recursion(episodes.reward, episodes.weights, gamma, b, b)


def doubly_robust(
    episodes: MixtureEpisodes, gamma: float, control: Floats, baseline: Floats
) -> Floats:
    """The value with b_k(t, S, A) and bbar_k(t, S), both [N, T, K]; 0 after an episode's end."""
    return _recursion(episodes.reward, episodes.weights, gamma, control, baseline)


def weighted_costs(episodes: MixtureEpisodes, gamma: float = 1.0) -> Floats:
    """sum_t gamma^t u_k(t+1) C_t, [N, K]: an unbiased value of every policy's cost."""
    none = np.zeros((*episodes.cost.shape, 1))
    return _recursion(episodes.cost, episodes.weights, gamma, none, none)


def _recursion(
    signal: Floats, weights: Floats, gamma: float, control: Floats, baseline: Floats
) -> Floats:
    before, after = weights[:, :-1], weights[:, 1:]
    each = after * (signal[:, :, None] - control) + before * baseline
    return np.asarray(np.einsum("t,ntk->nk", discounts(gamma, signal.shape[1]), each))


def centers_of(episodes: MixtureEpisodes, gamma: float) -> Floats:
    """c_k for *other* episodes, [K]: the weighted mean return, sum u_k G / sum u_k."""
    final, returns = episodes.weights[:, -1], episodes.returns(gamma)
    total = final.sum(axis=0)
    mean = final.T @ returns / np.where(total > 0, total, 1.0)
    return np.where(total > 0, mean, returns.mean())


def levels_of(episodes: MixtureEpisodes, gamma: float) -> Floats:
    """b_k(t) for *other* episodes, [T, K]: mean return from t on of those that reach t."""
    ahead = np.zeros(episodes.reward.shape)
    follows = np.zeros(len(ahead))
    for t in reversed(range(episodes.horizon)):
        ahead[:, t] = follows = episodes.reward[:, t] + gamma * follows
    final, steps = episodes.weights[:, -1], episodes.steps
    total = steps.T.astype(np.float64) @ final
    levels = (steps * ahead).T @ final / np.where(total > 0, total, 1.0)
    return np.where(total > 0, levels, 0.0)


def ab_variance(episodes: MixtureEpisodes, gamma: float, shares: Floats) -> tuple[Floats, Floats]:
    """What an A/B test with these shares would give, from the same episodes.

    Returns:
        [K] variance of one episode's value c_k + 1{label = k} / p_k (G - c_k) with c_k = J_k, which
        is s_k^2 / p_k; the contrast of two policies has the sum of both. And [K] s_k^2 itself, the
        variance of policy k's return.
    """
    final, returns = episodes.weights[:, -1], episodes.returns(gamma)
    total = np.maximum(final.sum(axis=0), 1e-300)
    away = returns[:, None] - centers_of(episodes, gamma)
    spread = (final * away**2).sum(axis=0) / total
    with np.errstate(divide="ignore"):
        return np.where(shares > 0, spread / np.where(shares > 0, shares, 1.0), np.inf), spread


# -- learned control variates ----------------------------------------------------------------------


class Controls(Protocol):
    """b_k(t, s, a) of every policy."""

    def over(self, episodes: MixtureEpisodes) -> tuple[Floats, Floats]:
        """b_k of the actions taken and bbar_k = sum_a pi_k b_k, both [N, T, K].

        0 after an episode's end, where nothing is known, and where the baseline has control, whose
        actions are not those of the policies.
        """
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

    def learn(
        self, parts: Sequence[Transitions], fits: Sequence[Sequence[int]]
    ) -> Iterator[Controls | None]:
        """One for each of the fits, from the parts of these numbers; None: they are of no use."""
        ...


def _deciding(episodes: MixtureEpisodes) -> Bools:
    """[N, T] steps at which the mixture decided."""
    last = np.minimum(episodes.length, episodes.back)
    return np.asarray(np.arange(episodes.horizon) < last[:, None])


@dataclass(frozen=True)
class TableControls:
    """Tables by state number.

    Attributes:
        q: b_k, [K, T, S, A].
        v: sum_a pi_k b_k, [K, T, S].
    """

    q: Floats
    v: Floats

    @classmethod
    def of_policies(cls, mdp: TabularMDP, policies: Sequence[Floats]) -> TableControls:
        """Exact action values of policies [K, T, S, A] in a model."""
        both = [value_tables(mdp, "reward", pi) for pi in policies]
        return cls(np.stack([q for q, _ in both]), np.stack([v[:-1] for _, v in both]))

    def over(self, episodes: MixtureEpisodes) -> tuple[Floats, Floats]:
        """Looked up; 0 for states that are not in the tables."""
        obs = np.asarray(episodes.obs)
        inside = _deciding(episodes) & (obs >= 0) & (obs < self.v.shape[2])
        K, _, S, A = self.q.shape
        state = np.where(inside, np.arange(episodes.horizon) * S + obs, 0)
        pair = state * A + np.where(inside, episodes.action, 0)
        control = self.q.reshape(K, -1).take(pair, axis=1) * inside
        baseline = self.v.reshape(K, -1).take(state, axis=1) * inside
        return np.moveaxis(control, 0, 2), np.moveaxis(baseline, 0, 2)


@dataclass(frozen=True)
class AskedControls:
    """By a function of observations; the policies are asked what they would do.

    Attributes:
        policies: of the comparison.
        q: (policy, observations [B], t) -> b_k, [B, A].
    """

    policies: PolicySet
    q: Callable[[int, Observations, int], Floats]

    def over(self, episodes: MixtureEpisodes) -> tuple[Floats, Floats]:
        """Step by step; 0 where a policy gives no answer, or the function no number."""
        shape = len(episodes), episodes.horizon, len(self.policies)
        control, baseline, deciding = np.zeros(shape), np.zeros(shape), _deciding(episodes)
        for t in range(episodes.horizon):
            rows = np.flatnonzero(deciding[:, t])
            if not len(rows):
                break
            obs, action = episodes.obs[rows, t], episodes.action[rows, t]
            for k in range(len(self.policies)):
                if episodes.failed[:, k].any():
                    continue  # it has no value
                probs, usable = self.policies.probs_of(k, obs, t)
                b = np.nan_to_num(self.q(k, obs, t), nan=0.0, posinf=0.0, neginf=0.0)
                b *= usable[:, None]
                control[rows, t, k] = b[np.arange(len(rows)), action]
                baseline[rows, t, k] = (probs * b).sum(axis=1)
        return control, baseline


#: Worlds that are learned together: more are faster, and take more memory.
TOGETHER = 10


@dataclass(frozen=True)
class TableLearner:
    """State numbers: values in the worlds that the rows show."""

    policies: PolicySet
    horizon: int
    gamma: float
    actions: int
    quick: bool = True

    def learn(
        self, parts: Sequence[Transitions], fits: Sequence[Sequence[int]]
    ) -> Iterator[Controls | None]:
        """Some of them at a time, by one recursion for each policy."""
        leads = [bool(part.has_next.any()) for part in parts]
        if not any(leads):
            yield from (None for _ in fits)
            return
        T, A = self.horizon, self.actions
        known = np.unique(np.concatenate([x for p in parts for x in (p.obs, p.next_obs)]))
        S = 1 + int(known[-1])
        tables, _ = self.policies.tables(T, known, (S, A))
        counted = CountedParts.of(parts, S)
        for begin in range(0, len(fits), TOGETHER):
            every = fits[begin : begin + TOGETHER]
            some = [fit for fit in every if any(leads[i] for i in fit)]
            made = self._tables(counted.worlds(some), len(some), tables) if some else iter(())
            yield from (next(made) if any(leads[i] for i in fit) else None for fit in every)

    def _tables(self, rows: Rows, E: int, tables: Floats) -> Iterator[TableControls]:
        """Of E worlds side by side, for policies [K, T, S, A]."""
        K, T, S, A = tables.shape
        mdp = learned_model(rows, E * S, A, T, self.gamma)
        q, v = np.zeros((E, K, T, S, A)), np.zeros((E, K, T, S))
        for k, pi in enumerate(tables):
            every = np.concatenate([np.tile(pi, (1, E, 1)), np.full((T, 1, A), 1.0 / A)], axis=1)
            ahead, here = value_tables(mdp, "reward", every)
            q[:, k] = ahead[:, :-1].reshape(T, E, S, A).swapaxes(0, 1)
            v[:, k] = here[:-1, :-1].reshape(T, E, S).swapaxes(0, 1)
        return map(TableControls, q, v)


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
class WorldLearner:
    """Vectors: critics in one learned model of the world."""

    policies: PolicySet
    horizon: int
    gamma: float
    seed: int = 0
    quick: bool = False

    def learn(
        self, parts: Sequence[Transitions], fits: Sequence[Sequence[int]]
    ) -> Iterator[Controls | None]:
        """One world for each, and a sweep of every policy in it."""
        return (self._learn([parts[i] for i in fit]) for fit in fits)

    def _learn(self, rows: Sequence[Transitions]) -> Controls | None:
        from scopeval.behavior.designer import design
        from scopeval.models.world import World

        if not rows:
            return None
        log = Transitions.concat(rows)
        try:
            many = self.policies.actions_at(log.obs[:1])
            world = World.learn(log, actions=many, seed=self.seed)
            critics = [
                design(
                    world,
                    _Asked(policy, log.obs.min(axis=0), log.obs.max(axis=0), many),
                    horizon=self.horizon,
                    method="on-policy",
                    gamma=self.gamma,
                ).critics
                for policy in self.policies.policies
                if isinstance(policy, Policy)
            ]
        except ScopevalError:
            return None  # the other estimators need no critics
        return AskedControls(self.policies, lambda k, obs, t: critics[k][t].at(obs).q)


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

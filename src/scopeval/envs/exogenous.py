"""Worlds with an exogenous input: demand, arrivals or prices that no action changes.

A world says how its input is drawn, what is observed and what a step does, for many episodes at
once. `ExogenousEnv` makes a Gymnasium environment of it, `simulate` runs many episodes together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.collection.choice import Asker
from scopeval.collection.episodes import Episodes
from scopeval.collection.rollout import draw_actions
from scopeval.policies.episode_state import EpisodeState
from scopeval.policies.protocols import Behavior, Candidates

__all__ = ["ExogenousEnv", "ExogenousWorld", "SoftPolicy", "Step", "regimes", "simulate"]


@dataclass(frozen=True)
class Step:
    """What a step does, for B episodes: the next states [B], rewards and costs."""

    state: Floats
    reward: Floats
    cost: Floats


class ExogenousWorld(Protocol):
    """A world whose only other randomness is its own machines'."""

    @property
    def name(self) -> str:
        """Of its input, as ``info[name]`` reports it."""

    @property
    def horizon(self) -> int:
        """Number of steps."""

    @property
    def actions(self) -> int:
        """Number of actions."""

    def paths(self, count: int, rng: np.random.Generator) -> Floats:
        """[count, T] the input of so many episodes."""

    def begin(self, count: int) -> Floats:
        """[count] states before the first step."""

    def observe(self, state: Floats, path: Floats, t: int) -> Floats:
        """[B, 3]: time, state, and the latest input that is seen at time t."""

    def step(self, state: Floats, action: Ints, now: Floats, rng: np.random.Generator) -> Step:
        """Take actions [B] while the input is `now` [B]."""

    def policies(self) -> Sequence[SoftPolicy]:
        """Policies to evaluate."""


@dataclass(frozen=True)
class SoftPolicy:
    """Prefers the actions whose score is high: probabilities are the softmax of scores [B, A].

    Attributes:
        score: function of observations [B, 3].
    """

    score: Any

    def probs(self, obs: Floats, t: int | Ints) -> Floats:
        """[B, A]."""
        score = np.asarray(self.score(np.asarray(obs)))
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def regimes(
    count: int, steps: int, rates: tuple[float, float], switch: float, rng: np.random.Generator
) -> Floats:
    """[count, steps] Poisson numbers whose rate changes with probability `switch` at each step."""
    first = rng.integers(2, size=(count, 1))
    changes = rng.random((count, steps)) < switch
    changes[:, 0] = False
    high = (first + np.cumsum(changes, axis=1)) % 2
    return rng.poisson(np.asarray(rates)[high]).astype(np.float64)


def simulate(
    world: ExogenousWorld,
    policy: SoftPolicy,
    paths: Floats,
    rng: np.random.Generator,
    influence: Callable[[Floats, Ints, int], None] | None = None,
    behavior: Behavior | None = None,
) -> Episodes:
    """Episodes of a policy, one for each path [n, T], all together.

    Args:
        world: their world.
        policy: the target policy.
        paths: its input.
        rng: of the actions, and of the world's machines.
        influence: changes the paths in place after the actions [n] of time t, for an input that is
            not exogenous; None: none does.
        behavior: the policy that is run instead, with its control variate; None: the target.
    """
    n, T = len(paths), world.horizon
    paths = paths if influence is None else paths.copy()
    state = world.begin(n)
    obs, action = np.zeros((n, T + 1, 3)), np.zeros((n, T), np.int64)
    reward, cost = np.zeros((n, T)), np.zeros((n, T))
    chance, target, control, baseline = (np.zeros((n, T)) for _ in range(4))
    each, offer, weight = np.arange(n), np.tile(np.arange(world.actions), (n, 1)), np.ones(n)
    asker = Asker(behavior)
    for t in range(T):
        obs[:, t] = world.observe(state, paths, t)
        pi = policy.probs(obs[:, t], t)
        weights = EpisodeState.of_weights(weight)
        answer = asker.ask(Candidates(offer, pi), obs[:, t], t, weights)
        mu, b = answer.mu, answer.b
        action[:, t] = draw_actions(mu, rng.random(n))
        chance[:, t], target[:, t] = mu[each, action[:, t]], pi[each, action[:, t]]
        control[:, t], baseline[:, t] = b[each, action[:, t]], (pi * b).sum(axis=1)
        weight *= target[:, t] / chance[:, t]
        if influence is not None:
            influence(paths, action[:, t], t)
        done = world.step(state, action[:, t], paths[:, t], rng)
        state, reward[:, t], cost[:, t] = done.state, done.reward, done.cost
    obs[:, T] = world.observe(state, paths, T)
    seen = np.concatenate([np.full((n, 1), np.nan), paths], axis=1)[:, :, None]
    return Episodes(
        obs=obs[:, :T],
        action=action,
        reward=reward,
        cost=cost,
        behavior_prob=chance,
        target_prob=target,
        control=None if behavior is None else control,
        baseline=None if behavior is None else baseline,
        length=np.full(n, T),
        last_obs=obs[:, T],
        terminated=np.zeros(n, np.bool_),
        by_target=np.full(n, behavior is None),
        exogenous=seen,
        signals=(world.name,),
    )


class ExogenousEnv:
    """A world as a Gymnasium environment; ``info["cost"]`` and ``info[world.name]`` at each step.

    Args:
        world: one of this folder's.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (Gymnasium's own)
    render_mode = None
    spec = None

    def __init__(self, world: ExogenousWorld) -> None:
        from gymnasium.spaces import Box, Discrete

        self.world = world
        self.exogenous = (world.name,)  # as `Plant` asks for it
        self.observation_space = Box(-np.inf, np.inf, (3,))
        self.action_space = Discrete(world.actions)
        self._rng = np.random.default_rng()
        self._t = 0
        self._path = np.zeros((1, world.horizon))
        self._state = world.begin(1)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Draw the input of an episode."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._path = self.world.paths(1, self._rng)
        self._state, self._t = self.world.begin(1), 0
        return self.world.observe(self._state, self._path, 0)[0], {}

    def step(self, action: int) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """One step; after the last the episode is truncated."""
        now = self._path[:, self._t]
        done = self.world.step(self._state, np.array([int(action)]), now, self._rng)
        self._state, self._t = done.state, self._t + 1
        obs = self.world.observe(self._state, self._path, self._t)[0]
        info = {"cost": float(done.cost[0]), self.world.name: float(now[0])}
        return obs, float(done.reward[0]), False, self._t >= self.world.horizon, info

    def close(self) -> None:
        """Nothing to close."""

"""The worlds, environments and logs of the golden cases; small, so that all cases take seconds."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np

from experiments.mlp.regression import MLPRegression
from golden_numbers import Floats, documented
from scopeval import (
    BehaviorPolicy,
    Episodes,
    GaussianPolicy,
    Networks,
    Promise,
    TabularPolicy,
    Transitions,
    collect,
    design,
    exact,
)
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies

#: Side and horizon of the Gridworld; horizons of the store and of the drifting point.
SIZE = 5
HOURS = 6
STEPS = 3


def logged(parts: list[Episodes]) -> Transitions:
    """Collected episodes as a log."""
    columns: dict[str, Any] = dict(Episodes.concat(parts).transitions())
    return Transitions(**columns)


@cache
def grid() -> tuple[exact.TabularMDP, TabularPolicy, Transitions]:
    """A Gridworld, a target and 1,500 logged rows."""
    mdp = Gridworld(size=SIZE, seed=0).mdp()
    return mdp, target_policies(2, size=SIZE)[1], gridworld_logs(mdp, 300)


def thin_grid(episodes: int, seed: int = 0) -> Transitions:
    """A few logged episodes of the Gridworld."""
    return gridworld_logs(grid()[0], episodes, seed=seed)


@cache
def changing() -> tuple[exact.TabularMDP, TabularPolicy, Transitions]:
    """Rewards that are random and depend on time, a discount, and a state that ends the episode."""
    S, A, T = 5, 3, 4
    rng = np.random.default_rng(7)
    transition = rng.dirichlet(np.full(S, 0.5), (S, A))
    transition[-1] = np.eye(S)[-1]
    reward, cost = rng.normal(size=(T, S, A)), rng.random((T, S, A))
    spread = 0.3 * rng.random((T, S, A))
    for table in (reward, cost, spread):
        table[:, -1] = 0.0
    initial = np.array([0.5, 0.3, 0.1, 0.1, 0.0])
    mdp = exact.TabularMDP(
        initial, transition, reward, cost, T, gamma=0.9, reward_variance=spread**2
    )
    target = TabularPolicy(rng.dirichlet(np.ones(A), (T, S)))
    loggers = [TabularPolicy(rng.dirichlet(np.ones(A), S)) for _ in range(3)]
    parts = [collect(mdp, logger, episodes=150, seed=k) for k, logger in enumerate(loggers)]
    return mdp, target, logged(parts)


class Store(gymnasium.Env[int, int]):
    """A cold store: eight temperature levels, three settings of the compressor."""

    observation_space = gymnasium.spaces.Discrete(8)  # type: ignore[assignment]
    action_space = gymnasium.spaces.Discrete(3)  # type: ignore[assignment]
    energy, cooling = (0.2, 1.0, 2.5), (0, 2, 3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        """Start at a middle temperature."""
        super().reset(seed=seed)
        self.level = 3
        return self.level, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """It gets warmer by chance and colder by the compressor."""
        warmer = 1 + int(self.np_random.integers(3))
        spoiled = max(self.level - 4, 0) * float(self.np_random.random())
        self.level = int(np.clip(self.level + warmer - self.cooling[action], 0, 7))
        paid = {"cost": self.energy[action], "power": 2.0 * self.energy[action]}
        return self.level, 1.0 - spoiled, self.level == 7, False, paid


class Unreliable(Store):
    """A store whose compressor fails at times."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Raise now and then."""
        if self.np_random.random() < 0.02:
            raise RuntimeError("the compressor failed")
        return super().step(action)


class Fleet:
    """Four stores behind one call, without chance."""

    def __init__(self) -> None:
        self.level = np.zeros(4, np.int64)

    def __len__(self) -> int:
        return len(self.level)

    def reset(self, seeds: Any, which: Any) -> Any:
        """Start at a level that the seed says."""
        self.level[which] = [int(seed) % 5 for seed in seeds]
        return self.level[which]

    def step(self, actions: Any, which: Any) -> Any:
        """It gets two levels warmer, and colder by the compressor."""
        was = self.level[which]
        now = np.clip(was + 2 - np.array(Store.cooling)[actions], 0, 7)
        self.level[which] = now
        return SimpleNamespace(
            obs=now,
            reward=1.0 - 0.2 * was,
            cost=np.array(Store.energy)[actions],
            terminated=now == 7,
        )


class Failing:
    """A behavior policy that fails at one level, and offers no probabilities at another."""

    def __init__(self, behavior: BehaviorPolicy) -> None:
        self.behavior = behavior

    def weigh(self, offered: Any, obs: Any, t: Any, state: Any) -> Any:
        """As the other does, where it can."""
        if (np.asarray(obs) == 4).any():
            raise RuntimeError("no answer")
        found = self.behavior.weigh(offered, obs, t, state)
        return replace(found, probs=np.where((obs == 2)[:, None], np.nan, found.probs))


@cache
def store() -> tuple[TabularPolicy, Transitions, BehaviorPolicy]:
    """A target for the store, a log of other controllers, and a design."""
    warm = 1.0 / (1.0 + np.exp(3.0 - np.arange(8)))
    table = 0.9 * np.stack([1 - warm, warm * (1 - warm / 2), warm**2 / 2], axis=1) + 0.1 / 3
    target = TabularPolicy(table)

    def logger(obs: Any, t: Any) -> Any:
        cool = 1.0 / (1.0 + np.exp(2.0 - np.asarray(obs, np.float64)))
        return np.stack([0.8 - 0.6 * cool, 0.1 + 0.2 * cool, 0.1 + 0.4 * cool], axis=1)

    parts = [
        collect(Store, by, horizon=HOURS, episodes=100, seed=20 + k)
        for k, by in enumerate((logger, np.full((8, 3), 1 / 3)))
    ]
    log = logged(parts)
    return target, log, design(log, target, horizon=HOURS, method="scope-dr")


class Drift(gymnasium.Env[Floats, Any]):
    """A point that drifts: two numbers to see, three actions or one continuous action."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    finite = True

    def __init__(self) -> None:
        self.action_space = (
            gymnasium.spaces.Discrete(3)
            if self.finite
            else gymnasium.spaces.Box(-3.0, 3.0, (1,), np.float64)
        )

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Start near (1, 0)."""
        super().reset(seed=seed)
        self.x = np.array([1.0, 0.0]) + 0.3 * self.np_random.standard_normal(2)
        return self.x.copy(), {}

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Move by the action; the episode ends far to the right."""
        push = float(action) - 1.0 if self.finite else float(action[0])
        reward = push + 0.5 * self.x[0] + 0.2 * float(self.np_random.standard_normal())
        paid = 0.3 + push * push
        noise = 0.1 * self.np_random.standard_normal(2)
        self.x = self.x + np.array([0.4 * push, 0.2 * self.x[0]]) + noise
        return self.x.copy(), reward, bool(self.x[0] > 2.2), False, {"cost": paid}


class Pushed(Drift):
    """The same with a continuous action."""

    finite = False


def leaning(obs: Any, t: Any) -> Any:
    """Three actions; to the left, the more so the farther to the right."""
    x = np.asarray(obs, np.float64)
    logits = np.stack([0.5 * x[:, 0], 0.3 * x[:, 1], 0.2 - 0.5 * x[:, 0]], axis=1)
    weight = np.exp(logits)
    return weight / weight.sum(axis=1, keepdims=True)


def uniform(obs: Any, t: Any) -> Any:
    """Any of three actions."""
    return np.full((len(obs), 3), 1 / 3)


def normal(shift: float, spread: float) -> GaussianPolicy:
    """A continuous policy that pushes against the first number."""
    return GaussianPolicy(
        lambda obs, t: shift - 0.2 * obs[:, :1], [math.log(spread)], low=[-3.0], high=[3.0], draws=5
    )


@cache
def drifting() -> Transitions:
    """160 logged episodes with finite actions."""
    parts = [
        collect(Drift, by, horizon=STEPS, episodes=80, seed=30 + k)
        for k, by in enumerate((uniform, leaning))
    ]
    return logged(parts)


@cache
def pushed() -> Transitions:
    """160 logged episodes with continuous actions."""
    parts = [
        collect(Pushed, normal(shift, 1.2), horizon=STEPS, episodes=80, seed=40 + k)
        for k, shift in enumerate((-0.3, 0.5))
    ]
    return logged(parts)


def small_mlp(**settings: Any) -> Any:
    """The paper's networks with few steps of training: quick, and rounding does not grow."""
    return MLPRegression(hidden=32, first_steps=40, steps=10, **settings)


def small_model(**settings: Any) -> Any:
    """Settings of "model" with few steps of training."""
    training, study = documented("Training"), documented("Study")
    return Networks(
        training=training(hidden=16, steps=80, batch=128),
        paths=60,
        study=study(paths=100, hidden=8, steps=60, batch=128),
        **settings,
    )


@cache
def push_design(method: str, budget: str) -> BehaviorPolicy:
    """A design for continuous actions."""
    settings: dict[str, Any] = {"method": method, "promise": Promise(per=budget)}
    target = normal(0.0, 0.8)
    return design(pushed(), target, horizon=STEPS, learn=small_model(), **settings)

"""Environments with vectors as observations: target policies, loggers, logs, and measuring.

A policy takes a uniformly random action with probability `slip`, else one with a probability
proportional to exp(-beta |level(a) - u(obs)|^2): u is what a scripted controller wishes
(`classic_control`, `lunar_lander`), with gains of its own; beta = 0 is uniformly random.

Kinds of logs, beside "mixed" (all loggers):

- "one controller": the best logger only;
- "random": the uniformly random one only (in MountainCar it never reaches the flag);
- "hidden region": no rows from the part of the observations, beyond a random hyperplane, where a
  tenth of the target policy's steps are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.worlds.classic_control import (
    Acrobot,
    CartPole,
    Control,
    MountainCar,
    Pendulum,
)
from experiments.worlds.lunar_lander import LunarLander
from scopeval.arrays import Bools, Floats
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.errors import InputError
from scopeval.logs.transitions import Transitions
from scopeval.policies.adapters import CallablePolicy
from scopeval.policies.drawing import draw_actions
from scopeval.policies.protocols import EpisodeState, Policy, Weighing, offer

__all__ = ["EXTRA", "VECTORS", "VECTOR_LOGS", "Measured", "VectorWorld", "measure", "vector_world"]

#: Kinds of logs; all but "mixed" miss a part of what a target policy does.
VECTOR_LOGS = ("mixed", "one controller", "random", "hidden region")
#: Number of loggers, from uniformly random to good.
LOGGERS = 10
#: Share of a target policy's steps that are in the hidden region.
HIDDEN = 0.1
#: Range of a target's share of uniformly random actions; it is drawn log-uniformly.
SLIP = (0.01, 0.2)
#: Episodes that are measured side by side.
TOGETHER = 4000


@dataclass(frozen=True)
class _Recipe:
    """How to make one of the environments.

    Attributes:
        make: makes it.
        beta: range of the targets', drawn log-uniformly.
        slower: it is measured in so many times fewer episodes.
    """

    make: Callable[[], Control]
    beta: tuple[float, float]
    slower: int = 1


_RECIPES = {
    "CartPole": _Recipe(CartPole, (0.15, 0.6)),
    "MountainCar": _Recipe(MountainCar, (0.7, 3.0)),
    "Acrobot": _Recipe(Acrobot, (0.7, 4.0)),
    "Pendulum": _Recipe(Pendulum, (0.7, 6.0)),
    "LunarLander": _Recipe(LunarLander, (1.0, 6.0), slower=10),
}
#: Names of the environments; the second need an extra of the package.
VECTORS, EXTRA = tuple(_RECIPES)[:-1], tuple(_RECIPES)[-1:]


class Measured(NamedTuple):
    """What episodes of a behavior policy gave: one number of each kind for every episode."""

    value: Floats  # unbiased estimate of the target's value
    cost: Floats


class _Run(NamedTuple):
    """Episodes side by side, [n, T]; `steps` marks the steps that were taken."""

    obs: Floats
    action: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    reward: Floats
    cost: Floats
    after: Floats
    ended: Bools
    steps: Bools


@dataclass(frozen=True, eq=False)
class VectorWorld:
    """One environment; everything drawn is a function of the seed.

    Attributes:
        name: of the environment.
        control: its dynamics.
        seed: of policies and logs.
    """

    name: str
    control: Control
    seed: int

    @property
    def slower(self) -> int:
        """It is measured in so many times fewer episodes than others."""
        return _RECIPES[self.name].slower

    def target(self, number: int) -> CallablePolicy:
        """Target policy of this number: its beta, gains and slip are drawn."""
        rng = self._rng(0, number)
        beta = float(np.exp(rng.uniform(*np.log(_RECIPES[self.name].beta))))
        slip = float(np.exp(rng.uniform(*np.log(SLIP))))
        return self._policy(beta, 0.2, slip, rng)

    def loggers(self) -> list[CallablePolicy]:
        """Controllers from uniformly random to good, with gains of their own."""
        most = _RECIPES[self.name].beta[1]
        betas = (0.0, *np.geomspace(most / 20.0, 2.0 * most, LOGGERS - 1))
        return [
            self._policy(float(beta), 0.3 if beta else 0.0, 0.02, self._rng(1, k))
            for k, beta in enumerate(betas)
        ]

    def logs(self, kind: str, episodes: int, target: int) -> Transitions:
        """Logs of one of `VECTOR_LOGS` for one target."""
        if kind not in VECTOR_LOGS:
            raise InputError(f"logs: got {kind!r}, expected one of {', '.join(VECTOR_LOGS)}")
        loggers = self.loggers()
        controllers = {"one controller": loggers[-1:], "random": loggers[:1]}.get(kind, loggers)
        parts = []
        for k, controller in enumerate(controllers[:episodes]):
            count = len(range(k, episodes, len(controllers)))
            run = self._episodes(controller, count, self._rng(3, target, k))
            parts.append(self._rows(run))
        log = Transitions.concat(parts)
        if kind == "hidden region":
            log = log.select(~self._hidden(target, np.asarray(log.obs)))
        return log

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, 100 + list(_RECIPES).index(self.name), *key))

    def _policy(
        self, beta: float, noise: float, slip: float, rng: np.random.Generator
    ) -> CallablePolicy:
        control = self.control
        gains = np.exp(noise * rng.standard_normal(4))

        def probs(obs: Floats, t: object) -> Floats:
            wish = control.steer(np.asarray(obs, np.float64), gains)
            gap = (control.levels - wish[:, None]) ** 2
            weight = np.exp(-beta * (gap if gap.ndim == 2 else gap.sum(axis=2)))
            soft = weight / weight.sum(axis=1, keepdims=True)
            return np.asarray((1.0 - slip) * soft + slip / len(control.levels))

        return CallablePolicy(probs)

    def _hidden(self, target: int, obs: Floats) -> Bools:
        """Which observations are in the hidden region."""
        own = self._episodes(self.target(target), 300, self._rng(2, target))
        steps = own.obs[own.steps]
        scale = steps.std(axis=0) + 1e-9
        direction = self._rng(4, target).standard_normal(steps.shape[1]) / scale
        return np.asarray(obs @ direction > np.quantile(steps @ direction, 1.0 - HIDDEN))

    def _episodes(self, policy: Policy, count: int, rng: np.random.Generator) -> _Run:
        control, T = self.control, self.control.horizon
        state = control.start(count, rng)
        going = np.ones(count, np.bool_)
        columns: list[tuple[np.ndarray[tuple[int, ...], np.dtype[np.generic]], ...]] = []
        for t in range(T):
            obs = control.observe(state)
            action = draw_actions(policy.probs(obs, t), rng.random(len(obs)))
            stepped = control.step(state, action)
            ended = stepped.ended & going
            after = control.observe(stepped.state)
            columns.append((obs, action, stepped.reward, stepped.cost, after, ended, going.copy()))
            state, going = stepped.state, going & ~ended
        return _Run(*(np.stack(column, axis=1) for column in zip(*columns, strict=True)))

    def _rows(self, run: _Run) -> Transitions:
        """Every episode's rows one after the other; one that is cut off goes on for the log."""
        times = np.broadcast_to(np.arange(run.steps.shape[1]), run.steps.shape)
        return Transitions(
            t=times[run.steps],
            obs=run.obs[run.steps],
            action=run.action[run.steps],
            reward=run.reward[run.steps],
            cost=run.cost[run.steps],
            next_obs=run.after[run.steps],
            terminated=run.ended[run.steps],
        )


def vector_world(name: str, seed: int = 0) -> VectorWorld:
    """One of `VECTORS`, ready to use."""
    if name not in _RECIPES:
        raise InputError(f"environment: got {name!r}, expected one of {', '.join(_RECIPES)}")
    return VectorWorld(name, _RECIPES[name].make(), seed)


def measure(
    world: VectorWorld,
    target: Policy,
    behavior: BehaviorPolicy | None,
    episodes: int,
    rng: np.random.Generator,
) -> Measured:
    """Run a behavior policy (None: the target itself): estimates of the value, and costs.

    The value of an episode is sum_t w_(t-1) sum_a pi b + w_t (r - b), w_t the product of the
    importance ratios up to t: unbiased for any control variate b.
    """
    parts = [
        _measured(world, target, behavior, min(TOGETHER, episodes - done), rng)
        for done in range(0, episodes, TOGETHER)
    ]
    return Measured(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _measured(
    world: VectorWorld,
    target: Policy,
    behavior: BehaviorPolicy | None,
    count: int,
    rng: np.random.Generator,
) -> Measured:
    control = world.control
    state = control.start(count, rng)
    value, cost, weight = np.zeros(count), np.zeros(count), np.ones(count)
    going = np.arange(count)
    for t in range(control.horizon):
        obs, every = control.observe(state), np.arange(len(state))
        offered = offer(target, obs, t, rng)
        weighing = Weighing(offered.probs)
        if behavior is not None:
            so_far = EpisodeState.of_weights(weight[going])
            weighing = behavior.weigh(offered, obs, t, so_far)
        mu, b = weighing.probs, weighing.control
        action = draw_actions(mu, rng.random(len(mu)))
        stepped = control.step(state, action)
        before = weight[going]
        ratio = offered.probs[every, action] / mu[every, action]
        left = stepped.reward
        if b is not None:
            value[going] += before * (offered.probs * b).sum(axis=1)
            left = left - b[every, action]
        weight[going] = before * ratio
        value[going] += weight[going] * left
        cost[going] += stepped.cost
        state, going = stepped.state[~stepped.ended], going[~stepped.ended]
        if not len(going):
            break
    return Measured(value, cost)

"""ROS (see `ros`) for torch modules of any kind: many independent runs, side by side.

Run r has its own running mean g_r of grad log pi_theta(A|S), at the evaluation parameters theta_e,
over all steps that it took, and draws its next action from pi_theta with
theta = theta_e - alpha g_r. The gradients of all runs are one call (`torch.func`: vmap of grad),
and so are the actions of all behavior policies. Every run has an environment of its own; a run
whose episode ends begins its next one at once.

A `Family` is what differs between policies: how an action is drawn from a parametrized policy, and
its log-likelihood. `GaussianFamily` has continuous actions: the gradient is that of the normal
density at the drawn action, before it is clipped to what can be executed. `FiniteFamily` has
probabilities of a finite set, such as a network's softmax or the bins of `BinnedPolicy`.

alpha is the authors' choice for networks: 10 for finite actions, 0.1 for continuous ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.func import functional_call, grad, vmap

from experiments.baselines._reparametrized import Parameters, moved_parameters, own_parameters
from experiments.baselines.ros import RosRuns, checked_alpha
from scopeval.arrays import Bools, Floats, Ints, check_whole
from scopeval.collection.environments import Fleet
from scopeval.errors import InputError

__all__ = ["Family", "FiniteFamily", "GaussianFamily", "Parameters", "RosMany", "ros_fleet"]

#: Of a finite set: parameters, one observation -> logarithms of probabilities [A], up to a constant
#: or not.
Logits = Callable[[Parameters, torch.Tensor], torch.Tensor]


class Family(Protocol):
    """Policies pi_theta; functions of one observation, which `RosMany` maps over batches."""

    @property
    def parameters(self) -> Parameters:
        """Theta_e."""

    @property
    def alpha(self) -> float:
        """The authors' step size for such policies."""

    def noise(self, rng: np.random.Generator, steps: int) -> Floats:
        """Random numbers for the actions of one episode, [steps, ...]."""

    def draw(self, theta: Parameters, obs: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """The action of pi_theta for these random numbers."""

    def log_prob(self, theta: Parameters, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Log-likelihood of an action."""

    def executed(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions as environments take them."""

    def failed(self, actions: NDArray[Any]) -> Bools:
        """Which of B draws are invalid, because parameters have overflowed."""


class GaussianFamily:
    """A normal distribution around a module's output.

    Args:
        module: observations [B, d] -> means [B, k].
        low: least executable action, and
        high: largest; what lies beyond is clipped when it is executed.
        log_std: logarithm of the standard deviations; None: the module's parameter of that name,
            which then moves like all others.
    """

    alpha = 0.1

    def __init__(
        self,
        module: torch.nn.Module,
        low: ArrayLike,
        high: ArrayLike,
        log_std: ArrayLike | None = None,
    ) -> None:
        self.module = module
        self.parameters = own_parameters(module)
        self.low, self.high = (np.atleast_1d(np.asarray(x, np.float64)) for x in (low, high))
        if log_std is None and "log_std" not in self.parameters:
            raise InputError(
                "log_std: got None for a module without a parameter of that name, expected the "
                "logarithm of the standard deviations"
            )
        self._log_std = None if log_std is None else torch.as_tensor(np.asarray(log_std))

    def noise(self, rng: np.random.Generator, steps: int) -> Floats:
        """Standard normal numbers [steps, k]."""
        return rng.standard_normal((steps, len(self.low)))

    def draw(self, theta: Parameters, obs: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Mean and noise times standard deviation."""
        mean, log_std = self._both(theta, obs)
        return mean + torch.exp(log_std) * noise

    def log_prob(self, theta: Parameters, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Log density."""
        mean, log_std = self._both(theta, obs)
        z = (action - mean) * torch.exp(-log_std)
        return (-0.5 * z * z - log_std - 0.5 * math.log(2.0 * math.pi)).sum()

    def executed(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Clipped."""
        return np.asarray(np.clip(actions, self.low, self.high))

    def failed(self, actions: NDArray[Any]) -> Bools:
        """Those that are not finite."""
        return np.asarray(~np.isfinite(actions).all(axis=1))

    def _both(self, theta: Parameters, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = functional_call(self.module, theta, (obs[None],))[0]
        return mean, theta["log_std"] if self._log_std is None else self._log_std.to(mean.dtype)


class FiniteFamily:
    """Probabilities of a finite set of actions.

    Args:
        module: observations [B, d] (or numbers [B]) -> logits [B, A]; or only the owner of the
            parameters, where the next is given.
        logits: parameters and one observation -> logits [A], if the module's output is not them.
    """

    alpha = 10.0

    def __init__(self, module: torch.nn.Module, logits: Logits | None = None) -> None:
        self.module = module
        self.parameters = own_parameters(module)
        self._logits = self._ask if logits is None else logits

    def noise(self, rng: np.random.Generator, steps: int) -> Floats:
        """Uniform numbers [steps]."""
        return rng.random(steps)

    def log_probs(self, theta: Parameters, obs: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of all actions, [A]."""
        return torch.log_softmax(self._logits(theta, obs).double(), dim=-1)

    def draw(self, theta: Parameters, obs: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Invert the cumulative probabilities; -1 where they are NaN."""
        upto = torch.cumsum(torch.exp(self.log_probs(theta, obs)), dim=-1)
        return torch.where(upto[-1] > 0, (noise * upto[-1] >= upto[:-1]).sum(), -1)

    def log_prob(self, theta: Parameters, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Log-probability of one action."""
        return self.log_probs(theta, obs).gather(0, action[None])[0]

    def executed(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions are executed as they are."""
        return actions

    def failed(self, actions: NDArray[Any]) -> Bools:
        """Those below 0."""
        return np.asarray(actions < 0)

    def _ask(self, theta: Parameters, obs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = functional_call(self.module, theta, (obs[None],))[0]
        return out


class RosMany:
    """The moving behavior policies of many independent runs.

    Args:
        family: of the policy.
        runs: how many.
        alpha: step size; None: the family's. 0 is on-policy.

    Attributes:
        steps: [runs] taken so far.
        fallbacks: [runs] of these, how many fell back to the target policy, because too large an
            alpha had made parameters overflow.
        mean: g, a tensor [runs, ...] for each parameter.
    """

    def __init__(self, family: Family, runs: int, alpha: float | None = None) -> None:
        self.family = family
        self.alpha = checked_alpha(family.alpha if alpha is None else alpha)
        self.steps: Ints = np.zeros(check_whole("runs", runs, 1), np.int64)
        self.fallbacks = np.zeros_like(self.steps)
        self.mean = {
            name: torch.zeros((runs, *value.shape), dtype=torch.float64)
            for name, value in family.parameters.items()
        }
        self._draw = vmap(family.draw)
        self._slope = vmap(grad(family.log_prob), in_dims=(None, 0, 0))

    def moved(self, which: Ints) -> Parameters:
        """Theta_b of these runs."""
        rows = torch.from_numpy(which)
        mean = {name: value[rows] for name, value in self.mean.items()}
        return moved_parameters(self.family.parameters, mean, self.alpha)

    def draw(self, obs: NDArray[Any], noise: Floats, which: Ints) -> torch.Tensor:
        """An action for each of these runs, from its own behavior policy."""
        with torch.no_grad():
            drawn: torch.Tensor = self._draw(self.moved(which), _tensor(obs), _tensor(noise))
            failed = self.family.failed(drawn.numpy())
            if failed.any():
                own = {n: value[None] for n, value in self.family.parameters.items()}
                own = {n: v.expand(int(failed.sum()), *v.shape[1:]) for n, v in own.items()}
                drawn[torch.from_numpy(failed)] = self._draw(
                    own, _tensor(obs[failed]), _tensor(noise[failed])
                )
                self.fallbacks[which[failed]] += 1
        return drawn

    def observe(self, obs: NDArray[Any], actions: torch.Tensor, which: Ints) -> None:
        """Add one step of each of these runs to its running mean."""
        slopes = self._slope(self.family.parameters, _tensor(obs), actions)
        rows = torch.from_numpy(which)
        self.steps[which] += 1
        share = torch.from_numpy(1.0 / self.steps[which])
        for name, slope in slopes.items():
            mean = self.mean[name][rows]
            weight = share.reshape(-1, *(1,) * (mean.ndim - 1))
            self.mean[name][rows] = mean + (slope.double() - mean) * weight


@dataclass
class _Episodes:
    """The state of every run: its episode, its time step, its observation and random numbers."""

    index: Ints
    t: Ints
    obs: NDArray[Any]
    noise: NDArray[Any]


def ros_fleet(
    fleet: Fleet,
    family: Family,
    *,
    horizon: int,
    runs: int,
    episodes: int,
    alpha: float | None = None,
    seed: int = 0,
) -> RosRuns:
    """Many independent runs of ROS, each in an environment of its own.

    Args:
        fleet: at least as many environments as runs, such as `envs.mujoco.Robots`.
        family: the evaluation policy and its parameters.
        horizon: T.
        runs: independent repetitions of the whole evaluation.
        episodes: of each run, one after the other.
        alpha: step size; None: the family's.
        seed: everything random in episode i of run r follows from (seed, r, i).

    Returns:
        Returns and costs, [runs, episodes].
    """
    check_whole("horizon", horizon, 1)
    check_whole("episodes", episodes, 1)
    check_whole("seed", seed, 0)
    many = RosMany(family, runs, alpha)
    if len(fleet) < runs:
        raise InputError(f"fleet: got {len(fleet)} environments, expected one for each of {runs}")
    returns, costs = np.zeros((runs, episodes)), np.zeros((runs, episodes))
    begun = [_begin(seed, run, 0, family, horizon) for run in range(runs)]
    everyone = np.arange(runs)
    at = _Episodes(
        index=np.zeros(runs, np.int64),
        t=np.zeros(runs, np.int64),
        obs=np.asarray(fleet.reset([start for start, _ in begun], everyone)),
        noise=np.stack([noise for _, noise in begun]),
    )
    which = everyone
    while len(which):
        obs = at.obs[which]
        drawn = many.draw(obs, at.noise[which, at.t[which]], which)
        moved = fleet.step(family.executed(drawn.numpy()), which)
        many.observe(obs, drawn, which)
        returns[which, at.index[which]] += moved.reward
        costs[which, at.index[which]] += moved.cost
        at.obs[which] = moved.obs
        at.t[which] += 1
        over = which[moved.terminated | (at.t[which] == horizon)]
        if len(over):
            at.index[over] += 1
            at.t[over] = 0
            going = over[at.index[over] < episodes]
            begun = [_begin(seed, int(r), int(at.index[r]), family, horizon) for r in going]
            if begun:
                at.obs[going] = fleet.reset([start for start, _ in begun], going)
                at.noise[going] = np.stack([noise for _, noise in begun])
            which = everyone[at.index < episodes]
    return RosRuns(returns, costs, fallbacks=int(many.fallbacks.sum()))


def _begin(
    seed: int, run: int, episode: int, family: Family, horizon: int
) -> tuple[int, NDArray[Any]]:
    """Seed of an episode's environment, and the random numbers of its actions."""
    plant, choices = np.random.SeedSequence(seed, spawn_key=(run, episode)).spawn(2)
    start = int(plant.generate_state(1)[0]) >> 1
    return start, family.noise(np.random.default_rng(choices), horizon)


def _tensor(values: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))

"""A compact PPO, to make controllers of every quality for the robots.

The defaults are CleanRL's for continuous actions (`ppo_continuous_action.py`; Huang et al. 2022),
with 16 robots side by side. Differs from there: an episode ends for good at step 100, so nothing is
bootstrapped; the observations' mean and spread are renewed between updates, not within, and belong
to the policy: a checkpoint is complete without its training run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from experiments.robots.env import HORIZON, Robots
from scopeval.arrays import Floats

__all__ = ["Checkpoint", "Config", "train"]


@dataclass(frozen=True)
class Config:
    """How to train."""

    steps: int = 400_000
    """Total number of simulated steps."""
    robots: int = 16
    """Number of robots that run side by side."""
    rollout: int = 128
    """Steps of each robot between updates."""
    epochs: int = 10
    """Passes over the steps of an update."""
    minibatches: int = 32
    """Minibatches of a pass."""
    learning_rate: float = 3e-4
    """First learning rate of Adam; it decreases to zero."""
    gamma: float = 0.99
    """Discount."""
    trace: float = 0.95
    """Lambda of generalized advantage estimation."""
    clip: float = 0.2
    """Clipping range of the probability ratio and of the value."""
    value_weight: float = 0.5
    """Weight of the value loss."""
    gradient: float = 0.5
    """Largest norm of a gradient; larger ones are scaled down."""
    keep: int = 10
    """Checkpoints in each update, at equal numbers of passes."""


@dataclass(frozen=True)
class Checkpoint:
    """A policy during training: steps and passes so far, and a `RobotPolicy`'s arrays."""

    steps: int
    passes: int
    weights: dict[str, NDArray[np.float32]]


def train(robot: str, config: Config, *, seed: int) -> Iterator[Checkpoint]:
    """Train; yield the policy before the first update, and then `keep` times in each update."""
    run = _Run(robot, config, seed)
    yield Checkpoint(0, 0, run.weights())
    size = config.robots * config.rollout
    updates = max(1, config.steps // size)
    marks = {round(k * config.epochs / config.keep) for k in range(1, config.keep + 1)}
    for update in range(updates):
        run.optimizer.param_groups[0]["lr"] = config.learning_rate * (1 - update / updates)
        batch = run.roll()
        for epoch in range(1, config.epochs + 1):
            run.learn(batch)
            if epoch in marks:
                yield Checkpoint((update + 1) * size, epoch, run.weights())
        run.inputs.see(batch.raw)


class _Running:
    """Mean and variance of everything seen so far."""

    def __init__(self, width: int) -> None:
        self.count, self.mean, self.var = 1e-4, np.zeros(width), np.ones(width)

    def see(self, rows: Floats) -> None:
        n, mean, var = len(rows), rows.mean(axis=0), rows.var(axis=0)
        total, delta = self.count + n, mean - self.mean
        square = self.var * self.count + var * n + delta**2 * self.count * n / total
        self.mean, self.var, self.count = self.mean + delta * n / total, square / total, total

    @property
    def std(self) -> Floats:
        return np.sqrt(self.var + 1e-8)


@dataclass(frozen=True)
class _Rolled:
    """Steps to learn from, flat: [rollout * robots, ...]."""

    raw: Floats
    obs: torch.Tensor
    actions: torch.Tensor
    log_prob: torch.Tensor
    value: torch.Tensor
    advantage: torch.Tensor


class _Run:
    """The networks, the robots and their random numbers."""

    def __init__(self, robot: str, config: Config, seed: int) -> None:
        self.config = config
        self.robots = Robots(robot, config.robots)
        self.torch_rng = torch.Generator().manual_seed(seed)
        self.rng = np.random.default_rng((seed, 1))
        self.starts = np.random.default_rng((seed, 0))
        d, k = self.robots.width, len(self.robots.low)
        self.actor = self._network(d, k, 0.01)
        self.critic = self._network(d, 1, 1.0)
        self.log_std = nn.Parameter(torch.zeros(k))
        self.parameters = [*self.actor.parameters(), *self.critic.parameters(), self.log_std]
        # Torch's own Adam: gradients come from autograd, over several networks and a clipped loss.
        self.optimizer = torch.optim.Adam(self.parameters, eps=1e-5, fused=True)
        self.inputs = _Running(d)
        self.gains = _Running(1)
        self.gain = np.zeros(config.robots)  # discounted return so far
        self.t = np.zeros(config.robots, np.int64)
        self.obs = self.robots.reset(self._seeds(config.robots))
        self.inputs.see(self.roll().raw)  # this rollout only sets the scale of the inputs

    def roll(self) -> _Rolled:
        """Run the policy for `rollout` steps."""
        c, shape = self.config, (self.config.rollout, self.config.robots)
        raw = np.empty((*shape, self.robots.width))
        obs = torch.empty(raw.shape)
        actions = torch.empty((*shape, len(self.robots.low)))
        log_prob, value = torch.empty(shape), torch.empty((c.rollout + 1, c.robots))
        reward, over = np.empty(shape), np.empty(shape, np.bool_)
        for t in range(c.rollout):
            raw[t], obs[t] = self.obs, self._seen(self.obs)
            noise = torch.from_numpy(self.rng.standard_normal(actions[t].shape)).float()
            with torch.no_grad():
                value[t] = self.critic(obs[t])[:, 0]
                actions[t] = self.actor(obs[t]) + self.log_std.exp() * noise
                log_prob[t] = self._log_prob(obs[t], actions[t])
            moves = self.robots.step(actions[t].numpy())
            self.t += 1
            self.obs, over[t] = moves.obs, moves.terminated | (self.t == HORIZON)
            self.gain = self.gain * c.gamma + moves.reward
            self.gains.see(self.gain[:, None])
            reward[t] = np.clip(moves.reward / self.gains.std[0], -10, 10)
            ended = np.flatnonzero(over[t])
            if len(ended):
                self.obs[ended] = self.robots.reset(self._seeds(len(ended)), ended)
                self.t[ended], self.gain[ended] = 0, 0.0
        with torch.no_grad():
            value[-1] = self.critic(self._seen(self.obs))[:, 0]
        advantage = self._advantage(reward, value.numpy(), over)
        return _Rolled(
            raw.reshape(-1, raw.shape[-1]),
            obs.flatten(0, 1),
            actions.flatten(0, 1),
            log_prob.flatten(),
            value[:-1].flatten(),
            torch.from_numpy(advantage).float().flatten(),
        )

    def _advantage(self, reward: Floats, value: NDArray[Any], over: NDArray[np.bool_]) -> Floats:
        c, advantage, last = self.config, np.empty_like(reward), np.zeros(reward.shape[1])
        for t in reversed(range(len(reward))):
            goes_on = 1.0 - over[t]
            error = reward[t] + c.gamma * goes_on * value[t + 1] - value[t]
            advantage[t] = last = error + c.gamma * c.trace * goes_on * last
        return advantage

    def learn(self, batch: _Rolled) -> None:
        """One pass over the steps."""
        c = self.config
        order = torch.randperm(len(batch.obs), generator=self.torch_rng)
        for rows in order.chunk(c.minibatches):
            obs, advantage, old = batch.obs[rows], batch.advantage[rows], batch.value[rows]
            goal = advantage + old
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            log_prob = self._log_prob(obs, batch.actions[rows])
            ratio = (log_prob - batch.log_prob[rows]).exp()
            clipped = ratio.clamp(1 - c.clip, 1 + c.clip)
            gain = torch.minimum(advantage * ratio, advantage * clipped).mean()
            value = self.critic(obs)[:, 0]
            near = old + (value - old).clamp(-c.clip, c.clip)
            miss = 0.5 * torch.maximum((value - goal) ** 2, (near - goal) ** 2).mean()
            self.optimizer.zero_grad()
            (c.value_weight * miss - gain).backward()
            nn.utils.clip_grad_norm_(self.parameters, c.gradient)
            self.optimizer.step()

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """The policy as it is now."""
        layers = [layer for layer in self.actor if isinstance(layer, nn.Linear)]
        arrays = {"center": self.inputs.mean, "scale": self.inputs.std}
        for k, layer in enumerate(layers, start=1):
            arrays |= {f"w{k}": layer.weight.detach().numpy().T}
            arrays |= {f"b{k}": layer.bias.detach().numpy()}
        arrays["log_std"] = self.log_std.detach().numpy()
        return {key: np.array(value, np.float32, order="C") for key, value in arrays.items()}

    def _network(self, inputs: int, outputs: int, scale: float) -> nn.Sequential:
        widths, scales = (inputs, 64, 64, outputs), (2**0.5, 2**0.5, scale)
        layers: list[nn.Module] = []
        for a, b, gain in zip(widths, widths[1:], scales, strict=False):
            layer = nn.Linear(a, b)
            nn.init.orthogonal_(layer.weight, gain, generator=self.torch_rng)
            nn.init.zeros_(layer.bias)
            layers += [layer, nn.Tanh()]
        return nn.Sequential(*layers[:-1])

    def _log_prob(self, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Log density of the actions, up to a constant."""
        z = (actions - self.actor(obs)) * torch.exp(-self.log_std)
        out: torch.Tensor = -0.5 * (z * z).sum(dim=1) - self.log_std.sum()
        return out

    def _seen(self, obs: Floats) -> torch.Tensor:
        scaled = (obs - self.inputs.mean) / self.inputs.std
        return torch.from_numpy(np.clip(scaled, -10, 10)).float()

    def _seeds(self, count: int) -> list[int]:
        seeds: list[int] = self.starts.integers(2**31, size=count).tolist()
        return seeds

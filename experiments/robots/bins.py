"""The paper's protocol for continuous actions: the first dimension in ten bins, the others inside.

The target's other action dimensions are drawn before the decision and are part of what is observed:
obs = (robot's observation, other dimensions). What is left to decide is one of `BINS` equal parts
of the first dimension's range, whose midpoint is executed. `BinnedPolicy` is the target as a finite
policy over these; `BinnedRobot` the environment; `BinnedRobots` many of them by one call.

Everything random in an episode follows from its seed: the robot's start and the other dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.robots.env import HORIZON, Moves, Robots
from experiments.robots.policies import robot_policy
from scopeval.arrays import Floats, Ints
from scopeval.errors import InputError
from scopeval.policies.gaussian import GaussianPolicy
from scopeval.policies.protocols import Observations, Time

__all__ = ["BINS", "BinnedPolicy", "BinnedRobot", "BinnedRobots", "make_binned_robot"]

BINS = 10
#: MuJoCo resets a simulation when a number exceeds this (its mjMAXVAL).
_FAR = 1e10


class BinnedPolicy:
    """A Gaussian policy's first action dimension as a finite policy over bins.

    A bin's probability is the normal's between its edges. Actions beyond the limits are clipped, so
    their probability belongs to the bins at the ends.

    Args:
        policy: of the robot.

    Attributes:
        midpoints: what the bins execute, [10].
        embedding: the same as features of the actions, [10, 1].
        drawn: how many action dimensions are drawn beforehand, and observed.
    """

    def __init__(self, policy: GaussianPolicy) -> None:
        if not isinstance(policy, GaussianPolicy):
            raise InputError(f"policy: got {type(policy).__name__}, expected a GaussianPolicy")
        self.policy = policy
        low, high = policy.low[0], policy.high[0]
        edges = np.linspace(low, high, BINS + 1)
        self.midpoints: Floats = (edges[:-1] + edges[1:]) / 2
        self.embedding: Floats = self.midpoints[:, None]
        self._inner = edges[1:-1]
        self.drawn = len(policy.low) - 1

    def probs(self, obs: Observations, t: Time) -> Floats:
        """Probabilities [B, 10] at observations [B, robot's + other dimensions]."""
        from scipy.special import ndtr

        own = self.own(obs)
        mean, std = self.policy.mean(own, t)[:, :1], self.policy.std(own, t)[:, :1]
        z = (self._inner - mean) / std
        below: Floats = ndtr(z)
        above: Floats = ndtr(-z)
        out = np.empty((len(own), BINS))
        out[:, 0], out[:, -1] = below[:, 0], above[:, -1]
        # of two differences the one without cancellation: on the side of the smaller tail
        out[:, 1:-1] = np.where(z[:, 1:] < 0, np.diff(below, axis=1), -np.diff(above, axis=1))
        out /= out.sum(axis=1, keepdims=True)
        return out

    def redraw(self, obs: Observations, t: Time, rng: np.random.Generator) -> Floats:
        """The same observations with the other dimensions drawn again, from this policy.

        For logs of other policies, which drew these dimensions themselves.
        """
        own = self.own(obs)
        return self.with_others(own, t, rng.standard_normal((len(own), self.drawn)))

    def with_others(self, own: Observations, t: Time, noise: Floats) -> Floats:
        """Robot's observations [B, d] with the other dimensions that noise [B, k-1] makes."""
        if not self.drawn:
            return np.asarray(own, np.float64)
        others = self.policy.mean(own, t)[:, 1:] + self.policy.std(own, t)[:, 1:] * noise
        return np.concatenate([own, np.clip(others, self.policy.low[1:], self.policy.high[1:])], 1)

    def own(self, obs: Observations) -> Observations:
        """The robot's part of observations."""
        return obs[:, : obs.shape[1] - self.drawn]

    def actions(self, obs: Observations, bins: Ints) -> Floats:
        """What is executed: the bins' midpoints and the other dimensions, [B, k]."""
        others = obs[:, obs.shape[1] - self.drawn :]
        return np.concatenate([self.midpoints[bins][:, None], others], axis=1)

    def __repr__(self) -> str:
        return f"BinnedPolicy({self.policy!r})"


class BinnedRobots:
    """n robots in the paper's protocol; a `Fleet` for `collect`.

    Args:
        robot: its name.
        policy: the target, whose other action dimensions are inside; `BinnedPolicy(policy)` too.
        n: how many.
    """

    def __init__(self, robot: str, policy: GaussianPolicy | BinnedPolicy, n: int = 1) -> None:
        self.policy = policy if isinstance(policy, BinnedPolicy) else BinnedPolicy(policy)
        self.robots = Robots(robot, n)
        k = len(self.robots.low)
        if len(self.policy.policy.low) != k:
            raise InputError(
                f"policy: got one with {len(self.policy.policy.low)} action dimensions, expected "
                f"{k} as {self.robots.robot} has"
            )
        self.width = self.robots.width + k - 1
        self._noise = np.zeros((n, HORIZON + 1, k - 1))
        self._t = np.zeros(n, np.int64)
        self._obs = np.zeros((n, self.width))

    def __len__(self) -> int:
        return len(self.robots)

    def reset(self, seeds: Sequence[int], which: ArrayLike | None = None) -> Floats:
        """Begin an episode in each (of `which`); observations [B, width]."""
        rows = np.arange(len(self)) if which is None else np.asarray(which, np.int64)
        starts = []
        for row, seed in zip(rows, seeds, strict=True):
            start, noise = np.random.SeedSequence(int(seed)).spawn(2)
            starts.append(int(start.generate_state(1)[0]) >> 1)
            rng = np.random.default_rng(noise)
            self._noise[row] = rng.standard_normal(self._noise.shape[1:])
        self._t[rows] = 0
        return self._seen(rows, self.robots.reset(starts, rows))

    def step(self, actions: ArrayLike, which: ArrayLike | None = None) -> Moves:
        """Execute the bins [B] in each (of `which`)."""
        rows = np.arange(len(self)) if which is None else np.asarray(which, np.int64)
        bins = np.asarray(actions)
        if bins.shape != rows.shape or not ((bins >= 0) & (bins < BINS)).all():
            raise InputError(
                f"actions: got {bins!r}, expected {len(rows)} numbers in 0..{BINS - 1}"
            )
        moves = self.robots.step(self.policy.actions(self._obs[rows], bins), rows)
        self._t[rows] += 1
        return Moves(self._seen(rows, moves.obs), moves.reward, moves.cost, moves.terminated)

    def _seen(self, rows: Ints, own: Floats) -> Floats:
        t = self._t[rows]
        obs = self.policy.with_others(own, t, self._noise[rows, np.minimum(t, HORIZON)])
        self._obs[rows] = obs
        return obs


class BinnedRobot(gymnasium.Env[NDArray[np.float64], np.int64]):
    """One robot in the paper's protocol, as a Gymnasium environment.

    Args:
        robot: its name.
        policy: the target, whose other action dimensions are inside.

    The same seed gives the same episode as in `BinnedRobots`.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium's own convention)

    def __init__(self, robot: str, policy: GaussianPolicy | BinnedPolicy) -> None:
        self._robots = BinnedRobots(robot, policy)
        inside, own = self._robots.policy.policy, self._robots.robots.width
        low = np.concatenate([np.full(own, -_FAR), inside.low[1:]])
        high = np.concatenate([np.full(own, _FAR), inside.high[1:]])
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float64)
        self.action_space = gymnasium.spaces.Discrete(BINS)
        self._t = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        own = int(self.np_random.integers(2**31)) if seed is None else seed
        self._t = 0
        return self._robots.reset([own])[0], {}

    def step(
        self, action: np.int64
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Execute a bin."""
        moves = self._robots.step([int(action)])
        self._t += 1
        info = {"cost": float(moves.cost[0])}
        over = self._t >= HORIZON
        return moves.obs[0], float(moves.reward[0]), bool(moves.terminated[0]), over, info


def make_binned_robot(policy: str) -> BinnedRobot:
    """For Gymnasium: ``gymnasium.make("scopeval/BinnedRobot-v0", policy="hopper-07")``."""
    shipped = robot_policy(policy)
    return BinnedRobot(policy.split("-")[0], shipped)

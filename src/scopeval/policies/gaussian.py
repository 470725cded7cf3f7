"""Policies that are a normal distribution over actions, clipped to what can be executed.

This is what most learners of continuous control produce: a network for the mean, a standard
deviation for each action dimension, and limits. The *executed* action is the clipped one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopeval.arrays import Floats, check_whole
from scopeval.errors import InputError
from scopeval.policies.protocols import Candidates, Observations, Time

if TYPE_CHECKING:
    import torch

__all__ = ["GaussianPolicy"]

#: (obs, t) -> [B, d]
Function = Callable[[Observations, Time], ArrayLike]


class GaussianPolicy:
    """A normal distribution with independent dimensions, clipped to a box.

    Args:
        mean: a function (obs, t) -> [B, d], or a torch module that maps observations to [B, d].
        log_std: logarithm of the standard deviations: [d] or a function (obs, t) -> [B, d].
        low: least executable value of each dimension.
        high: largest executable value of each dimension.
        space: the environment's action space, a box, instead of both.
        draws: how many candidates it offers at an observation (K).
    """

    def __init__(
        self,
        mean: Function | torch.nn.Module,
        log_std: ArrayLike | Function,
        *,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        space: Any = None,
        draws: int = 10,
    ) -> None:
        if not callable(mean):
            raise InputError(
                f"mean: got {type(mean).__name__}, expected a function (obs, t) -> [B, d] or a "
                "torch module"
            )
        if space is not None and low is None and high is None:
            low, high = getattr(space, "low", None), getattr(space, "high", None)
        elif space is not None:
            raise InputError("space: got low or high too, expected either the box or its bounds")
        if low is None or high is None:
            got = "neither both bounds nor a box" if space is None else f"the space {space}"
            raise InputError(
                f"low, high: got {got}, expected what can be executed: low= and high=, or "
                "space=env.action_space"
            )
        self.low, self.high = (np.atleast_1d(np.asarray(x, np.float64)) for x in (low, high))
        if self.low.ndim != 1 or self.low.shape != self.high.shape or (self.low > self.high).any():
            raise InputError(
                f"low, high: got {self.low} and {self.high}, expected two vectors [d], low <= high"
            )
        self.draws = check_whole("draws", draws, 1, " of candidates")
        self._mean: Function = _asking(mean) if _is_module(mean) else mean
        self._log_std: Function = log_std if callable(log_std) else _constant(log_std, self.low)

    def mean(self, obs: Observations, t: Time) -> Floats:
        """Means [B, d], not clipped."""
        return self._checked("mean", self._mean(obs, t), len(obs))

    def std(self, obs: Observations, t: Time) -> Floats:
        """Standard deviations [B, d]."""
        return np.exp(self._checked("log_std", self._log_std(obs, t), len(obs)))

    def sample(
        self, obs: Observations, t: Time, rng: np.random.Generator, n: int | None = None
    ) -> Floats:
        """Draw n actions for each observation: [B, n, d], clipped; without n one action, [B, d]."""
        noise = rng.standard_normal((len(obs), 1 if n is None else n, len(self.low)))
        actions = self._place(obs, t, noise)
        return actions[:, 0] if n is None else actions

    def candidates(self, obs: Observations, t: Time, rng: np.random.Generator) -> Candidates:
        """Draw K actions for each observation, spread evenly over the policy's distribution.

        Each of them is distributed as the policy, but together they are a Latin hypercube: in every
        dimension one lies in each of K equally likely slices. So their mean value hardly varies
        from offer to offer, and that is variance which no weighing of the candidates could remove.
        """
        return self.from_noise(obs, t, rng.standard_normal((len(obs), *self.noise_shape)))

    @property
    def noise_shape(self) -> tuple[int, int, int]:
        """(2, K, d): the first K decide the slices, the others the places within."""
        return 2, self.draws, len(self.low)

    def from_noise(self, obs: Observations, t: Time, noise: Floats) -> Candidates:
        """The candidates that noise [B, 2, K, d] makes."""
        actions = self._place(obs, t, _hypercube(noise[:, 0], noise[:, 1]))
        return Candidates(actions, np.full(actions.shape[:2], 1.0 / actions.shape[1]))

    def log_prob(self, obs: Observations, actions: ArrayLike, t: Time) -> Floats:
        """Log density of actions [B, d] or [B, n, d] under the normal before it is clipped."""
        given = np.asarray(actions, np.float64)
        mean, std = self.mean(obs, t), self.std(obs, t)
        if given.ndim == 3:
            mean, std = mean[:, None], std[:, None]
        z = (given - mean) / std
        each = -0.5 * z * z - np.log(std) - 0.5 * math.log(2.0 * math.pi)
        return np.asarray(each.sum(axis=-1))

    def _place(self, obs: Observations, t: Time, noise: Floats) -> Floats:
        actions = noise * self.std(obs, t)[:, None]
        actions += self.mean(obs, t)[:, None]
        return np.clip(actions, self.low, self.high, out=actions)

    def _checked(self, name: str, value: ArrayLike, rows: int) -> Floats:
        array = np.asarray(value, np.float64)
        if array.shape != (rows, len(self.low)):
            raise InputError(
                f"policy: {name} has shape {array.shape} for {rows} observations, expected "
                f"({rows}, {len(self.low)})"
            )
        if not np.isfinite(array).all():
            raise InputError(f"policy: {name} holds NaN or infinity, expected finite numbers")
        return array

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dimensions={len(self.low)}, draws={self.draws})"


def _hypercube(order: Floats, within: Floats) -> Floats:
    """Standard normal numbers [B, K, d], one in each of K equally likely slices per dimension."""
    from scipy.special import ndtr, ndtri  # takes half of the time in which a worker starts

    K = order.shape[1]
    slices = np.argsort(np.argsort(order, axis=1), axis=1)  # ranks: a random permutation
    place = (slices + ndtr(within)) / K
    return np.asarray(ndtri(np.clip(place, 1e-12, 1.0 - 1e-12)))


def _constant(log_std: ArrayLike, low: Floats) -> Function:
    values = np.asarray(log_std, np.float64)
    if values.shape not in ((), low.shape):
        raise InputError(f"log_std: got shape {values.shape}, expected {low.shape} as low and high")
    values = np.broadcast_to(values, low.shape)
    return lambda obs, t: np.broadcast_to(values, (len(obs), *low.shape))


def _is_module(source: object) -> bool:
    return any(base.__module__.startswith("torch.") for base in type(source).__mro__)


def _asking(module: Any) -> Function:
    import torch

    def mean(obs: Observations, t: Time) -> NDArray[np.float32]:
        with torch.no_grad():
            out: NDArray[np.float32] = module(torch.tensor(obs, dtype=torch.float32)).numpy()
        return out

    return mean

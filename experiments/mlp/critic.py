"""The networks of one time step, and how their answers are read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import fan_out_rows
from scopeval.arrays import Bools, Floats
from scopeval.errors import InputError
from scopeval.models.protocols import Estimates
from scopeval.policies.protocols import Observations

__all__ = ["MLPCritic", "MLPLayers", "unpack"]

#: Least noise, as a share of the average.
LEAST_NOISE = 0.05


class MLPLayers(NamedTuple):
    """Views of a network's weights; they may have leading axes, such as folds and heads."""

    w1: NDArray[np.float32]  # [d, h]
    b1: NDArray[np.float32]  # [h]
    w2: NDArray[np.float32]  # [A, h]
    b2: NDArray[np.float32]  # [A] and
    w3: NDArray[np.float32]  # [A, d]: the linear path


def unpack(flat: NDArray[np.float32], d: int, h: int, A: int) -> MLPLayers:
    """The layers of flat weights [..., all]."""
    lead = flat.shape[:-1]
    o1, o2, o3, o4 = d * h, d * h + h, d * h + h + A * h, d * h + h + A * h + A
    return MLPLayers(
        flat[..., :o1].reshape(*lead, d, h),
        flat[..., o1:o2],
        flat[..., o2:o3].reshape(*lead, A, h),
        flat[..., o3:o4],
        flat[..., o4:].reshape(*lead, A, d),
    )


class MLPArrays(NamedTuple):
    """What compiled code needs of an `MLPCritic`."""

    net: NDArray[np.float32]
    intercept: NDArray[np.float32]
    slope: NDArray[np.float32]
    centre: Floats
    spread: Floats
    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    low: Floats
    high: Floats
    pairs: Bools
    followed: int
    hidden: int


class _Answers(NamedTuple):
    """`Estimates` for compiled code to fill."""

    q: Floats
    cost_target: Floats
    cost_behavior: Floats
    carried: Floats
    noise: Floats
    error: Floats
    known: Bools


@dataclass(frozen=True)
class MLPCritic:
    """The networks of one time step.

    Attributes:
        net: [2 folds, heads, all weights].
        intercept: [heads, A] of the linear part learned from both folds together, and
        slope: [heads, A, d]; the folds' own linear parts only serve to see how far they differ.
        shape: number of inputs, of hidden units, of actions.
        centre: [heads] of the targets, and
        spread: [heads]: they turn standard units into their own.
        mean: [d] of the inputs, and
        scale: [d].
        low: [d] range within which observations are known, to
        high: [d].
        pairs: [S, A] logged pairs; for vectors [1, A], logged actions.
        followed: number of behavior policies whose cost and variance are carried.
    """

    net: NDArray[np.float32]
    intercept: NDArray[np.float32]
    slope: NDArray[np.float32]
    shape: NDArray[np.int64]
    centre: Floats
    spread: Floats
    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    low: Floats
    high: Floats
    pairs: Bools
    followed: NDArray[np.int64] | np.int64

    def at(self, obs: Observations, actions: NDArray[Any] | None = None) -> Estimates:
        """Mean of the folds; the noise head and half the folds' difference say how certain."""
        k = int(self.followed)
        obs = np.asarray(obs)
        if obs.ndim > 1:
            return self._at_vectors(obs)
        out, difference = self._at_numbers(obs)  # [H, B, A]; of the folds' q, [B, A]
        known = self._known(obs)
        some = known.any(axis=1, keepdims=True)
        count = np.maximum(known.sum(axis=1, keepdims=True), 1)
        usual = (out * known).sum(axis=2, keepdims=True) / count
        out = np.where(known | ~some, out, usual)  # a pair never logged: the mean of the others
        mean = out * self.spread[:, None, None] + self.centre[:, None, None]
        noise = np.maximum(mean[-1], LEAST_NOISE * self.spread[-1])
        error = np.minimum((difference * (0.5 * self.spread[0])) ** 2, noise)
        return Estimates(
            q=mean[0],
            cost_target=np.maximum(mean[1], 0.0),
            cost_behavior=np.maximum(np.moveaxis(mean[1] + mean[2 : 2 + k], 0, -1), 0.0),
            carried=np.maximum(np.moveaxis(mean[2 + k : 2 + 2 * k], 0, -1), 0.0),
            noise=noise + error,
            error=error,
            known=known,
        )

    @cached_property
    def compiled(self) -> MLPArrays:
        """For compiled code."""
        return MLPArrays(
            net=self.net,
            intercept=self.intercept,
            slope=self.slope,
            centre=self.centre,
            spread=self.spread,
            mean=self.mean,
            scale=self.scale,
            low=self.low,
            high=self.high,
            pairs=self.pairs,
            followed=int(self.followed),
            hidden=int(self.shape[1]),
        )

    def _at_vectors(self, obs: Observations) -> Estimates:
        """By the compiled loop, some rows in every thread."""
        from experiments.mlp._kernel import BLOCK, answer

        if not obs.shape[1:] == self.low.shape == self.slope.shape[2:]:
            numbers = self.low.shape != self.slope.shape[2:]  # inputs are one-hot then
            wanted = "state numbers" if numbers else f"{self.low.shape}"
            raise InputError(
                f"obs: got vectors of shape {obs.shape[1:]}, expected {wanted} as in the logs"
            )
        B, A, k = len(obs), int(self.shape[2]), int(self.followed)
        single, many = (B, A), (B, A, k)
        out = _Answers(
            q=np.empty(single),
            cost_target=np.empty(single),
            cost_behavior=np.empty(many),
            carried=np.empty(many),
            noise=np.empty(single),
            error=np.empty(single),
            known=np.empty(single, np.bool_),
        )
        given = np.ascontiguousarray(obs, np.float64)
        fan_out_rows(lambda lo, hi: answer(self.compiled, given, out, lo, hi), B, block=BLOCK)
        return Estimates(*out)

    def _at_numbers(self, states: Observations) -> tuple[Floats, Floats]:
        """All heads [H, B, A], and the difference of the folds' q [B, A], in standard units."""
        w1, b1, w2, b2, w3 = unpack(self.net, *(int(n) for n in self.shape))
        on = w2.any(axis=(2, 3))  # networks that are not switched off
        learned = np.zeros((*w2.shape[:2], len(states), w2.shape[2]), np.float32)
        s = np.clip(states, 0, int(self.shape[0]) - 1)
        for net in zip(*np.nonzero(on), strict=True):  # one-hot: a row of the weights
            learned[net] = np.maximum(w1[net][s] + b1[net], 0.0) @ w2[net].T
        linear = np.swapaxes(self.slope[..., s], 1, 2)
        own = w3[0, 0][:, s].T - w3[1, 0][:, s].T
        heads = learned.mean(axis=0) + linear + self.intercept[:, None]
        difference = learned[0, 0] - learned[1, 0] + own + b2[0, 0] - b2[1, 0]
        return np.asarray(heads, np.float64), np.asarray(difference, np.float64)

    def _known(self, obs: Observations) -> Bools:
        if obs.ndim == 1:
            inside = (obs >= 0) & (obs < len(self.pairs))
            return np.asarray(self.pairs[np.where(inside, obs, 0)] & inside[:, None])
        within = np.all((obs >= self.low) & (obs <= self.high), axis=1, keepdims=True)
        return np.asarray(within & self.pairs[0])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fields."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

"""What a model of the world predicts about one step, and the form of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints

__all__ = ["Encoder", "StepModel", "StepPrediction", "Weights"]

Weights = NDArray[np.float32]


@dataclass(frozen=True)
class Encoder:
    """Observations and actions as a network's inputs.

    Attributes:
        embedding: [A, m] a vector for every action number; [0, m]: actions are vectors already.
        predicted: [d] True for the entries of an observation that a model predicts; False for
            those that the target policy draws itself (see `policies.Redraws`).
        horizon: T where the dynamics depend on time, else 0.
    """

    embedding: Floats
    predicted: Bools
    horizon: int = 0

    @property
    def finite(self) -> bool:
        """Whether actions are numbers."""
        return len(self.embedding) > 0

    def same(self, other: Encoder) -> bool:
        """Whether two encoders have the same inputs."""
        return (
            np.array_equal(self.embedding, other.embedding)
            and np.array_equal(self.predicted, other.predicted)
            and self.horizon == other.horizon
        )

    def vectors(self, actions: NDArray[Any]) -> Floats:
        """Actions [...] or [..., m] as vectors [..., m]."""
        return self.embedding[actions] if self.finite else np.asarray(actions, np.float64)

    def candidates(self, obs: Floats, actions: NDArray[Any] | None) -> NDArray[Any]:
        """The given actions [B, K, m], or (None) all action numbers [B, A] for every observation.

        Args:
            obs: [B, d].
            actions: [B, K, m], or None.
        """
        if actions is not None:
            return actions
        every = np.arange(len(self.embedding))
        return np.broadcast_to(every, (len(obs), len(every)))

    def inputs(self, obs: Floats, actions: NDArray[Any], t: int | Ints) -> Weights:
        """[..., inputs] for observations [..., d] and actions [...] or [..., m]."""
        parts = [obs, self.vectors(actions)]
        if self.horizon:
            time = np.asarray(t, np.float64) / self.horizon
            parts.append(np.broadcast_to(time[..., None], (*obs.shape[:-1], 1)))
        return np.concatenate(parts, axis=-1).astype(np.float32)


@dataclass(frozen=True)
class StepPrediction:
    """Where K actions at B observations are expected to lead.

    Attributes:
        next_obs: [B, K, w] mean of the predicted entries of the next observation.
        reward: [B, K] mean.
        cost: [B, K] mean.
        end: [B, K] probability that the episode ends.
    """

    next_obs: Floats
    reward: Floats
    cost: Floats
    end: Floats

    @classmethod
    def join(cls, parts: Sequence[StepPrediction]) -> StepPrediction:
        """Predictions for several batches as one."""
        return cls(
            np.concatenate([part.next_obs for part in parts]),
            np.concatenate([part.reward for part in parts]),
            np.concatenate([part.cost for part in parts]),
            np.concatenate([part.end for part in parts]),
        )

    @classmethod
    def mean(cls, parts: Sequence[StepPrediction]) -> StepPrediction:
        """The mean of what several models predict for the same batch."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.asarray(sum(part.next_obs for part in parts) / len(parts)),
            np.asarray(sum(part.reward for part in parts) / len(parts)),
            np.asarray(sum(part.cost for part in parts) / len(parts)),
            np.asarray(sum(part.end for part in parts) / len(parts)),
        )


class StepModel(Protocol):
    """A model in which episodes can be simulated: a learned `Network`, or a user's simulator.

    Attributes:
        encoder: of its inputs.
        low: [w] simulated observations are kept above this, and
        high: [w] below this.
        reward_noise: mean squared error of the reward on held-out rows.
        loss: mean squared error of the next observation on held-out rows, in units of the spread
            of its change.
    """

    encoder: Encoder
    low: Floats
    high: Floats
    reward_noise: float
    loss: float

    def predict(self, obs: Floats, actions: NDArray[Any] | None, t: int) -> StepPrediction:
        """Where all actions (None), or the given ones [B, K, m], are expected to lead."""
        ...

    def draw_errors(
        self, obs: Floats, action: NDArray[Any], t: int, rng: np.random.Generator
    ) -> Floats:
        """Random errors [B, w] of the next observation, as on held-out rows."""
        ...

    def settle(self, next_obs: Floats) -> Floats:
        """Simulated observations [B, w] as they can be; those that can be stay as they are."""
        ...

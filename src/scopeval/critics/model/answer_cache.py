"""What a model of the world answers, and a cache of answers at the points of a design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints

__all__ = ["Encoder", "Outlook", "Remembering"]

Weights = NDArray[np.float32]


@dataclass(frozen=True)
class Encoder:
    """Observations and actions as a network's inputs.

    Attributes:
        embedding: [A, m] a vector for every action number; [0, m]: actions are vectors already.
        world: [d] True for what the world decides of an observation; False for what the target
            policy itself draws there (see `policies.Redraws`), which nothing has to predict.
        horizon: T where the dynamics depend on time, else 0.
    """

    embedding: Floats
    world: NDArray[np.bool_]
    horizon: int = 0

    @property
    def finite(self) -> bool:
        """Whether actions are numbers."""
        return len(self.embedding) > 0

    def vectors(self, actions: NDArray[Any]) -> Floats:
        """Actions [...] or [..., m] as vectors [..., m]."""
        return self.embedding[actions] if self.finite else np.asarray(actions, np.float64)

    def inputs(self, obs: Floats, actions: NDArray[Any], t: int | Ints) -> Weights:
        """[..., inputs] for observations [..., d] and actions [...] or [..., m]."""
        parts = [obs, self.vectors(actions)]
        if self.horizon:
            time = np.asarray(t, np.float64) / self.horizon
            parts.append(np.broadcast_to(time[..., None], (*obs.shape[:-1], 1)))
        return np.concatenate(parts, axis=-1).astype(np.float32)


@dataclass(frozen=True)
class Outlook:
    """Where actions are expected to lead, [B, K] each.

    Attributes:
        ahead: [B, K, w] mean of what the world decides of the next observation.
        reward: mean reward.
        cost: mean cost.
        end: chance that the episode ends.
    """

    ahead: Floats
    reward: Floats
    cost: Floats
    end: Floats

    @classmethod
    def join(cls, parts: Sequence[Outlook]) -> Outlook:
        """Outlooks of several batches as one."""
        names = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class Remembering:
    """Keeps answers about arrays: a design asks about the same ones again and again."""

    encoder: Encoder
    _memory: dict[tuple[int, int, int], tuple[Any, Any, Outlook]] | None = None

    def remember(self, obs: Floats, actions: NDArray[Any] | None, t: int, said: Outlook) -> None:
        """Keep an answer; the arrays are kept with it, so that they stay these very ones."""
        if self._memory is None:
            self._memory = {}
        self._memory[self._key(obs, actions, t)] = (obs, actions, said)

    def recalled(self, obs: Floats, actions: NDArray[Any] | None, t: int) -> Outlook | None:
        """The answer that was kept, if one was."""
        kept = (self._memory or {}).get(self._key(obs, actions, t))
        return None if kept is None else kept[2]

    def forget(self) -> None:
        """Drop all answers that were kept: the design is done."""
        self._memory = None

    def _key(self, obs: Floats, actions: NDArray[Any] | None, t: int) -> tuple[int, int, int]:
        return id(obs), id(actions), t if self.encoder.horizon else 0

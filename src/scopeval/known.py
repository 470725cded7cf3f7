"""A world that need not be learned: a simulator that can be put into any observed state.

Where there is one, critics built on it are as good as critics get, and show what a design could do
if the logs told everything. The logs are still needed: they tell where episodes start and which
observations are usual. At run time every decision asks the simulator where each action would lead.

    def step(obs, actions, t):                      # [B, d], [B, m] or numbers [B], a time step
        ...
        return next_obs, reward, cost, terminated   # [B, d], [B], [B], [B]

    design(logged, target, horizon=T, regression=ModelRegression(dynamics=KnownDynamics(step)))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopeval.arrays import Bools, Floats
from scopeval.dynamics import Encoder, Outlook, Remembering
from scopeval.errors import InputError

__all__ = ["KnownDynamics", "KnownWorld", "Step"]

#: Observations, actions and a time step to next observations, rewards, costs and ends.
Step = Callable[[Floats, NDArray[Any], int], tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]]


class KnownDynamics:
    """A simulator's step, for `critic_model.ModelRegression`.

    Args:
        step: a function (obs [B, d], actions [B, m] or numbers [B], t) -> next observations, where
            a target re-draws a part of them only the rest; rewards; costs; whether the episode
            ends there. Without chance, or the most likely outcome: it is asked once.
    """

    def __init__(self, step: Step) -> None:
        if not callable(step):
            raise InputError(
                f"step: got {type(step).__name__}, expected a function (obs, actions, t) -> "
                "(next_obs, reward, cost, terminated)"
            )
        self.step = step

    def world(self, encoder: Encoder) -> KnownWorld:
        """For a design's observations and actions."""
        return KnownWorld(self.step, encoder)


class KnownWorld(Remembering):
    """The simulator as a design asks it; a `dynamics.World`.

    While a design is made, trouble in the simulator is an `InputError`. Afterwards, on a plant, it
    is an answer that is no number: the target's own action is taken, and counted as "not finite".
    """

    reward_noise = 0.0
    loss = float("nan")  # nothing was learned
    #: The last error of the simulator on a plant.
    trouble: Exception | None = None

    def __init__(self, step: Step, encoder: Encoder) -> None:
        self.encoder = encoder
        width = int(encoder.world.sum())
        self.low, self.high = np.full(width, -np.inf), np.full(width, np.inf)
        self._step, self._running = step, False

    def outlook(self, obs: Floats, actions: NDArray[Any] | None, t: int) -> Outlook:
        """Where every action (None), or the given ones [B, K, m], lead."""
        kept = self.recalled(obs, actions, t)
        if kept is not None:
            return kept
        every = np.arange(len(self.encoder.embedding))
        given = np.broadcast_to(every, (len(obs), len(every))) if actions is None else actions
        B, K = given.shape[:2]
        before = np.repeat(np.asarray(obs, np.float64), K, axis=0)
        flat = given.reshape(B * K, *given.shape[2:])
        try:
            ahead, reward, cost, ends = self._asked(before, flat, t)
        except Exception as error:
            if not self._running:
                raise
            ahead, reward = np.full((B * K, len(self.low)), np.nan), np.full(B * K, np.nan)
            cost, ends, self.trouble = reward, np.zeros(B * K, np.bool_), error
        ahead[ends] = before[ends][:, self.encoder.world]  # after the end nothing is asked
        return Outlook(
            ahead=ahead.reshape(B, K, -1),
            reward=reward.reshape(B, K),
            cost=np.maximum(cost, 0.0).reshape(B, K),
            end=ends.astype(np.float64).reshape(B, K),
        )

    def stray(self, obs: Floats, action: NDArray[Any], t: int, rng: np.random.Generator) -> Floats:
        """No error."""
        return np.zeros((len(obs), len(self.low)))

    def forget(self) -> None:
        """Drop all answers that were kept; what follows is a plant."""
        super().forget()
        self._running = True

    def _asked(
        self, obs: Floats, actions: NDArray[Any], t: int
    ) -> tuple[Floats, Floats, Floats, Bools]:
        told: Any = self._step(obs, actions, t)
        if not isinstance(told, tuple) or len(told) != 4:
            many = f" of {len(told)}" if isinstance(told, tuple) else ""
            raise InputError(
                f"step: got {type(told).__name__}{many}, expected (next_obs, reward, cost, "
                "terminated)"
            )
        n, w = len(obs), len(self.low)
        ahead, reward, cost, ends = (np.array(part, np.float64) for part in told)
        if ahead.shape == obs.shape:
            ahead = ahead[:, self.encoder.world]
        parts = {"next_obs": (ahead, (n, w)), "reward": (reward, (n,)), "cost": (cost, (n,))}
        for name, (part, shape) in (parts | {"terminated": (ends, (n,))}).items():
            if part.shape != shape:
                raise InputError(f"step: {name} has shape {part.shape}, expected {shape}")
        over = ends != 0
        bad = ~(np.isfinite(ahead).all(axis=1) | over) | ~np.isfinite(reward) | ~np.isfinite(cost)
        if bad.any() and self._running:
            reward[bad] = np.nan
        elif bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise InputError(
                f"step: {int(bad.sum())} of {n} answers are no numbers, the first at t = {t} for "
                f"observation {obs[row]}, action {actions[row]}; expected a simulator that can be "
                "put into any state that was logged"
            )
        return ahead, reward, cost, over

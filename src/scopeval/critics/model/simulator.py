"""A world that need not be learned: a simulator that can be put into any observed state.

Where there is one, critics built on it are as good as critics get, and show what a design could do
if the logs told everything. The logs are still needed: they tell where episodes start, which
observations are usual, and how wrong the simulator is. At run time every decision asks it where
each action would lead.

    def step(obs, actions, t):                      # [B, d], [B, m] or numbers [B], a time step
        ...
        return next_obs, reward, cost, terminated   # [B, d], [B], [B], [B]

    design(logged, target, horizon=T, regression=ModelRegression(dynamics=KnownDynamics(step)))
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopeval.arrays import Bools, Floats
from scopeval.critics.model.answer_cache import Encoder, Outlook, Remembering
from scopeval.critics.protocols import Rows
from scopeval.errors import InputError

__all__ = ["KnownDynamics", "KnownWorld", "Step"]

#: Observations, actions and a time step to next observations, rewards, costs and ends.
Step = Callable[[Floats, NDArray[Any], int], tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]]
#: Logged rows that a simulator is compared with.
COMPARED = 4096
#: A simulator whose squared error is more than this times the variance knows less than the mean.
WORSE = 1.1
#: Beyond this an answer is no number.
FAR = 1e30


class KnownDynamics:
    """A simulator's step, for `critic_model.ModelRegression`.

    Args:
        step: a function (obs [B, d], actions [B, m] or numbers [B], t) -> next observations [B, d],
            rewards, costs, and whether the episode ends there [B]; where a target re-draws a part
            of the observations, the rest of them is enough. It must answer the same for the same
            question; where the plant has chance in it, by the mean. It is called by one thread at
            a time, which need not be the one that steps the plant, so it must not share state with
            the plant.
    """

    def __init__(self, step: Step) -> None:
        if not callable(step):
            raise InputError(
                f"step: got {type(step).__name__}, expected a function (obs, actions, t) -> "
                "(next_obs, reward, cost, terminated)"
            )
        self.step, self._lock = step, Lock()

    def world(self, encoder: Encoder) -> KnownWorld:
        """For a design's observations and actions."""
        return KnownWorld(self._alone, encoder)

    def _alone(
        self, obs: Floats, actions: NDArray[Any], t: int
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]:
        with self._lock:
            return self.step(obs, actions, t)


class KnownWorld(Remembering):
    """The simulator as a design asks it; a `dynamics.World`.

    While a design is made, trouble in the simulator is an `InputError`. Afterwards, on a plant, it
    is an answer that is no number: the target's own action is taken, and counted as "not finite".

    Attributes:
        reward_noise: mean squared error of logged rewards; 0 before `compare`, and so is
        loss: that of next observations, in units of the spread of their change.
        trouble: the last trouble on a plant, in words.
    """

    def __init__(self, step: Step, encoder: Encoder) -> None:
        self.encoder = encoder
        width = int(encoder.world.sum())
        self.low, self.high = np.full(width, -np.inf), np.full(width, np.inf)
        self.reward_noise = self.loss = 0.0
        self.trouble: str | None = None
        self._errors = np.zeros((1, width))
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
            # copies: what becomes of them in there is the user's business
            ahead, reward, cost, ends = self._asked(before.copy(), np.array(flat), t)
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            if not self._running:
                raise InputError(
                    f"step: {told}; at t = {t} for {B * K} observations of {before.shape[1]} "
                    "numbers, expected (next_obs, reward, cost, terminated)"
                ) from error
            ahead, reward = np.full((B * K, len(self.low)), np.nan), np.full(B * K, np.nan)
            cost, ends, self.trouble = reward, np.zeros(B * K, np.bool_), told
        bad = ~ends & ~(np.abs(ahead) < FAR).all(axis=1)
        bad |= ~(np.abs(reward) < FAR) | ~((cost >= 0.0) & (cost < FAR))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            told = (
                f"{int(bad.sum())} of {B * K} answers are no numbers, or costs below zero, the "
                f"first at t = {t} for observation {before[row]}, action {flat[row]}"
            )
            if not self._running:
                raise InputError(
                    f"step: {told}; expected a simulator that goes on from wherever it led to"
                )
            reward = np.where(bad, np.nan, reward)
            self.trouble = self.trouble or told
        ahead[ends] = before[ends][:, self.encoder.world]  # after the end nothing is asked
        return Outlook(
            ahead=ahead.reshape(B, K, -1),
            reward=reward.reshape(B, K),
            cost=cost.reshape(B, K),
            end=ends.astype(np.float64).reshape(B, K),
        )

    def compare(self, rows: Rows, seed: int) -> dict[str, float]:
        """Find out from logged rows how wrong the simulator is; errors in units of what varies.

        Raises:
            InputError: it knows less than the mean of what was logged: it is of another plant.
        """
        rng = np.random.default_rng((seed, 24))
        some = rows.select(rng.permutation(len(rows))[:COMPARED])
        parts, order = [], []
        for t in np.unique(some.t):
            at = np.flatnonzero(some.t == t)
            parts.append(self.outlook(np.asarray(some.obs)[at], some.action[at][:, None], int(t)))
            order.append(at)
        said, back = Outlook.join(parts), np.argsort(np.concatenate(order))
        on = some.alive > 0
        told = {}
        for name, answer, logged in (
            ("reward", said.reward, some.reward),
            ("cost", said.cost, some.cost),
            ("end", said.end, 1.0 - on),
        ):
            square = float(np.mean((answer[back, 0] - logged) ** 2))
            varies = float(np.var(logged))
            if square > WORSE * varies + 1e-6 * float(np.mean(logged**2)) + 1e-12 and not (
                name == "end" and square < 0.01
            ):
                raise InputError(
                    f"step: its {name}s are further from the logged ones (root mean square error "
                    f"{np.sqrt(square):.4g}) than their own mean is ({np.sqrt(varies):.4g}); "
                    "expected a simulator of the plant that was logged, try it on logged rows"
                )
            told[f"simulator, {name}"] = float(np.sqrt(square / varies)) if varies else 0.0
            if name == "reward":
                self.reward_noise = square
        following, obs = (np.asarray(x)[:, self.encoder.world] for x in (some.next_obs, some.obs))
        off = (following - said.ahead[back, 0])[on]
        if len(off):
            spread = np.std((following - obs)[on], axis=0)
            self._errors = off
            self.loss = float(np.mean((off / np.where(spread > 1e-9, spread, 1.0)) ** 2))
        return told | {"simulator, observation": float(np.sqrt(self.loss))}

    def stray(self, obs: Floats, action: NDArray[Any], t: int, rng: np.random.Generator) -> Floats:
        """Errors [B, w] as on logged rows: none, where the simulator is right."""
        return np.asarray(self._errors[rng.integers(len(self._errors), size=len(obs))])

    def forget(self) -> None:
        """Drop all answers that were kept; what follows is a plant."""
        super().forget()
        self._running = True

    def _asked(
        self, obs: Floats, actions: NDArray[Any], t: int
    ) -> tuple[Floats, Floats, Floats, Bools]:
        n, w, full = len(obs), len(self.low), obs.shape
        told: Any = self._step(obs, actions, t)
        if not isinstance(told, tuple) or len(told) != 4:
            many = f" of {len(told)}" if isinstance(told, tuple) else ""
            raise TypeError(f"got {type(told).__name__}{many}")
        ahead, reward, cost, ends = (np.array(part, np.float64) for part in told)
        if ahead.shape == full:
            ahead = ahead[:, self.encoder.world]
        parts = {"next_obs": (ahead, (n, w)), "reward": (reward, (n,)), "cost": (cost, (n,))}
        for name, (part, shape) in (parts | {"terminated": (ends, (n,))}).items():
            if part.shape != shape:
                raise ValueError(f"{name} has shape {part.shape}, expected {shape}")
        reward[(ends != 0.0) & (ends != 1.0)] = np.nan  # it ends or it does not
        return ahead, reward, cost, ends == 1.0

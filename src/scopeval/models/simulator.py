"""Dynamics that need not be learned: a simulator that can be set to any observed state.

Critics that are built on a simulator of the environment are as good as critics get. They show what
a design could do if the logs told everything. The logs are still needed: they show where episodes
start, which observations are usual, and how wrong the simulator is. At run time every decision asks
the simulator where each action would lead.

    def step(obs, actions, t):                      # [B, d], [B, m] or numbers [B], a time step
        ...
        return next_obs, reward, cost, terminated   # [B, d], [B], [B], [B]

    design(logs, policy, horizon=T, learn=Simulator(step))
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopeval.arrays import Bools, Floats
from scopeval.errors import InputError
from scopeval.models.dynamics import Encoder, StepPrediction
from scopeval.models.rows import Rows

__all__ = ["Simulator", "SimulatorModel", "Step"]

#: Observations, actions and a time step to next observations, rewards, costs and ends.
Step = Callable[[Floats, NDArray[Any], int], tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]]
#: Logged rows that a simulator is compared with.
COMPARED = 4096
#: A simulator whose squared error exceeds this multiple of the variance is worse than the mean.
WORSE = 1.1
#: Larger answers are taken for a simulation that diverged.
FAR = 1e30


class Simulator:
    """Do not learn the dynamics: a simulator knows them.

    Args:
        step: a function (obs [B, d], actions [B, m] or numbers [B], t) -> next observations [B, d],
            rewards, costs, and whether the episode ends there [B]. Where a target policy redraws a
            part of the observations, the other part is enough. The same question must get the same
            answer; where the environment is random, the mean. `step` is called by one thread at a
            time, which need not be the thread that steps the environment. So it must not share
            state with the environment.
    """

    def __init__(self, step: Step) -> None:
        if not callable(step):
            raise InputError(
                f"step: got {type(step).__name__}, expected a function (obs, actions, t) -> "
                "(next_obs, reward, cost, terminated)"
            )
        self.step, self._lock = step, Lock()

    def model(self, encoder: Encoder) -> SimulatorModel:
        """The simulator for a design's observations and actions."""
        return SimulatorModel(self._locked_step, encoder)

    def _locked_step(
        self, obs: Floats, actions: NDArray[Any], t: int
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]:
        with self._lock:
            return self.step(obs, actions, t)


class SimulatorModel:
    """The simulator as a design uses it; a `StepModel`.

    While a design is made, an error of the simulator raises `InputError`. While a behavior policy
    runs, an episode must go on: the answer is then NaN, which makes the behavior policy fall back
    to the target policy and count it as "not finite".

    Attributes:
        reward_noise: mean squared error of logged rewards; 0 before `compare`, and so is
        loss: that of next observations, in units of the spread of their change.
        trouble: the last error while a behavior policy ran.
    """

    def __init__(self, step: Step, encoder: Encoder) -> None:
        self.encoder = encoder
        width = int(encoder.predicted.sum())
        self.low, self.high = np.full(width, -np.inf), np.full(width, np.inf)
        self.reward_noise = self.loss = 0.0
        self.trouble: str | None = None
        self._errors = np.zeros((1, width))
        self._step, self._running = step, False

    def start_running(self) -> None:
        """From now on a behavior policy runs: errors no longer raise."""
        self._running = True

    def predict(self, obs: Floats, actions: NDArray[Any] | None, t: int) -> StepPrediction:
        """Where all actions (None), or the given ones [B, K, m], lead."""
        given = self.encoder.candidates(obs, actions)
        B, K = given.shape[:2]
        before = np.repeat(np.asarray(obs, np.float64), K, axis=0)
        flat = given.reshape(B * K, *given.shape[2:])
        try:
            # copies, so that a simulator may change its arguments
            ahead, reward, cost, ends = self._answers(before.copy(), np.array(flat), t)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if not self._running:
                raise InputError(
                    f"step: {reason}; at t = {t} for {B * K} observations of {before.shape[1]} "
                    "numbers, expected (next_obs, reward, cost, terminated)"
                ) from error
            ahead, reward = np.full((B * K, len(self.low)), np.nan), np.full(B * K, np.nan)
            cost, ends, self.trouble = reward, np.zeros(B * K, np.bool_), reason
        bad = ~ends & ~(np.abs(ahead) < FAR).all(axis=1)
        bad |= ~(np.abs(reward) < FAR) | ~((cost >= 0.0) & (cost < FAR))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            reason = (
                f"{int(bad.sum())} of {B * K} answers are not finite, or costs below zero, the "
                f"first at t = {t} for observation {before[row]}, action {flat[row]}"
            )
            if not self._running:
                raise InputError(
                    f"step: {reason}; expected a simulator that can go on from every next_obs"
                )
            reward = np.where(bad, np.nan, reward)
            self.trouble = self.trouble or reason
        ahead[ends] = before[ends][:, self.encoder.predicted]  # not used after the end
        return StepPrediction(
            next_obs=ahead.reshape(B, K, -1),
            reward=reward.reshape(B, K),
            cost=cost.reshape(B, K),
            end=ends.astype(np.float64).reshape(B, K),
        )

    def compare(self, rows: Rows, seed: int) -> dict[str, float]:
        """Measure on logged rows how wrong the simulator is; errors in units of what varies.

        Raises:
            InputError: it is worse than the mean of what was logged, so it is a simulator of
                another environment.
        """
        rng = np.random.default_rng((seed, 24))
        some = rows.select(rng.permutation(len(rows))[:COMPARED])
        prediction = self._predict_rows(some)
        goes_on = some.alive > 0
        errors = {}
        for name, answer, logged in (
            ("reward", prediction.reward, some.reward),
            ("cost", prediction.cost, some.cost),
            ("end", prediction.end, 1.0 - goes_on),
        ):
            square = float(np.mean((answer[:, 0] - logged) ** 2))
            variance = float(np.var(logged))
            _check_better_than_mean(name, square, variance, float(np.mean(logged**2)))
            errors[f"simulator, {name}"] = float(np.sqrt(square / variance)) if variance else 0.0
            if name == "reward":
                self.reward_noise = square
        after, before = (
            np.asarray(x)[:, self.encoder.predicted] for x in (some.next_obs, some.obs)
        )
        led_on = some.goes_on
        wrong = (after - prediction.next_obs[:, 0])[led_on]
        if len(wrong):
            spread = np.std((after - before)[led_on], axis=0)
            self._errors = wrong
            self.loss = float(np.mean((wrong / np.where(spread > 1e-9, spread, 1.0)) ** 2))
        return errors | {"simulator, observation": float(np.sqrt(self.loss))}

    def draw_errors(
        self, obs: Floats, action: NDArray[Any], t: int, rng: np.random.Generator
    ) -> Floats:
        """Errors [B, w] as on logged rows: zero, where the simulator is right."""
        return np.asarray(self._errors[rng.integers(len(self._errors), size=len(obs))])

    def settle(self, next_obs: Floats) -> Floats:
        """As they are."""
        return next_obs

    def _predict_rows(self, rows: Rows) -> StepPrediction:
        """Predictions for the logged actions, [n, 1] each; one call per time step."""
        places = [np.flatnonzero(rows.t == t) for t in np.unique(rows.t)]
        parts = [
            self.predict(np.asarray(rows.obs)[at], rows.action[at][:, None], int(rows.t[at[0]]))
            for at in places
        ]
        prediction, back = StepPrediction.join(parts), np.argsort(np.concatenate(places))
        return StepPrediction(
            prediction.next_obs[back],
            prediction.reward[back],
            prediction.cost[back],
            prediction.end[back],
        )

    def _answers(
        self, obs: Floats, actions: NDArray[Any], t: int
    ) -> tuple[Floats, Floats, Floats, Bools]:
        n, w, full = len(obs), len(self.low), obs.shape
        answer: Any = self._step(obs, actions, t)
        if not isinstance(answer, tuple) or len(answer) != 4:
            many = f" of {len(answer)}" if isinstance(answer, tuple) else ""
            raise TypeError(f"got {type(answer).__name__}{many}")
        ahead, reward, cost, ends = (np.array(part, np.float64) for part in answer)
        if ahead.shape == full:
            ahead = ahead[:, self.encoder.predicted]
        parts = {"next_obs": (ahead, (n, w)), "reward": (reward, (n,)), "cost": (cost, (n,))}
        for name, (part, shape) in (parts | {"terminated": (ends, (n,))}).items():
            if part.shape != shape:
                raise ValueError(f"{name} has shape {part.shape}, expected {shape}")
        reward[(ends != 0.0) & (ends != 1.0)] = np.nan  # neither an end nor none: not an answer
        return ahead, reward, cost, ends == 1.0


def _check_better_than_mean(name: str, square: float, variance: float, size: float) -> None:
    """Refuse a simulator whose squared error is larger than that of the mean."""
    rare = name == "end" and square < 0.01  # few ends: one wrong row may already exceed this
    if square > WORSE * variance + 1e-6 * size + 1e-12 and not rare:
        raise InputError(
            f"step: its {name}s are further from the logged ones (root mean square error "
            f"{np.sqrt(square):.4g}) than their own mean is ({np.sqrt(variance):.4g}); "
            "expected a simulator of the environment that was logged, try it on logged rows"
        )

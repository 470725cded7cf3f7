"""Record episodes that run outside this package, step by step, as `Episodes`."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import check_whole
from scopeval.collection.episodes import Episodes, LostEpisode
from scopeval.errors import InputError

__all__ = ["EpisodeLog"]


class Chosen(Protocol):
    """An action with the probabilities that it was drawn with, as `BehaviorPolicy.act` gives it."""

    @property
    def action(self) -> Any:
        """What was done: a number, or a vector."""
        ...

    @property
    def probability(self) -> float:
        """Of the action under the policy that drew it."""
        ...

    @property
    def target_probability(self) -> float:
        """Of the same action under the target."""
        ...

    @property
    def control(self) -> float:
        """b(s, a); 0 without a control variate."""
        ...

    @property
    def baseline(self) -> float:
        """sum_a pi b; 0 without a control variate."""
        ...


class EpisodeLog:
    """Writes down what happens in a control loop of your own, and makes `Episodes` of it.

        log = EpisodeLog(horizon=24)
        for day in range(100):
            log.start()
            obs, over = plant.morning(), False
            for t in range(24):
                chosen = behavior.act(obs, t, rng)
                following, reward, cost, over = plant.run(chosen.action)
                log.step(obs, chosen, reward, cost)
                obs = following
                if over:
                    break
            log.end(obs, terminated=over)
        print(estimate(log.episodes(), epsilon=0.0))

    An episode that is started again before it has ended, or given up by `lose`, counts as lost.

    Args:
        horizon: T, the most steps of an episode.
    """

    def __init__(self, horizon: int) -> None:
        self.horizon = check_whole("horizon", horizon, 1)
        self._done: list[dict[str, Any]] = []
        self._lost: list[LostEpisode] = []
        self._open: list[tuple[Any, ...]] | None = None

    def start(self) -> None:
        """Begin an episode."""
        if self._open is not None:
            self.lose("the next one was started before it had ended")
        self._open = []

    def step(self, obs: Any, chosen: Chosen, reward: float, cost: float) -> None:
        """One step: what was seen, what was done, and what came of it."""
        steps = self._running()
        if len(steps) == self.horizon:
            raise InputError(f"step: the episode has {self.horizon} steps already, expected end()")
        for name, value in (("reward", reward), ("cost", cost)):
            if not np.isfinite(value):
                raise InputError(f"{name}: got {value} at t={len(steps)}, expected a finite number")
        numbers = (chosen.probability, chosen.target_probability, chosen.control, chosen.baseline)
        steps.append((np.asarray(obs), np.asarray(chosen.action), reward, cost, *numbers))

    def end(self, last_obs: Any = None, *, terminated: bool = False) -> None:
        """The episode is over: for good (`terminated`), or because its time was up.

        Args:
            last_obs: what was seen after the last step, for use as a log; None: as before it.
            terminated: whether nothing comes after.
        """
        steps = self._running()
        if not steps:
            raise InputError("end: the episode has no steps, expected at least one")
        last = steps[-1][0] if last_obs is None else np.asarray(last_obs)
        index = len(self._done) + len(self._lost)
        self._done.append({"steps": steps, "last": last, "over": terminated, "index": index})
        self._open = None

    def lose(self, reason: str) -> None:
        """Give up the running episode: it is counted, and says nothing about the target."""
        steps = self._running()
        index = len(self._done) + len(self._lost)
        paid = float(sum(step[3] for step in steps))
        self._lost.append(LostEpisode(index, len(steps), reason, paid))
        self._open = None

    def episodes(self) -> Episodes:
        """All episodes that have ended so far."""
        done, T = self._done, self.horizon
        length = np.array([len(e["steps"]) for e in done], np.int64)
        real = np.arange(T) < length[:, None]

        def padded(k: int, fill: float = 0.0) -> NDArray[Any]:
            if not done:
                return np.empty((0, T), np.int64 if k < 2 else np.float64)
            flat = np.array([step[k] for e in done for step in e["steps"]])
            out = np.full((len(done), T, *flat.shape[1:]), fill, dtype=flat.dtype)
            out[real] = flat
            return out

        control, baseline = padded(6), padded(7)
        controlled = bool(control.any() or baseline.any())
        return Episodes(
            obs=padded(0),
            action=padded(1),
            reward=padded(2),
            cost=padded(3),
            behavior_prob=padded(4, 1.0),
            target_prob=padded(5, 1.0),
            length=length,
            last_obs=np.array([e["last"] for e in done], None if done else np.int64),
            terminated=np.array([e["over"] for e in done], np.bool_),
            control=control if controlled else None,
            baseline=baseline if controlled else None,
            index=np.array([e["index"] for e in done], np.int64),
            lost=tuple(self._lost),
        )

    def __len__(self) -> int:
        return len(self._done)

    def _running(self) -> list[tuple[Any, ...]]:
        if self._open is None:
            raise InputError("no episode is running; expected start() first")
        return self._open

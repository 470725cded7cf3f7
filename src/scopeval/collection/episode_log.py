"""Record episodes that run outside this package, step by step, as `Episodes`."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from scopeval.arrays import check_whole
from scopeval.collection.episodes import EpisodeRecord, Episodes, LostEpisode
from scopeval.collection.provenance import Provenance
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
    """Records what happens in a control loop of your own, and makes `Episodes` of it.

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
        provenance: of which policies and environment the episodes are, for their file.
    """

    def __init__(self, horizon: int, *, provenance: Provenance | None = None) -> None:
        self.horizon = check_whole("horizon", horizon, 1)
        self._provenance = provenance
        self._done: list[EpisodeRecord] = []
        self._lost: list[LostEpisode] = []
        self._open: EpisodeRecord | None = None

    def start(self) -> None:
        """Begin an episode."""
        if self._open is not None:
            self.lose("the next one was started before it had ended")
        self._open = EpisodeRecord(index=len(self._done) + len(self._lost))

    def step(self, obs: Any, chosen: Chosen, reward: float, cost: float) -> None:
        """Record one step: what was observed, what was done, and what it gave."""
        steps = self._running()
        t = len(steps.reward)
        if t == self.horizon:
            raise InputError(f"step: the episode has {self.horizon} steps already, expected end()")
        for name, value in (("reward", reward), ("cost", cost)):
            if not np.isfinite(value):
                raise InputError(f"{name}: got {value} at t={t}, expected a finite number")
        steps.obs.append(np.asarray(obs))
        steps.action.append(np.asarray(chosen.action))
        steps.reward.append(reward)
        steps.cost.append(cost)
        steps.probs.append((chosen.probability, chosen.target_probability))
        steps.controls.append((chosen.control, chosen.baseline))

    def end(self, last_obs: Any = None, *, terminated: bool = False) -> None:
        """End the episode: for good (`terminated`), or because its time was up.

        Args:
            last_obs: the observation after the last step, for use as a log; None: as before it.
            terminated: whether nothing comes after.
        """
        steps = self._running()
        if not steps.reward:
            raise InputError("end: the episode has no steps, expected at least one")
        steps.obs.append(steps.obs[-1] if last_obs is None else np.asarray(last_obs))
        steps.terminated = terminated
        self._done.append(steps)
        self._open = None

    def lose(self, reason: str) -> None:
        """Give up the running episode: it is counted, and is no evidence about the target."""
        steps = self._running()
        paid = float(sum(steps.cost))
        self._lost.append(LostEpisode(steps.index, len(steps.reward), reason, paid))
        self._open = None

    def episodes(self) -> Episodes:
        """All episodes that have ended so far."""
        controlled = any(np.any(record.controls) for record in self._done)
        found = Episodes.of_records(
            self._done, self.horizon, controlled=controlled, lost=self._lost
        )
        return found.with_provenance(self._provenance)

    def __len__(self) -> int:
        return len(self._done)

    def _running(self) -> EpisodeRecord:
        if self._open is None:
            raise InputError("no episode is running; expected start() first")
        return self._open

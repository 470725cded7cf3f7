"""Record episodes that run outside this package, step by step, as `Episodes`.

Checks of what a plant reports, at the step where it is reported.

A bad reading is refused before anything of it is recorded, so that one glitch does not spoil the
episodes around it.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import PROBABILITY_SLACK, check_whole, is_number
from scopeval.collection.choice import Choice, CounterStreams, Decider, Place
from scopeval.collection.episodes import EpisodeRecord, Episodes, LostEpisode, Provenance
from scopeval.errors import InputError
from scopeval.policies.adapters import as_behavior, as_policy

__all__ = ["EpisodeLog", "check_cost_reading", "check_number", "check_probability", "check_reading"]

_LARGEST = 2**63 - 1


def check_number(name: str, value: Any, t: int) -> float:
    """A finite number."""
    if type(value) is float and math.isfinite(value):  # the usual reading
        return value
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if not is_number(value):
        raise InputError(
            f"{name}: got {value!r:.60} at t={t}, expected a finite number; nothing was recorded, "
            "try the step's call again with a good reading, or lose() the episode"
        )
    return float(value)


def check_cost_reading(name: str, value: Any, t: int) -> float:
    """A finite number that is not negative."""
    cost = check_number(name, value, t)
    if cost < 0:
        raise InputError(
            f"{name}: got {cost!r} at t={t}, expected a number >= 0; nothing was recorded, try "
            "max(cost, 0.0) if this is rounding, or add the same constant to the cost of every step"
        )
    return cost


def check_probability(name: str, value: Any, t: int, *, positive: bool) -> float:
    """A probability; what is outside [0, 1] by no more than rounding is moved to its end."""
    p = check_number(name, value, t)
    if not -PROBABILITY_SLACK <= p <= 1 + PROBABILITY_SLACK or (positive and p <= 0):
        bracket = "(" if positive else "["
        raise InputError(
            f"{name}: got {p!r} at t={t}, expected a probability in {bracket}0, 1]; nothing was "
            "recorded, try dividing the policy's probabilities by their sum"
        )
    return min(max(p, 0.0), 1.0)


def check_reading(name: str, value: Any, t: int, like: tuple[int, ...] | None) -> NDArray[Any]:
    """An observation or an action: a whole number, or finite numbers in one row.

    Args:
        name: of the reading.
        value: what was reported.
        t: the time step.
        like: shape of earlier readings; None: this is the first.
    """
    if type(value) is int and not like and -_LARGEST <= value <= _LARGEST:  # the usual reading
        return np.array(value, np.int64)
    try:
        array = np.asarray(value)
        whole = array.dtype.kind in "iu"
        array = array.astype(np.int64 if whole else np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name}: got {value!r:.60} at t={t}, expected a state number or an array of numbers "
            f"({error}); nothing was recorded"
        ) from error
    if array.ndim > 1 or not (whole or np.isfinite(array).all()):
        raise InputError(
            f"{name}: got {value!r:.60} at t={t}, expected finite numbers in one row; nothing was "
            "recorded, try again with a good reading, or lose() the episode"
        )
    if like is not None and array.shape != like:
        row = f" (a row of numbers is a list, such as [{value!r:.20}])" if not array.ndim else ""
        raise InputError(
            f"{name}: got shape {array.shape} at t={t}, expected {like} as before, or as in the "
            f"logs{row}; nothing was recorded"
        )
    return array


# --------------------------------------------------------------------------------------------------

#: How far the probabilities of the target's own decisions may differ.
SAME = 1e-9


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

        log = EpisodeLog(horizon=24, target=policy, behavior=behavior)
        for day in range(100):
            log.start()
            obs, over = plant.morning(), False
            for t in range(24):
                chosen = log.act(obs)
                following, reward, cost, over = plant.run(chosen.action)
                log.step(obs, chosen, reward, cost)
                obs = following
                if over:
                    break
            log.end(obs, terminated=over)
        print(estimate(log.episodes(), epsilon=0.0))

    `act` draws from the log's own generator and knows the weight of the episode so far. Actions may
    be drawn elsewhere, ``behavior.act(obs, t, rng, weight=log.weight)``; `step` refuses those whose
    random number was used before. A bad reading is refused at its step, and nothing of it is
    recorded. An episode that is started again before it has ended, or given up by `lose`, counts as
    lost; `drop` takes a finished one out.

    All is in memory. `scopeval.Campaign` is the same on disk: with the same seed, policies and
    readings it decides the same, and its episodes are the same, bit for bit.

    Args:
        horizon: T, the most steps of an episode.
        target: pi, for `act`.
        behavior: mu, for `act`; None: the target itself.
        seed: of the log's own generator; None: another one every time.
        provenance: of which policies and environment the episodes are, for their file.
    """

    def __init__(
        self,
        horizon: int,
        *,
        target: Any = None,
        behavior: Any = None,
        seed: int | None = None,
        provenance: Provenance | None = None,
    ) -> None:
        self.horizon = check_whole("horizon", horizon, 1)
        self._decider: Decider | None = None
        if target is not None:
            policy = as_policy(target)
            self._decider = Decider(policy, as_behavior(behavior, policy))
        fresh = np.random.SeedSequence().generate_state(2, np.uint64)
        self.seed = int(fresh[0]) if seed is None else check_whole("seed", seed, 0)
        self._streams = CounterStreams(self.seed)
        self._provenance = provenance
        self._done: list[EpisodeRecord] = []
        self._lost: list[LostEpisode] = []
        self._open: EpisodeRecord | None = None
        self._weight = 1.0
        self._handed_over = False
        self._drawn: set[tuple[int, float]] = set()

    @property
    def rng(self) -> np.random.Generator:
        """A generator for the next decision: its numbers belong to this episode and step."""
        steps = self._running()
        return self._streams.at(steps.index, len(steps.reward))

    @property
    def weight(self) -> float:
        """Product of target_probability / probability in the running episode so far."""
        return self._weight

    def start(self, *, by_target: bool = False) -> None:
        """Begin an episode.

        Args:
            by_target: the target policy itself runs all of it, as after an alarm.
        """
        if self._open is not None:
            self.lose("the next one was started before it had ended")
        self._open = EpisodeRecord(
            index=len(self._done) + len(self._lost), by_target=by_target or self._handed_over
        )
        self._weight = 1.0

    def hand_over(self) -> None:
        """Let the target policy decide from the next step on, in this and in all later episodes."""
        self._handed_over = True

    def act(self, obs: Any) -> Choice:
        """Draw the next action, by the behavior policy or after a switch by the target.

        Raises:
            InputError: no target was given, a bad reading, or a target that cannot answer.
        """
        steps = self._running()
        t = self._next(steps)
        if self._decider is None:
            raise InputError("act: the log has no target; expected EpisodeLog(..., target=policy)")
        seen = check_reading("obs", obs, t, np.shape(steps.obs[0]) if steps.obs else None)
        place = Place(steps.index, t, self._weight, steps.by_target, self._handed_over)
        return self._decider.decide(seen, self._streams, place)

    def step(self, obs: Any, chosen: Chosen, reward: float, cost: float) -> None:
        """Record one step: what was observed, what was done, and what it gave.

        Raises:
            InputError: a bad reading, or a random number that was used before. Nothing of the step
                is recorded: correct it and call again, or give the episode up by `lose`.
        """
        steps = self._running()
        t = self._next(steps)
        seen = check_reading("obs", obs, t, np.shape(steps.obs[0]) if steps.obs else None)
        like = np.shape(steps.action[0]) if steps.action else None
        action = check_reading("action", chosen.action, t, like)
        reward, cost = check_number("reward", reward, t), check_cost_reading("cost", cost, t)
        mu = check_probability("probability", chosen.probability, t, positive=True)
        pi = check_probability("target_probability", chosen.target_probability, t, positive=False)
        controls = (
            check_number("control", chosen.control, t),
            check_number("baseline", chosen.baseline, t),
        )
        if steps.by_target and abs(mu - pi) > SAME:
            raise InputError(
                f"probability: got {mu:.6g} at t={t} where the target policy has {pi:.6g}, in an "
                "episode that was started with by_target=True; expected the target's own decision"
            )
        self._check_fresh(chosen, t)
        steps.obs.append(seen)
        steps.action.append(action)
        steps.reward.append(reward)
        steps.cost.append(cost)
        steps.probs.append((mu, pi))
        steps.controls.append(controls)
        self._weight *= pi / mu
        if isinstance(chosen, Choice):
            steps.guarded += chosen.chooser == "guard"
            steps.fallbacks += chosen.chooser == "fallback:failed"

    def end(self, last_obs: Any = None, *, terminated: bool = False) -> None:
        """End the episode: for good (`terminated`), or because its time was up.

        Args:
            last_obs: the observation after the last step, for use as a log; None: as before it.
            terminated: whether nothing comes after.
        """
        steps = self._running()
        if not steps.reward:
            raise InputError("end: the episode has no steps, expected at least one")
        last = steps.obs[-1]
        if last_obs is not None:
            last = check_reading("last_obs", last_obs, len(steps.reward), np.shape(last))
        steps.obs.append(last)
        steps.terminated = bool(terminated)
        self._done.append(steps)
        self._open = None

    def lose(self, reason: str) -> None:
        """Give up the running episode: it is counted, and is no evidence about the target."""
        self._lost.append(_lost(self._running(), reason))
        self._open = None

    def drop(self, index: int, reason: str) -> None:
        """Take a finished episode out, as after a broken sensor: it counts as lost from now on.

        Args:
            index: number of the episode, counted from 0 in the order of `start`.
            reason: in words. Dropping by results biases the estimate.

        Raises:
            InputError: no finished episode of this number.
        """
        for place, record in enumerate(self._done):
            if record.index == index:
                self._lost.append(_lost(self._done.pop(place), reason))
                self._lost.sort(key=lambda one: one.index)
                return
        raise InputError(f"drop: got {index!r}, expected the number of a finished episode")

    def episodes(self) -> Episodes:
        """All episodes that have ended so far."""
        controlled = any(np.any(record.controls) for record in self._done)
        episodes = Episodes.of_records(
            self._done, self.horizon, controlled=controlled, lost=self._lost
        )
        return episodes.with_provenance(self._provenance)

    def __len__(self) -> int:
        return len(self._done)

    def _running(self) -> EpisodeRecord:
        if self._open is None:
            raise InputError("no episode is running; expected start() first")
        return self._open

    def _next(self, steps: EpisodeRecord) -> int:
        t = len(steps.reward)
        if t == self.horizon:
            raise InputError(f"step: the episode has {self.horizon} steps already, expected end()")
        return t

    def _check_fresh(self, chosen: Chosen, t: int) -> None:
        """Refuse a random number that another episode has used at the same time step."""
        uniform = getattr(chosen, "uniform", None)  # who draws elsewhere may not say
        if uniform is None:
            return
        key = (t, float(uniform))
        if key in self._drawn:
            raise InputError(
                f"chosen: its random number {key[1]!r} was used at t={t} before: a generator that "
                "is seeded anew repeats its numbers, and the episodes are then not independent. "
                "Nothing was recorded; use one generator for all episodes, log.rng, or log.act(obs)"
            )
        self._drawn.add(key)


def _lost(steps: EpisodeRecord, reason: str) -> LostEpisode:
    return LostEpisode(steps.index, len(steps.reward), reason, float(sum(steps.cost)))

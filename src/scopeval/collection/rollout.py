"""Runs policies step by step in environments that run side by side.

One episode runs in each environment, all at the same time step, so that a policy is asked once per
step for the whole batch. Everything random about an episode is drawn from its own generators: where
a policy's candidates are a function of noise (`GaussianPolicy`), all of it when the episode begins.

What goes wrong: an environment that raises or returns NaN loses the episode that it is in; the
record says why. Where a behavior policy fails, the step falls back to the target policy and is
counted. A target policy that fails is an error at once, because nothing can be run without it. An
environment that never returns from `step` cannot be stopped from here: give it its own time limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import unwanted
from scopeval.arrays import Floats, Ints, check_probs
from scopeval.collection.choice import Asker
from scopeval.collection.environments import EnvironmentFailure, EnvironmentPool, Outcomes
from scopeval.collection.episodes import Episodes, LostEpisode
from scopeval.collection.signal_paths import record_signals
from scopeval.errors import InputError
from scopeval.policies.drawing import draw_actions
from scopeval.policies.gaussian import GaussianPolicy
from scopeval.policies.protocols import (
    Behavior,
    Candidates,
    ContinuousPolicy,
    EpisodeState,
    Observations,
    Policy,
)

__all__ = ["EpisodeStreams", "GuardStep", "Rollout", "draw_actions"]

#: Costs so far of the running episodes [B] -> which of them the target runs from the next step on.
GuardStep = Callable[[Floats], NDArray[Any]]

INTERRUPTED = "interrupted by the user"


class EpisodeStreams:
    """The random numbers of one episode: they depend on nothing but the seed and the number.

    Args:
        seed: of all episodes.
        index: number of the episode.
        horizon: T.

    Attributes:
        env_seed: of the environment.
        uniforms: [T] that draw the actions.
    """

    def __init__(self, seed: int, index: int, horizon: int) -> None:
        self._seed, self._index = seed, index
        # 31 bits: an int for every environment
        self.env_seed = int(self._sequence(0).generate_state(1)[0]) >> 1
        self.uniforms: Floats = np.random.default_rng(self._sequence(2)).random(horizon)

    def _sequence(self, number: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self._seed, spawn_key=(self._index, number))

    @cached_property
    def candidates(self) -> np.random.Generator:
        """Draws the candidates of continuous policies; made where one needs it."""
        return np.random.default_rng(self._sequence(1))


class _Tape:
    """What happens in B episodes side by side: arrays [B, T]."""

    def __init__(
        self,
        indices: range,
        seed: int,
        horizon: int,
        noise: tuple[int, ...] | None,
        signals: tuple[str, ...] = (),
    ) -> None:
        B = len(indices)
        self.indices = indices
        self.streams = [EpisodeStreams(seed, index, horizon) for index in indices]
        self.uniforms = np.stack([one.uniforms for one in self.streams])
        self.noise = None
        if noise is not None:
            shape = (horizon, *noise)
            self.noise = np.stack([one.candidates.standard_normal(shape) for one in self.streams])
        self.running = np.ones(B, np.bool_)
        self.obs: NDArray[Any] = np.empty((B, 0))
        self.action: NDArray[Any] | None = None
        self.reward, self.cost = np.zeros((B, horizon)), np.zeros((B, horizon))
        self.probs, self.controls = np.zeros((B, horizon, 2)), np.zeros((B, horizon, 2))
        self.length = np.zeros(B, np.int64)
        self.weight, self.returned = np.ones(B), np.zeros(B)  # of each episode so far
        self.cost_so_far = np.zeros(B)
        self.terminated, self.switched = np.zeros(B, np.bool_), np.zeros(B, np.bool_)
        self.fallbacks, self.guarded = np.zeros(B, np.int64), np.zeros(B, np.int64)
        self.controlled = False  # the behavior policy has brought a control variate
        self.lost: list[LostEpisode] = []
        self.signals = signals
        self.exogenous = np.full((B, horizon + 1, len(signals)), np.nan)

    def see(self, row: int, at: int, seen: Floats) -> None:
        """Record the signals of a time, or of a whole path."""
        record_signals(self.exogenous[row], at, seen)

    def begin(self, first: NDArray[Any]) -> None:
        """Record the first observations."""
        kind = np.int64 if np.issubdtype(first.dtype, np.integer) else np.float64
        shape = (len(first), self.reward.shape[1] + 1, *first.shape[1:])
        self.obs = np.zeros(shape, kind)
        self.obs[:, 0] = first

    def add(self, t: int, rows: Ints, actions: NDArray[Any], outcomes: Outcomes) -> None:
        """Record one step of those rows that were stepped."""
        if self.action is None:
            self.action = np.zeros((*self.reward.shape, *actions.shape[1:]), actions.dtype)
        done = outcomes.done
        if not done.any():
            return
        at = rows[done]
        self.obs[at, t + 1] = outcomes.obs[done]
        self.action[at, t] = actions[done]
        self.reward[at, t], self.cost[at, t] = outcomes.reward[done], outcomes.cost[done]
        self.cost_so_far[at] += outcomes.cost[done]
        self.returned[at] += outcomes.reward[done]
        self.terminated[at] = outcomes.terminated[done]
        self.length[at] = t + 1
        for row, seen in outcomes.exogenous.items():
            self.see(int(rows[row]), t + 1, seen)

    def state(self, rows: Ints) -> EpisodeState:
        """What is known of some of the episodes."""
        return replace(EpisodeState.of_weights(self.weight[rows]), returned=self.returned[rows])

    def end(self, row: int, failure: str | None) -> None:
        """An episode is over; `failure`: why it could not be finished."""
        self.running[row] = False
        if failure is not None:
            so_far = float(self.cost_so_far[row])
            self.lost.append(LostEpisode(self.indices[row], int(self.length[row]), failure, so_far))

    def episodes(self, *, by_target: bool) -> Episodes:
        """All that are over, in the order of their numbers."""
        lost = sorted(self.lost, key=lambda one: one.index)
        done = ~self.running
        done[[one.index - self.indices.start for one in lost]] = False
        rows, horizon = np.flatnonzero(done), self.reward.shape[1]
        if self.action is None or not len(rows):
            return Episodes.none(horizon, lost)
        length = self.length[rows]
        padding = np.arange(horizon) >= length[:, None]
        obs, probs = self.obs[rows, :horizon], self.probs[rows]
        obs[padding], probs[padding] = 0, 1.0
        controls = self.controls[rows] if self.controlled else None
        return Episodes(
            obs=obs,
            action=self.action[rows],
            reward=self.reward[rows],
            cost=self.cost[rows],
            behavior_prob=probs[..., 0],
            target_prob=probs[..., 1],
            length=length,
            last_obs=self.obs[rows, length],
            terminated=self.terminated[rows],
            control=None if controls is None else controls[..., 0],
            baseline=None if controls is None else controls[..., 1],
            by_target=np.full(len(rows), by_target),
            index=rows + self.indices.start,
            fallbacks=self.fallbacks[rows],
            guarded=self.guarded[rows],
            exogenous=self.exogenous[rows] if self.signals else None,
            signals=self.signals,
            lost=tuple(lost),
        )


@dataclass
class Rollout:
    """Runs episodes of a behavior policy, or of the target itself, in a pool of environments.

    Attributes:
        environments: where to run.
        target: pi; it offers the candidates.
        behavior: mu, which re-weighs them; None runs the target itself.
        horizon: T; an episode that is not over by then is cut there.
        seed: of the collection.
        guard_step: called after every step with the costs so far of the running episodes, [B];
            returns which of them are handed over: the baseline, or else the target, runs them from
            the next step on. A guard that raises hands all of them over.
        baseline: what runs today. It takes the rest of an episode that is handed over, and of one
            in which the behavior policy fails; such an episode is about pi until then, and the
            baseline afterwards, where its ratio is 1. None: the target does.
    """

    environments: EnvironmentPool
    target: Policy | ContinuousPolicy
    behavior: Behavior | Policy | None
    horizon: int
    seed: int
    guard_step: GuardStep | None = None
    baseline: Policy | None = None
    _by_target: bool = False  # the target runs; of the behavior policy only b is used
    _asked: bool = False  # the behavior policy was asked before, and a step was run
    _asker: Asker = field(init=False)  # of the run that is under way

    def run(
        self,
        first: int,
        count: int,
        *,
        by_target: bool = False,
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Episodes:
        """Run episodes number first .. first+count-1.

        Args:
            first: number of the first episode.
            count: how many.
            by_target: let the target itself run. The control variate of the behavior policy is
                still recorded: it does no harm and keeps the variance low.
            progress: called as progress(done, count) after every episode, finished or lost.
            stop: asked before episodes are begun; True begins no more, those running are finished.
        """
        parts: list[Episodes] = []
        self._by_target = by_target
        # a plain policy has no control variate to record while the target runs
        plain = by_target and not isinstance(self.behavior, Behavior)
        self._asker = Asker(None if plain else self.behavior)
        self._asked = self._asked or first > 0
        try:
            for begin in range(first, first + count, len(self.environments)):
                if stop is not None and stop():
                    break
                last = min(begin + len(self.environments), first + count)
                report = None
                if progress is not None:
                    report = partial(_tell, progress, begin - first, count)
                self._side_by_side(range(begin, last), parts, report)
        except KeyboardInterrupt:
            parts.append(Episodes.none(self.horizon, interrupted=True))
        return Episodes.concat(parts or [Episodes.none(self.horizon)])

    def _side_by_side(
        self,
        indices: range,
        parts: list[Episodes],
        progress: Callable[[int], None] | None,
    ) -> None:
        """One episode in each environment, all at the same time step; they are a new part."""
        noise = self.target.noise_shape if isinstance(self.target, GaussianPolicy) else None
        signals = self.environments.signals
        tape = _Tape(indices, self.seed, self.horizon, noise, signals)
        by_target = self._by_target or self.behavior is None

        def end(row: int, failure: EnvironmentFailure | None) -> None:
            tape.end(row, None if failure is None else str(failure))
            if progress is not None:
                progress(int((~tape.running).sum()))

        try:
            first, failures = self.environments.reset([one.env_seed for one in tape.streams])
            for row, failure in failures.items():
                end(row, failure)
            tape.begin(first)
            for row, environment in enumerate(self.environments[: len(indices)] if signals else ()):
                if environment.first is not None:
                    tape.see(row, 0, environment.first)
            for t in range(self.horizon):
                rows = np.flatnonzero(tape.running)
                if not len(rows):
                    break
                actions = self._choose(tape, rows, t)
                outcomes = self.environments.step(actions, rows)
                tape.add(t, rows, actions, outcomes)
                for row, failure in outcomes.failures.items():
                    end(int(rows[row]), failure)
                ended = outcomes.done & (outcomes.terminated | outcomes.truncated)
                for row in rows[outcomes.done if t + 1 == self.horizon else ended].tolist():
                    end(row, None)
                if outcomes.interrupted or unwanted():
                    raise KeyboardInterrupt
                if self.guard_step is not None and not self._by_target:
                    self._ask_guard(tape, self.guard_step)
        except KeyboardInterrupt:
            for row in np.flatnonzero(tape.running).tolist():
                tape.end(row, INTERRUPTED)
            raise
        finally:
            parts.append(tape.episodes(by_target=by_target))

    def _choose(self, tape: _Tape, rows: Ints, t: int) -> NDArray[Any]:
        """Choose an action for each running episode, and record its probabilities and b."""
        obs = tape.obs[rows, t]
        offered = self._offers(tape, rows, obs, t)
        p = offered.probs
        answer = self._asker.ask(
            offered,
            obs,
            t,
            tape.state(rows),
            by_target=self._by_target,
            may_raise=not self._asked,  # nothing has been run yet
        )
        mu, control, failed = answer.mu, answer.b, answer.failed
        tape.controlled |= answer.controlled
        self._asked = True
        if self.baseline is not None:
            tape.switched[rows] |= failed
        forced = tape.switched[rows]
        if self.baseline is not None and forced.any():
            p, control = p.copy(), control.copy()
            p[forced] = self._baselines(obs[forced], t, p.shape[1])
            control[forced] = 0.0  # it is about the target's actions
        mu[forced] = p[forced]
        chosen = draw_actions(mu, tape.uniforms[rows, t])
        each = np.arange(len(rows))
        tape.probs[rows, t] = np.stack([mu[each, chosen], p[each, chosen]], axis=1)
        tape.controls[rows, t] = np.stack(
            [control[each, chosen], (p * control).sum(axis=1)], axis=1
        )
        tape.weight[rows] *= p[each, chosen] / mu[each, chosen]
        tape.fallbacks[rows] += failed
        tape.guarded[rows] += forced
        return np.asarray(offered.actions[each, chosen])

    def _offers(self, tape: _Tape, rows: Ints, obs: Observations, t: int) -> Candidates:
        """The target's candidates, drawn from each episode's own random numbers."""
        if tape.noise is not None and isinstance(self.target, GaussianPolicy):
            offered = self.target.from_noise(obs, t, tape.noise[rows, t])
        elif not isinstance(self.target, ContinuousPolicy):
            probs = self.target.probs(obs, t)
            every = np.broadcast_to(np.arange(probs.shape[-1]), probs.shape)
            offered = Candidates(every, probs)
        else:
            each = [
                self.target.candidates(obs[i : i + 1], t, tape.streams[row].candidates)
                for i, row in enumerate(rows)
            ]
            offered = Candidates(
                np.concatenate([o.actions for o in each]), np.concatenate([o.probs for o in each])
            )
        probs = check_probs(f"target at t={t}", offered.probs, axes=("row",))
        if probs.ndim != 2 or len(probs) != len(rows):
            raise InputError(
                f"policy: returned probabilities of shape {probs.shape} for {len(rows)} "
                f"observations, expected [{len(rows)}, number of actions]"
            )
        return Candidates(offered.actions, probs)

    def _baselines(self, obs: Observations, t: int, actions: int) -> Floats:
        """Probabilities of the baseline, which has to answer where it takes over."""
        assert self.baseline is not None
        probs = check_probs(f"baseline at t={t}", self.baseline.probs(obs, t), axes=("row",))
        if probs.shape != (len(obs), actions):
            raise InputError(
                f"baseline: returned probabilities of shape {probs.shape} for {len(obs)} "
                f"observations, expected [{len(obs)}, {actions}], as the target's"
            )
        return probs

    def _ask_guard(self, tape: _Tape, guard_step: GuardStep) -> None:
        """Ask the guard which episodes the target continues."""
        rows = np.flatnonzero(tape.running)
        if not len(rows):
            return
        cost = tape.cost_so_far[rows]
        try:
            switch = np.broadcast_to(np.asarray(guard_step(cost), dtype=np.bool_), cost.shape)
        except Exception:
            switch = np.ones(len(cost), np.bool_)  # in doubt, the target
        tape.switched[rows] |= switch


def _tell(progress: Callable[[int, int], None], before: int, count: int, ended: int) -> None:
    """Tell how many episodes are over, of all groups."""
    progress(before + ended, count)

"""The policies at work, step by step, on plants that run side by side.

One episode runs in each plant, all at the same time step, so that a policy is asked once per step
for the whole batch. Everything random about an episode is drawn from generators of its own: where
a policy's candidates are a function of noise (`NoisePolicy`), all of it when the episode begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import PROBABILITY_SLACK, Bools, Floats, Ints, check_probs
from scopeval.collection.environment_pool import Broken, Outcome, Outcomes, Plants
from scopeval.errors import InputError
from scopeval.policies.gaussian import NoisePolicy
from scopeval.policies.protocols import (
    Behavior,
    Candidates,
    ContinuousPolicy,
    Observations,
    Policy,
    Weighing,
    offer,
    weigh,
)

__all__ = ["GuardStep", "Record", "Rollout", "columns", "draw_actions"]

#: Fewer episodes than this are not worth a turn of their own.
LEAST_HALF = 32
#: Costs so far of the running episodes [B] -> which of them the target runs from the next step on.
GuardStep = Callable[[Floats], NDArray[Any]]


class Record:
    """One running episode: its random numbers and what has happened so far."""

    def __init__(self, index: int, seed: int, horizon: int) -> None:
        self.index = index
        plant, candidates, choices = np.random.SeedSequence(seed, spawn_key=(index,)).spawn(3)
        self.plant_seed = int(plant.generate_state(1)[0]) >> 1  # 31 bits: every environment's int
        self.rng = np.random.default_rng(candidates)
        self.uniforms = np.random.default_rng(choices).random(horizon)
        self.obs: Any = []
        self.action: Any = []
        self.reward: Any = []
        self.cost: Any = []
        self.probs: Any = []  # mu, pi
        self.controls: Any = []  # b, bbar
        self.paid = 0.0
        self.terminated = False
        self.fallbacks = 0
        self.guarded = 0

    def add(self, action: NDArray[Any], outcome: Outcome) -> None:
        """Write one step down."""
        self.obs.append(outcome.obs)
        self.action.append(action)
        self.reward.append(outcome.reward)
        self.cost.append(outcome.cost)
        self.paid += outcome.cost
        self.terminated = outcome.terminated


class _Tape:
    """What happens in B episodes side by side: arrays [B, T], cut into records in the end."""

    def __init__(self, records: list[Record], horizon: int, noise: tuple[int, ...] | None) -> None:
        B = len(records)
        self.records = records
        self.uniforms = np.stack([record.uniforms for record in records])
        self.noise = None
        if noise is not None:
            shape = (horizon, *noise)
            self.noise = np.stack([record.rng.standard_normal(shape) for record in records])
        self.obs: NDArray[Any] = np.empty((B, 0))
        self.action: NDArray[Any] | None = None
        self.reward, self.cost = np.zeros((B, horizon)), np.zeros((B, horizon))
        self.probs, self.controls = np.zeros((B, horizon, 2)), np.zeros((B, horizon, 2))
        self.length = np.zeros(B, np.int64)
        self.paid = np.zeros(B)
        self.terminated, self.switched = np.zeros(B, np.bool_), np.zeros(B, np.bool_)
        self.fallbacks, self.guarded = np.zeros(B, np.int64), np.zeros(B, np.int64)

    def begin(self, first: NDArray[Any]) -> None:
        """The first observations."""
        kind = np.int64 if np.issubdtype(first.dtype, np.integer) else np.float64
        shape = (len(first), self.reward.shape[1] + 1, *first.shape[1:])
        self.obs = np.zeros(shape, kind)
        self.obs[:, 0] = first

    def add(self, t: int, rows: Ints, actions: NDArray[Any], outcomes: Outcomes) -> None:
        """One step of these rows, as far as it was made."""
        if self.action is None:
            self.action = np.zeros((*self.reward.shape, *actions.shape[1:]), actions.dtype)
        made = outcomes.done
        at = rows[made]
        self.obs[at, t + 1] = outcomes.obs[made]
        self.action[at, t] = actions[made]
        self.reward[at, t], self.cost[at, t] = outcomes.reward[made], outcomes.cost[made]
        self.paid[at] += outcomes.cost[made]
        self.terminated[at] = outcomes.terminated[made]
        self.length[at] = t + 1

    def cut(self, row: int) -> Record:
        """The row as a record, up to where it is."""
        record, n = self.records[row], int(self.length[row])
        record.obs, record.paid = self.obs[row, : n + 1], float(self.paid[row])
        record.action = [] if self.action is None else self.action[row, :n]
        record.reward, record.cost = self.reward[row, :n], self.cost[row, :n]
        record.probs, record.controls = self.probs[row, :n], self.controls[row, :n]
        record.terminated = bool(self.terminated[row])
        record.fallbacks, record.guarded = int(self.fallbacks[row]), int(self.guarded[row])
        return record


class Rollout:
    """The policies at work, step by step, on a batch of plants."""

    def __init__(
        self,
        target: Policy | ContinuousPolicy,
        behavior: Behavior | Policy | None,
        horizon: int,
        guard_step: GuardStep | None,
        *,
        proven: bool,
    ) -> None:
        self.target = target
        self.behavior = behavior
        self.horizon = horizon
        self.guard_step = guard_step
        self.proven = proven  # the behavior policy has answered before
        self.controlled = False  # it has brought a control variate
        self.noisy = target if isinstance(target, NoisePolicy) else None

    def side_by_side(
        self,
        records: list[Record],
        machines: Plants,
        over: Callable[[Record, Broken | None], None],
    ) -> None:
        """One episode in each plant, in step with each other; `over` is told of every end."""
        noise = None if self.noisy is None else self.noisy.noise_shape
        tape = _Tape(records, self.horizon, noise)
        running = np.ones(len(records), np.bool_)

        def end(row: int, failure: Broken | None) -> None:
            running[row] = False
            over(tape.cut(row), failure)

        try:
            first, failures = machines.reset([record.plant_seed for record in records])
            for row, failure in failures.items():
                end(row, failure)
            tape.begin(first)
            groups = self._groups(len(records), machines)
            for t, rows, actions in self._turns(tape, running, groups):
                outcomes = machines.step(actions, rows)
                tape.add(t, rows, actions, outcomes)
                for row, failure in outcomes.failures.items():
                    end(int(rows[row]), failure)
                ended = outcomes.done & (outcomes.terminated | outcomes.truncated)
                for row in rows[outcomes.done if t + 1 == self.horizon else ended].tolist():
                    end(row, None)
                if outcomes.interrupted:
                    raise KeyboardInterrupt
                self.guard(tape, np.flatnonzero(running))
        finally:
            for row in np.flatnonzero(running).tolist():  # an interrupt: as far as they came
                tape.cut(row)

    def _groups(self, count: int, machines: Plants) -> list[Ints]:
        """Rows that move together: two halves where one can be moved while the other chooses.

        That needs a fleet, candidates by noise, and no guard, which looks at all rows at once.
        """
        alone = machines.fleet is None or self.noisy is None or self.guard_step is not None
        parts = 1 if alone or count < 2 * LEAST_HALF else 2
        return np.array_split(np.arange(count), parts)

    def _turns(
        self, tape: _Tape, running: Bools, groups: list[Ints]
    ) -> Iterator[tuple[int, Ints, NDArray[Any]]]:
        """Time, rows and actions of every turn; the next group chooses while this one moves.

        Rows do not look at each other, so that the episodes are the same in any grouping.
        """
        turns = [(t, group) for t in range(self.horizon) for group in groups]

        def ask(t: int, group: Ints) -> tuple[int, Ints, NDArray[Any]]:
            rows = group[running[group]]
            return t, rows, self.choose(tape, rows, t) if len(rows) else np.empty(0)

        with ThreadPoolExecutor(1) as pool:
            later: Future[tuple[int, Ints, NDArray[Any]]] | None = None
            for n, turn in enumerate(turns):
                if not running.any():
                    break
                now = ask(*turn) if later is None else later.result()
                if len(groups) > 1 and n + 1 < len(turns):
                    later = pool.submit(ask, *turns[n + 1])
                if len(now[1]):
                    yield now

    def choose(self, tape: _Tape, rows: Ints, t: int) -> NDArray[Any]:
        """An action for each running episode, its probabilities and control variate recorded."""
        obs = tape.obs[rows, t]
        offered = self.offers(tape, rows, obs, t)
        p = offered.probs
        mu, control, failed = self.weighs(offered, obs, t)
        forced = tape.switched[rows]
        mu[forced] = p[forced]
        chosen = draw_actions(mu, tape.uniforms[rows, t])
        each = np.arange(len(rows))
        tape.probs[rows, t] = np.stack([mu[each, chosen], p[each, chosen]], axis=1)
        tape.controls[rows, t] = np.stack(
            [control[each, chosen], (p * control).sum(axis=1)], axis=1
        )
        tape.fallbacks[rows] += failed
        tape.guarded[rows] += forced
        return np.asarray(offered.actions[each, chosen])

    def offers(self, tape: _Tape, rows: Ints, obs: Observations, t: int) -> Candidates:
        """The target's candidates, drawn from each episode's own random numbers."""
        if self.noisy is not None and tape.noise is not None:
            offered = self.noisy.from_noise(obs, t, tape.noise[rows, t])
        elif not isinstance(self.target, ContinuousPolicy):
            offered = offer(self.target, obs, t, tape.records[0].rng)  # draws nothing
        else:
            each = [
                offer(self.target, obs[i : i + 1], t, tape.records[row].rng)
                for i, row in enumerate(rows)
            ]
            offered = Candidates(
                np.concatenate([o.actions for o in each]), np.concatenate([o.probs for o in each])
            )
        probs = check_probs(f"target at t={t}", offered.probs, axes=("row",))
        if probs.ndim != 2 or len(probs) != len(rows):
            raise InputError(
                f"target: returned probabilities of shape {probs.shape} for {len(rows)} "
                f"observations, expected [{len(rows)}, number of actions]"
            )
        return Candidates(offered.actions, probs)

    def weighs(
        self, offered: Candidates, obs: Observations, t: int
    ) -> tuple[Floats, Floats, Bools]:
        """Mu and b [B, K], and the rows where the behavior policy failed: they hold pi and 0."""
        mu, control = offered.probs.copy(), np.zeros_like(offered.probs)
        failed = np.zeros(len(mu), np.bool_)
        if self.behavior is None:
            return mu, control, failed
        try:
            parts = [(slice(0, len(mu)), _ask(self.behavior, offered, obs, t))]
        except Exception as error:
            parts = []
            for i in range(len(mu)):
                one = slice(i, i + 1)
                alone = Candidates(offered.actions[one], offered.probs[one])
                try:
                    parts.append((one, _ask(self.behavior, alone, obs[one], t)))
                except Exception:
                    failed[i] = True
            if isinstance(error, InputError) and failed.all() and not (self.proven or t):
                raise  # it never worked: a mistake to put right, and nothing has been run yet
        for rows, weighing in parts:
            good = _valid(weighing)
            failed[rows] = ~good
            if good.any():
                probs = weighing.probs[good]
                at = np.arange(rows.start, rows.stop)[good]
                mu[at] = probs / probs.sum(axis=1, keepdims=True)
                if weighing.control is not None:
                    self.controlled = True
                    control[at] = weighing.control[good]
        self.proven = self.proven or not failed.all()
        return mu, control, failed

    def guard(self, tape: _Tape, rows: Ints) -> None:
        """Ask the guard which episodes the target shall go on with."""
        if self.guard_step is None or not len(rows):
            return
        paid = tape.paid[rows]
        try:
            switch = np.broadcast_to(np.asarray(self.guard_step(paid), dtype=np.bool_), paid.shape)
        except Exception:
            switch = np.ones(len(paid), np.bool_)  # in doubt, the target
        tape.switched[rows] |= switch


def _ask(behavior: Behavior | Policy, offered: Candidates, obs: Observations, t: int) -> Weighing:
    answer = weigh(behavior, offered, obs, t)
    probs = np.asarray(answer.probs, dtype=np.float64)
    control = None if answer.control is None else np.asarray(answer.control, dtype=np.float64)
    for name, value in (("probabilities", probs), ("a control variate", control)):
        if value is not None and value.shape != offered.probs.shape:
            raise InputError(
                f"behavior: got {name} of shape {value.shape} where the target offers "
                f"{offered.probs.shape}; expected the same action set"
            )
    return Weighing(probs, control)


def _valid(weighing: Weighing) -> Bools:
    """Rows of a weighing that can be used."""
    probs = weighing.probs
    good = (probs >= 0).all(axis=1) & (np.abs(probs.sum(axis=1) - 1.0) <= PROBABILITY_SLACK)
    if weighing.control is not None:
        good &= np.isfinite(weighing.control).all(axis=1)
    return np.asarray(good)


def draw_actions(probs: Floats, uniforms: Floats) -> Ints:
    """Invert the cumulative probabilities; an action of probability 0 is never drawn."""
    cumulative = np.cumsum(probs, axis=1)
    chosen = (uniforms[:, None] >= cumulative).sum(axis=1)
    last = probs.shape[1] - 1 - np.argmax(probs[:, ::-1] > 0, axis=1)
    return np.asarray(np.minimum(chosen, last))


def columns(
    records: list[Record], horizon: int, *, by_target: bool, controlled: bool
) -> dict[str, Any]:
    """Pad the episodes to [N, T]."""
    N = len(records)
    length = np.array([len(r.reward) for r in records], np.int64)
    real = np.arange(horizon) < length[:, None]

    def padded(rows: list[list[Any]], fill: float) -> NDArray[Any]:
        if not rows:
            return np.empty((0, horizon))
        flat = np.concatenate([np.asarray(row) for row in rows])
        out = np.full((N, horizon, *flat.shape[1:]), fill, dtype=flat.dtype)
        out[real] = flat
        return out

    probs = padded([r.probs for r in records], 1)
    controls = padded([r.controls for r in records], 0)
    none = np.empty((0, horizon), np.int64)
    return {
        "obs": padded([r.obs[:-1] for r in records], 0) if N else none,
        "action": padded([r.action for r in records], 0) if N else none,
        "reward": padded([r.reward for r in records], 0),
        "cost": padded([r.cost for r in records], 0),
        "behavior_prob": probs[..., 0] if N else probs,
        "target_prob": probs[..., 1] if N else probs,
        "length": length,
        "last_obs": np.array([r.obs[-1] for r in records], None if N else np.int64),
        "terminated": np.array([r.terminated for r in records], np.bool_),
        "control": controls[..., 0] if controlled and N else None,
        "baseline": controls[..., 1] if controlled and N else None,
        "by_target": np.full(N, by_target),
        "index": np.array([r.index for r in records], np.int64),
        "fallbacks": np.array([r.fallbacks for r in records], np.int64),
        "guarded": np.array([r.guarded for r in records], np.int64),
    }

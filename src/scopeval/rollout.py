"""The policies at work, step by step, on plants that run side by side.

One episode runs in each plant, all at the same time step, so that a policy is asked once per step
for the whole batch. Everything random about an episode is drawn from generators of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import PROBABILITY_SLACK, Bools, Floats, Ints, check_probs
from scopeval.errors import InputError
from scopeval.plants import Broken, Outcome, Plant
from scopeval.policies import (
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
        self.obs: list[NDArray[Any]] = []
        self.action: list[NDArray[Any]] = []
        self.reward: list[float] = []
        self.cost: list[float] = []
        self.probs: list[tuple[float, float]] = []  # mu, pi
        self.controls: list[tuple[float, float]] = []  # b, bbar
        self.paid = 0.0
        self.terminated = False
        self.switched = False  # the guard gave it to the target
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
        self.proven = proven  # the behaviour policy has answered before
        self.controlled = False  # it has brought a control variate

    def side_by_side(
        self,
        pairs: list[tuple[Record, Plant]],
        over: Callable[[Record, Broken | None], None],
    ) -> None:
        """One episode in each plant, in step with each other; `over` is told of every end."""
        live: list[tuple[Record, Plant]] = []
        for record, plant in pairs:
            try:
                record.obs.append(plant.reset(record.plant_seed))
                live.append((record, plant))
            except Broken as failure:
                over(record, failure)
        for t in range(self.horizon):
            if not live:
                break
            actions = self.choose([record for record, _ in live], t)
            going = []
            for (record, plant), action in zip(live, actions, strict=True):
                try:
                    outcome = plant.step(action)
                except Broken as failure:
                    over(record, failure)
                    continue
                record.add(action, outcome)
                if outcome.terminated or outcome.truncated or t + 1 == self.horizon:
                    over(record, None)
                else:
                    going.append((record, plant))
            live = going
            self.guard([record for record, _ in live])

    def choose(self, records: list[Record], t: int) -> list[NDArray[Any]]:
        """An action for each running episode, its probabilities and control variate recorded."""
        obs = np.stack([record.obs[-1] for record in records])
        offered = self.offers(records, obs, t)
        p = offered.probs
        mu, control, failed = self.weighs(offered, obs, t)
        forced = np.array([record.switched for record in records])
        mu[forced] = p[forced]
        chosen = draw_actions(mu, np.array([record.uniforms[t] for record in records]))
        baseline = (p * control).sum(axis=1)
        actions = []
        for row, (record, k) in enumerate(zip(records, chosen, strict=True)):
            record.probs.append((mu[row, k], p[row, k]))
            record.controls.append((control[row, k], baseline[row]))
            record.fallbacks += int(failed[row])
            record.guarded += int(forced[row])
            actions.append(np.asarray(offered.actions[row, k]))
        return actions

    def offers(self, records: list[Record], obs: Observations, t: int) -> Candidates:
        """The target's candidates, drawn from each episode's own random numbers."""
        if not isinstance(self.target, ContinuousPolicy):
            offered = offer(self.target, obs, t, records[0].rng)  # draws nothing
        else:
            each = [
                offer(self.target, obs[i : i + 1], t, record.rng)
                for i, record in enumerate(records)
            ]
            offered = Candidates(
                np.concatenate([o.actions for o in each]), np.concatenate([o.probs for o in each])
            )
        probs = check_probs(f"target at t={t}", offered.probs, axes=("row",))
        if probs.ndim != 2 or len(probs) != len(records):
            raise InputError(
                f"target: returned probabilities of shape {probs.shape} for {len(records)} "
                f"observations, expected [{len(records)}, number of actions]"
            )
        return Candidates(offered.actions, probs)

    def weighs(
        self, offered: Candidates, obs: Observations, t: int
    ) -> tuple[Floats, Floats, Bools]:
        """Mu and b [B, K], and the rows where the behaviour policy failed: they hold pi and 0."""
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

    def guard(self, records: list[Record]) -> None:
        """Ask the guard which episodes the target shall go on with."""
        if self.guard_step is None or not records:
            return
        paid = np.array([record.paid for record in records])
        try:
            switch = np.broadcast_to(np.asarray(self.guard_step(paid), dtype=np.bool_), paid.shape)
        except Exception:
            switch = np.ones(len(paid), np.bool_)  # in doubt, the target
        for record, now in zip(records, switch, strict=True):
            record.switched = record.switched or bool(now)


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
        flat = np.array([x for row in rows for x in row])
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

"""What a sweep walks over: rows to learn from, and points where values are needed.

Two kinds. *Logged* ground is the log itself, every row serving every time step (or, for problems
that change with time, the rows of that step). *Imagined* ground is episodes of the target in a
learned model of the world: rows of step t lead to the points of step t + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints
from scopeval.critics import Learner, Regression, Rows
from scopeval.dynamics import Outlook, World
from scopeval.errors import InputError
from scopeval.foresight import Foresight
from scopeval.gaussian import GaussianPolicy
from scopeval.policies import ContinuousPolicy, Observations, Policy, Redraws, offer

__all__ = [
    "Ground",
    "Points",
    "Prospects",
    "imagined",
    "join",
    "logged_ground",
    "prospects",
    "recall",
]


#: Where steps led, float32 [n, w], when [n], and what was earned and spent from there on [n, 2].
Prospects = tuple[NDArray[np.float32], Ints, Floats]


@dataclass(frozen=True)
class Points:
    """Observations at which a sweep needs values.

    Attributes:
        obs: [P] state numbers or [P, d].
        initial: [P] distribution of the first observation.
        logged: [P] how often each was met, as shares.
        actions: [P, K, m] candidates of a continuous target; None: all actions of a finite set.
    """

    obs: Observations
    initial: Floats
    logged: Floats
    actions: NDArray[Any] | None = None

    def target(self, policy: Policy | ContinuousPolicy, t: int) -> Floats:
        """Pi over the actions or candidates."""
        if self.actions is not None:
            K = self.actions.shape[1]
            return np.full((len(self.obs), K), 1.0 / K)
        assert isinstance(policy, Policy)
        return policy.probs(self.obs, t)


@dataclass(frozen=True)
class Ground:
    """Rows, points and what leads where; one entry that serves every time step, or one for each.

    Attributes:
        rows: to learn from.
        points: where values are needed.
        successor: for each entry of rows, where every row's next observation is among the points
            of the step after.
        regression: how critics are learned here.
        kept: learners by step, for a regression whose learners do not change when they fit.
    """

    rows: Sequence[Rows]
    points: Sequence[Points]
    successor: Sequence[Ints]
    regression: Regression
    kept: dict[int, Learner] | None = None

    def learner(self, step: int, actions: int, seed: int) -> Learner:
        """A learner for the rows of a step; the same one every time, where learners are `kept`."""
        if self.kept is None:
            return self.regression.learner(self.rows[step], actions, seed)
        if step not in self.kept:
            self.kept[step] = self.regression.learner(self.rows[step], actions, seed)
        return self.kept[step]

    def at(self, t: int) -> Points:
        """The points of step t."""
        return self.points[min(t, len(self.points) - 1)]


def logged_ground(
    rows: Rows,
    starts: Rows,
    regression: Regression,
    *,
    actions: int,
    steps: int,
    states: int | None = None,
    everything: Rows | None = None,
) -> Ground:
    """The log as ground.

    Args:
        rows: of the log, or of a half.
        starts: first observations.
        regression: how critics are learned.
        actions: number of actions.
        steps: time steps that need rows of their own; 1: every row serves every step.
        states: number of states, at least; None for vectors.
        everything: rows whose states are needed as points (default: these).
    """
    which = [np.flatnonzero(rows.t == t) for t in range(steps)]
    if steps == 1:
        which = [np.arange(len(rows))]
    for t, some in enumerate(which):
        if len(some) == 0:
            raise InputError(
                f"logged: no rows of time step {t}, expected some for every step of the horizon "
                f"{steps}; try time_varying=False if rewards and dynamics do not depend on t"
            )
    parts = [regression.prepare(rows.select(some), actions) for some in which]
    if rows.obs.ndim == 1:
        size = max(states or 0, *(1 + int(max(p.obs.max(), p.next_obs.max())) for p in parts))
        counted = everything if everything is not None else rows
        size = max(size, 1 + int(max(counted.obs.max(), counted.next_obs.max())))
        initial = np.bincount(starts.obs, starts.weight, size)
        logged = np.bincount(counted.obs, counted.weight, size)
        points = Points(np.arange(size), initial / initial.sum(), logged / logged.sum())
        return Ground(parts, [points], [part.next_obs for part in parts], regression)
    obs = np.concatenate([rows.next_obs, starts.obs])
    initial = np.concatenate([np.zeros(len(rows)), starts.weight])
    logged = np.concatenate([rows.weight, np.zeros(len(starts))])
    points = Points(obs, initial / initial.sum(), logged / logged.sum())
    return Ground(parts, [points], which, regression)


def imagined(
    network: World,
    starts: Rows,
    target: Policy | ContinuousPolicy,
    regression: Regression,
    *,
    horizon: int,
    paths: int,
    rng: np.random.Generator,
) -> Ground:
    """Episodes of the target in a world, learned or known, from where logged episodes start.

    An episode that ends makes room for a copy of one that goes on, so that every step has rows
    enough; what an end means is in the rows' `alive`.
    """
    world = network.encoder.world
    share = starts.weight / starts.weight.sum()
    obs = np.asarray(starts.obs)[rng.choice(len(starts), size=paths, p=share)]
    every, uniform = np.arange(paths), np.full(paths, 1.0 / paths)
    rows, points = [], []
    for t in range(horizon):
        obs = _redrawn(target, obs, t, rng)
        offered = offer(target, obs, t, rng)
        candidates = None if offered.actions.ndim == 2 else offered.actions
        points.append(Points(obs, uniform, uniform, candidates))
        ahead = network.outlook(obs, candidates, t)
        network.remember(obs, candidates, t, ahead)
        # candidates are draws already, the first is as good as any; of a finite set, draw one
        taken = np.zeros(paths, np.int64) if candidates is not None else _drawn(offered.probs, rng)
        ends = rng.random(paths) < ahead.end[every, taken]
        following = obs.copy()
        action = np.ascontiguousarray(offered.actions[every, taken])
        wrong = network.stray(obs, action, t, rng)
        following[:, world] = np.clip(ahead.ahead[every, taken] + wrong, network.low, network.high)
        rows.append(
            Rows(
                t=np.full(paths, t),
                obs=obs,
                action=action,
                reward=ahead.reward[every, taken],
                reward_noise=np.full(paths, network.reward_noise),
                cost=ahead.cost[every, taken],
                next_obs=following,
                alive=np.where(ends, 0.0, 1.0),
                weight=np.ones(paths),
                borrowed=np.zeros(paths, np.bool_),
            )
        )
        alive = np.flatnonzero(~ends)
        obs = following.copy()
        if len(alive):
            obs[ends] = following[rng.choice(alive, size=int(ends.sum()))]
    points.append(Points(obs, uniform, uniform, None))  # beyond the last step: worth nothing
    return Ground(rows, points, [every] * horizon, regression, {})


def prospects(
    network: World,
    starts: Rows,
    target: Policy | ContinuousPolicy,
    *,
    horizon: int,
    gamma: float,
    paths: int,
    rng: np.random.Generator,
) -> Prospects:
    """What followed in many imagined episodes of the target, to learn `foresight` from.

    Without the network's errors: they are left to the critics, and blur what there is to learn.

    Returns:
        Where the dynamics expected each step to lead [n, w], when [n], and what was earned and
        spent from there on [n, 2]; only steps after which the episode went on.
    """
    world = network.encoder.world
    share = starts.weight / starts.weight.sum()
    obs = np.asarray(starts.obs)[rng.choice(len(starts), size=paths, p=share)]
    going, steps = np.arange(paths), []
    for t in range(horizon):
        obs = _redrawn(target, obs, t, rng)
        action = _one_action(target, obs, t, rng)
        said = network.outlook(obs, action[:, None], t)
        on = rng.random(len(obs)) >= said.end[:, 0]
        steps.append(
            (going, on, said.ahead[on, 0].astype(np.float32), said.reward[:, 0], said.cost[:, 0])
        )
        following = obs[on]
        following[:, world] = said.ahead[on, 0]
        going, obs = going[on], following
        if not len(going):
            break
    after = np.zeros((paths, 2))
    found: list[Prospects] = []
    for t, (going, on, ahead, reward, cost) in reversed(list(enumerate(steps))):
        found.append((ahead, np.full(len(ahead), t), after[going[on]]))
        after[going] = np.column_stack([reward, cost]) + gamma * after[going]
    whens, wheres, whats = zip(*((when, where, what) for where, when, what in found), strict=True)
    return np.concatenate(wheres), np.concatenate(whens), np.concatenate(whats)


def recall(ground: Ground, networks: Sequence[World], foresights: Sequence[Foresight]) -> None:
    """Have the networks, and each one's foresight, remember the points of an imagined ground."""
    for t, points in enumerate(ground.points[:-1]):
        for network, foresight in zip(networks, foresights, strict=True):
            said = network.outlook(points.obs, points.actions, t)
            network.remember(points.obs, points.actions, t, said)
            foresight.remember(said.ahead, t)


def join(grounds: Sequence[Ground], networks: Sequence[World], regression: Regression) -> Ground:
    """Several imagined grounds as one; what the networks remember of them goes along."""
    rows = [Rows.joined(parts) for parts in zip(*(g.rows for g in grounds), strict=True)]
    points = []
    for parts in zip(*(g.points for g in grounds), strict=True):
        some = [p.actions for p in parts if p.actions is not None]
        points.append(
            Points(
                np.concatenate([p.obs for p in parts]),
                np.concatenate([p.initial for p in parts]) / len(parts),
                np.concatenate([p.logged for p in parts]) / len(parts),
                np.concatenate(some) if some else None,
            )
        )
    for t, whole in enumerate(points[:-1]):
        for network in networks:
            said = [network.outlook(g.points[t].obs, g.points[t].actions, t) for g in grounds]
            network.remember(whole.obs, whole.actions, t, Outlook.join(said))
    successor = [np.arange(len(part)) for part in rows]
    return Ground(rows, points, successor, regression, {})


def _redrawn(
    target: Policy | ContinuousPolicy, obs: Observations, t: int, rng: np.random.Generator
) -> Observations:
    return target.redraw(obs, t, rng) if isinstance(target, Redraws) else obs


def _one_action(
    target: Policy | ContinuousPolicy, obs: Observations, t: int, rng: np.random.Generator
) -> NDArray[Any]:
    """One draw of the target for each observation."""
    if isinstance(target, ContinuousPolicy):
        if isinstance(target, GaussianPolicy):  # cheaper than candidates
            return target.sample(obs, t, rng)
        return target.candidates(obs, t, rng).actions[:, 0]
    return _drawn(target.probs(obs, t), rng)


def _drawn(probs: Floats, rng: np.random.Generator) -> Ints:
    upto = np.cumsum(probs, axis=1)
    k = (rng.random((len(probs), 1)) * upto[:, -1:] >= upto).sum(axis=1)
    return np.asarray(np.minimum(k, probs.shape[1] - 1))

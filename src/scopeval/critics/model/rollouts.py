"""Episodes of the target policy in a model of the world, as data for a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints
from scopeval.critics.model.answer_cache import Outlook
from scopeval.critics.model.network import World
from scopeval.critics.model.return_features import Foresight
from scopeval.critics.protocols import Regression, Rows
from scopeval.critics.sweep_data import Ground, Points
from scopeval.policies.gaussian import GaussianPolicy
from scopeval.policies.protocols import ContinuousPolicy, Observations, Policy, Redraws, offer

__all__ = ["Prospects", "imagined", "join", "prospects", "recall"]


#: Where steps led, float32 [n, w], when [n], and what was earned and spent from there on [n, 2].
Prospects = tuple[NDArray[np.float32], Ints, Floats]


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

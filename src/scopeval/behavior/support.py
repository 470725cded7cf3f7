"""Support: which share of the target policy's own steps the logs show.

State numbers: the target policy is followed through the MDP that the logs show; a step is shown if
its pair of state and action was logged.

Vectors never repeat, so nearness decides. The logs are split by episodes. The distance from a step
to the nearest logged step of one part, with the same action, is compared with the distances of the
other part's steps, which the same controllers took: a step is shown if it is no farther than 99 %
of these (`USUAL`). So a target policy that acts like the controllers has a support of about 99 %,
whatever the units and however many dimensions there are. The target policy's steps are those of
episodes that are simulated in the models of the world. Without a model they are single steps, from
logged observations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.models.protocols import SweepData
from scopeval.models.rows import Log, Rows
from scopeval.policies.drawing import draw_actions
from scopeval.policies.protocols import ContinuousPolicy, Policy, offer, probs_of

__all__ = ["USUAL", "Steps", "simulated_steps", "single_steps", "table_support", "vector_support"]

#: Share of held-out logged steps that count as near the logs.
USUAL = 0.99
#: Most logged steps of a part that others are compared with, and
NEIGHBORS = 10_000
#: most steps that are compared with them.
COMPARED = 2_000


class Steps(NamedTuple):
    """Some steps: observations [n, d], and actions as numbers [n] or vectors [n, m]."""

    obs: Floats
    action: NDArray[np.generic]

    def select(self, which: Ints | Bools) -> Steps:
        """Some of them."""
        return Steps(self.obs[which], self.action[which])


def table_support(
    data: SweepData, log: Log, target: Policy | ContinuousPolicy, horizon: int
) -> float:
    """Support for state numbers.

    Borrowed rows lead on, but do not count as logged. Where nothing is known of a pair, all that
    would follow is lost.
    """
    A, points = log.actions, data.at(0)
    assert isinstance(target, Policy)
    S = len(points.obs)
    here = points.initial
    shown, total = 0.0, float(horizon)
    for t in range(horizon):
        rows = data.rows[min(t, len(data.rows) - 1)]
        pair = rows.obs * A + rows.action
        count = np.bincount(pair, rows.weight, S * A)
        logged = np.bincount(pair, rows.weight * ~rows.borrowed, S * A) > 0
        step = (here[:, None] * probs_of(target, points.obs, t)).ravel()
        shown += float(step @ logged)
        flow = step[pair] * rows.weight / count[pair]
        here = np.bincount(rows.next_obs, flow * rows.alive, S).astype(np.float64)
        total -= float(flow @ (1.0 - rows.alive)) * (horizon - 1 - t)  # over: no logs needed
    return float(shown / max(total, 1e-12))


def vector_support(rows: Rows, steps: Steps, seed: int = 0) -> float:
    """Share of the steps that are as near to the logs as held-out logged steps are.

    Args:
        rows: of the log, those of an episode one after the other.
        steps: of the target policy.
        seed: of the rows that are compared, if there are many.
    """
    rng = np.random.default_rng((seed, 25))
    logged = Steps(np.asarray(rows.obs, np.float64), rows.action)
    logged, steps = _in_units(logged, steps)
    part = _parts(rows.t)
    steps = steps.select(_some(np.arange(len(steps.obs)), COMPARED, rng))
    shown = []
    for k in range(2):
        near = logged.select(_some(np.flatnonzero(part == k), NEIGHBORS, rng))
        held_out = logged.select(_some(np.flatnonzero(part != k), COMPARED, rng))
        usual = np.quantile(_distances(near, held_out), USUAL, method="higher")
        far = _distances(near, steps)
        shown.append(float(np.mean((far <= usual) & (far < np.inf))))
    return float(np.mean(shown))


def simulated_steps(data: SweepData, seed: int) -> Steps:
    """Steps of simulated episodes of the target policy, as often as the policy takes them.

    Episodes that end are replaced by others, so the rows of a time step stand for the share of
    episodes that last until then.
    """
    rng = np.random.default_rng((seed, 26))
    share, lasting = [], 1.0
    for rows in data.rows:
        share.append(lasting)
        lasting *= float(rows.alive.mean())
    counts = rng.multinomial(COMPARED, np.array(share) / np.sum(share))
    taken = [
        (rows, rng.integers(len(rows), size=count))
        for rows, count in zip(data.rows, counts, strict=True)
    ]
    obs = [np.asarray(rows.obs, np.float64)[which] for rows, which in taken]
    return Steps(np.concatenate(obs), np.concatenate([rows.action[which] for rows, which in taken]))


def single_steps(rows: Rows, target: Policy | ContinuousPolicy, seed: int) -> Steps:
    """What the target policy would do at some of the logged observations."""
    rng = np.random.default_rng((seed, 26))
    some = _some(np.arange(len(rows)), COMPARED, rng)
    found = []
    for t in np.unique(rows.t[some]):  # a policy is asked for one time step at once
        obs = np.asarray(rows.obs, np.float64)[some[rows.t[some] == t]]
        offered = offer(target, obs, int(t), rng)
        taken = draw_actions(offered.probs, rng.random(len(obs)))
        found.append(Steps(obs, offered.actions[np.arange(len(obs)), taken]))
    return Steps(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _in_units(logged: Steps, steps: Steps) -> tuple[Steps, Steps]:
    """Observations, with actions that are vectors, in units of their spread in the logs."""

    def joined(some: Steps) -> Floats:
        if some.action.ndim == 1:
            return some.obs
        return np.concatenate([some.obs, np.asarray(some.action, np.float64)], axis=1)

    points, others = joined(logged), joined(steps)
    scale = points.std(axis=0)
    # what never varies has no unit of its own: any other value is far away
    scale = np.where(scale > 1e-9 * np.abs(points).max(axis=0), scale, 1e-9)
    numbers = [
        some.action if some.action.ndim == 1 else np.zeros(len(some.action), np.int64)
        for some in (logged, steps)
    ]
    return Steps(points / scale, numbers[0]), Steps(others / scale, numbers[1])


def _parts(times: Ints) -> Ints:
    """Every other episode, for steps in one episode are near each other. [n] of 0 or 1."""
    starts = np.append(True, np.diff(times) <= 0)
    part = (np.cumsum(starts) - 1) % 2
    if part.any():
        return part
    return (np.arange(len(times)) >= len(times) // 2).astype(np.int64)  # a single episode


def _some(places: Ints, most: int, rng: np.random.Generator) -> Ints:
    """At most so many of them, in their order."""
    if len(places) <= most:
        return places
    return np.sort(rng.choice(places, most, replace=False))


def _distances(near: Steps, steps: Steps) -> Floats:
    """[n] from each step to the nearest one with the same action; infinite if there is none."""
    from scipy.spatial import KDTree

    found = np.full(len(steps.obs), np.inf)
    for action in np.unique(steps.action):
        same = near.obs[near.action == action]
        asked = np.flatnonzero(steps.action == action)
        if len(same):
            found[asked] = KDTree(same).query(steps.obs[asked])[0]
    return found

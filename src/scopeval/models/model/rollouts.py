"""Episodes of the target policy, simulated in a model of the world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.models.model.return_features import ReturnSamples
from scopeval.models.model.step_model import StepModel, StepPrediction, Weights
from scopeval.models.protocols import Rows
from scopeval.policies.drawing import draw_actions
from scopeval.policies.gaussian import GaussianPolicy
from scopeval.policies.protocols import (
    ContinuousPolicy,
    Observations,
    Policy,
    Redraws,
    offer,
    probs_of,
)

__all__ = [
    "Rollouts",
    "first_observations",
    "redrawn",
    "sample_returns",
    "simulate_episodes",
]


@dataclass(frozen=True)
class Rollouts:
    """Simulated episodes, one entry for each time step.

    Attributes:
        obs: T + 1 entries [paths, d]; the last is what follows the last step.
        candidates: [paths, K, m] offered there; None: all actions of a finite set.
        predictions: of the model in which they were simulated.
        taken: [paths] which of the actions was taken.
        rows: the steps that were taken; row i leads to observation i of the next step.
    """

    obs: list[Observations]
    candidates: list[NDArray[Any] | None]
    predictions: list[StepPrediction]
    taken: list[Ints]
    rows: list[Rows]


def simulate_episodes(
    model: StepModel,
    starts: Rows,
    target: Policy | ContinuousPolicy,
    *,
    horizon: int,
    paths: int,
    rng: np.random.Generator,
) -> Rollouts:
    """Episodes of the target policy, from where logged episodes start.

    An episode that ends is replaced by a copy of one that goes on, so that every step has enough
    rows. That it ended is in the rows' `alive`.
    """
    found = Rollouts([first_observations(starts, paths, rng)], [], [], [], [])
    every = np.arange(paths)
    for t in range(horizon):
        obs = found.obs[t] = redrawn(target, found.obs[t], t, rng)
        offered = offer(target, obs, t, rng)
        candidates = None if offered.actions.ndim == 2 else offered.actions
        ahead = model.predict(obs, candidates, t)
        # candidates are draws already, so the first will do; of a finite set, draw one
        taken = (
            np.zeros(paths, np.int64)
            if candidates is not None
            else draw_actions(offered.probs, rng.random(paths))
        )
        ends = rng.random(paths) < ahead.end[every, taken]
        following = obs.copy()
        action = np.ascontiguousarray(offered.actions[every, taken])
        wrong = model.draw_errors(obs, action, t, rng)
        following[:, model.encoder.predicted] = np.clip(
            model.settle(ahead.next_obs[every, taken] + wrong), model.low, model.high
        )
        found.candidates.append(candidates)
        found.predictions.append(ahead)
        found.taken.append(taken)
        found.rows.append(
            Rows(
                t=np.full(paths, t),
                obs=obs,
                action=action,
                reward=ahead.reward[every, taken],
                reward_noise=np.full(paths, model.reward_noise),
                cost=ahead.cost[every, taken],
                next_obs=following,
                alive=np.where(ends, 0.0, 1.0),
                weight=np.ones(paths),
                borrowed=np.zeros(paths, np.bool_),
            )
        )
        alive = np.flatnonzero(~ends)
        after = following.copy()
        if len(alive):
            after[ends] = following[rng.choice(alive, size=int(ends.sum()))]
        found.obs.append(after)
    return found


class _Taken(NamedTuple):
    """One step of the episodes that had not ended."""

    path: Ints  # [n] which they are
    goes_on: Bools  # [n]
    next_obs: Weights  # of those that go on
    reward: Floats  # [n]
    cost: Floats  # [n]


def sample_returns(
    model: StepModel,
    starts: Rows,
    target: Policy | ContinuousPolicy,
    *,
    horizon: int,
    gamma: float,
    paths: int,
    rng: np.random.Generator,
) -> ReturnSamples:
    """What followed each step of many simulated episodes, to learn return features from.

    Without the model's errors: the critics account for them, and here they would only add noise.
    Only steps after which the episode went on are returned.
    """
    obs, path, steps = first_observations(starts, paths, rng), np.arange(paths), []
    for t in range(horizon):
        obs = redrawn(target, obs, t, rng)
        action = _one_action(target, obs, t, rng)
        said = model.predict(obs, action[:, None], t)
        on = rng.random(len(obs)) >= said.end[:, 0]
        ahead = said.next_obs[on, 0]
        reward, cost = said.reward[:, 0], said.cost[:, 0]
        steps.append(_Taken(path, on, ahead.astype(np.float32), reward, cost))
        following = obs[on]
        following[:, model.encoder.predicted] = np.clip(model.settle(ahead), model.low, model.high)
        path, obs = path[on], following
        if not len(path):
            break
    after = np.zeros((paths, 2))
    found: list[ReturnSamples] = []
    for t, step in reversed(list(enumerate(steps))):
        count = len(step.next_obs)
        found.append(
            ReturnSamples(step.next_obs, np.full(count, t), after[step.path[step.goes_on]])
        )
        after[step.path] = np.column_stack([step.reward, step.cost]) + gamma * after[step.path]
    return ReturnSamples(
        np.concatenate([part.next_obs for part in found]),
        np.concatenate([part.t for part in found]),
        np.concatenate([part.returns for part in found]),
    )


def first_observations(starts: Rows, paths: int, rng: np.random.Generator) -> Observations:
    """First observations, drawn as often as they were logged."""
    share = starts.weight / starts.weight.sum()
    return np.asarray(starts.obs)[rng.choice(len(starts), size=paths, p=share)]


def redrawn(
    target: Policy | ContinuousPolicy, obs: Observations, t: int, rng: np.random.Generator
) -> Observations:
    """Observations with the entries that the target policy draws itself drawn anew, if any."""
    return target.redraw(obs, t, rng) if isinstance(target, Redraws) else obs


def _one_action(
    target: Policy | ContinuousPolicy, obs: Observations, t: int, rng: np.random.Generator
) -> NDArray[Any]:
    """One draw of the target policy for each observation."""
    if isinstance(target, ContinuousPolicy):
        if isinstance(target, GaussianPolicy):  # cheaper than candidates
            return target.sample(obs, t, rng)
        return target.candidates(obs, t, rng).actions[:, 0]
    return draw_actions(probs_of(target, obs, t), rng.random(len(obs)))

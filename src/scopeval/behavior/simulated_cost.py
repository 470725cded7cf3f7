"""The cost of a design for vectors, from episodes of the behavior policy in the model of the world.

The critics of a sweep are fitted where the target policy goes. A behavior policy goes elsewhere,
and chooses what looks cheap there, so its cost by these critics is too low by some per cent on
average. Episodes of mu itself, simulated in the same model, have no such error, only chance. Most
of that is taken away by the critics: for any estimate q of the cost from (s, a) on,

    cost of an episode - sum_t (q_t(s_t, a_t) - sum_a mu_t(a | s_t) q_t(s_t, a))

has the same mean, and hardly varies with the actions if q is good. Episodes of mu and pi begin at
the same observations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats
from scopeval.behavior.candidates import Design
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.step import weigh_rows
from scopeval.behavior.thresholds import SLACK
from scopeval.models.dynamics import StepModel
from scopeval.models.model_critic import ModelCritic
from scopeval.models.networks import Networks, first_observations, redrawn
from scopeval.models.simulator import Simulator
from scopeval.policies.drawing import draw_actions
from scopeval.policies.protocols import Observations, offer

__all__ = ["SimulatedCost", "simulated_cost", "with_simulated_cost"]


class SimulatedCost(NamedTuple):
    """Relative cost of a design, and its standard error."""

    cost: float
    error: float


def with_simulated_cost(evidence: Evidence, design: Design) -> Design:
    """The design with its simulated cost; one standard error is added to the doubt about it.

    As many episodes as the critics have serve for a cost that is clearly within its budget, and
    four times as many otherwise. Nothing changes without a learned model, or where the target
    policy itself is run.
    """
    regression = evidence.regression
    if not isinstance(regression, Networks) or not design.recipe.method.constrained:
        return design
    if design.recipe.floor >= 1.0 or not regression.simulates_costs:
        return design
    if isinstance(regression.dynamics, Simulator):  # its steps may take long
        return design
    allowed = 1.0 + design.recipe.epsilon + SLACK
    simulated = simulated_cost(evidence, design, regression.paths)
    if simulated.cost + 2.0 * simulated.error > allowed:
        simulated = simulated_cost(evidence, design, 4 * regression.paths)
    return replace(design, cost=simulated.cost, doubt=design.doubt + simulated.error)


def simulated_cost(evidence: Evidence, design: Design, paths: int) -> SimulatedCost:
    """Simulate episodes of mu, and as many of pi, in the mean of the models of both halves."""
    mine = _episodes(evidence, design, paths, own=False)
    target = _episodes(evidence, design, paths, own=True)
    mean = float(target.mean())
    if not mean > 0.0:
        return SimulatedCost(design.cost, 0.0)
    cost = float(mine.mean()) / mean
    apart = mine - cost * target  # both begin at the same observations
    return SimulatedCost(cost, float(apart.std(ddof=1)) / np.sqrt(len(apart)) / mean)


def _episodes(evidence: Evidence, design: Design, paths: int, *, own: bool) -> Floats:
    """Costs of episodes, less the chance of their actions; `own`: of the target policy."""
    target, gamma = evidence.target, design.recipe.gamma
    rng = np.random.default_rng((evidence.seed, 27))
    obs = first_observations(evidence.log.starts, paths, rng)
    total, going, discount = np.zeros(paths), np.arange(paths), 1.0
    for t, critic in enumerate(design.swept.critics):
        assert isinstance(critic, ModelCritic)
        obs = redrawn(target, obs, t, rng)
        offered = offer(target, obs, t, rng)
        candidates = None if offered.actions.ndim == 2 else offered.actions
        ahead = critic.dynamics.predict(obs, candidates, t)
        e = critic.given(obs, ahead, critic.model.returns.at(ahead.next_obs, t))
        mu, q = offered.probs, e.cost_target
        if not own:
            mu, q = weigh_rows(design.recipe, mu, e).mu, e.cost_behavior[..., -1]
        every, taken = np.arange(len(obs)), draw_actions(mu, rng.random(len(obs)))
        expected = (mu * q).sum(axis=1) - q[every, taken]
        total[going] += discount * (ahead.cost[every, taken] + expected)
        discount *= gamma
        goes_on = np.flatnonzero(rng.random(len(obs)) >= ahead.end[every, taken])
        action = np.ascontiguousarray(offered.actions[every, taken])
        following = obs.copy()
        wrong = _errors(critic.dynamics.networks, going, obs, action, t, rng)
        predicted, models = critic.dynamics.encoder.predicted, critic.dynamics.networks
        said = _own([m.settle(ahead.next_obs[every, taken] + wrong) for m in models], going)
        following[:, predicted] = np.clip(said, models[0].low, models[0].high)
        obs, going = following[goes_on], going[goes_on]
        if not len(going):
            break
    return total


def _errors(
    models: tuple[StepModel, ...],
    number: NDArray[np.int64],
    obs: Observations,
    action: NDArray[Any],
    t: int,
    rng: np.random.Generator,
) -> Floats:
    """Errors of the next observation: of each model for its share of the episodes."""
    return _own([model.draw_errors(obs, action, t, rng) for model in models], number)


def _own(said: list[Floats], number: NDArray[np.int64]) -> Floats:
    """What each of the models says [n, w] for its share of the episodes, which have numbers [n]."""
    return np.asarray(np.stack(said)[number % len(said), np.arange(len(number))])

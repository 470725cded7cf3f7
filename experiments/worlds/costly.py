"""Worlds in which a verdict about the cost is easily wrong, and an ordinary one.

Each world is known exactly: the law of an episode's cost and weight under the behavior policy, the
true ratio of expected costs, and the most that an episode can cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scopeval.arrays import Floats
from scopeval.question.promise import Bound
from scopeval.safety.cost_bound import CostBound, cost_bound_of
from scopeval.safety.costs import EpisodeCosts

__all__ = [
    "WORLDS",
    "VerdictWorld",
    "heavy_weights",
    "ordinary",
    "rare_disaster",
    "skewed_costs",
    "too_expensive",
]


@dataclass(frozen=True)
class VerdictWorld:
    """A world with a known truth.

    Attributes:
        name: in tables.
        ratio: J^c(mu) / J^c(pi), exact.
        bound: what can be stated about its costs.
        draw: (rng, n) -> the costs of n episodes of the behavior policy.
    """

    name: str
    ratio: float
    bound: CostBound
    draw: Callable[[np.random.Generator, int], EpisodeCosts]


def _one_step(name: str, pi: Floats, mu: Floats, costs: list[Floats]) -> VerdictWorld:
    """One decision; `costs` holds for every action its equally likely costs."""
    means = np.array([atoms.mean() for atoms in costs])
    bound = CostBound(float(max(atoms.max() for atoms in costs)))

    def draw(rng: np.random.Generator, n: int) -> EpisodeCosts:
        action = rng.choice(len(mu), p=mu, size=n)
        cost = np.empty(n)
        for a, atoms in enumerate(costs):
            rows = np.flatnonzero(action == a)
            cost[rows] = rng.choice(atoms, size=len(rows))
        weight = (pi / mu)[action]
        return EpisodeCosts(cost, weight * cost, weight, weight)

    return VerdictWorld(name, float(mu @ means / (pi @ means)), bound, draw)


def rare_disaster() -> VerdictWorld:
    """An action that costs 1000 with probability .005, and nothing else.

    The behavior policy takes it 3.5 times as often as the target, and saves 4.4 % on all else: it
    costs 1.114 times the target, and looks cheaper until the first disaster.
    """
    pi = np.array([0.6, 0.0404, 0.3596])
    mu = np.array([0.6 * 0.9556, 0.14, 0.0])
    mu[2] = 1.0 - mu.sum()
    disaster = np.zeros(200)
    disaster[0] = 1000.0
    return _one_step("rare disaster", pi, mu, [np.array([5.0]), disaster, np.array([0.0])])


def skewed_costs() -> VerdictWorld:
    """An action whose cost is log-normal with log-deviation 3, cut at its .9995 quantile.

    The behavior policy takes it less often: it costs .962 times the target, and looks more
    expensive until a large cost has been seen.
    """
    from scipy.special import ndtri

    atoms = np.exp(3.0 * ndtri((np.arange(1000) + 0.5) / 1000))
    usual = 30.0
    saved = 0.038 * (usual + atoms.mean()) / 2 / (atoms.mean() - usual)
    pi, mu = np.array([0.5, 0.5]), np.array([0.5 + saved, 0.5 - saved])
    return _one_step("skewed costs", pi, mu, [np.array([usual]), atoms])


def heavy_weights() -> VerdictWorld:
    """Eight steps whose cost does not depend on the action: the ratio is exactly 1.

    The behavior policy takes one of two equally likely actions in 80 % of the steps, so that
    weights range from .02 to 1,500.
    """
    steps = 8
    bound = cost_bound_of(Bound(step=1.0), horizon=steps)
    assert bound is not None

    def draw(rng: np.random.Generator, n: int) -> EpisodeCosts:
        cost = (rng.random((n, steps)) < 0.3).astype(np.float64)
        ratio = np.where(rng.random((n, steps)) < 0.8, 0.5 / 0.8, 0.5 / 0.2)
        weights: Floats = np.cumprod(ratio, axis=1, dtype=np.float64)
        return EpisodeCosts(
            cost.sum(axis=1), (weights * cost).sum(axis=1), weights[:, -1], weights.sum(axis=1)
        )

    return VerdictWorld("heavy weights", 1.0, bound, draw)


def ordinary() -> VerdictWorld:
    """Eight steps, two actions that cost 1 with probability .2 and .4, and a mild tilt.

    The behavior policy takes the cheap one in 60 % of the steps instead of 45 %: it costs .903
    times the target. Nothing is rare here; it shows what care costs.
    """
    return _two_actions("ordinary", np.array([0.45, 0.55]), np.array([0.6, 0.4]))


def too_expensive() -> VerdictWorld:
    """The same with both policies exchanged: the behavior policy costs 1.107 times the target.

    It shows what care costs the guard.
    """
    return _two_actions("too expensive", np.array([0.6, 0.4]), np.array([0.45, 0.55]))


def _two_actions(name: str, pi: Floats, mu: Floats) -> VerdictWorld:
    """Eight steps with two actions that cost 1 with probability .2 and .4."""
    steps = 8
    bound = cost_bound_of(Bound(step=1.0), horizon=steps)
    assert bound is not None
    chance = np.array([0.2, 0.4])

    def draw(rng: np.random.Generator, n: int) -> EpisodeCosts:
        action = (rng.random((n, steps)) >= mu[0]).astype(np.int64)
        cost = (rng.random((n, steps)) < chance[action]).astype(np.float64)
        weights: Floats = np.cumprod((pi / mu)[action], axis=1, dtype=np.float64)
        return EpisodeCosts(
            cost.sum(axis=1), (weights * cost).sum(axis=1), weights[:, -1], weights.sum(axis=1)
        )

    return VerdictWorld(name, float(mu @ chance / (pi @ chance)), bound, draw)


#: Name -> world, in the order of tables.
WORLDS: dict[str, Callable[[], VerdictWorld]] = {
    "rare disaster": rare_disaster,
    "skewed costs": skewed_costs,
    "heavy weights": heavy_weights,
    "ordinary": ordinary,
    "too expensive": too_expensive,
}

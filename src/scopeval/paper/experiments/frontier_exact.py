"""The frontier of variance and cost with exact values: how far below the target's own cost?

For every target policy and every asked cost, relative to the target's own, the least relative
variance of three families of behavior policies:

- ``weight-aware``: `exact.frontier` with b = q, each design within the cap on weights;
- ``weight-blind``: the best that know the state and the time only (`exact.improve_blind`), with
  b = q;
- ``b = 0``: `exact.frontier` without a control variate, its curve without the cap.

Beside them the least cost at no more than the target's own variance, and the least product of
variance and cost. The worlds are the paper's Gridworld and Gymnasium's finite environments; the
targets there are a softmax of the optimal values, from nearly optimal (mild) to nearly random
(wild).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from scopeval import exact
from scopeval.arrays import Floats, check_whole, is_number
from scopeval.envs.gridworld import COST_LAWS, Gridworld, target_policies
from scopeval.errors import InputError
from scopeval.exact import Frontier, TabularMDP
from scopeval.paper.backends.shards import ShardOptions, run_shards
from scopeval.paper.experiments.foreign_worlds import FINITE, finite_world
from scopeval.paper.results import Result, Statistic
from scopeval.policies.adapters import TabularPolicy

__all__ = ["ENVIRONMENTS", "FAMILIES", "TEMPERS", "Config", "FrontierBlock", "run", "world_of"]

FAMILIES = ("weight-aware", "weight-blind", "b = 0")
TEMPERS = ("mild", "medium", "wild")


@dataclass(frozen=True)
class Environment:
    """A finite environment: its horizon, and beta of the softmax of each of `TEMPERS`."""

    horizon: int
    betas: tuple[float, float, float]


ENVIRONMENTS = {
    "FrozenLake": Environment(60, (10.0, 3.0, 1.0)),
    "CliffWalking": Environment(40, (1.0, 0.3, 0.1)),
    "Taxi": Environment(20, (3.0, 1.0, 0.3)),
    "Blackjack": Environment(10, (3.0, 1.0, 0.3)),
}
assert set(ENVIRONMENTS) <= set(FINITE)


@dataclass(frozen=True)
class Config:
    """What to compute."""

    sizes: tuple[int, ...] = (10, 30)
    """Sizes of the Gridworld: cells along one side, also the horizon."""
    cost_laws: tuple[str, ...] = COST_LAWS
    """How its costs are drawn, see `envs.gridworld`."""
    targets: int = 30
    """Number of target policies of each Gridworld, each in its own world."""
    environments: tuple[str, ...] = tuple(ENVIRONMENTS)
    """Finite environments of Gymnasium."""
    asked: tuple[float, ...] = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
    """Costs, relative to the target's own."""
    cap: float = 30.0
    """Largest weight of an episode."""
    seed: int = 0
    """Target k is in world seed + k."""

    def __post_init__(self) -> None:
        check_whole("targets", self.targets, 1)
        check_whole("seed", self.seed, 0)
        for size in self.sizes:
            for law in self.cost_laws:
                Gridworld(size, law)
        for name in self.environments:
            if name not in ENVIRONMENTS:
                raise InputError(
                    f"environments: got {name!r}, expected some of {', '.join(ENVIRONMENTS)}"
                )
        for cost in self.asked:
            if not (is_number(cost) and cost > 0):
                raise InputError(f"asked: got {cost!r}, expected relative costs > 0")

    @property
    def shards(self) -> tuple[Shard, ...]:
        """One for each target, in the order of the blocks."""
        same = (self.seed, self.asked, self.cap)
        grids = [
            Shard(f"{size} x {size}, {law}", k, *same, size, law)
            for size in self.sizes
            for law in self.cost_laws
            for k in range(self.targets)
        ]
        others = [Shard(name, k, *same) for name in self.environments for k in range(len(TEMPERS))]
        return (*grids, *others)


@dataclass(frozen=True)
class Shard:
    """One target; everything that its results depend on."""

    world: str
    target: int
    seed: int
    asked: tuple[float, ...]
    cap: float
    size: int = 0
    cost_law: str = ""

    @property
    def label(self) -> str:
        """The name used in messages."""
        return f"{self.world}, target {self.target}"


@dataclass(frozen=True)
class FrontierBlock:
    """All families in one world.

    Attributes:
        title: of the world.
        targets: names of the targets.
        asked: costs, [K].
        variance: family -> relative variance [targets, K]; NaN where no design is that cheap.
        cost: family -> relative cost [targets, K], likewise.
        even: least relative cost at no more than the target's own variance, [targets].
        product: least product of relative variance and cost, [targets].
    """

    title: str
    targets: tuple[str, ...]
    asked: tuple[float, ...]
    variance: dict[str, Floats] = field(repr=False)
    cost: dict[str, Floats] = field(repr=False)
    even: Floats = field(repr=False)
    product: Floats = field(repr=False)

    def statistic(self, family: str, k: int) -> Statistic:
        """Relative variance at the k-th asked cost, of the targets that have a design there."""
        values = self.variance[family][:, k]
        return Statistic(values[np.isfinite(values)])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "world": self.title,
            "families": {
                family: [
                    {
                        "asked": asked,
                        "targets": len(found.values),
                        "relative_variance": found.as_dict() if len(found.values) else None,
                        "relative_cost": _listed(self.cost[family][:, k]),
                    }
                    for k, asked in enumerate(self.asked)
                    for found in (self.statistic(family, k),)
                ]
                for family in FAMILIES
            },
            "cost_at_equal_variance": _listed(self.even),
            "least_product": _listed(self.product),
        }

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """For Parquet: every number, target by target."""
        rows = [
            {
                "world": self.title,
                "target": target,
                "family": family,
                "asked": asked,
                "relative_variance": float(self.variance[family][i, k]),
                "relative_cost": float(self.cost[family][i, k]),
            }
            for i, target in enumerate(self.targets)
            for family in FAMILIES
            for k, asked in enumerate(self.asked)
        ]
        return {"frontier": rows}


def run(
    config: Config, *, folder: str | os.PathLike[str], **how: Unpack[ShardOptions]
) -> Result[Config, FrontierBlock]:
    """Compute everything; a pure function of the config (see `run_shards` for the rest)."""
    shards = config.shards
    answers = run_shards(trace_frontiers, shards, folder=folder, **how)
    worlds = dict.fromkeys(shard.world for shard in shards)
    blocks = []
    for world in worlds:
        found = [(s, a) for s, a in zip(shards, answers, strict=True) if s.world == world]
        names = tuple(str(s.target) if s.size else TEMPERS[s.target] for s, _ in found)
        points = {
            family: np.array([a[family] for _, a in found], np.float64) for family in FAMILIES
        }
        blocks.append(
            FrontierBlock(
                title=world if world in ENVIRONMENTS else f"Gridworld {world}",
                targets=names,
                asked=config.asked,
                variance={family: x[:, :, 0] for family, x in points.items()},
                cost={family: x[:, :, 1] for family, x in points.items()},
                even=np.array([a["even"] for _, a in found], np.float64),
                product=np.array([a["product"] for _, a in found], np.float64),
            )
        )
    return Result("frontier", config, tuple(blocks))


def trace_frontiers(shard: Shard) -> dict[str, Any]:
    """The work of one shard: (variance, cost) for each family and asked cost, or (None, None)."""
    mdp, target = world_of(shard.world, shard.target, shard.seed, shard.size, shard.cost_law)
    curve = exact.frontier(mdp, target, cap=shard.cap, threads=1)
    plain = exact.frontier(mdp, target, control_variate="none", cap=None, threads=1)
    best = curve.best().predicted
    even = _point(curve, variance=1.0)
    blind = _blind_curve(mdp, target, curve, min(shard.asked))
    return {
        "weight-aware": [_point(curve, cost=asked) for asked in shard.asked],
        "weight-blind": [_read(*blind, asked) for asked in shard.asked],
        "b = 0": [
            _read(plain.prices, plain.relative_variance, plain.relative_cost, asked)
            for asked in shard.asked
        ],
        "even": even[1],
        "product": best.relative_variance * best.relative_cost,
    }


def world_of(
    world: str, target: int, seed: int, size: int = 0, cost_law: str = ""
) -> tuple[TabularMDP, TabularPolicy]:
    """The model of a Gridworld of this size (0: of an environment by name), and a target."""
    if size:
        mdp = Gridworld(size, cost_law, seed + target).mdp()
        return mdp, target_policies(target + 1, size, seed=seed)[target]
    about = ENVIRONMENTS[world]
    mdp = finite_world(world).mdp.shortened(about.horizon)
    return mdp, softmax_target(mdp, about.betas[target])


def softmax_target(mdp: TabularMDP, beta: float) -> TabularPolicy:
    """pi_t(a | s) proportional to exp(beta (Q* - V*) / scale), scale the mean gap of Q*."""
    q = np.empty((mdp.horizon, mdp.states, mdp.actions))
    best = np.zeros(mdp.states)
    for t in reversed(range(mdp.horizon)):
        q[t] = mdp.at("reward", t) + mdp.gamma * mdp.expect(best)
        best = q[t].max(axis=1)
    gap = q - q.max(axis=2, keepdims=True)
    mean = -gap.mean(axis=2)
    scale = float(mean[mean > 1e-9].mean())
    weight = np.exp(beta * gap / scale)
    return TabularPolicy(weight / weight.sum(axis=2, keepdims=True))


def _point(
    curve: Frontier, *, cost: float | None = None, variance: float | None = None
) -> tuple[float | None, float | None]:
    """A design's relative variance and cost, or nothing where there is none."""
    try:
        found = curve.at(cost=cost, variance=variance).predicted
    except InputError:  # nothing within the cap is that cheap, or that precise
        return None, None
    return found.relative_variance, found.relative_cost


def _blind_curve(
    mdp: TabularMDP, target: TabularPolicy, curve: Frontier, least: float
) -> tuple[Floats, Floats, Floats]:
    """Prices, relative variance and relative cost of designs that know no weights.

    Each price begins with what was found for the one below. The curve ends where the least of the
    asked costs is reached.
    """
    own, found, points = curve.own, None, []
    for price in curve.prices:
        found = exact.improve_blind(mdp, target, float(price), start=found)
        points.append(exact.assess(mdp, target, found))
        if points[-1].cost <= least * own.cost and len(points) > 1:
            break
    variance = np.array([point.variance for point in points]) / (own.variance or 1.0)
    cost = np.array([point.cost for point in points]) / (own.cost or 1.0)
    return curve.prices[: len(points)], variance, cost


def _read(
    prices: Floats, variance: Floats, cost: Floats, asked: float
) -> tuple[float | None, float | None]:
    """The least variance at no more than a cost, between the points of a curve."""
    from scipy.interpolate import PchipInterpolator

    places = np.log(prices)
    fine = np.linspace(places[0], places[-1], 64 * len(places))
    between = [PchipInterpolator(places, x)(fine) for x in (variance, cost)]
    within = between[1] <= asked
    if not within.any():
        return None, None
    k = int(np.argmin(np.where(within, between[0], np.inf)))
    return float(between[0][k]), float(between[1][k])


def _listed(values: Sequence[float] | Floats) -> list[float | None]:
    """For JSON, which has no NaN."""
    return [float(x) if np.isfinite(x) else None for x in values]

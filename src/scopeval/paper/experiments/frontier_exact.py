"""The frontier of variance and cost with exact values: how far below the target's own cost?

For every target policy and every asked cost, relative to the target's own, the least relative
variance of three families of behavior policies:

- ``weight-aware``: `exact.frontier` with b = q, each design within the cap on weights;
- ``weight-blind``: the best that know the state and the time only (`exact.improve_blind`), with
  b = q;
- ``b = 0``: `exact.frontier` without a control variate, its curve without the cap.

Beside them the least cost at no more than the target's own variance, and the least product of
variance and cost. Worlds and targets are those of `frontier_worlds`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from scopeval import exact
from scopeval.arrays import Floats
from scopeval.errors import InputError
from scopeval.exact import Frontier, TabularMDP
from scopeval.paper.backends.shards import ShardOptions, run_shards
from scopeval.paper.experiments.frontier_worlds import Place, Worlds, by_world
from scopeval.paper.results import Result, Statistic
from scopeval.policies.adapters import TabularPolicy

__all__ = ["FAMILIES", "Config", "FrontierBlock", "run"]

FAMILIES = ("weight-aware", "weight-blind", "b = 0")


@dataclass(frozen=True)
class Config(Worlds):
    """What to compute."""

    cap: float = 30.0
    """Largest weight of an episode."""

    @property
    def shards(self) -> tuple[Shard, ...]:
        """One for each target, in the order of the blocks."""
        return tuple(Shard(place, self.asked, self.cap) for place in self.places)


@dataclass(frozen=True)
class Shard:
    """One target; everything that its results depend on."""

    place: Place
    asked: tuple[float, ...]
    cap: float

    @property
    def label(self) -> str:
        """The name used in messages."""
        return self.place.label


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
    answers = run_shards(trace_frontiers, config.shards, folder=folder, **how)
    blocks = []
    for title, names, found in by_world(config.places, answers):
        points = {family: np.array([a[family] for a in found], np.float64) for family in FAMILIES}
        blocks.append(
            FrontierBlock(
                title=title,
                targets=names,
                asked=config.asked,
                variance={family: x[:, :, 0] for family, x in points.items()},
                cost={family: x[:, :, 1] for family, x in points.items()},
                even=np.array([a["even"] for a in found], np.float64),
                product=np.array([a["product"] for a in found], np.float64),
            )
        )
    return Result("frontier", config, tuple(blocks))


def trace_frontiers(shard: Shard) -> dict[str, Any]:
    """The work of one shard: (variance, cost) for each family and asked cost, or (None, None)."""
    mdp, target = shard.place.model()
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

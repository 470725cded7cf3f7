"""Worlds and target policies of the experiments about the frontier.

The paper's Gridworld and Gymnasium's finite environments; the targets there are a softmax of the
optimal values, from nearly optimal (mild) to nearly random (wild).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from scopeval.arrays import check_whole, is_number
from scopeval.envs.gridworld import COST_LAWS, Gridworld, target_policies
from scopeval.errors import InputError
from scopeval.exact import TabularMDP
from scopeval.paper.experiments.foreign_worlds import FINITE, finite_world
from scopeval.policies.adapters import TabularPolicy

__all__ = ["ENVIRONMENTS", "TEMPERS", "Place", "Worlds", "by_world", "softmax_target"]

Answer = TypeVar("Answer")

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
class Place:
    """A world, and one of its targets."""

    world: str
    target: int
    seed: int
    size: int = 0
    """Of a Gridworld; 0: the world is an environment's name."""
    cost_law: str = ""

    @property
    def label(self) -> str:
        """The name used in messages."""
        return f"{self.world}, target {self.target}"

    @property
    def title(self) -> str:
        """The name of the world in tables."""
        return f"Gridworld {self.world}" if self.size else self.world

    @property
    def name(self) -> str:
        """The name of the target in tables."""
        return str(self.target) if self.size else TEMPERS[self.target]

    def model(self) -> tuple[TabularMDP, TabularPolicy]:
        """The world as a model, and the target."""
        if self.size:
            mdp = Gridworld(self.size, self.cost_law, self.seed + self.target).mdp()
            return mdp, target_policies(self.target + 1, self.size, seed=self.seed)[self.target]
        about = ENVIRONMENTS[self.world]
        mdp = finite_world(self.world).mdp.shortened(about.horizon)
        return mdp, softmax_target(mdp, about.betas[self.target])


@dataclass(frozen=True)
class Worlds:
    """What every experiment about the frontier is told."""

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
    def places(self) -> tuple[Place, ...]:
        """All targets, world by world."""
        grids = [
            Place(f"{size} x {size}, {law}", k, self.seed, size, law)
            for size in self.sizes
            for law in self.cost_laws
            for k in range(self.targets)
        ]
        others = [
            Place(name, k, self.seed) for name in self.environments for k in range(len(TEMPERS))
        ]
        return (*grids, *others)


def by_world(
    places: Sequence[Place], answers: Sequence[Answer]
) -> Iterator[tuple[str, tuple[str, ...], list[Answer]]]:
    """For each world: its title, the names of its targets, and their answers."""
    for title in dict.fromkeys(place.title for place in places):
        found = [(p, a) for p, a in zip(places, answers, strict=True) if p.title == title]
        yield title, tuple(p.name for p, _ in found), [a for _, a in found]


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

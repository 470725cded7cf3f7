"""The paper's Gridworld tables with exact values: what the methods can reach, without learning.

For every target policy the optimal design of each method is computed by dynamic programming and its
variance and cost by `exact.assess`; nothing is sampled. "Cost needed" is what a method spends to
reach the accuracy of 1,000 on-policy episodes, in units of one on-policy episode's cost:

    needed = 1000 (variance / on-policy variance) (cost / on-policy cost)

which holds in every row of the paper's tables.

How much SCOPE can win depends on the random draw of the world's rewards and costs as much as on the
target. So every target gets a world of its own by default, and the standard error covers both.

Differs from the paper: its text leaves the reward and cost functions open ("randomly generate"), so
its numbers, from learned values, stand beside ours for comparison and are not a target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from scopeval import exact
from scopeval.arrays import Floats
from scopeval.behavior.settings import check_budget, check_epsilon
from scopeval.envs.gridworld import COST_LAWS, Gridworld, target_policies
from scopeval.errors import InputError
from scopeval.paper.written import published
from scopeval.policies.adapters import TabularPolicy

__all__ = [
    "PAPER",
    "VARIANTS",
    "Block",
    "Config",
    "Row",
    "Statistic",
    "Table",
    "run",
    "worst_state",
]

#: Rows of the table: label -> (method, whose cost-to-go the constraint uses).
VARIANTS = {
    "scope": ("scope", "behavior"),
    "scope (target)": ("scope", "target"),
    "scope-dr": ("scope-dr", "behavior"),
    "odi": ("odi", "behavior"),
    "dopt": ("dopt", "behavior"),
}

#: The paper's tables, size -> label -> (relative variance, relative cost, cost needed).
PAPER = {
    10: {
        "scope": (0.547, 0.861, 472),
        "odi": (0.460, 1.602, 738),
        "ros": (0.953, 1.083, 1035),
    },
    30: {
        "scope": (0.575, 0.849, 487),
        "odi": (0.484, 1.590, 765),
        "ros": (0.987, 1.067, 1049),
    },
}

#: Called as progress(done, total, what) after every target.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Config:
    """What to compute."""

    sizes: tuple[int, ...] = (10, 30)
    """Cells along one side; also the horizon. The paper has 10 and 30."""
    cost_laws: tuple[str, ...] = COST_LAWS
    """How costs are drawn, see `envs.gridworld`."""
    targets: int = 30
    """Number of target policies, as in the paper."""
    worlds: int | None = None
    """Number of worlds that the targets share in turn; None: one world for each target."""
    seed: int = 0
    """Target k lives in world seed + (k modulo worlds); the targets are drawn with this seed."""
    epsilon: float = 0.0
    """Safety parameter of the constrained methods."""
    budget: str = "state"
    """Of these methods: "state" (the paper's) or "episode"."""

    def __post_init__(self) -> None:
        for name, value in (("targets", self.targets), ("worlds", self.worlds)):
            if value is not None and value < 1:
                raise InputError(f"{name}: got {value}, expected a whole number >= 1")
        if self.worlds is not None and self.worlds > self.targets:
            raise InputError(
                f"worlds: got {self.worlds} for {self.targets} targets; expected at most one world "
                "for each target"
            )
        if self.seed < 0:
            raise InputError(f"seed: got {self.seed}, expected a whole number >= 0")
        check_epsilon(self.epsilon)
        check_budget(self.budget, None)
        for size in self.sizes:
            for law in self.cost_laws:
                Gridworld(size, law)  # says what is wrong before anything is computed

    @property
    def world_count(self) -> int:
        """Number of different worlds."""
        return self.targets if self.worlds is None else self.worlds


@dataclass(frozen=True)
class Statistic:
    """One number for each target, and their mean."""

    values: Floats

    @property
    def mean(self) -> float:
        """Mean over the targets."""
        return float(self.values.mean())

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean over targets; None for a single target."""
        n = len(self.values)
        return float(self.values.std(ddof=1) / np.sqrt(n)) if n > 1 else None

    def within(self, level: float) -> bool:
        """Whether the mean is at most a level, give or take its standard error and rounding."""
        return self.mean <= level + (self.standard_error or 0.0) + 1e-9

    def text(self, form: str, pm: str = "±") -> str:
        """Mean and standard error, each in a form such as ".3f"."""
        mean = format(self.mean, form)
        error = self.standard_error
        return mean if error is None else f"{mean} {pm} {format(error, form)}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "mean": self.mean,
            "standard_error": self.standard_error,
            "values": self.values.tolist(),
        }


@dataclass(frozen=True)
class Row:
    """One method.

    Attributes:
        label: key of `VARIANTS`.
        variance: variance of one episode's estimate over on-policy's.
        cost: expected cost of one episode over on-policy's.
        worst_state: the largest ratio of cost-to-go over the target's, of all states and times that
            the target can come to. The promise of safety is that it is at most 1 + epsilon.
    """

    label: str
    variance: Statistic
    cost: Statistic
    worst_state: Statistic

    @property
    def needed(self) -> Statistic:
        """Cost to reach the accuracy of 1,000 on-policy episodes, target by target."""
        return Statistic(1000.0 * self.variance.values * self.cost.values)

    @property
    def saved(self) -> float:
        """Share of the on-policy cost that is saved at equal accuracy."""
        return 1.0 - self.needed.mean / 1000.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "method": self.label,
            "relative_variance": self.variance.as_dict(),
            "relative_cost": self.cost.as_dict(),
            "cost_needed": self.needed.as_dict(),
            "saved": self.saved,
            "worst_state": self.worst_state.as_dict(),
        }


@dataclass(frozen=True)
class Block:
    """All methods on one size and cost law."""

    size: int
    cost_law: str
    rows: tuple[Row, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "size": self.size,
            "cost_law": self.cost_law,
            "methods": [row.as_dict() for row in self.rows],
            "paper": published(PAPER.get(self.size, {})),
        }


@dataclass(frozen=True)
class Table:
    """The result: what was asked, and one block for each size and cost law."""

    config: Config
    blocks: tuple[Block, ...] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "experiment": "gridworld-exact",
            "config": {**asdict(self.config), "worlds": self.config.world_count},
            "blocks": [block.as_dict() for block in self.blocks],
        }


def run(config: Config, progress: Progress | None = None) -> Table:
    """Compute the whole table; a pure function of the config."""
    total = len(config.sizes) * len(config.cost_laws) * config.targets
    done = 0
    blocks = []
    for size in config.sizes:
        targets = target_policies(config.targets, size, seed=config.seed)
        for law in config.cost_laws:
            numbers = np.empty((len(VARIANTS), 3, config.targets))
            for k, target in enumerate(targets):
                world = config.seed + k % config.world_count
                mdp = Gridworld(size, law, world).mdp()
                numbers[:, :, k] = _compare(mdp, target, config.epsilon, config.budget)
                done += 1
                if progress is not None:
                    progress(done, total, f"{size} x {size}, {law}")
            rows = tuple(
                Row(label, *(Statistic(values) for values in of_method))
                for label, of_method in zip(VARIANTS, numbers, strict=True)
            )
            blocks.append(Block(size, law, rows))
    return Table(config, tuple(blocks))


def worst_state(mdp: exact.TabularMDP, target: TabularPolicy, behavior: TabularPolicy) -> float:
    """Largest v^c_mu / v^c_pi over the states and times that the target can come to."""
    ours, theirs = (exact.cost_values(mdp, policy).v[:-1] for policy in (behavior, target))
    visited = mdp.initial > 0
    worst = 0.0
    for t, pi in enumerate(target.table(mdp.horizon)):
        here = visited & (theirs[t] > 0)
        worst = max(worst, float((ours[t][here] / theirs[t][here]).max(initial=0.0)))
        visited = mdp.transition.T @ (visited[:, None] * pi).ravel() > 0
    return worst


def _compare(
    mdp: exact.TabularMDP, target: TabularPolicy, epsilon: float, budget: str
) -> list[list[float]]:
    """Relative variance, relative cost and worst state of every method, for one target."""
    on_policy = exact.assess(mdp, target, target)
    numbers = []
    for method, constraint in VARIANTS.values():
        mu = exact.design(mdp, target, method, epsilon, constraint=constraint, budget=budget)
        result = exact.assess(mdp, target, mu, mu.control)
        numbers.append(
            [
                result.variance / on_policy.variance,
                result.cost / on_policy.cost,
                worst_state(mdp, target, mu),
            ]
        )
    return numbers

"""The paper's Gridworld tables with exact values: what the methods can reach, without learning.

For every target policy the optimal design of each method is computed by dynamic programming and its
variance and cost by `exact.assess`; nothing is sampled. "Cost needed" is what a method spends to
reach the accuracy of 1,000 on-policy episodes, in units of one on-policy episode's cost:

    needed = 1000 (variance / on-policy variance) (cost / on-policy cost)

which holds in every row of the paper's tables.

How much SCOPE can save depends on the random draw of the world's rewards and costs as much as on
the target. So every target has its own world by default, and the standard error covers both.

Differs from the paper: its text does not give the reward and cost functions ("randomly generate"),
so its numbers, from learned values, stand beside ours for comparison and are not a goal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from scopeval import exact
from scopeval.arrays import check_whole
from scopeval.behavior.settings import check_budget, check_epsilon
from scopeval.cli.sources import method_from
from scopeval.envs.gridworld import COST_LAWS, Gridworld, target_policies
from scopeval.errors import InputError
from scopeval.paper import published
from scopeval.paper.backends.shards import Progress
from scopeval.paper.methods import REFERENCE, check_methods
from scopeval.paper.results import MethodResult, Result
from scopeval.policies.adapters import TabularPolicy

__all__ = ["Config", "ExactBlock", "ExactOutcome", "run", "worst_state"]

#: A method whose constraint uses the cost-to-go under the target policy, not under its own.
BY_TARGET = "scope (target)"


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
    """Target k is in world seed + (k modulo worlds); the targets are drawn with this seed."""
    epsilon: float = 0.0
    """Safety parameter of the constrained methods."""
    budget: str = "state"
    """Of these methods: "state" (the paper's) or "episode"."""
    methods: tuple[str, ...] = ("scope", BY_TARGET, "scope-dr", "odi", "dopt")
    """Registered methods, or module:attribute; `BY_TARGET` is a variant of scope."""

    def __post_init__(self) -> None:
        self.check_worlds()
        check_methods(tuple(dict.fromkeys((REFERENCE, *self.methods))), (BY_TARGET,))

    def check_worlds(self) -> None:
        """Refuse worlds, targets and budgets that cannot be, before anything is computed."""
        check_whole("targets", self.targets, 1)
        check_whole("seed", self.seed, 0)
        if self.worlds is not None and not 1 <= self.worlds <= self.targets:
            raise InputError(
                f"worlds: got {self.worlds} for {self.targets} targets; expected at least one, and "
                "at most one for each target"
            )
        for size in self.sizes:
            for law in self.cost_laws:
                Gridworld(size, law)
        check_epsilon(self.epsilon)
        check_budget(self.budget, None)

    def world(self, target: int) -> int:
        """The number of a target's world."""
        return self.seed + target % (self.worlds or self.targets)


@dataclass(frozen=True)
class ExactOutcome:
    """One method on one target.

    Attributes:
        relative_variance: variance of one episode's estimate over on-policy's.
        relative_cost: expected cost of one episode over on-policy's.
        worst_state: the largest ratio of the cost-to-go to the target's, over all states and times
            that the target can visit. The safety constraint keeps it at or below 1 + epsilon.
    """

    relative_variance: float
    relative_cost: float
    worst_state: float

    @property
    def inaccuracy(self) -> float:
        """The variance: designs are unbiased."""
        return self.relative_variance


@dataclass(frozen=True)
class ExactBlock:
    """All methods on one size and cost law."""

    size: int
    cost_law: str
    methods: dict[str, MethodResult[ExactOutcome]] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "size": self.size,
            "cost_law": self.cost_law,
            "methods": [
                {**row.summary(), "worst_state": row.statistic("worst_state").as_dict()}
                for row in self.methods.values()
            ],
            "paper": published.as_json(published.GRIDWORLD.get(self.size, {})),
        }

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """No Parquet tables: the JSON file holds every number."""
        return {}


def run(config: Config, progress: Progress | None = None) -> Result[Config, ExactBlock]:
    """Compute the whole table; a pure function of the config."""
    config = replace(config, worlds=config.worlds or config.targets)
    total = len(config.sizes) * len(config.cost_laws) * config.targets
    done = 0
    blocks = []
    for size in config.sizes:
        targets = target_policies(config.targets, size, seed=config.seed)
        for law in config.cost_laws:
            found = []
            for k, target in enumerate(targets):
                mdp = Gridworld(size, law, config.world(k)).mdp()
                found.append(_compare(mdp, target, config))
                done += 1
                if progress is not None:
                    progress(done, total, f"{size} x {size}, {law}")
            methods = {
                name: MethodResult(name, tuple(one[name] for one in found)) for name in found[0]
            }
            blocks.append(ExactBlock(size, law, methods))
    return Result("gridworld-exact", config, tuple(blocks))


def worst_state(mdp: exact.TabularMDP, target: TabularPolicy, behavior: TabularPolicy) -> float:
    """Largest v^c_mu / v^c_pi over the states and times that the target can visit."""
    ours, theirs = (exact.cost_values(mdp, policy).v[:-1] for policy in (behavior, target))
    visited = mdp.initial > 0
    worst = 0.0
    for t, pi in enumerate(target.table(mdp.horizon)):
        here = visited & (theirs[t] > 0)
        worst = max(worst, float((ours[t][here] / theirs[t][here]).max(initial=0.0)))
        visited = mdp.transition.T @ (visited[:, None] * pi).ravel() > 0
    return worst


def _compare(
    mdp: exact.TabularMDP, target: TabularPolicy, config: Config
) -> dict[str, ExactOutcome]:
    """Every method for one target."""
    own = exact.assess(mdp, target, target)
    found = {}
    for spec in config.methods:
        by_target = spec == BY_TARGET
        method = method_from("scope" if by_target else spec)
        mu = exact.design(
            mdp,
            target,
            method,
            config.epsilon,
            constraint="target" if by_target else "behavior",
            budget=config.budget,
        )
        result = exact.assess(mdp, target, mu, mu.control)
        found[BY_TARGET if by_target else method.name] = ExactOutcome(
            result.variance / own.variance, result.cost / own.cost, worst_state(mdp, target, mu)
        )
    return found

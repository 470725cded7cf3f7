"""One target policy in one Gridworld with every method: a shard of the Gridworld experiment.

All methods that learn use the same logged episodes. The variance and cost of a design are computed
exactly (`exact.assess` of the learned mu and b in the true model). Error curves, and all numbers of
ROS, whose episodes depend on each other, are measured over independent simulated runs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from scopeval import exact, simulate
from scopeval.arrays import Floats, Ints
from scopeval.baselines.ros import ros_tabular
from scopeval.behavior.designer import design
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.envs.gridworld import Gridworld, cells, gridworld_logs, target_policies
from scopeval.exact import TabularMDP
from scopeval.paper.experiments.gridworld_exact import worst_state
from scopeval.paper.methods import REFERENCE, constrained, names_of
from scopeval.policies.adapters import TabularPolicy

__all__ = [
    "BASELINES",
    "FrontierPoint",
    "GridworldOutcome",
    "Shard",
    "TargetResult",
    "episode_grid",
    "evaluate_target",
]

#: Methods that run episodes but design no behavior policy from the logs. (`direct`, the critics'
#: own estimate, runs none.)
BASELINES = ("ros", "ros-reset")


@dataclass(frozen=True)
class Shard:
    """Everything that one target's results depend on; see `gridworld.Config`."""

    size: int
    cost_law: str
    target: int
    world: int
    seed: int
    runs: int
    episodes: int
    logged: int
    critics: str
    epsilon: float
    epsilons: tuple[float, ...]
    budget: str
    methods: tuple[str, ...]
    digest: str
    """Digest of the methods' code."""

    @property
    def label(self) -> str:
        """The name used in messages."""
        return f"{self.size} x {self.size}, {self.cost_law}, target {self.target}"


@dataclass(frozen=True)
class GridworldOutcome:
    """One method on one target. Variances and costs are relative to on-policy's.

    Attributes:
        relative_variance: of one episode's estimate, exact; for ROS `measured_variance`.
        relative_cost: expected cost of one episode, exact; for ROS `measured_cost`.
        measured_variance: variance over the runs of the last estimate, relative to on-policy's
            theoretical variance.
        measured_square: mean squared error over the runs, likewise; larger than the variance by the
            squared bias.
        measured_cost: mean over all episodes of all runs.
        bias: mean over the runs of the last estimate minus the truth, in units of the mean error of
            one on-policy episode.
        errors: mean |estimate - truth| over the runs after each number of episodes of the grid, in
            the same units as the bias.
        costs: mean cost spent until then, in expected costs of one on-policy episode.
        worst_state: largest ratio of the cost-to-go to the target's at any state; None for ROS.
        limit_variance: what the method reaches with exact values; None if it does not learn.
        limit_cost: likewise.
        predicted_variance: what the design predicted.
        predicted_cost: likewise.
    """

    relative_variance: float
    relative_cost: float
    measured_variance: float
    measured_square: float
    measured_cost: float
    bias: float
    errors: tuple[float, ...]
    costs: tuple[float, ...]
    worst_state: float | None = None
    limit_variance: float | None = None
    limit_cost: float | None = None
    predicted_variance: float | None = None
    predicted_cost: float | None = None

    @property
    def exact(self) -> bool:
        """Whether variance and cost are computed and not measured."""
        return self.worst_state is not None

    @property
    def inaccuracy(self) -> float:
        """The variance; ROS may be biased, so the squared error takes its place there."""
        return self.relative_variance if self.exact else self.measured_square


@dataclass(frozen=True)
class FrontierPoint:
    """A learned design at one safety parameter, and the design with exact values."""

    method: str
    epsilon: float
    variance: float
    cost: float
    limit_variance: float
    limit_cost: float


@dataclass(frozen=True)
class TargetResult:
    """One target.

    Attributes:
        truth: J(pi).
        unit: mean |return - truth| of one on-policy episode.
        direct: the critics' own estimate of J(pi), v at the start, from the logs alone.
        direct_error: its signed error in units of `unit`.
        direct_square: its squared error over the variance of one on-policy episode.
        outcomes: by method.
        frontier: constrained methods at the shard's `epsilons`.
    """

    truth: float
    unit: float
    direct: float
    direct_error: float
    direct_square: float
    outcomes: dict[str, GridworldOutcome]
    frontier: tuple[FrontierPoint, ...]

    @classmethod
    def of(cls, content: dict[str, Any]) -> TargetResult:
        """From JSON."""
        outcomes = {
            name: GridworldOutcome(
                **{**one, "errors": tuple(one["errors"]), "costs": tuple(one["costs"])}
            )
            for name, one in content["outcomes"].items()
        }
        frontier = tuple(FrontierPoint(**point) for point in content["frontier"])
        return cls(**{**content, "outcomes": outcomes, "frontier": frontier})


def episode_grid(episodes: int) -> Ints:
    """Numbers of episodes at which errors are recorded, evenly spaced on a logarithmic axis."""
    if not episodes:
        return np.empty(0, np.int64)
    return np.unique(np.geomspace(1, episodes, 49).round().astype(np.int64))


def evaluate_target(shard: Shard) -> dict[str, Any]:
    """The work of one shard; a pure function of it, its result ready for JSON."""
    run = _TargetRun(shard)
    names = names_of(shard.methods, BASELINES)
    learned = {
        name: run.learn(name, shard.epsilon)
        for name in names
        if name not in (REFERENCE, *BASELINES)
    }
    outcomes = {}
    for name in names:
        if name in BASELINES:
            outcomes[name] = run.ros_outcome(reset=name == "ros-reset")
        else:
            outcomes[name] = run.design_outcome(learned.get(name))
    # The critics of every design estimate the same v, so those of one of them are enough.
    direct = run.direct_estimate(learned.get("scope") or run.learn("scope", shard.epsilon))
    error = direct - run.own.value
    return asdict(
        TargetResult(
            truth=run.own.value,
            unit=run.unit,
            direct=direct,
            direct_error=error / run.unit,
            direct_square=error**2 / run.own.variance,
            outcomes=outcomes,
            frontier=tuple(
                run.frontier_point(name, epsilon, learned[name])
                for name in constrained(names)
                for epsilon in shard.epsilons
            ),
        )
    )


class _TargetRun:
    """What all methods share on one target."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.mdp: TabularMDP = Gridworld(shard.size, shard.cost_law, shard.world).mdp()
        targets = target_policies(shard.target + 1, shard.size, seed=shard.seed)
        self.target: TabularPolicy = targets[shard.target]
        self.own = exact.assess(self.mdp, self.target, self.target)
        self.logs = gridworld_logs(self.mdp, shard.logged, seed=shard.seed + shard.target)
        self.grid = episode_grid(shard.episodes)
        words = np.random.SeedSequence((shard.seed, shard.target, 5)).generate_state(2, np.uint64)
        self.seeds = [int(word) >> 1 for word in words]
        self.own_episodes = self.simulate(None)
        # The mean over all episodes of all runs: each could be the first episode of a run.
        self.unit = float(np.abs(self.own_episodes.estimate - self.own.value).mean())

    def learn(self, method: str, epsilon: float) -> BehaviorPolicy:
        """A design from the logs."""
        table = self.shard.critics == "table"
        return design(
            self.logs,
            self.target,
            horizon=self.mdp.horizon,
            method=method,
            epsilon=epsilon,
            budget=self.shard.budget,
            regression=self.shard.critics,
            features=cells(self.shard.size) if table else None,
            seed=self.shard.seed + self.shard.target,
        )

    def simulate(self, learned: tuple[Floats, Floats | None] | None) -> simulate.Summaries:
        """All episodes of all runs."""
        mu, b = learned if learned is not None else (None, None)
        return simulate.summaries(
            self.mdp,
            self.target,
            mu,
            episodes=self.shard.runs * self.shard.episodes,
            control_variate=b,
            seed=self.seeds[0],
            threads=1,
        )

    def design_outcome(self, behavior: BehaviorPolicy | None) -> GridworldOutcome:
        """Assess exactly and measure; None is the target itself."""
        size = (self.shard.runs, self.shard.episodes)
        if behavior is None:
            own = self.own_episodes
            return GridworldOutcome(
                relative_variance=1.0,
                relative_cost=1.0,
                worst_state=1.0,
                **self._measure(own.estimate.reshape(size), own.cost.reshape(size)),
            )
        table = behavior.table(self.mdp.states)
        ran = self.simulate(table)
        variance, cost = self._assess(*table)
        limit_variance, limit_cost = self._limit(behavior.recipe.method, self.shard.epsilon)
        return GridworldOutcome(
            relative_variance=variance,
            relative_cost=cost,
            worst_state=worst_state(self.mdp, self.target, TabularPolicy(table[0])),
            limit_variance=limit_variance,
            limit_cost=limit_cost,
            predicted_variance=behavior.predicted.variance,
            predicted_cost=behavior.predicted.cost,
            **self._measure(ran.estimate.reshape(size), ran.cost.reshape(size)),
        )

    def ros_outcome(self, *, reset: bool) -> GridworldOutcome:
        """ROS as its authors run it, or reset after each episode."""
        ran = ros_tabular(
            self.mdp,
            self.target,
            runs=self.shard.runs,
            episodes=self.shard.episodes,
            seed=self.seeds[1],
            reset_each_episode=reset,
            threads=1,
        )
        found = self._measure(ran.returns, ran.costs)
        return GridworldOutcome(
            relative_variance=found["measured_variance"],
            relative_cost=found["measured_cost"],
            **found,
        )

    def frontier_point(self, method: str, epsilon: float, learned: BehaviorPolicy) -> FrontierPoint:
        """A design for one epsilon, assessed exactly; `learned` is that for the shard's."""
        if epsilon != self.shard.epsilon:
            learned = self.learn(method, epsilon)
        found = self._assess(*learned.table(self.mdp.states))
        return FrontierPoint(method, epsilon, *found, *self._limit(method, epsilon))

    def direct_estimate(self, behavior: BehaviorPolicy) -> float:
        """The critics' own estimate of J(pi), from the logs alone."""
        states = np.arange(self.mdp.states)
        q = behavior.critics[0].at(states).q
        return float(self.mdp.initial @ (self.target.probs(states, 0) * q).sum(axis=1))

    def _assess(self, mu: Floats, b: Floats | None) -> tuple[float, float]:
        result = exact.assess(self.mdp, self.target, mu, b)
        return result.variance / self.own.variance, result.cost / self.own.cost

    def _limit(self, method: str, epsilon: float) -> tuple[float, float]:
        best = exact.design(self.mdp, self.target, method, epsilon, budget=self.shard.budget)
        return self._assess(best.table(self.mdp.horizon), best.control)

    def _measure(self, values: Floats, costs: Floats) -> dict[str, Any]:
        """Curves and last estimates of values and costs [runs, episodes]."""
        upto = self.grid - 1
        means = np.cumsum(values, axis=1)[:, upto] / self.grid
        spent = np.cumsum(costs, axis=1)[:, upto] / self.own.cost
        last = means[:, -1]
        by_theory = self.own.variance / self.shard.episodes
        return {
            "measured_variance": float(last.var(ddof=1) / by_theory),
            "measured_square": float(((last - self.own.value) ** 2).mean() / by_theory),
            "measured_cost": float(costs.mean() / self.own.cost),
            "bias": float((last.mean() - self.own.value) / self.unit),
            "errors": tuple((np.abs(means - self.own.value).mean(axis=0) / self.unit).tolist()),
            "costs": tuple(spent.mean(axis=0).tolist()),
        }

"""One target policy in one Gridworld, every method on it: a shard of the Gridworld experiment.

All methods that learn do so from the same logged episodes. What a design is worth is computed
exactly (`exact.assess` of the learned mu and b in the true model); error curves, and everything
about ROS, whose episodes depend on each other, are measured over independent simulated runs.
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
from scopeval.policies.adapters import TabularPolicy

__all__ = ["DESIGNS", "EPSILONS", "FRONTIER", "METHODS", "Shard", "TargetResult", "episode_grid"]

#: Methods that learn a behavior policy from the logs.
DESIGNS = ("scope", "scope-dr", "odi", "dopt")
#: Methods that run episodes. (`direct`, the critics' own answer, runs none.)
METHODS = ("on-policy", *DESIGNS, "ros", "ros-reset")
#: The variance-cost frontier: which methods, at which safety parameters by default.
FRONTIER = ("scope", "scope-dr")
EPSILONS = (0.0, 0.1, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Shard:
    """Everything that one target's results depend on."""

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
    budget: str = "state"

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.size} x {self.size}, {self.cost_law}, target {self.target}"


@dataclass(frozen=True)
class Outcome:
    """One method on one target. Variances and costs are relative to on-policy's.

    Attributes:
        variance: of one episode's estimate, exact; None for ROS.
        cost: of one episode, expected, exact; None for ROS.
        worst_state: largest ratio of cost-to-go over the target's at any state; None for ROS.
        limit_variance: what the same method reaches with exact values; None where it learns not.
        limit_cost: likewise.
        predicted_variance: what the design expected of itself.
        predicted_cost: likewise.
        measured_variance: variance over the runs of the last estimate, relative to what on-policy's
            has by theory.
        measured_square: mean squared error over the runs, likewise; larger than the variance by the
            squared bias.
        measured_cost: mean over all episodes of all runs.
        bias: mean over the runs of the last estimate minus the truth, in units of the error that
            one on-policy episode makes on average.
        errors: mean |estimate - truth| over the runs after each number of episodes of the grid, in
            the same units.
        costs: mean cost spent until then, in expected costs of one on-policy episode.
    """

    variance: float | None
    cost: float | None
    worst_state: float | None
    limit_variance: float | None
    limit_cost: float | None
    predicted_variance: float | None
    predicted_cost: float | None
    measured_variance: float
    measured_square: float
    measured_cost: float
    bias: float
    errors: tuple[float, ...]
    costs: tuple[float, ...]


@dataclass(frozen=True)
class Point:
    """One learned design on the frontier, and the exact one."""

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
        frontier: `FRONTIER` at the shard's `epsilons`.
    """

    truth: float
    unit: float
    direct: float
    direct_error: float
    direct_square: float
    outcomes: dict[str, Outcome]
    frontier: tuple[Point, ...]

    @classmethod
    def of(cls, content: dict[str, Any]) -> TargetResult:
        """From JSON."""
        outcomes = {
            name: Outcome(**{**o, "errors": tuple(o["errors"]), "costs": tuple(o["costs"])})
            for name, o in content["outcomes"].items()
        }
        frontier = tuple(Point(**point) for point in content["frontier"])
        return cls(**{**content, "outcomes": outcomes, "frontier": frontier})


def episode_grid(episodes: int) -> Ints:
    """Numbers of episodes at which errors are looked at, evenly spaced on a logarithmic axis."""
    return np.unique(np.geomspace(1, episodes, 49).round().astype(np.int64))


def evaluate_target(shard: Shard) -> dict[str, Any]:
    """The work of one shard; a pure function of it, its result ready for JSON."""
    mdp = Gridworld(shard.size, shard.cost_law, shard.world).mdp()
    target = target_policies(shard.target + 1, shard.size, seed=shard.seed)[shard.target]
    one = _One(shard, mdp, target)
    learned = {method: one.learn(method, shard.epsilon) for method in DESIGNS}
    outcomes = {"on-policy": one.design_outcome(None)}
    outcomes |= {method: one.design_outcome(learned[method]) for method in DESIGNS}
    outcomes |= {"ros": one.ros(reset=False), "ros-reset": one.ros(reset=True)}
    critic = learned["scope"].critics[0].at(np.arange(mdp.states))
    direct = float(mdp.initial @ (target.probs(np.arange(mdp.states), 0) * critic.q).sum(axis=1))
    error = direct - one.alone.value
    return asdict(
        TargetResult(
            truth=one.alone.value,
            unit=one.unit,
            direct=direct,
            direct_error=error / one.unit,
            direct_square=error**2 / one.alone.variance,
            outcomes=outcomes,
            frontier=tuple(
                one.point(method, epsilon, learned[method])
                for method in FRONTIER
                for epsilon in shard.epsilons
            ),
        )
    )


class _One:
    """One target: what all its methods share."""

    def __init__(self, shard: Shard, mdp: TabularMDP, target: TabularPolicy) -> None:
        self.shard, self.mdp, self.target = shard, mdp, target
        self.alone = exact.assess(mdp, target, target)
        self.logs = gridworld_logs(mdp, shard.logged, seed=shard.seed + shard.target)
        self.grid = episode_grid(shard.episodes)
        self.seeds = [
            int(word) >> 1
            for word in np.random.SeedSequence((shard.seed, shard.target, 5)).generate_state(
                2, np.uint64
            )
        ]
        # every episode of every run is a first episode somewhere: the mean over all of them
        self.own = self.simulate(None)
        self.unit = float(np.abs(self.own.estimate - self.alone.value).mean())

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

    def design_outcome(self, behavior: BehaviorPolicy | None) -> Outcome:
        """Assess exactly and measure; None is the target itself."""
        size = (self.shard.runs, self.shard.episodes)
        if behavior is None:
            found = self._measure(self.own.estimate.reshape(size), self.own.cost.reshape(size))
            return Outcome(1.0, 1.0, 1.0, None, None, None, None, **found)
        table = behavior.table(self.mdp.states)
        ran = self.simulate(table)
        variance, cost = self._assess(*table)
        limit_variance, limit_cost = self._limit(behavior.recipe.method, self.shard.epsilon)
        return Outcome(
            variance=variance,
            cost=cost,
            worst_state=worst_state(self.mdp, self.target, TabularPolicy(table[0])),
            limit_variance=limit_variance,
            limit_cost=limit_cost,
            predicted_variance=behavior.predicted.variance,
            predicted_cost=behavior.predicted.cost,
            **self._measure(ran.estimate.reshape(size), ran.cost.reshape(size)),
        )

    def ros(self, *, reset: bool) -> Outcome:
        """ROS as its authors run it, or forgetting everything after each episode."""
        ran = ros_tabular(
            self.mdp,
            self.target,
            runs=self.shard.runs,
            episodes=self.shard.episodes,
            seed=self.seeds[1],
            reset_each_episode=reset,
            threads=1,
        )
        return Outcome(*(None,) * 7, **self._measure(ran.returns, ran.costs))

    def point(self, method: str, epsilon: float, learned: BehaviorPolicy) -> Point:
        """A design for another epsilon, assessed exactly."""
        if epsilon != self.shard.epsilon:
            learned = self.learn(method, epsilon)
        found = self._assess(*learned.table(self.mdp.states))
        return Point(method, epsilon, *found, *self._limit(method, epsilon))

    def _assess(self, mu: Floats, b: Floats | None) -> tuple[float, float]:
        result = exact.assess(self.mdp, self.target, mu, b)
        return result.variance / self.alone.variance, result.cost / self.alone.cost

    def _limit(self, method: str, epsilon: float) -> tuple[float, float]:
        best = exact.design(self.mdp, self.target, method, epsilon, budget=self.shard.budget)
        return self._assess(best.table(self.mdp.horizon), best.control)

    def _measure(self, values: Floats, costs: Floats) -> dict[str, Any]:
        """Curves and last estimates of values and costs [runs, episodes]."""
        upto = self.grid - 1
        means = np.cumsum(values, axis=1)[:, upto] / self.grid
        spent = np.cumsum(costs, axis=1)[:, upto] / self.alone.cost
        last = means[:, -1]
        by_theory = self.alone.variance / self.shard.episodes
        return {
            "measured_variance": float(last.var(ddof=1) / by_theory),
            "measured_square": float(((last - self.alone.value) ** 2).mean() / by_theory),
            "measured_cost": float(costs.mean() / self.alone.cost),
            "bias": float((last.mean() - self.alone.value) / self.unit),
            "errors": tuple((np.abs(means - self.alone.value).mean(axis=0) / self.unit).tolist()),
            "costs": tuple(spent.mean(axis=0).tolist()),
        }

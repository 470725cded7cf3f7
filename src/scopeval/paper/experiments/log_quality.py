"""How good must the logs be? Learned designs against the number of logged episodes, and bad logs.

Every design is assessed exactly in the true model: its relative variance and cost, mean over the
targets and worst target, beside what the design predicted of itself. Good logs are the paper's (30
controllers of every quality in turn), in numbers from 30 to 10,000 episodes; bad ones are

- ``one controller``: all episodes by one deterministic controller, the best;
- ``half the grid``: episodes stop when they enter the upper half, where most is to be gained and to
  be lost;
- ``mixed-up rewards``: a tenth of the rewards is replaced by those of other rows;
- ``tenfold rewards``: a tenth of the rewards is ten times too large.

A design should fall back towards the target as logs get worse, never far below it, and stay safe.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any, Unpack

import numpy as np

from scopeval import exact
from scopeval.arrays import Floats, check_whole
from scopeval.behavior.designer import design
from scopeval.data.transitions import Transitions
from scopeval.envs.gridworld import Gridworld, cells, logging_policies, logs_of, target_policies
from scopeval.exact import TabularMDP
from scopeval.paper.backends.shards import Running, run_shards
from scopeval.paper.experiments.gridworld_exact import Statistic
from scopeval.paper.written import as_columns
from scopeval.policies.adapters import TabularPolicy

__all__ = ["BAD", "METHODS", "Block", "Config", "Result", "Row", "run"]

METHODS = ("scope", "scope-dr")
BAD = ("one controller", "half the grid", "mixed-up rewards", "tenfold rewards")
#: Share of the rows that are spoilt where rewards are.
SPOILT = 0.1


@dataclass(frozen=True)
class Config:
    """What to run."""

    sizes: tuple[int, ...] = (10,)
    """Cells along one side; also the horizon."""
    cost_law: str = "same-tilt"
    """How costs are drawn, see `envs.gridworld`."""
    targets: int = 30
    """Number of target policies, each in a world of its own."""
    seed: int = 0
    """Target k lives in world seed + k, and its logs follow from that number."""
    episodes: tuple[int, ...] = (30, 100, 300, 1000, 3000, 10000)
    """Numbers of good logged episodes."""
    bad_episodes: int = 1000
    """Number of logged episodes of each kind of bad logs."""

    def __post_init__(self) -> None:
        check_whole("targets", self.targets, 1)
        check_whole("seed", self.seed, 0)
        for number in (*self.episodes, self.bad_episodes):
            check_whole("episodes", number, 1)
        for size in self.sizes:
            Gridworld(size, self.cost_law)

    @property
    def logs(self) -> tuple[tuple[str, int], ...]:
        """Kind and number of episodes of all logs."""
        good = tuple(("good", number) for number in self.episodes)
        return good + tuple((kind, self.bad_episodes) for kind in BAD)


@dataclass(frozen=True)
class Shard:
    """One target with all its logs."""

    size: int
    cost_law: str
    target: int
    seed: int
    logs: tuple[tuple[str, int], ...]

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.size} x {self.size}, target {self.target}"


@dataclass(frozen=True)
class Row:
    """One method, with or without features, on one kind of logs; over all targets.

    Attributes:
        logs: "good" or one of `BAD`.
        episodes: how many.
        features: whether the learner knew the cells' coordinates.
        method: its name.
        variance: relative variance, exact.
        cost: relative cost, exact.
        predicted_variance: what the design expected.
        predicted_cost: likewise.
        kept: number of targets where the design chose to stay with the target policy.
    """

    logs: str
    episodes: int
    features: bool
    method: str
    variance: Statistic
    cost: Statistic
    predicted_variance: Statistic
    predicted_cost: Statistic
    kept: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            name: value.as_dict() | {"worst": float(value.values.max())}
            if isinstance(value, Statistic)
            else value
            for name, value in vars(self).items()
        }


@dataclass(frozen=True)
class Block:
    """All logs of one size; `limits` are mean relative variance and cost with exact values."""

    size: int
    rows: tuple[Row, ...] = field(repr=False)
    limits: dict[str, tuple[float, float]]

    def select(self, method: str, *, features: bool, good: bool) -> list[Row]:
        """The rows of one line of the figure, in order."""
        return [
            row
            for row in self.rows
            if (row.method, row.features, row.logs == "good") == (method, features, good)
        ]


@dataclass(frozen=True)
class Result:
    """What was asked, and one block for each size."""

    config: Config
    blocks: tuple[Block, ...] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "experiment": "log-quality",
            "config": asdict(self.config),
            "blocks": [
                {
                    "size": block.size,
                    "limits": {
                        method: {"relative_variance": v, "relative_cost": c}
                        for method, (v, c) in block.limits.items()
                    },
                    "rows": [row.as_dict() for row in block.rows],
                }
                for block in self.blocks
            ],
        }

    def tables(self) -> dict[str, dict[str, list[Any]]]:
        """Every number, target by target, as columns."""
        rows = [
            {
                "size": block.size,
                "logs": row.logs,
                "episodes": row.episodes,
                "features": row.features,
                "method": row.method,
                "target": k,
                **{
                    name: float(getattr(row, name).values[k])
                    for name in ("variance", "cost", "predicted_variance", "predicted_cost")
                },
            }
            for block in self.blocks
            for row in block.rows
            for k in range(self.config.targets)
        ]
        return {"logs": as_columns(rows)}


def run(config: Config, *, folder: str | os.PathLike[str], **how: Unpack[Running]) -> Result:
    """Run the whole experiment; a pure function of the config (see `run_shards` for the rest)."""
    shards = [
        Shard(size, config.cost_law, k, config.seed, config.logs)
        for size in config.sizes
        for k in range(config.targets)
    ]
    answers = run_shards(evaluate_logs, shards, folder=folder, **how)
    blocks = []
    for j, size in enumerate(config.sizes):
        of_size = answers[j * config.targets : (j + 1) * config.targets]
        numbers = np.array([answer["designs"] for answer in of_size])  # [targets, cases, 5]
        limits = np.array([answer["limits"] for answer in of_size]).mean(axis=0)
        rows = tuple(
            _row(*case, values)
            for case, values in zip(_cases(config.logs), numbers.swapaxes(0, 1), strict=True)
        )
        best = {m: (float(v), float(c)) for m, (v, c) in zip(METHODS, limits, strict=True)}
        blocks.append(Block(size, rows, best))
    return Result(config, tuple(blocks))


def evaluate_logs(shard: Shard) -> dict[str, Any]:
    """The work of one shard: a row of five numbers for each of `_cases`, and the limits."""
    world = shard.seed + shard.target
    mdp = Gridworld(shard.size, shard.cost_law, world).mdp()
    target = target_policies(shard.target + 1, shard.size, seed=shard.seed)[shard.target]
    alone = exact.assess(mdp, target, target)
    controllers = logging_policies(30, mdp, seed=world)
    known = {log: _logs(mdp, controllers, *log, world) for log in shard.logs}

    def judge(mu: Any, b: Any) -> list[float]:
        found = exact.assess(mdp, target, mu, b)
        return [found.variance / alone.variance, found.cost / alone.cost]

    designs = []
    for kind, episodes, features, method in _cases(shard.logs):
        learned = design(
            known[kind, episodes],
            target,
            horizon=mdp.horizon,
            method=method,
            features=cells(shard.size) if features else None,
            seed=world,
        )
        predicted = learned.predicted
        designs.append(
            [
                *judge(*learned.table(mdp.states)),
                predicted.variance,
                predicted.cost,
                float(learned.recipe.method == "on-policy"),
            ]
        )
    best = [exact.design(mdp, target, method) for method in METHODS]
    return {"designs": designs, "limits": [judge(mu, mu.control) for mu in best]}


def _row(kind: str, episodes: int, features: bool, method: str, values: Floats) -> Row:
    variance, cost, predicted_variance, predicted_cost, kept = values.T
    return Row(
        logs=kind,
        episodes=episodes,
        features=features,
        method=method,
        variance=Statistic(variance),
        cost=Statistic(cost),
        predicted_variance=Statistic(predicted_variance),
        predicted_cost=Statistic(predicted_cost),
        kept=int(kept.sum()),
    )


def _cases(logs: tuple[tuple[str, int], ...]) -> list[tuple[str, int, bool, str]]:
    return [
        (kind, episodes, features, method)
        for kind, episodes in logs
        for features in (True, False)
        for method in METHODS
    ]


def _logs(
    mdp: TabularMDP, controllers: list[TabularPolicy], kind: str, episodes: int, seed: int
) -> Transitions:
    if kind == "one controller":
        best = controllers[-1].table(mdp.horizon)
        always = TabularPolicy(np.eye(mdp.actions)[best.argmax(axis=2)])
        return logs_of(mdp, [always], episodes, seed=seed)
    logs = logs_of(mdp, controllers, episodes, seed=seed)
    if kind == "good":
        return logs
    if kind == "half the grid":
        size = mdp.horizon
        inside = (np.asarray(logs.obs) % size > size // 2).reshape(-1, size)
        return logs.select(~np.logical_or.accumulate(inside, axis=1).ravel())
    rng = np.random.default_rng((seed, 6))
    spoilt = rng.random(len(logs)) < SPOILT
    wrong = 10.0 * logs.reward if kind == "tenfold rewards" else rng.permutation(logs.reward)
    return Transitions(
        t=logs.t,
        obs=logs.obs,
        action=logs.action,
        reward=np.where(spoilt, wrong, logs.reward),
        cost=logs.cost,
        next_obs=logs.next_obs,
        terminated=logs.terminated,
    )

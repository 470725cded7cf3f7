"""How good must the logs be? Learned designs against the number of logged episodes, and bad logs.

Every design is assessed exactly in the true model: its relative variance and cost, mean over the
targets and worst target, beside what the design predicted. Good logs are the paper's (30
controllers of every quality in turn), in numbers from 30 to 10,000 episodes; bad ones are

- ``one controller``: all episodes by one deterministic controller, the best;
- ``half the grid``: episodes stop when they enter the upper half, where rewards and costs are
  largest;
- ``mixed-up rewards``: a tenth of the rewards is replaced by those of other rows;
- ``tenfold rewards``: a tenth of the rewards is ten times too large.

As logs get worse, a design should fall back to the target policy, and stay safe.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Unpack

import numpy as np

from scopeval import exact
from scopeval.arrays import check_whole
from scopeval.behavior.designer import design
from scopeval.data.transitions import Transitions
from scopeval.envs.gridworld import Gridworld, cells, logging_policies, logs_of, target_policies
from scopeval.errors import InputError
from scopeval.exact import TabularMDP
from scopeval.paper.backends.shards import ShardOptions, run_shards
from scopeval.paper.methods import REFERENCE, check_methods, digest_of, names_of
from scopeval.paper.results import MethodResult, Result
from scopeval.policies.adapters import TabularPolicy

__all__ = ["BAD", "Case", "Config", "LogBlock", "LogOutcome", "run"]

BAD = ("one controller", "half the grid", "mixed-up rewards", "tenfold rewards")
#: Share of the rewards that are replaced in bad logs.
REPLACED = 0.1
#: Largest relative error of a prediction that is good.
WITHIN = 0.25


class Case(NamedTuple):
    """One method on one kind of logs.

    Attributes:
        logs: "good" or one of `BAD`.
        episodes: how many.
        features: whether the learner knows the cells' coordinates.
        method: its name.
    """

    logs: str
    episodes: int
    features: bool
    method: str


@dataclass(frozen=True)
class Config:
    """What to run."""

    sizes: tuple[int, ...] = (10,)
    """Cells along one side; also the horizon."""
    cost_law: str = "same-tilt"
    """How costs are drawn, see `envs.gridworld`."""
    targets: int = 30
    """Number of target policies, each in its own world."""
    seed: int = 0
    """Target k is in world seed + k, and its logs follow from that number."""
    episodes: tuple[int, ...] = (30, 100, 300, 1000, 3000, 10000)
    """Numbers of good logged episodes."""
    bad_episodes: int = 1000
    """Number of logged episodes of each kind of bad logs."""
    bad: tuple[str, ...] = BAD
    """Kinds of bad logs; may be empty."""
    methods: tuple[str, ...] = ("scope", "scope-dr")
    """Registered methods, or module:attribute."""

    def __post_init__(self) -> None:
        check_whole("targets", self.targets, 1)
        check_whole("seed", self.seed, 0)
        for number in (*self.episodes, self.bad_episodes):
            check_whole("episodes", number, 1)
        for kind in self.bad:
            if kind not in BAD:
                raise InputError(f"bad: got {kind!r}, expected some of {', '.join(BAD)}")
        for size in self.sizes:
            Gridworld(size, self.cost_law)
        check_methods(tuple(dict.fromkeys((REFERENCE, *self.methods))))

    @property
    def logs(self) -> tuple[tuple[str, int], ...]:
        """Kind and number of episodes of all logs."""
        good = tuple(("good", number) for number in self.episodes)
        return good + tuple((kind, self.bad_episodes) for kind in self.bad)


@dataclass(frozen=True)
class Shard:
    """One target with all its logs."""

    size: int
    cost_law: str
    target: int
    seed: int
    logs: tuple[tuple[str, int], ...]
    methods: tuple[str, ...]
    digest: str
    """Digest of the methods' code."""

    @property
    def label(self) -> str:
        """The name used in messages."""
        return f"{self.size} x {self.size}, target {self.target}"

    @property
    def cases(self) -> list[Case]:
        """Everything that is designed for the target."""
        return [
            Case(kind, episodes, features, method)
            for kind, episodes in self.logs
            for features in (True, False)
            for method in names_of(self.methods)
        ]


class LogOutcome(NamedTuple):
    """One case on one target: exact numbers, the design's predictions, and whether it fell back."""

    relative_variance: float
    relative_cost: float
    predicted_variance: float
    predicted_cost: float
    fell_back: bool

    @property
    def inaccuracy(self) -> float:
        """The variance: designs are unbiased."""
        return self.relative_variance

    @property
    def well_predicted(self) -> bool:
        """Whether the predicted variance is within 25 % of the true one."""
        return abs(self.predicted_variance / self.relative_variance - 1.0) <= WITHIN


@dataclass(frozen=True)
class LogBlock:
    """All logs of one size; `limits` are mean relative variance and cost with exact values."""

    size: int
    cases: dict[Case, MethodResult[LogOutcome]] = field(repr=False)
    limits: dict[str, tuple[float, float]]

    def select(
        self, method: str, *, features: bool, good: bool | None = None
    ) -> dict[Case, MethodResult[LogOutcome]]:
        """The cases of one table; with `good`, those of one line of the figure."""
        return {
            case: row
            for case, row in self.cases.items()
            if (case.method, case.features) == (method, features)
            and good in (None, case.logs == "good")
        }

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "size": self.size,
            "limits": {
                method: {"relative_variance": v, "relative_cost": c}
                for method, (v, c) in self.limits.items()
            },
            "rows": [
                {
                    **case._asdict(),
                    **{
                        column: row.statistic(name).as_dict()
                        | {"worst": row.statistic(name).largest}
                        for column, name in _COLUMNS.items()
                    },
                    "kept": sum(one.fell_back for one in row.outcomes),
                    "well_predicted": sum(one.well_predicted for one in row.outcomes),
                }
                for case, row in self.cases.items()
            ],
        }

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """For Parquet: every number, target by target."""
        return {
            "logs": [
                {
                    "size": self.size,
                    **case._asdict(),
                    "target": k,
                    **{column: getattr(one, name) for column, name in _COLUMNS.items()},
                }
                for case, row in self.cases.items()
                for k, one in enumerate(row.outcomes)
            ]
        }


#: Names in files -> fields of an outcome.
_COLUMNS = {
    "variance": "relative_variance",
    "cost": "relative_cost",
    "predicted_variance": "predicted_variance",
    "predicted_cost": "predicted_cost",
}


def run(
    config: Config, *, folder: str | os.PathLike[str], **how: Unpack[ShardOptions]
) -> Result[Config, LogBlock]:
    """Run the whole experiment; a pure function of the config (see `run_shards` for the rest)."""
    digest = digest_of(config.methods)
    shards = [
        Shard(size, config.cost_law, k, config.seed, config.logs, config.methods, digest)
        for size in config.sizes
        for k in range(config.targets)
    ]
    answers = run_shards(evaluate_logs, shards, folder=folder, **how)
    each = config.targets
    blocks = (
        _block(shards[first], answers[first : first + each])
        for first in range(0, len(shards), each)
    )
    return Result("log-quality", config, tuple(blocks))


def _block(shard: Shard, answers: Sequence[dict[str, Any]]) -> LogBlock:
    cases = {
        case: MethodResult(case.method, tuple(LogOutcome(*one["designs"][k]) for one in answers))
        for k, case in enumerate(shard.cases)
    }
    limits = np.array([one["limits"] for one in answers]).mean(axis=0).tolist()
    return LogBlock(
        shard.size,
        cases,
        {name: (v, c) for name, (v, c) in zip(names_of(shard.methods), limits, strict=True)},
    )


def evaluate_logs(shard: Shard) -> dict[str, Any]:
    """The work of one shard: a `LogOutcome` for each of its cases, and the limits."""
    world = shard.seed + shard.target
    mdp = Gridworld(shard.size, shard.cost_law, world).mdp()
    target = target_policies(shard.target + 1, shard.size, seed=shard.seed)[shard.target]
    own = exact.assess(mdp, target, target)
    controllers = logging_policies(30, mdp, seed=world)
    known = {log: _logs(mdp, controllers, *log, world) for log in shard.logs}

    def judge(mu: Any, b: Any) -> tuple[float, float]:
        found = exact.assess(mdp, target, mu, b)
        return found.variance / own.variance, found.cost / own.cost

    designs = []
    for case in shard.cases:
        learned = design(
            known[case.logs, case.episodes],
            target,
            horizon=mdp.horizon,
            method=case.method,
            features=cells(shard.size) if case.features else None,
            seed=world,
        )
        predicted, fell_back = learned.predicted, learned.recipe.method == REFERENCE
        numbers = *judge(*learned.table(mdp.states)), predicted.variance, predicted.cost
        designs.append(LogOutcome(*numbers, fell_back))
    best = [exact.design(mdp, target, method) for method in names_of(shard.methods)]
    return {"designs": designs, "limits": [judge(mu, mu.control) for mu in best]}


def _logs(
    mdp: TabularMDP, controllers: list[TabularPolicy], kind: str, episodes: int, seed: int
) -> Transitions:
    """Logs of one kind, by `logging_policies` from worst to best."""
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
    replaced = rng.random(len(logs)) < REPLACED
    wrong = 10.0 * logs.reward if kind == "tenfold rewards" else rng.permutation(logs.reward)
    return replace(logs, reward=np.where(replaced, wrong, logs.reward))

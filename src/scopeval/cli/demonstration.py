"""The whole package in a minute: one policy, evaluated in four ways, and the truth.

The environment is a Gridworld whose exact value is known, and a policy that was never run is to be
evaluated: (a) by running it, (b) by a behavior policy designed from the logs of thirty old
controllers, at the policy's own cost, (c) by one at a part of that cost, chosen on the frontier,
(d) without any logs, by stages that learn from each other. At last the policy runs for as many
episodes as the precision of (b) takes: the comparison that is usually too expensive.

No step costs more than 1, which is known beforehand: with this bound certificates are proofs, for
every distribution of costs. What is promised is a little above what is designed for, so that
1,000 episodes are enough to prove it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scopeval import exact
from scopeval.arrays import check_whole
from scopeval.behavior.designer import design
from scopeval.behavior.frontier import frontier
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.comparison.compare import compare
from scopeval.comparison.result import Comparison
from scopeval.envs.gridworld import Gridworld, cells, logging_policies, logs_of, target_policies
from scopeval.errors import InputError
from scopeval.evaluation.evaluator import evaluate
from scopeval.evaluation.result import Evaluation
from scopeval.evaluation.stages import Stages
from scopeval.exact import TabularMDP
from scopeval.logs.read import read_logs
from scopeval.logs.tables import write_logs
from scopeval.logs.transitions import Transitions
from scopeval.models.table import Table
from scopeval.policies.adapters import TabularPolicy
from scopeval.question.inference import Inference
from scopeval.question.promise import Bound, Promise
from scopeval.question.stop import Stop

__all__ = ["Config", "Demo", "Run", "run"]

#: Most episodes of the policy itself.
_MOST = 1_000_000
#: Steps that progress is told in.
_STEPS = 6


@dataclass(frozen=True)
class Config:
    """What to run."""

    size: int = 10
    """Cells along one side of the Gridworld; also the number of steps of an episode."""
    cost_law: str = "same-tilt"
    """How costs are drawn, see `envs.gridworld`."""
    seed: int = 0
    """Seed of the world, the policy, the logs and the episodes."""
    controllers: int = 30
    """Old controllers in the logs, from untrained to nearly optimal."""
    logged: int = 1000
    """Episodes in the logs."""
    episodes: int = 1000
    """Episodes of each evaluation."""
    part: float = 0.6
    """The cheap behavior policy is designed to cost this part of the policy's own cost, ..."""
    allowed: float = 0.7
    """... and this is what is promised, and to be proved."""
    own: float = 1.05
    """What is promised of the others, which are designed at the policy's own cost."""
    changed: float = 0.2
    """Share of another policy in the new policy, which is compared with today's."""
    step_cost: float = 1.0
    """The most that a step can cost."""

    def __post_init__(self) -> None:
        least = {"seed": 0, "controllers": 1, "logged": self.controllers, "episodes": 2}
        for name, smallest in least.items():
            check_whole(name, getattr(self, name), smallest)


class Run(NamedTuple):
    """A behavior policy from the logs, and the evaluation by it."""

    behavior: BehaviorPolicy
    evaluation: Evaluation


@dataclass(frozen=True)
class Demo:
    """The result of the demonstration: evaluations of the same policy.

    Attributes:
        config: of the run.
        logs: where the logs were written.
        rows: steps in the logs.
        compared: today's policy and a new one, by the same episodes.
        gain: J(new) - J(today), exact.
        truth: J(pi), exact.
        on_policy: (a) the policy itself.
        designed: (b) designed from the logs, at the policy's own cost.
        cheap: (c) at a part of that cost; None: the logs bear out no such behavior policy.
        no_cheap: why there is none, in words; empty where there is one.
        learned: (d) without logs.
        same_precision: the policy itself, for as many episodes as the interval of (b) takes; None
            if that is not known.
    """

    config: Config
    logs: Path
    rows: int
    compared: Comparison
    gain: float
    truth: float
    on_policy: Evaluation
    designed: Run
    cheap: Run | None
    no_cheap: str
    learned: Evaluation
    same_precision: Evaluation | None


def run(
    config: Config,
    folder: str | Path,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> Demo:
    """Logs, designs, evaluations, comparison; the logs are written to ``folder/logs.parquet``."""
    place = _place(folder)
    show = _Show(config)
    progress(0, _STEPS, "writing logs (compiling at the first run)")
    path, log = show.write_logs(place)
    progress(1, _STEPS, "comparing with a new policy")
    compared, gain = show.against_a_new_one(log)
    progress(2, _STEPS, "designing from the logs")
    designed = show.at_own_cost(log)
    progress(3, _STEPS, "designing at a part of the cost")
    cheap, no_cheap = show.at_part_of_cost(log)
    progress(4, _STEPS, "learning without logs")
    learned = show.without_logs()
    progress(5, _STEPS, "running the policy itself")
    many = designed.evaluation.on_policy
    same = None
    if many.unknown is None and 1 < many.episodes < _MOST:
        same = show.itself(math.ceil(many.episodes), stream=9, keep=False)
    return Demo(
        config=config,
        logs=path,
        rows=len(log),
        compared=compared,
        gain=gain,
        truth=exact.assess(show.mdp, show.target, show.target).value,
        on_policy=show.itself(config.episodes, stream=8, keep=True),
        designed=designed,
        cheap=cheap,
        no_cheap=no_cheap,
        learned=learned,
        same_precision=same,
    )


class _Show:
    """The world and the policy of a configuration, and the four evaluations."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.mdp: TabularMDP = Gridworld(config.size, config.cost_law, config.seed).mdp()
        self.target: TabularPolicy = target_policies(1, config.size, seed=config.seed)[0]
        self._cells = cells(config.size)

    def write_logs(self, folder: Path) -> tuple[Path, Transitions]:
        """Where the logs were written, and what is read from there."""
        seed, path = self.config.seed, folder / "logs.parquet"
        controllers = logging_policies(self.config.controllers, self.mdp, seed=seed)
        write_logs(logs_of(self.mdp, controllers, self.config.logged, seed=seed), path)
        return path, read_logs(path)

    def against_a_new_one(self, log: Transitions) -> tuple[Comparison, float]:
        """Is a new policy, which decides otherwise in a part of the cases, better than today's?"""
        T = self.mdp.horizon
        other = target_policies(2, self.config.size, seed=self.config.seed)[1]
        today, part = self.target.table(T), self.config.changed
        new = (1.0 - part) * today + part * other.table(T)
        compared = compare(
            self.mdp,
            {"today": today, "new": new},
            stop=Stop(decided=True, episodes=self.config.episodes),
            logs=log,
            seed=self._seed(10),
        )
        values = [exact.assess(self.mdp, p, p).value for p in (today, new)]
        return compared, values[1] - values[0]

    def itself(self, episodes: int, *, stream: int, keep: bool) -> Evaluation:
        """By the policy itself."""
        seed = self._seed(stream)
        return evaluate(
            self.mdp, self.target, episodes=episodes, seed=seed, inference=Inference(keep=keep)
        )

    def at_own_cost(self, log: Transitions) -> Run:
        """By a design from the logs at the policy's own cost."""
        behavior = design(
            log,
            self.target,
            horizon=self.mdp.horizon,
            learn=Table(features=self._cells),
            seed=self.config.seed,
        )
        return Run(behavior, self._evaluate(behavior, self.config.own, stream=1))

    def at_part_of_cost(self, log: Transitions) -> tuple[Run | None, str]:
        """By a point of the frontier; or none, and why."""
        curve = frontier(
            log,
            self.target,
            horizon=self.mdp.horizon,
            learn=Table(features=self._cells),
            seed=self.config.seed,
        )
        try:
            behavior = curve.at(cost=self.config.part)
        except InputError as why:
            return None, str(why)
        return Run(behavior, self._evaluate(behavior, self.config.allowed, stream=2)), ""

    def without_logs(self) -> Evaluation:
        """In stages that learn from each other; the first runs the policy itself."""
        stages = Stages(learn=Table(features=self._cells))
        return self._evaluate(stages, self.config.own, stream=3)

    def _evaluate(self, run: BehaviorPolicy | Stages, allowed: float, *, stream: int) -> Evaluation:
        return evaluate(
            self.mdp,
            self.target,
            run,
            episodes=self.config.episodes,
            promise=Promise(at_most=allowed, bound=Bound(step=self.config.step_cost)),
            inference=Inference(keep=True),
            seed=self._seed(stream),
        )

    def _seed(self, stream: int) -> int:
        """Seeds without common random numbers: logs and evaluation must be independent."""
        return int(np.random.SeedSequence((self.config.seed, stream)).generate_state(1)[0])


def _place(folder: str | Path) -> Path:
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write to {place}: {error.strerror}; expected a folder, or none yet"
        ) from error
    return place

"""The whole package in a minute: logs, a design from them, a guarded evaluation, and the truth.

The environment is a Gridworld whose exact value is known. Thirty old controllers have left logs,
and a policy that was never run is to be evaluated. The logs are written to a Parquet file, a
behavior policy is designed from the file and run, and its episodes give the estimate. The policy
itself is then run as well, for as many episodes and for as many as the same precision takes: the
comparison that is usually too expensive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scopeval import exact
from scopeval.arrays import check_whole
from scopeval.behavior.designer import design
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.data.parquet import write_logged
from scopeval.data.readers import read_logged
from scopeval.envs.gridworld import Gridworld, cells, logging_policies, logs_of, target_policies
from scopeval.errors import InputError
from scopeval.evaluation.evaluator import evaluate
from scopeval.evaluation.result import Evaluation

__all__ = ["Config", "Demo", "run"]

#: The paper's method, and the one with a control variate, which the page is about.
SHOWN = ("scope", "scope-dr")
#: Most episodes of the policy itself.
_MOST = 1_000_000


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

    def __post_init__(self) -> None:
        least = {"seed": 0, "controllers": 1, "logged": self.controllers, "episodes": 2}
        for name, smallest in least.items():
            check_whole(name, getattr(self, name), smallest)


@dataclass(frozen=True)
class Demo:
    """The result of the demonstration.

    Attributes:
        config: of the run.
        logs: where the logs were written.
        rows: steps in the logs.
        truth: J(pi), exact.
        behaviors: by method, designed from the logs.
        evaluations: by method, of the same policy, guard on.
        on_policy: the policy itself, for as many episodes.
        same_precision: the policy itself, for as many episodes as the interval of the last
            method's evaluation takes; None if that is not known.
    """

    config: Config
    logs: Path
    rows: int
    truth: float
    behaviors: dict[str, BehaviorPolicy]
    evaluations: dict[str, Evaluation]
    on_policy: Evaluation
    same_precision: Evaluation | None


def run(
    config: Config,
    folder: str | Path,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> Demo:
    """Logs, designs, evaluations, comparison; the logs are written to ``folder/logs.parquet``."""
    mdp = Gridworld(config.size, config.cost_law, config.seed).mdp()
    target = target_policies(1, config.size, seed=config.seed)[0]
    steps = 2 + 2 * len(SHOWN)

    path = _place(folder) / "logs.parquet"
    progress(0, steps, "writing logs (compiling at the first run)")
    controllers = logging_policies(config.controllers, mdp, seed=config.seed)
    write_logged(logs_of(mdp, controllers, config.logged, seed=config.seed), path)
    log = read_logged(path)

    behaviors: dict[str, BehaviorPolicy] = {}
    evaluations: dict[str, Evaluation] = {}
    for k, method in enumerate(SHOWN):
        progress(1 + 2 * k, steps, f"designing with {method}")
        behavior = design(
            log,
            target,
            horizon=mdp.horizon,
            method=method,
            features=cells(config.size),
            seed=config.seed,
        )
        progress(2 + 2 * k, steps, f"evaluating with {method}")
        behaviors[method] = behavior
        evaluations[method] = evaluate(
            mdp,
            target,
            behavior,
            episodes=config.episodes,
            seed=_seed(config, 1 + k),
            guard=True,
            keep=True,
        )
    progress(steps - 1, steps, "running the policy itself")
    many = evaluations[SHOWN[-1]].on_policy
    same = None
    if many.unknown is None and 1 < many.episodes < _MOST:
        same = evaluate(mdp, target, episodes=math.ceil(many.episodes), seed=_seed(config, 9))
    return Demo(
        config=config,
        logs=path,
        rows=len(log),
        truth=exact.assess(mdp, target, target).value,
        behaviors=behaviors,
        evaluations=evaluations,
        on_policy=evaluate(mdp, target, episodes=config.episodes, seed=_seed(config, 8), keep=True),
        same_precision=same,
    )


def _seed(config: Config, stream: int) -> int:
    """Seeds without common random numbers: logs and evaluation must be independent."""
    return int(np.random.SeedSequence((config.seed, stream)).generate_state(1)[0])


def _place(folder: str | Path) -> Path:
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write to {place}: {error.strerror}; expected a folder, or none yet"
        ) from error
    return place

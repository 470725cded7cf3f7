"""A comparison beside the designs of its policies, and a decision of two beside one of a design.

From logs and an environment to the answer: episodes, learning, choice and intervals; beside as many
designs from the same logs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.harness import Comparison, race
from scopeval import compare, design
from scopeval.arrays import check_whole
from scopeval.collection.choice import Decider
from scopeval.comparison.mixture import choose
from scopeval.comparison.policy_set import PolicySet
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.policies.episode_state import EpisodeState

__all__ = ["Config", "run"]


@dataclass(frozen=True)
class Config:
    """What to measure."""

    size: int = 10
    """Cells along one side of the Gridworld; also the number of steps of an episode."""
    logged: int = 1_000
    """Episodes in the logs."""
    episodes: int = 1_000
    """Of the comparison."""
    policies: tuple[int, ...] = (2, 10)
    """How many are compared."""
    calls: int = 2_000
    """Decisions in a row."""
    repeats: int = 7
    """Turns of each side; the best counts."""
    seed: int = 0
    """Of the world, the policies and the episodes."""

    def __post_init__(self) -> None:
        for name in ("size", "logged", "episodes", "calls"):
            check_whole(name, getattr(self, name), 1)


def run(config: Config) -> list[Comparison]:
    """Whole comparisons, with logs and without, and a decision."""
    return [
        *(_whole(config, K, logs=logs) for K in config.policies for logs in (True, False)),
        _decision(config),
    ]


def _whole(config: Config, K: int, *, logs: bool) -> Comparison:
    """The answer about K policies beside K designs."""
    mdp = Gridworld(config.size, seed=config.seed).mdp()
    logged = gridworld_logs(mdp, config.logged, seed=config.seed)
    each = target_policies(K, config.size, seed=config.seed)
    policies = {f"p{k}": policy for k, policy in enumerate(each)}

    def ours() -> None:
        known = logged if logs else None
        compare(mdp, policies, episodes=config.episodes, logs=known, seed=config.seed)

    def designs() -> None:
        for policy in each:
            design(logged, policy, horizon=config.size, seed=config.seed)

    times = race(ours, designs, repeats=config.repeats)
    source = "logs" if logs else "no logs"
    return Comparison(
        f"compare {K} policies, {source}: {K} designs",
        times.ours,
        times.peer,
        unit="comparison",
        sense="slower",
        goal=1.5,
        note=f"{config.episodes:,} episodes of {config.size} steps are run in it",
    )


def _decision(config: Config) -> Comparison:
    """Which action a mixture of two takes, beside which one a design does."""
    one, other = target_policies(2, config.size, seed=config.seed)
    mdp = Gridworld(config.size, seed=config.seed).mdp()
    logged = gridworld_logs(mdp, config.logged, seed=config.seed)
    decider = Decider(one, design(logged, one, horizon=config.size))
    two, shares = PolicySet({"old": one, "new": other}), np.full(2, 0.5)
    obs, state, rng = np.zeros(1, np.int64), EpisodeState.start(1, 2), np.random.default_rng(0)

    def ours() -> None:
        for _ in range(config.calls):
            choose(two, obs, 0, state, shares, rng.random(1), [rng])

    def single() -> None:
        for _ in range(config.calls):
            decider.choose(obs[0], 0, rng)

    times = race(ours, single, repeats=config.repeats)
    return Comparison(
        "a decision of a mixture of two: of a design",
        times.ours / config.calls,
        times.peer / config.calls,
        unit="decision",
        sense="slower",
        goal=1.5,
    )

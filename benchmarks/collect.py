"""Collecting episodes of a robot with a learned behavior policy, against stepping it at random.

The robots are the same, side by side in one process; the peer draws uniform actions and keeps
nothing. How well the behavior was learned does not matter for its speed: it is learned for a few
steps, and these critics are used for all steps in turn. That it does not fall back, and has the
networks of a usual design, is checked. Epsilon is large, because a design this poor would have
nothing to gain without.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.harness import Comparison, load_peer, not_installed, quiet, timed
from experiments.robots.env import HORIZON, Robots
from experiments.robots.logs import robot_logs
from experiments.robots.policies import RobotPolicy, robot_policies
from scopeval import Check, Promise
from scopeval.arrays import check_whole
from scopeval.behavior.designer import design
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.collection.collector import collect
from scopeval.models.model.critic import ModelCritic
from scopeval.models.model.regression import Networks
from scopeval.models.model.return_features import Study
from scopeval.models.model.training import Training

__all__ = ["Config", "run"]


@dataclass(frozen=True)
class Config:
    """What to measure."""

    robots: tuple[str, ...] = ("Hopper", "InvertedPendulum")
    """Which robots."""
    side_by_side: int = 300
    """Copies of the robot, and episodes of a turn."""
    logged: int = 60
    """Logged episodes that the behavior is learned from."""
    learned: int = 10
    """Time steps that it is learned for."""
    epsilon: float = 0.5
    """How much more it may cost."""
    regression: Networks = field(
        default_factory=lambda: Networks(
            training=Training(steps=300),
            paths=100,
            study=Study(paths=200, steps=200),
            first_look=False,
        )
    )
    """How it is learned."""
    repeats: int = 5
    """Turns of each side; the best counts."""
    seed: int = 0
    """Seed of the logs, the learning and the episodes."""

    def __post_init__(self) -> None:
        for name in ("side_by_side", "logged", "learned", "repeats"):
            check_whole(name, getattr(self, name), 1)


def run(config: Config) -> list[Comparison]:
    """One row for each robot."""
    return [_row(robot, config) for robot in config.robots]


def _row(robot: str, config: Config) -> Comparison:
    name = f"collect, {robot}"
    if load_peer("mujoco") is None:
        note = not_installed("mujoco")
        return Comparison(name, 0.0, None, unit="step", sense="slower", goal=1.25, note=note)
    policies = robot_policies(robot)
    target = policies[2 * len(policies) // 3]
    behavior = _learned(robot, target, config)
    robots = Robots(robot, config.side_by_side)
    best = {"learned": np.inf, "target": np.inf, "random": np.inf}
    steps = 0

    def collected(mu: BehaviorPolicy | None) -> None:
        nonlocal steps
        done = collect(
            robots, target, mu, horizon=HORIZON, episodes=config.side_by_side, seed=config.seed
        )
        steps = int(done.length.sum())

    def at_random() -> None:
        nonlocal steps
        steps = _at_random(robots, config.seed)

    turns = {
        "learned": lambda: collected(behavior),
        "target": lambda: collected(None),
        "random": at_random,
    }
    with quiet():
        for turn in range(config.repeats + 1):
            for who, play in turns.items():
                took = timed(play) / steps if turn else timed(play) * np.inf
                best[who] = min(best[who], took)
    alone, counts = best["target"] / best["random"], behavior.counts
    doubtful = (counts.unseen + counts.infeasible + counts.not_finite) / counts.asked
    return Comparison(
        name,
        best["learned"],
        best["random"],
        unit="step",
        sense="slower",
        goal=1.25,
        note=f"{config.side_by_side} side by side, {target.draws} candidates; the target alone "
        f"{alone:.2f}x; {1 - doubtful:.0%} of the steps re-weighed",
    )


def _learned(robot: str, target: RobotPolicy, config: Config) -> BehaviorPolicy:
    """A policy for all steps that differs from the target, however good it is.

    Raises:
        AssertionError: the design fell back, or is not a usual one; then its speed says nothing.
    """
    log = robot_logs(robot, episodes=config.logged, seed=config.seed)
    log = log.select(log.t < config.learned)
    policy = design(
        log,
        target,
        horizon=config.learned,
        seed=config.seed,
        method="scope",
        promise=Promise(at_most=1 + config.epsilon),
        learn=config.regression,
        check=Check(least_gain=0.0),
    )
    assert not policy.falls_back, policy.report.fallback
    asked = {how.hidden for how in config.regression.trainings}
    for critic in policy.critics:
        assert isinstance(critic, ModelCritic)
        widths = {len(network.weights["b2"]) for network in critic.dynamics.learned}
        assert widths, "the dynamics are not learned"
        assert widths <= asked, f"networks of width {widths}, expected {asked}"
    critics = [policy.critics[t % config.learned] for t in range(HORIZON)]
    recipe = replace(policy.recipe, horizon=HORIZON)
    return BehaviorPolicy(target, critics, recipe, policy.report)


def _at_random(robots: Robots, seed: int) -> int:
    """One episode of uniform actions in each robot; how many steps they took."""
    rng = np.random.default_rng(seed)
    running = np.arange(len(robots))
    robots.reset([seed + i for i in range(len(robots))])
    steps = 0
    for _ in range(HORIZON):
        actions = rng.uniform(robots.low, robots.high, (len(running), len(robots.low)))
        ended = robots.step(actions, running).terminated
        steps += len(running)
        running = running[~ended]
        if not len(running):
            break
    return steps

"""Learning critics and a behavior policy, against learning one critic by fitted Q evaluation.

Two problems whose true values are known: the Gridworld, and vectors with quadratic rewards. d3rlpy
fits q alone, from the same rows, until its error on held-out rows is ours, or until its time is up.
Its inputs contain the time left, and it draws the next action from the target policy. The second
peer trains networks like ours one by one in torch.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from benchmarks.harness import Comparison, load_peer, not_installed, quiet, timed
from benchmarks.quadratic import Quadratic
from benchmarks.sweep_peers import (
    Task,
    fit_by_d3rlpy,
    root_mean_square,
    train_modules,
)
from experiments.mlp.regression import MLPRegression
from scopeval._parallel import one_torch_thread
from scopeval.arrays import Floats, check_whole
from scopeval.behavior.designer import design
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe
from scopeval.behavior.sweep import Swept, follow_own, sweep
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.exact import values
from scopeval.logs.transitions import Transitions
from scopeval.models.protocols import (
    Critic,
    Estimates,
    Learner,
    Regression,
    Targets,
    logged_sweep_data,
)
from scopeval.models.rows import Rows

__all__ = ["Config", "run"]

R = TypeVar("R")


@dataclass(frozen=True)
class Config:
    """What to measure."""

    size: int = 30
    """Cells along one side of the Gridworld; also the number of steps of an episode."""
    episodes: int = 1_000
    """Logged episodes of the Gridworld."""
    tuples: int = 100_000
    """Logged rows of the vectors."""
    horizon: int = 100
    """Steps of a sweep over vectors ..."""
    measured: int = 10
    """... and how many of them are measured."""
    patience: float = 120.0
    """Most seconds of training for d3rlpy, for each problem; it is stopped earlier if the goal is
    exceeded by half."""
    updates: int = 100
    """Updates of d3rlpy between two measurements of its error."""
    networks: MLPRegression = field(default_factory=MLPRegression)
    """Settings of our networks."""
    repeats: int = 3
    """Runs of our design; the median counts."""
    seed: int = 0
    """Seed of the problems and of the networks."""

    def __post_init__(self) -> None:
        for name in ("episodes", "tuples", "repeats", "updates"):
            check_whole(name, getattr(self, name), 1)
        check_whole("measured", self.measured, 2, " of steps")


def run(config: Config) -> list[Comparison]:
    """Both problems."""
    return [_table(config), *_vectors(config)]


def _table(config: Config) -> Comparison:
    """Whole designs of the Gridworld: both halves, the cross-check, and the final sweep."""
    n = config.size
    mdp = Gridworld(n, seed=config.seed).mdp()
    target = target_policies(1, n, seed=config.seed)[0]
    log = gridworld_logs(mdp, config.episodes, seed=config.seed)
    held = gridworld_logs(mdp, config.episodes, seed=config.seed + 1)
    policy = design(log, target, horizon=n, method="scope")
    with quiet():
        took = [
            timed(lambda: design(log, target, horizon=n, method="scope"))
            for _ in range(config.repeats)
        ]
    truth = values(mdp, target).q[held.t, held.obs, held.action]
    ours = np.stack([critic.at(np.arange(n * n)).q for critic in policy.critics])
    error = root_mean_square(ours[held.t, held.obs, held.action] - truth)
    pi = target.probs(np.zeros(1, np.int64), 0)[0]

    def encoded(part: Transitions) -> Floats:
        left = (n - part.t) / n
        return np.column_stack([np.eye(n * n)[part.obs], left])

    return _against_fqe(
        f"table {n} x {n}: d3rlpy FQE",
        float(np.median(took)),
        Task(log, n, pi, encoded, held, truth),
        error,
        config,
        unit="design",
        goal=100.0,
        what="five sweeps of four critics; d3rlpy fits q once",
    )


def _vectors(config: Config) -> list[Comparison]:
    world = Quadratic(seed=config.seed)
    T = config.measured
    log = world.log(max(config.tuples // T, 4), T, seed=1)
    held = world.log(max(config.tuples // (10 * T), 4), T, seed=2)
    truth = world.values(held, T)
    swept, (first, *others) = _timed_sweep(world, log, config.networks, T, config.seed)
    later = float(np.median(others))
    answers = np.empty(len(held))
    for t, critic in enumerate(swept.critics):
        now = np.flatnonzero(held.t == t)
        answers[now] = critic.at(np.asarray(held.obs)[now]).q[np.arange(len(now)), held.action[now]]
    share = f"{T} of {config.horizon} steps measured"

    def encoded(part: Transitions) -> Floats:
        return np.column_stack([part.obs, (T - part.t) / T])

    return [
        _against_fqe(
            "mlp: d3rlpy FQE",
            (first + (config.horizon - 1) * later) / config.horizon,
            Task(log, T, world.pi, encoded, held, truth),
            root_mean_square(answers - truth),
            config,
            unit="step",
            goal=20.0,
            what=f"{len(log):,} rows, {share}; one sweep of four critics; d3rlpy fits q",
        ),
        _against_modules(world, log, config),
    ]


def _timed_sweep(
    world: Quadratic, log: Transitions, how: Regression, horizon: int, seed: int
) -> tuple[Swept, list[float]]:
    """A sweep, and the seconds of each of its steps."""
    recipe = Recipe("scope", 0.0, horizon, 1.0, 0.02, 0.0, "behavior", None)
    rows = Rows.of(log)
    ticks = [time.perf_counter()]

    starts = rows.select(np.flatnonzero(rows.t == 0))
    ground = logged_sweep_data(rows, starts, how, actions=world.actions, steps=1)
    swept = sweep(
        ground,
        world.target(),
        follow_own(METHODS["scope"], recipe),
        horizon=horizon,
        gamma=1.0,
        actions=world.actions,
        followed=2,
        seed=seed,
        watch=(lambda _: ticks.append(time.perf_counter()),),
    )
    return swept, np.diff(ticks).tolist()


def _against_fqe(
    name: str,
    seconds: float,
    task: Task,
    error: float,
    config: Config,
    *,
    unit: str,
    goal: float,
    what: str,
) -> Comparison:
    ours = Comparison(name, seconds, None, unit=unit, sense="faster", goal=goal)
    peer = load_peer("d3rlpy")
    if peer is None:
        return replace(ours, note=not_installed("d3rlpy"))
    per = 1.0 if unit == "design" else 1.0 / task.horizon
    patience = min(config.patience, 1.5 * goal * seconds / per)  # then the goal is met for sure
    fitted = fit_by_d3rlpy(
        peer, task, error, patience=patience, updates=config.updates, seed=config.seed
    )
    note = (
        f"{what}; held-out error {error:.3g}, d3rlpy's {fitted.error:.3g} after "
        f"{fitted.updates:,} updates"
    )
    return replace(ours, peer=fitted.seconds * per, note=note, stopped=fitted.error > error)


def _against_modules(world: Quadratic, log: Transitions, config: Config) -> Comparison:
    """One time step: all networks of ours, and the same in torch, one module after the other.

    Both fit and answer. What else a sweep does (targets, programs, recursions) has no counterpart
    in torch's loop; its time is in the note. They take turns, torch with all threads and with one,
    and the best time of each counts.
    """
    how = replace(config.networks, patience=10**9)  # both take all steps
    heads, folds = 7, 2  # q, cost, two costs beyond it, two variances to come, noise
    ours, whole, theirs = float("inf"), float("inf"), float("inf")
    with quiet():
        for threads in (contextlib.nullcontext, one_torch_thread) * 2:
            timed_regression = _TimedRegression(how)
            _, (_, *later) = _timed_sweep(world, log, timed_regression, 3, config.seed)
            whole, ours = min(whole, *later), min(ours, *timed_regression.seconds[1:])
            with threads():
                took = timed(lambda: train_modules(log, world.actions, how, heads * folds))
            theirs = min(theirs, took)
    return Comparison(
        "mlp: torch eager modules",
        ours,
        theirs,
        unit="step",
        sense="faster",
        goal=5.0,
        note=f"{heads * folds} networks, {how.steps} steps of {how.batch} rows, width "
        f"{how.hidden}, answers at {len(log):,} rows; our whole step, including programs, takes "
        f"{whole * 1e3:.0f} ms",
    )


class _TimedRegression:
    """A regression whose fits and answers are timed, step by step of a sweep."""

    name = "timed"

    def __init__(self, how: MLPRegression) -> None:
        self.how = how
        self.seconds: list[float] = []

    def prepare(self, rows: Rows, actions: int) -> Rows:
        return self.how.prepare(rows, actions)

    def learner(self, rows: Rows, actions: int, seed: int) -> Learner:
        return _TimedLearner(self.how.learner(rows, actions, seed), self.seconds)


@dataclass(frozen=True)
class _TimedLearner:
    learner: Learner
    seconds: list[float]

    def fit(self, targets: Targets) -> Critic:
        self.seconds.append(0.0)
        critic = _add_time(self.seconds, lambda: self.learner.fit(targets))
        return _TimedCritic(critic, self.seconds)


@dataclass(frozen=True)
class _TimedCritic:
    critic: Critic
    seconds: list[float]

    def at(self, obs: Any, actions: Any = None) -> Estimates:
        return _add_time(self.seconds, lambda: self.critic.at(obs, actions))


def _add_time(seconds: list[float], call: Callable[[], R]) -> R:
    """What a call returns; its time is added to the last number."""
    began = time.perf_counter()
    answer = call()
    seconds[-1] += time.perf_counter() - began
    return answer

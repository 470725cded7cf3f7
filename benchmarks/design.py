"""From logs to a design, beside what one would do instead.

For a table, fitted Q evaluation by d3rlpy: it learns one critic from the same rows, and stops when
its error on held-out rows is ours, or when its time is up. For vectors, nothing: the episodes of
the policy itself that the design saves. The time of a design divided by the steps that it saves is
the time of one step of an environment from which on it pays. And a whole frontier, in designs.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import Comparison, load_peer, not_installed, quiet, timed
from benchmarks.worlds import CartPole, cart_logs, cart_policy
from scopeval import Networks, Table, collect, design, frontier
from scopeval._parallel import one_torch_thread
from scopeval.arrays import Floats, Ints, check_whole
from scopeval.envs.gridworld import Gridworld, cells, gridworld_logs, target_policies
from scopeval.exact import values
from scopeval.logs.transitions import Transitions

__all__ = ["Config", "run"]


@dataclass(frozen=True)
class Config:
    """What to measure."""

    size: int = 30
    """Cells along one side of the Gridworld; also the number of steps of an episode."""
    episodes: int = 1_000
    """Logged episodes of both worlds."""
    horizon: int = 100
    """Steps of an episode of the pole, at most."""
    evaluated: int = 1_000
    """Episodes of the evaluation for which a design is made."""
    prices: int = 40
    """Points of the frontier."""
    patience: float = 120.0
    """Most seconds of training for d3rlpy; it stops earlier if the goal is exceeded by half."""
    updates: int = 100
    """Updates of d3rlpy between two measurements of its error."""
    model: Networks = field(default_factory=Networks)
    """How the world of the vectors is learned."""
    repeats: int = 3
    """Runs of ours; the best counts."""
    seed: int = 0
    """Seed of the problems and of the networks."""

    def __post_init__(self) -> None:
        for name in ("size", "episodes", "evaluated", "prices", "repeats", "updates"):
            check_whole(name, getattr(self, name), 1)


def run(config: Config) -> list[Comparison]:
    """A table, vectors, a frontier."""
    return [_table(config), _vectors(config), _frontier(config)]


# -- a table ---------------------------------------------------------------------------------------


def _table(config: Config) -> Comparison:
    """Whole designs: both halves, the cross-check, and the final sweep."""
    n = config.size
    mdp = Gridworld(n, seed=config.seed).mdp()
    target = target_policies(1, n, seed=config.seed)[0]
    log = gridworld_logs(mdp, config.episodes, seed=config.seed)
    held = gridworld_logs(mdp, config.episodes, seed=config.seed + 1)
    policy = design(log, target, horizon=n, method="scope")
    with quiet():
        took = min(
            timed(lambda: design(log, target, horizon=n, method="scope"))
            for _ in range(config.repeats)
        )
    truth = values(mdp, target).q[held.t, held.obs, held.action]
    ours = np.stack([critic.at(np.arange(n * n)).q for critic in policy.critics])
    error = root_mean_square(ours[held.t, held.obs, held.action] - truth)
    pi = target.probs(np.zeros(1, np.int64), 0)[0]

    def encoded(part: Transitions) -> Floats:
        return np.column_stack([np.eye(n * n)[part.obs], (n - part.t) / n])

    name, goal, peer = f"table {n} x {n}: d3rlpy FQE", 100.0, load_peer("d3rlpy")
    if peer is None:
        note = not_installed("d3rlpy")
        return Comparison(name, took, None, unit="design", sense="faster", goal=goal, note=note)
    task = Task(log, n, pi, encoded, held, truth)
    patience = min(config.patience, 1.5 * goal * took)  # then the goal is met for sure
    fitted = fit_by_d3rlpy(
        peer, task, error, patience=patience, updates=config.updates, seed=config.seed
    )
    return Comparison(
        name,
        took,
        fitted.seconds,
        unit="design",
        sense="faster",
        goal=goal,
        note=f"five sweeps of four critics; d3rlpy fits q once; held-out error {error:.3g}, "
        f"d3rlpy's {fitted.error:.3g} after {fitted.updates:,} updates",
        stopped=fitted.error > error,
    )


@dataclass(frozen=True)
class Task:
    """A problem for d3rlpy.

    Attributes:
        log: rows to learn from.
        horizon: steps of an episode.
        pi: the target policy, the same everywhere.
        encoded: rows -> inputs of the network.
        held: rows to measure the error on.
        truth: true action values at these rows.
    """

    log: Transitions
    horizon: int
    pi: Floats
    encoded: Callable[[Transitions], Floats]
    held: Transitions
    truth: Floats


class Fitted(NamedTuple):
    """Seconds of training, updates, and the least error so far."""

    seconds: float
    updates: int
    error: float


def fit_by_d3rlpy(
    peer: Any, task: Task, error: float, *, patience: float, updates: int, seed: int
) -> Fitted:
    """Train until the held-out error is reached or the time is up.

    Args:
        peer: the module d3rlpy.
        task: the problem.
        error: to reach.
        patience: most seconds of training.
        updates: between two measurements of the error.
        seed: of torch.
    """
    import torch

    logging.getLogger("d3rlpy").setLevel(logging.ERROR)
    silent = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with silent[0], silent[1], one_torch_thread():
        torch.manual_seed(seed)
        data = _dataset(peer, task)
        # the settings that reached small errors fastest among those tried
        config = peer.ope.FQEConfig(
            gamma=1.0,
            learning_rate=3e-3,
            batch_size=256,
            target_update_interval=50,
            encoder_factory=peer.models.VectorEncoderFactory([256]),
        )
        fqe = peer.ope.DiscreteFQE(_algorithm(task.pi), config)
        fqe.build_with_dataset(data)
        inputs = task.encoded(task.held).astype(np.float32)
        spent, steps, best = 0.0, 0, float("inf")
        epochs = fqe.fitter(
            data,
            n_steps=10**9,
            n_steps_per_epoch=updates,
            logger_adapter=peer.logging.NoopAdapterFactory(),
            show_progress=False,
        )
        while best > error and spent < patience:
            spent += timed(lambda: next(epochs))
            steps += updates
            answers = fqe.predict_value(inputs, task.held.action)
            best = min(best, root_mean_square(answers - task.truth))
    return Fitted(spent, steps, best)


def _algorithm(probabilities: Floats) -> Any:
    """The target policy in the form that d3rlpy asks: an action for each observation."""
    import torch

    pi = torch.tensor(probabilities, dtype=torch.float32)

    class Target:
        @staticmethod
        def predict_best_action(obs: Any) -> Any:
            return torch.multinomial(pi.expand(len(obs), len(pi)), 1)[:, 0]

    class Algorithm:
        impl = Target()

    return Algorithm()


def _dataset(peer: Any, task: Task) -> Any:
    log = task.log
    order = np.lexsort((log.t, _episode(log)))
    return peer.dataset.MDPDataset(
        task.encoded(log)[order].astype(np.float32),
        log.action[order, None],
        log.reward[order, None].astype(np.float32),
        (log.t[order] == task.horizon - 1).astype(np.float32),
        action_space=peer.ActionSpace.DISCRETE,
        action_size=len(task.pi),
    )


def _episode(log: Transitions) -> Ints:
    """Numbers of episodes: rows of the same t are in the order of their episodes."""
    number = np.empty(len(log), np.int64)
    for t in range(int(log.t.max()) + 1):
        now = np.flatnonzero(log.t == t)
        number[now] = np.arange(len(now))
    return number


def root_mean_square(errors: Floats) -> float:
    """Root mean square of the errors."""
    return float(np.sqrt(np.mean(errors**2)))


# -- vectors ---------------------------------------------------------------------------------------


def _vectors(config: Config) -> Comparison:
    """A whole design, and the steps of the policy itself that it saves."""
    log = cart_logs(config.episodes, config.horizon, config.seed)

    def designed() -> Any:
        return design(log, cart_policy, horizon=config.horizon, learn=config.model)

    behavior = designed()
    with quiet():
        took = min(timed(designed) for _ in range(config.repeats))
    own = []

    def played() -> None:
        some = collect(CartPole, cart_policy, horizon=config.horizon, episodes=64, seed=config.seed)
        own.append(float(some.length.mean()))

    played()
    step = timed(played) / (64 * own[0])
    variance = behavior.predicted.variance
    saved = config.evaluated * (1.0 / variance - 1.0) * own[0]
    return Comparison(
        f"vectors, {config.episodes:,} episodes: the steps it saves",
        took / max(saved, 1.0),
        step,
        unit="step saved",
        sense="slower",
        note=f"{len(log):,} rows, {took:.1f} s a design; predicted variance {variance:.2f}: "
        f"{config.evaluated:,} episodes stand for {config.evaluated / variance:,.0f} of the policy "
        "itself. It pays where a step takes longer than ours; here one takes as long as the peer",
    )


# -- a frontier ------------------------------------------------------------------------------------


def _frontier(config: Config) -> Comparison:
    """A frontier sweeps all prices over all logs and both halves; a design does that for one."""
    n = config.size
    mdp = Gridworld(n, seed=config.seed).mdp()
    target = target_policies(1, n, seed=config.seed)[0]
    logs, learn = gridworld_logs(mdp, config.episodes, seed=config.seed), Table(features=cells(n))

    def one() -> None:
        design(logs, target, horizon=n, learn=learn)

    def every() -> None:
        frontier(logs, target, horizon=n, points=config.prices, learn=learn)

    one()  # compiled, if they were not
    every()
    once, whole = (min(timed(call) for _ in range(config.repeats)) for call in (one, every))
    return Comparison(
        f"frontier, {n} x {n}, {config.prices} prices",
        whole,
        once,
        unit="frontier",
        sense="slower",
        goal=40.0,
        note="one design is 1",
    )

"""Learning critics and a behavior policy, against learning one critic by fitted Q evaluation.

Two problems whose true values are known: the Gridworld, and vectors with quadratic rewards. d3rlpy
fits q alone, by the same rows, until its error on held-out rows is ours, or until its time is up;
it is told the time left and draws the next action from the target. Its settings are the best of
those tried. The second peer trains networks as ours one by one, as one writes it in torch.
"""

from __future__ import annotations

import contextlib
import io
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scopeval._parallel import one_torch_thread
from scopeval.arrays import Floats, Ints, check_whole
from scopeval.behavior.designer import design
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe
from scopeval.behavior.sweep import Swept, follow_own, sweep
from scopeval.critics.mlp.regression import MLPRegression
from scopeval.critics.protocols import Critic, Estimates, Learner, Regression, Rows, Targets
from scopeval.critics.sweep_data import logged_sweep_data
from scopeval.data.transitions import Transitions
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.exact import values
from scopeval.paper.benchmarks.harness import Row, load_peer, missing, quiet, timed
from scopeval.policies.adapters import CallablePolicy

__all__ = ["Config", "Quadratic", "run"]


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
    """Steps that a sweep over vectors is meant to have ..."""
    measured: int = 10
    """... and how many of them are measured."""
    patience: float = 120.0
    """Most seconds of training that d3rlpy gets, for each problem; it is stopped before where the
    goal is passed by half."""
    updates: int = 100
    """Updates of d3rlpy between two looks at its error."""
    networks: MLPRegression = field(default_factory=MLPRegression)
    """Settings of ours."""
    repeats: int = 3
    """Runs of ours; the median counts."""
    seed: int = 0
    """Of the problems and of the networks."""

    def __post_init__(self) -> None:
        for name in ("episodes", "tuples", "repeats", "updates"):
            check_whole(name, getattr(self, name), 1)
        check_whole("measured", self.measured, 2, " of steps")


def run(config: Config) -> list[Row]:
    """Both problems."""
    return [_table(config), *_vectors(config)]


# -- the table -----------------------------------------------------------------------------------


def _table(config: Config) -> Row:
    """Whole designs of the Gridworld: both halves, the check, and the final sweep."""
    n = config.size
    mdp = Gridworld(n, seed=config.seed).mdp()
    target = target_policies(1, n, seed=config.seed)[0]
    log = gridworld_logs(mdp, config.episodes, seed=config.seed)
    held = gridworld_logs(mdp, config.episodes, seed=config.seed + 1)
    policy = design(log, target, horizon=n)
    with quiet():
        took = [timed(lambda: design(log, target, horizon=n)) for _ in range(config.repeats)]
    truth = values(mdp, target).q[held.t, held.obs, held.action]
    ours = np.stack([critic.at(np.arange(n * n)).q for critic in policy.critics])
    error = _error(ours[held.t, held.obs, held.action], truth)
    pi = target.probs(np.zeros(1, np.int64), 0)[0]

    def encoded(part: Transitions) -> Floats:
        left = (n - part.t) / n
        return np.column_stack([np.eye(n * n)[part.obs], left])

    return _against_fqe(
        f"table {n} x {n}: d3rlpy FQE",
        float(np.median(took)),
        _Task(log, n, pi, encoded, held, truth),
        error,
        config,
        unit="design",
        goal=100.0,
        what="five sweeps of four critics; d3rlpy fits q once",
    )


# -- vectors -------------------------------------------------------------------------------------


class Quadratic:
    """Vectors that drift by action: x' = 0.9 x + b_a + noise; reward and cost are quadratic in x.

    The target does not look at x, so that its action values are quadratic too, and known.
    """

    def __init__(self, width: int = 11, actions: int = 10, *, seed: int = 0) -> None:
        rng = np.random.default_rng((seed, 41))
        self.width, self.actions, self.seed = width, actions, seed
        self.push = 0.5 * rng.normal(size=(actions, width))
        self.bend = rng.normal(size=actions) / width
        self.slope = rng.normal(size=(actions, width)) / width**0.5
        self.pi = rng.dirichlet(np.ones(actions))

    def target(self) -> CallablePolicy:
        """Pi, the same everywhere."""
        return CallablePolicy(lambda obs, t: np.broadcast_to(self.pi, (len(obs), self.actions)))

    def log(self, episodes: int, steps: int, seed: int) -> Transitions:
        """Episodes of a controller that acts at random."""
        rng = np.random.default_rng((self.seed, seed))
        x = rng.normal(size=(episodes, self.width))
        parts = []
        for t in range(steps):
            a = rng.integers(self.actions, size=episodes)
            reward = self.reward(x, a) + 0.1 * rng.normal(size=episodes)
            cost = 0.1 * a + (x[:, 0] + 0.1 * a) ** 2
            after = 0.9 * x + self.push[a] + 0.3 * rng.normal(size=x.shape)
            parts.append(Transitions(np.full(episodes, t), x, a, reward, cost, after))
            x = after
        return Transitions.concat(parts)

    def reward(self, x: Floats, a: Ints) -> Floats:
        """Mean reward."""
        return np.asarray(self.bend[a] * (x**2).sum(axis=1) + (self.slope[a] * x).sum(axis=1))

    def values(self, log: Transitions, horizon: int) -> Floats:
        """True action values at the rows of a log: v = square |x|^2 + line x + level."""
        x: Floats = np.asarray(log.obs, np.float64)
        a: Ints = np.asarray(log.action, np.int64)
        square, line, level = 0.0, np.zeros(self.width), 0.0
        q = np.empty(len(x))
        for t in reversed(range(horizon)):
            now = np.flatnonzero(log.t == t)
            ahead = 0.9 * x[now] + self.push[a[now]]
            spread = 0.09 * self.width
            q[now] = self.reward(x[now], a[now]) + level + ahead @ line
            q[now] += square * ((ahead**2).sum(axis=1) + spread)
            mean, push = self.pi @ self.push, (self.push**2).sum(axis=1)
            level += float(line @ mean + square * (self.pi @ push + spread))
            line = self.pi @ self.slope + 0.9 * line + 1.8 * square * mean
            square = float(self.pi @ self.bend) + 0.81 * square
        return q


def _vectors(config: Config) -> list[Row]:
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
            _Task(log, T, world.pi, encoded, held, truth),
            _error(answers, truth),
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
        tick=lambda: ticks.append(time.perf_counter()),
    )
    return swept, np.diff(ticks).tolist()


# -- peers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """A problem as d3rlpy sees it."""

    log: Transitions
    horizon: int
    pi: Floats
    encoded: Callable[[Transitions], Floats]
    held: Transitions
    truth: Floats


def _against_fqe(
    name: str,
    seconds: float,
    task: _Task,
    error: float,
    config: Config,
    *,
    unit: str,
    goal: float,
    what: str,
) -> Row:
    row: dict[str, Any] = {"ours": seconds, "unit": unit, "sense": "faster", "goal": goal}
    peer = load_peer("d3rlpy")
    if peer is None:
        return missing(name, "d3rlpy", **row)
    per = 1.0 if unit == "design" else 1.0 / task.horizon
    patience = min(config.patience, 1.5 * goal * seconds / per)  # then the goal is met for sure
    spent, steps, reached = _fqe(peer, task, error, replace(config, patience=patience))
    told = f"{what}; held-out error {error:.3g}, d3rlpy's {reached:.3g} after {steps:,} updates"
    return Row(name, peer=spent * per, note=told, stopped=reached > error, **row)


def _fqe(peer: Any, task: _Task, error: float, config: Config) -> tuple[float, int, float]:
    """Seconds of training until the error is reached or time is up; updates; the error then."""
    import torch

    pi = torch.tensor(task.pi, dtype=torch.float32)

    class Target:
        """What d3rlpy asks a policy: an action for each observation."""

        @staticmethod
        def predict_best_action(obs: Any) -> Any:
            return torch.multinomial(pi.expand(len(obs), len(pi)), 1)[:, 0]

    class Algorithm:
        impl = Target()

    log = task.log
    order = np.lexsort((log.t, _episode(log)))
    logging.getLogger("d3rlpy").setLevel(logging.ERROR)
    silent = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with silent[0], silent[1], one_torch_thread():
        torch.manual_seed(config.seed)
        data = peer.dataset.MDPDataset(
            task.encoded(log)[order].astype(np.float32),
            log.action[order, None],
            log.reward[order, None].astype(np.float32),
            (log.t[order] == task.horizon - 1).astype(np.float32),
            action_space=peer.ActionSpace.DISCRETE,
            action_size=len(task.pi),
        )
        fqe = peer.ope.DiscreteFQE(Algorithm(), peer.ope.FQEConfig(gamma=1.0, **_settings(peer)))
        fqe.build_with_dataset(data)
        inputs = task.encoded(task.held).astype(np.float32)
        spent, steps, best = 0.0, 0, float("inf")
        epochs = fqe.fitter(
            data,
            n_steps=10**9,
            n_steps_per_epoch=config.updates,
            logger_adapter=peer.logging.NoopAdapterFactory(),
            show_progress=False,
        )
        while best > error and spent < config.patience:
            spent += timed(lambda: next(epochs))
            steps += config.updates
            best = min(best, _error(fqe.predict_value(inputs, task.held.action), task.truth))
    return spent, steps, best


def _settings(peer: Any) -> dict[str, Any]:
    """The quickest to small errors of those tried."""
    return {
        "learning_rate": 3e-3,
        "batch_size": 256,
        "target_update_interval": 50,
        "encoder_factory": peer.models.VectorEncoderFactory([256]),
    }


def _episode(log: Transitions) -> Ints:
    """Numbers of episodes: rows of the same t are in the order of their episodes."""
    number = np.empty(len(log), np.int64)
    for t in range(int(log.t.max()) + 1):
        now = np.flatnonzero(log.t == t)
        number[now] = np.arange(len(now))
    return number


def _against_modules(world: Quadratic, log: Transitions, config: Config) -> Row:
    """One time step: all networks of ours, and the same in torch, one module after the other.

    Both fit and answer. What a sweep does besides (targets, programs, what is carried on) has no
    counterpart in torch's loop; it is told in the note. They take turns, torch with all threads and
    with one, and the best time of each counts.
    """
    how = replace(config.networks, patience=10**9)  # both take all steps
    heads, folds = 7, 2  # q, cost, two costs beyond it, two variances to come, noise
    ours, whole, theirs = float("inf"), float("inf"), float("inf")
    with quiet():
        for threads in (contextlib.nullcontext, one_torch_thread) * 2:
            watched = _Watched(how)
            _, (_, *later) = _timed_sweep(world, log, watched, 3, config.seed)
            whole, ours = min(whole, *later), min(ours, *watched.seconds[1:])
            with threads():
                took = timed(lambda: _modules(log, world.actions, how, heads * folds))
            theirs = min(theirs, took)
    return Row(
        "mlp: torch eager modules",
        ours,
        theirs,
        unit="step",
        sense="faster",
        goal=5.0,
        note=f"{heads * folds} networks, {how.steps} steps of {how.batch} rows, width "
        f"{how.hidden}, answers at {len(log):,} rows; our whole step, programs and all, takes "
        f"{whole * 1e3:.0f} ms",
    )


class _Watched:
    """A regression whose fits and answers are timed, step by step of a sweep."""

    name = "watched"

    def __init__(self, how: MLPRegression) -> None:
        self.how = how
        self.seconds: list[float] = []

    def prepare(self, rows: Rows, actions: int) -> Rows:
        return self.how.prepare(rows, actions)

    def learner(self, rows: Rows, actions: int, seed: int) -> Learner:
        learner, seconds = self.how.learner(rows, actions, seed), self.seconds

        class Watching:
            def fit(self, targets: Targets) -> Critic:
                critic: list[Critic] = []
                seconds.append(timed(lambda: critic.append(learner.fit(targets))))

                class Asked:
                    def at(self, obs: Any, actions: Any = None) -> Estimates:
                        said: list[Estimates] = []
                        seconds[-1] += timed(lambda: said.append(critic[0].at(obs, actions)))
                        return said[0]

                    def arrays(self) -> dict[str, Any]:
                        return critic[0].arrays()

                return Asked()

        return Watching()


def _modules(log: Transitions, actions: int, how: MLPRegression, networks: int) -> None:
    """Train, then answer at every row, as one writes it."""
    import torch

    torch.manual_seed(0)
    obs, action = torch.tensor(log.obs, dtype=torch.float32), torch.tensor(log.action)
    target = torch.tensor(log.reward, dtype=torch.float32)
    half = len(obs) // 2
    for _ in range(networks):
        hidden = torch.nn.Linear(obs.shape[1], how.hidden)
        net = torch.nn.Sequential(hidden, torch.nn.ReLU(), torch.nn.Linear(how.hidden, actions))
        adam = torch.optim.Adam(net.parameters(), lr=how.rate)
        for _ in range(how.steps):
            pick = torch.randint(half, (how.batch,))
            answer = net(obs[pick]).gather(1, action[pick, None])[:, 0]
            loss = torch.nn.functional.mse_loss(answer, target[pick])
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
        with torch.no_grad():
            net(obs)


def _error(answers: Floats, truth: Floats) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean((answers - truth) ** 2)))

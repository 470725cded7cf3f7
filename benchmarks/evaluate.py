"""A whole evaluation beside what one would write instead: a loop over the environment.

In a finite world that is known, Gymnasium's vector environment; in an environment of one's own, a
plain loop that asks the same policy and adds rewards up; and an environment whose step takes 2 ms,
in this process and on workers.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Comparison, load_peer, not_installed, race
from benchmarks.worlds import CartPole, MakeBusy, cart_policy, loops_of
from scopeval import Plant, Workers, evaluate
from scopeval._files import machine
from scopeval.arrays import Floats, check_whole
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.errors import InputError
from scopeval.evaluation.result import Evaluation
from scopeval.exact import Design, TabularMDP, design
from scopeval.policies.adapters import TabularPolicy
from scopeval.simulate import cumulative

__all__ = ["Config", "run"]


@dataclass(frozen=True)
class Config:
    """What to measure."""

    size: int = 10
    """Cells along one side of the Gridworld; also the number of steps of an episode."""
    episodes: int = 1_000_000
    """Episodes of an evaluation there."""
    peer_episodes: int = 2_048
    """Episodes that the vector environment gets."""
    side_by_side: int = 64
    """Environments in the vector environment."""
    loop_episodes: int = 200
    """Episodes of the pole on the cart, at most 100 steps each."""
    milliseconds: float = 2.0
    """Of one step of the slow environment, on a core that does nothing else."""
    slow_episodes: int = 192
    """Its episodes, of 60 steps."""
    workers: int = 2
    """How many."""
    backends: tuple[str, ...] = ("processes",)
    """Which kinds of workers: processes, ray."""
    repeats: int = 3
    """Turns of each side; the best counts."""
    seed: int = 0
    """Seed of the worlds, the target and the episodes."""

    def __post_init__(self) -> None:
        for name in ("episodes", "peer_episodes", "side_by_side", "loop_episodes", "workers"):
            check_whole(name, getattr(self, name), 1)
        if self.peer_episodes % self.side_by_side:
            raise InputError(
                f"peer_episodes: got {self.peer_episodes}, expected a multiple of side_by_side = "
                f"{self.side_by_side}"
            )


def run(config: Config) -> list[Comparison]:
    """A known world, a loop, and workers."""
    return [_known(config), _loop(config), *_on_workers(config)]


# -- a known world ---------------------------------------------------------------------------------


class _World(NamedTuple):
    mdp: TabularMDP
    target: TabularPolicy
    behavior: Design


def _known(config: Config) -> Comparison:
    """`evaluate`, with interval and certificate, beside episodes that are weighted by hand."""
    mdp = Gridworld(config.size, seed=config.seed).mdp()
    target = target_policies(1, config.size, seed=config.seed)[0]
    world = _World(mdp, target, design(mdp, target))
    results: list[Evaluation] = []

    def ours() -> None:
        results.append(
            evaluate(mdp, target, world.behavior, episodes=config.episodes, seed=config.seed)
        )

    peer = _vector_environment(world, config)
    values: list[Floats] = []
    times = race(ours, lambda: values.append(peer()), repeats=config.repeats)
    error = values[-1].std() / len(values[-1]) ** 0.5
    apart = abs(results[-1].estimate - values[-1].mean()) / np.hypot(
        error, results[-1].standard_error
    )
    return Comparison(
        f"evaluate, {config.size} x {config.size}: SyncVectorEnv of {config.side_by_side}",
        times.ours / (config.episodes * mdp.horizon),
        times.peer / (config.peer_episodes * mdp.horizon),
        unit="step",
        sense="faster",
        goal=100.0,
        note=f"{config.episodes:,} episodes against {config.peer_episodes:,}; estimates "
        f"{apart:.1f} se apart",
    )


def _vector_environment(world: _World, config: Config) -> Callable[[], Floats]:
    """Gymnasium's vector environment, with one numpy call per step for the policies."""
    import gymnasium

    from scopeval.envs.tabular import TabularEnv

    mdp = world.mdp
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda: TabularEnv(mdp)] * config.side_by_side,
        autoreset_mode=gymnasium.vector.AutoresetMode.DISABLED,
    )
    pi, mu = world.target.table(mdp.horizon), world.behavior.table(mdp.horizon)
    sums = cumulative(mu)

    def play() -> Floats:
        rng = np.random.default_rng(config.seed)
        values: list[Floats] = []
        for k in range(config.peer_episodes // config.side_by_side):
            state, _ = envs.reset(seed=config.seed + k * config.side_by_side)
            value, due = np.zeros(config.side_by_side), np.zeros(config.side_by_side)
            weight = np.ones(config.side_by_side)
            for t in range(mdp.horizon):
                u = rng.random(config.side_by_side)
                action = (u[:, None] >= sums[t, state]).sum(axis=1)
                weight *= pi[t, state, action] / mu[t, state, action]
                state, reward, _, _, info = envs.step(action)
                value += weight * reward
                due += weight * info["cost"]
            values.append(value)
        return np.concatenate(values)

    return play


# -- a loop ----------------------------------------------------------------------------------------


def _loop(config: Config) -> Comparison:
    """The policy itself in an environment in Python, beside the loop that everybody writes."""
    count, horizon = config.loop_episodes, 100
    steps = 0

    def ours() -> None:
        evaluate(CartPole, cart_policy, horizon=horizon, episodes=count, seed=config.seed)

    def by_hand() -> None:
        nonlocal steps
        rng, env, steps = np.random.default_rng(config.seed), CartPole(), 0
        returns = []
        for episode in range(count):
            obs, _ = env.reset(seed=episode)
            total = 0.0
            for t in range(horizon):
                right = cart_policy(obs[None], t)[0, 1]
                obs, reward, over, _, _ = env.step(int(rng.random() < right))
                total, steps = total + reward, steps + 1
                if over:
                    break
            returns.append(total)
        np.mean(returns)

    times = race(ours, by_hand, repeats=config.repeats)
    return Comparison(
        "evaluate, cart and pole: a plain loop",
        times.ours / steps,
        times.peer / steps,
        unit="step",
        sense="slower",
        note=f"{count} episodes; ours asks for eight observations at a time, and keeps costs",
    )


# -- workers ---------------------------------------------------------------------------------------


class _Timed(NamedTuple):
    """Seconds, processor seconds of this process and of its workers, and the result."""

    seconds: float
    here: float
    workers: float
    result: Evaluation


def _on_workers(config: Config) -> list[Comparison]:
    """The same evaluation in this process and on workers; starting them is timed, too."""
    make = MakeBusy(loops_of(config.milliseconds))
    alone = _timed(make, config, None)
    return [_row(make, config, backend, alone) for backend in config.backends]


def _row(make: MakeBusy, config: Config, backend: str, alone: _Timed) -> Comparison:
    steps = config.slow_episodes * 60
    name = f"evaluate, {config.workers} workers, {backend}"
    goal = 1.8 if backend == "processes" else None
    if backend == "ray" and load_peer("ray") is None:
        note = not_installed("ray")
        return Comparison(name, 0.0, None, unit="step", sense="faster", goal=goal, note=note)
    shared = _timed(make, config, backend)
    same = shared.result.to_dict() == alone.result.to_dict()
    note = (
        f"beside one process; {steps:,} steps of {config.milliseconds:g} ms, "
        f"{machine()['cores']} cores; {'the same bits' if same else 'NOT THE SAME BITS'}"
    )
    if backend == "processes":  # Ray's own processes are not ours
        busiest = shared.here + shared.workers / config.workers
        note += f"; by processor time, were all cores free, {alone.here / busiest:.2f} times"
    ours, peer = shared.seconds / steps, alone.seconds / steps
    return Comparison(name, ours, peer, unit="step", sense="faster", goal=goal, note=note)


def _timed(make: MakeBusy, config: Config, backend: str | None) -> _Timed:
    began, before = time.perf_counter(), _processor()
    result = evaluate(
        Plant(make, workers=None if backend is None else Workers(config.workers, backend)),
        [[0.5, 0.5]],
        [[0.4, 0.6]],
        horizon=60,
        episodes=config.slow_episodes,
        seed=config.seed,
    )
    here, workers = (a - b for a, b in zip(_processor(), before, strict=True))
    return _Timed(time.perf_counter() - began, here, workers, result)


def _processor() -> list[float]:
    """Processor seconds of this process, and of those that it has started and that have ended."""
    every = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return [one.ru_utime + one.ru_stime for one in every]

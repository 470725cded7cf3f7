"""The compiled simulator against Gymnasium's vector environment and against numpy, step by step.

All three run episodes of the same Gridworld under the same SCOPE behavior policy, weigh them and
estimate the target's value and cost. Ours works on one thread here; it may use all cores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, race
from scopeval.arrays import Floats, check_whole
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.errors import InputError
from scopeval.exact import Design, TabularMDP, design
from scopeval.policies.adapters import TabularPolicy
from scopeval.simulate import cumulative, summaries

__all__ = ["Config", "run"]


@dataclass(frozen=True)
class Config:
    """What to measure."""

    size: int = 10
    """Cells along one side of the Gridworld; also the number of steps of an episode."""
    episodes: int = 1_000_000
    """Episodes of ours."""
    peer_episodes: int = 2_048
    """Episodes that the vector environment gets; numpy gets 50 times as many."""
    side_by_side: int = 64
    """Environments in the vector environment."""
    repeats: int = 3
    """Turns of each side; the best counts."""
    seed: int = 0
    """Seed of the world, the target and the episodes."""

    def __post_init__(self) -> None:
        for name in ("episodes", "peer_episodes", "side_by_side", "repeats"):
            check_whole(name, getattr(self, name), 1)
        if self.peer_episodes % self.side_by_side:
            raise InputError(
                f"peer_episodes: got {self.peer_episodes}, expected a multiple of side_by_side = "
                f"{self.side_by_side}"
            )


@dataclass(frozen=True)
class _World:
    mdp: TabularMDP
    target: TabularPolicy
    behavior: Design


def run(config: Config) -> list[Comparison]:
    """Time per step: simulate, weigh, estimate."""
    mdp = Gridworld(config.size, seed=config.seed).mdp()
    target = target_policies(1, config.size, seed=config.seed)[0]
    world = _World(mdp, target, design(mdp, target))
    T = mdp.horizon

    def ours() -> Floats:
        done = summaries(
            mdp,
            target,
            world.behavior,
            episodes=config.episodes,
            seed=config.seed,
            threads=1,
        )
        return np.array([done.estimate.mean(), done.estimate.std() / config.episodes**0.5])

    peers: list[tuple[str, int, float | None, Callable[[], Floats]]] = [
        (
            f"SyncVectorEnv of {config.side_by_side}",
            config.peer_episodes,
            100.0,
            _vector_environment(world, config),
        ),
        (
            "numpy, all at once",
            50 * config.peer_episodes,
            None,
            lambda: _vectorized(world, 50 * config.peer_episodes, config.seed),
        ),
    ]
    rows = []
    for name, episodes, goal, peer in peers:
        (a, s), (b, z) = ours(), peer()
        times = race(ours, peer, repeats=config.repeats)
        rows.append(
            Comparison(
                name,
                times.ours / (config.episodes * T),
                times.peer / (episodes * T),
                unit="step",
                sense="faster",
                goal=goal,
                note=f"{config.episodes:,} episodes against {episodes:,}; estimates "
                f"{abs(a - b) / np.hypot(s, z):.1f} se apart",
            )
        )
    return rows


def _estimate(value: Floats) -> Floats:
    return np.array([value.mean(), value.std() / len(value) ** 0.5])


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
            value, due, weight = (np.zeros(config.side_by_side) for _ in range(3))
            weight += 1.0
            for t in range(mdp.horizon):
                u = rng.random(config.side_by_side)
                action = (u[:, None] >= sums[t, state]).sum(axis=1)
                weight *= pi[t, state, action] / mu[t, state, action]
                state, reward, _, _, info = envs.step(action)
                value += weight * reward
                due += weight * info["cost"]
            values.append(value)
        return _estimate(np.concatenate(values))

    return play


def _vectorized(world: _World, episodes: int, seed: int) -> Floats:
    """What one writes by hand: arrays over all episodes, a loop over time."""
    mdp, rng = world.mdp, np.random.default_rng(seed)
    pi, mu = world.target.table(mdp.horizon), world.behavior.table(mdp.horizon)
    sums = cumulative(mu)
    p: Any = mdp.transition
    width = int(np.diff(p.indptr).max())
    chances = np.ones((p.shape[0], width))  # padded rows of cumulative probabilities
    following = np.zeros((p.shape[0], width), np.int64)
    for row in range(p.shape[0]):
        lo, hi = p.indptr[row], p.indptr[row + 1]
        chances[row, : hi - lo] = cumulative(p.data[lo:hi])
        following[row, : hi - lo] = p.indices[lo:hi]
    state = rng.choice(mdp.states, size=episodes, p=mdp.initial)
    value, due, paid, weight = (np.zeros(episodes) for _ in range(4))
    weight += 1.0
    for t in range(mdp.horizon):
        action = (rng.random(episodes)[:, None] >= sums[t][state]).sum(axis=1)
        weight *= pi[t, state, action] / mu[t, state, action]
        value += weight * mdp.at("reward", t)[state, action]
        cost = mdp.at("cost", t)[state, action]
        paid += cost
        due += weight * cost
        row = state * mdp.actions + action
        state = following[row, (rng.random(episodes)[:, None] >= chances[row]).sum(axis=1)]
    return _estimate(value)

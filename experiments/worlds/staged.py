"""Worlds in which evaluations in stages are measured, with logs of every quality.

- ``gridworld-10`` and others: the paper's Gridworld, a world of its own for each target;
- ``survival``: 13 positions in a row; the episode is over when either end is passed;
- the finite environments of `worlds.finite`, and those with vectors of `worlds.vectors`;
- the paper's robots, with continuous actions (without logs, or a number of episodes).

Logs: ``none``; a number of episodes by all loggers; and bad logs of 1,000 episodes:

- ``one controller``: the best logger, and in Gridworlds always its most likely action;
- ``hidden states`` (vectors: ``hidden region``): the rows at a part of the states are missing, in
  Gridworlds half of the grid;
- ``random``: only uniformly random actions (not in Gridworlds);
- ``corrupted``: one reward in ten is another one, drawn uniformly from the range of rewards;
- ``bad``: one controller, hidden states and corrupted rewards at once (Gridworlds only).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from experiments.robots.env import HORIZON, ROBOTS, Robots
from experiments.robots.logs import robot_logs
from experiments.robots.policies import robot_policies
from experiments.worlds.control_fleet import ControlFleet
from experiments.worlds.finite import FINITE, finite_world
from experiments.worlds.vectors import VECTORS, measure, vector_world
from scopeval import exact
from scopeval.arrays import Floats
from scopeval.collection.collector import collect
from scopeval.envs.gridworld import (
    Gridworld,
    cells,
    gridworld_logs,
    logging_policies,
    logs_of,
    target_policies,
)
from scopeval.errors import InputError
from scopeval.exact import TabularMDP
from scopeval.logs.transitions import Transitions
from scopeval.policies.adapters import TabularPolicy

__all__ = [
    "BAD_LOGS",
    "Own",
    "Problem",
    "check_logs",
    "check_world",
    "is_finite",
    "problem",
    "survival_chain",
]

BAD_LOGS = ("one controller", "hidden states", "hidden region", "random", "corrupted", "bad")
#: Episodes of bad logs.
MANY = 1000
#: Share of corrupted rewards.
CORRUPTED = 0.1
#: Episodes of the target policy itself that its value is measured with, where it is not exact.
MEASURED = {"vectors": 20_000, "robots": 3_000}
#: Episodes that run side by side.
SIDE_BY_SIDE = 240


class Own(NamedTuple):
    """The target policy itself: value, and variance and expected cost of one episode."""

    value: float
    variance: float
    cost: float


@dataclass(frozen=True, eq=False)
class Problem:
    """One target policy in its world.

    Attributes:
        env: a `TabularMDP`, or a fleet.
        target: pi.
        horizon: steps of an episode.
        own: the target policy itself; exact in a `TabularMDP`, else measured.
        features: coordinates of the states, where they are known.
        logs: of past operation; None for none.
    """

    env: Any
    target: Any
    horizon: int
    own: Own
    features: Floats | None = None
    logs: Transitions | None = None


def is_finite(world: str) -> bool:
    """Whether a world has a known finite model."""
    return world not in VECTORS and world not in ROBOTS


def check_world(name: str) -> str:
    """A name of a world."""
    if name in ("survival", *FINITE, *VECTORS, *ROBOTS) or _size(name) is not None:
        return name
    every = ("gridworld-10", "gridworld-30", "survival", *FINITE, *VECTORS, *ROBOTS)
    raise InputError(f"world: got {name!r}, expected one of {', '.join(every)}")


def check_logs(logs: str) -> str:
    """A kind of logs."""
    if logs == "none" or logs in BAD_LOGS or (logs.isdigit() and int(logs) > 0):
        return logs
    raise InputError(
        f"logs: got {logs!r}, expected none, a number of episodes, or one of {', '.join(BAD_LOGS)}"
    )


def _size(name: str) -> int | None:
    """Cells along one side, of a Gridworld's name."""
    head, _, size = name.partition("-")
    return int(size) if head == "gridworld" and size.isdigit() and int(size) >= 2 else None


def problem(world: str, target: int, logs: str, seed: int) -> Problem:
    """The target policy of this number in a world, with its logs."""
    size = _size(world)
    if size is not None:
        return _gridworld(size, target, logs, seed)
    if world == "survival":
        mdp, pi = survival_chain(), centering(0.3 * (target % 6))
        return _modeled(mdp, pi, None, _survival_logs(mdp, logs, seed + target))
    if world in VECTORS:
        return _vectors(world, target, logs, seed)
    if world in ROBOTS:
        return _robot(world, target, logs, seed)
    finite = finite_world(world, seed)
    found: Transitions | None = None
    if logs.isdigit():
        found = finite.logs("mixed", int(logs), target)
    elif logs == "corrupted":
        found = _corrupted(finite.logs("mixed", MANY, target), seed + target)
    elif logs != "none":
        found = finite.logs(logs, MANY, target)
    return _modeled(finite.mdp, finite.target(target), None, found)


def _modeled(
    mdp: TabularMDP, pi: TabularPolicy, features: Floats | None, logs: Transitions | None
) -> Problem:
    """A problem in a finite model."""
    alone = exact.assess(mdp, pi, pi)
    own = Own(alone.value, alone.variance, alone.cost)
    return Problem(mdp, pi, mdp.horizon, own, features, logs)


def _vectors(name: str, target: int, logs: str, seed: int) -> Problem:
    """A classic control environment."""
    world = vector_world(name, seed)
    pi = world.target(target)
    rng = np.random.default_rng((seed, target, 51))
    alone = measure(world, pi, None, MEASURED["vectors"], rng)
    own = Own(float(alone.value.mean()), float(alone.value.var()), float(alone.cost.mean()))
    found: Transitions | None = None
    if logs.isdigit():
        found = world.logs("mixed", int(logs), target)
    elif logs == "corrupted":
        found = _corrupted(world.logs("mixed", MANY, target), seed + target)
    elif logs != "none":
        found = world.logs(logs, MANY, target)
    fleet = ControlFleet(world.control, SIDE_BY_SIDE)
    return Problem(fleet, pi, world.control.horizon, own, None, found)


def _robot(name: str, target: int, logs: str, seed: int) -> Problem:
    """A robot; the target policy offers ten actions."""
    if logs != "none" and not logs.isdigit():
        raise InputError(f"logs: got {logs!r} for a robot, expected none or a number of episodes")
    pi = robot_policies(name, "reported")[target]
    fleet = Robots(name, SIDE_BY_SIDE)
    alone = collect(fleet, pi, horizon=HORIZON, episodes=MEASURED["robots"], seed=seed + 10**6)
    returns = alone.returns()
    own = Own(float(returns.mean()), float(returns.var()), float(alone.costs().mean()))
    found = None if logs == "none" else robot_logs(name, episodes=int(logs), seed=seed)
    return Problem(fleet, pi, HORIZON, own, None, found)


# -- Gridworlds ------------------------------------------------------------------------------------


def _gridworld(size: int, target: int, logs: str, seed: int) -> Problem:
    """As in the Gridworld experiment: world number = target number."""
    mdp = Gridworld(size, seed=target).mdp()
    pi = target_policies(target + 1, size, seed=seed)[target]
    own = seed + target
    found: Transitions | None = None
    if logs.isdigit():
        found = gridworld_logs(mdp, int(logs), seed=own)
    elif logs in ("one controller", "bad"):
        found = logs_of(mdp, [_deterministic(mdp, own)], MANY, seed=own)
    elif logs != "none":
        found = gridworld_logs(mdp, MANY, seed=own)
    if found is not None and logs in ("hidden states", "bad"):
        found = found.select(found.obs // size >= size // 2)  # half of the columns
    if found is not None and logs in ("corrupted", "bad"):
        found = _corrupted(found, own)
    return _modeled(mdp, pi, cells(size), found)


def _deterministic(mdp: TabularMDP, seed: int) -> TabularPolicy:
    """The best of the usual loggers, always by its most likely action."""
    table = logging_policies(30, mdp, seed=seed)[-1].table(mdp.horizon)
    return TabularPolicy(np.eye(mdp.actions)[table.argmax(axis=2)])


def _corrupted(log: Transitions, seed: int) -> Transitions:
    """The log with another reward in one row of ten."""
    rng = np.random.default_rng((seed, 31))
    drawn = rng.uniform(float(log.reward.min()), float(log.reward.max()), len(log))
    return Transitions(
        t=log.t,
        obs=log.obs,
        action=log.action,
        reward=np.where(rng.random(len(log)) < CORRUPTED, drawn, log.reward),
        cost=log.cost,
        next_obs=log.next_obs,
        terminated=log.terminated,
    )


# -- the survival chain ----------------------------------------------------------------------------


def survival_chain() -> TabularMDP:
    """13 positions and 100 steps; reward 1 and the action's cost for every step alive.

    Actions step -1, 0, +1 at cost 1, 0.2, 1; with probability 0.3 the step is drawn uniformly.
    """
    alive, moves, slip = 13, (-1, 0, 1), 0.3
    transition = np.zeros((alive + 1, 3, alive + 1))
    transition[alive, :, alive] = 1.0
    for s in range(alive):
        for a, intended in enumerate(moves):
            for executed in moves:
                where = s + executed if 0 <= s + executed < alive else alive
                transition[s, a, where] += slip / 3 + (1 - slip) * (executed == intended)
    reward, cost = np.ones((alive + 1, 3)), np.tile([1.0, 0.2, 1.0], (alive + 1, 1))
    reward[alive] = cost[alive] = 0.0
    return TabularMDP(np.eye(alive + 1)[6], transition, reward, cost, horizon=100)


def centering(strength: float) -> TabularPolicy:
    """Uniform within one cell of the center, pulled back with that strength further out."""
    x = np.append(np.arange(13) - 6, 0)
    pull = np.where(np.abs(x) >= 2, -np.sign(x), 0)
    weight = np.exp(strength * pull[:, None] * np.array([-1, 0, 1]))
    return TabularPolicy(weight / weight.sum(axis=1, keepdims=True))


def _survival_logs(mdp: TabularMDP, logs: str, seed: int) -> Transitions | None:
    if logs == "none":
        return None
    if not logs.isdigit():
        raise InputError(f"logs: got {logs!r} in the survival chain, expected none or a number")
    some = [centering(strength) for strength in (0.0, 0.3, 0.6, 1.0, 1.5)]
    found = logs_of(mdp, some, int(logs), seed=seed)
    alive = found.select(found.obs < mdp.states - 1)
    return Transitions(
        t=alive.t,
        obs=alive.obs,
        action=alive.action,
        reward=alive.reward,
        cost=alive.cost,
        next_obs=alive.next_obs,
        terminated=alive.next_obs == mdp.states - 1,
    )

"""Finite worlds in which evaluations in stages are measured, with logs of every quality.

- ``gridworld-10`` and others: the paper's Gridworld, a world of its own for each target;
- ``survival``: 13 positions in a row; the episode is over when either end is passed;
- the environments of `foreign_worlds`.

Logs: ``none``; a number of episodes by all loggers; and bad logs of 1,000 episodes:

- ``one controller``: the best logger, and in Gridworlds always its most likely action;
- ``hidden states``: the rows at a part of the states are missing (Gridworlds: half of the grid);
- ``corrupted``: one reward in ten is another one, drawn uniformly from the range of rewards;
- ``bad``: all of these at once (Gridworlds only).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scopeval.arrays import Floats
from scopeval.data.transitions import Transitions
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
from scopeval.paper.experiments.foreign_worlds import FINITE, finite_world
from scopeval.policies.adapters import TabularPolicy

__all__ = ["BAD_LOGS", "Problem", "check_logs", "check_world", "problem", "survival_chain"]

BAD_LOGS = ("one controller", "hidden states", "corrupted", "bad")
#: Episodes of bad logs.
MANY = 1000
#: Share of corrupted rewards.
CORRUPTED = 0.1


@dataclass(frozen=True, eq=False)
class Problem:
    """One target policy in its world.

    Attributes:
        mdp: the exact model.
        target: pi.
        features: coordinates of the states, where they are known.
        logs: of past operation; None for none.
    """

    mdp: TabularMDP
    target: TabularPolicy
    features: Floats | None
    logs: Transitions | None


def check_world(name: str) -> str:
    """A name of a world."""
    if name == "survival" or name in FINITE or _size(name) is not None:
        return name
    expected = ", ".join(("gridworld-10", "gridworld-30", "survival", *FINITE))
    raise InputError(f"world: got {name!r}, expected one of {expected}")


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
        return Problem(mdp, pi, None, _survival_logs(mdp, logs, seed + target))
    finite = finite_world(world, seed)
    pi = finite.target(target)
    if logs == "none":
        return Problem(finite.mdp, pi, None, None)
    if logs.isdigit():
        return Problem(finite.mdp, pi, None, finite.logs("mixed", int(logs), target))
    if logs in ("corrupted", "bad"):
        mixed = finite.logs("mixed", MANY, target)
        return Problem(finite.mdp, pi, None, _corrupted(mixed, seed + target))
    return Problem(finite.mdp, pi, None, finite.logs(logs, MANY, target))


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
    return Problem(mdp, pi, cells(size), found)


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

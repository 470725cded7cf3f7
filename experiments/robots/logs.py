"""Logs of the robots: 1,000 episodes by the 30 reported policies, in either protocol.

Episode i is by policy i modulo 30, so that each has run 33 or 34 times, and fewer episodes are a
part of more. In the protocol ``candidates`` actions are continuous and those of the policy; in
``bins`` an action is the number of a bin and the observation holds the other action dimensions,
drawn from the policy that was running (a target re-draws them, `BinnedPolicy.redraw`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.robots.bins import BinnedPolicy, BinnedRobots
from experiments.robots.env import HORIZON, Robots, robot_name
from experiments.robots.policies import RobotPolicy, robot_policies
from scopeval.arrays import check_whole
from scopeval.collection.collector import collect
from scopeval.errors import InputError
from scopeval.logs.tables import write_logs
from scopeval.logs.transitions import Transitions

__all__ = ["PROTOCOLS", "robot_logs", "write_robot_logs"]

PROTOCOLS = ("candidates", "bins")


def robot_logs(
    robot: str,
    protocol: str = "candidates",
    *,
    episodes: int = 1000,
    seed: int = 0,
    policies: Sequence[RobotPolicy] | None = None,
) -> Transitions:
    """Run the policies and keep every step; the seed decides everything.

    Args:
        robot: its name.
        protocol: "candidates" (continuous actions) or "bins" (the paper's).
        episodes: in all.
        seed: of the logs; evaluations with the same seed use other random numbers.
        policies: that run; None: the 30 reported ones.
    """
    name = robot_name(robot)
    if protocol not in PROTOCOLS:
        raise InputError(f"protocol: got {protocol!r}, expected one of {', '.join(PROTOCOLS)}")
    check_whole("episodes", episodes, 1)
    who = robot_policies(name, draws=1) if policies is None else list(policies)
    stream = int(np.random.SeedSequence((seed, 6)).generate_state(1)[0])
    many = len(range(0, episodes, len(who)))
    robots = None if protocol == "bins" else Robots(name, many)
    parts = []
    for k, policy in enumerate(who[:episodes]):
        ran = collect(
            robots or BinnedRobots(name, policy, many),
            BinnedPolicy(policy) if protocol == "bins" else policy,
            horizon=HORIZON,
            episodes=len(range(k, episodes, len(who))),
            seed=stream,
            first=k << 32,
        )
        columns: dict[str, Any] = ran.transitions()
        parts.append(Transitions(**columns))
    return Transitions.concat(parts)


def write_robot_logs(
    folder: str | os.PathLike[str],
    robot: str,
    protocol: str = "candidates",
    *,
    episodes: int = 1000,
    seed: int = 0,
    policies: Sequence[RobotPolicy] | None = None,
) -> Path:
    """The same as a Parquet file, ``NAME-PROTOCOL.parquet``; its path."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{robot_name(robot)}-{protocol}.parquet"
    log = robot_logs(robot, protocol, episodes=episodes, seed=seed, policies=policies)
    write_logs(log, path)
    return path

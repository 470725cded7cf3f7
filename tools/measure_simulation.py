"""Values of target policies in a learned world, beside measured ones.

    python tools/measure_simulation.py InvertedDoublePendulum

A world is learned from 1,000 logged episodes (seed 1). Validation policies of the robot are run,
and simulated in the network of each half of the logs, with errors as on held-out rows: once with
the identities of the observations kept (`critics.model.identities`), and once without.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scopeval import World
from scopeval.arrays import Floats
from scopeval.collection.collector import collect
from scopeval.critics.log_rows import gather
from scopeval.critics.model.identities import NO_IDENTITIES
from scopeval.critics.model.network import Network
from scopeval.critics.model.rollouts import first_observations
from scopeval.critics.protocols import Rows
from scopeval.paper.robots.env import HORIZON, ROBOTS, Robots
from scopeval.paper.robots.logs import robot_logs
from scopeval.paper.robots.policies import RobotPolicy, robot_policies

SEED, LOGGED = 1, 1000


def simulated(model: Network, starts: Rows, target: RobotPolicy, episodes: int) -> Floats:
    """Returns of episodes of the target policy."""
    rng = np.random.default_rng((SEED, 5))
    obs, going = first_observations(starts, episodes, rng), np.arange(episodes)
    total = np.zeros(episodes)
    for t in range(HORIZON):
        action = target.sample(obs, t, rng)
        ahead = model.predict(obs, action[:, None], t)
        total[going] += ahead.reward[:, 0]
        on = rng.random(len(obs)) >= ahead.end[:, 0]
        wrong = model.draw_errors(obs, action, t, rng)
        obs, going = model.settle(ahead.next_obs[:, 0] + wrong)[on], going[on]
        if not len(going):
            break
    return total


def _text(values: Floats) -> str:
    return f"{values.mean():.1f} ± {values.std(ddof=1) / np.sqrt(len(values)):.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Simulated values beside measured ones.")
    parser.add_argument("robot", choices=ROBOTS)
    parser.add_argument("--targets", nargs="+", type=int, default=[3, 4, 5], help="of 0 to 5")
    parser.add_argument("--episodes", type=int, default=600)
    given = parser.parse_args(arguments)
    policies = robot_policies(given.robot, "validation")
    world = World.learn(robot_logs(given.robot, episodes=LOGGED, seed=SEED), seed=SEED)
    networks = world.dynamics.learned
    print(f"identities: {len(networks[0].identities)}, {len(networks[1].identities)}")
    print("| target | measured | simulated, two halves | without identities |")
    print("|---|---|---|---|")
    for number in given.targets:
        pi = policies[number]
        starts = gather(world.logged, pi, HORIZON, SEED, merge=False).starts
        fleet = Robots(given.robot, min(given.episodes, 300))
        ran = collect(fleet, pi, None, horizon=HORIZON, episodes=given.episodes, seed=SEED)
        cells = [_text(ran.returns())]
        for how in (lambda n: n, lambda n: replace(n, identities=NO_IDENTITIES)):
            each = [simulated(how(n), starts, pi, given.episodes) for n in networks]
            cells.append(", ".join(map(_text, each)))
        print(f"| {number} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Measure false alarms of the guard without a stated bound, and how soon it notices.

    python tools/measure_guard.py [--runs 300]

1. Gridworld 10 x 10, behavior policies from exact values, 1,000 episodes: `scope`, which costs
   exactly what the target policy does, and `odi` where cost is reward, which costs 1.105 times
   that.
2. The world "too expensive" of `experiments.verdicts`, up to 2,000 episodes.
3. Log-normal weights, every cost 1, 5,000 episodes, a check after every 25: the promise holds.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from experiments.worlds.costly import too_expensive
from scopeval import evaluate, exact
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.safety.costs import EpisodeCosts
from scopeval.safety.guard import Guard


def gridworld(law: str, method: str, runs: int) -> None:
    """After how many episodes the guard switches, and what an episode costs then."""
    mdp, pi = Gridworld(10, law, seed=0).mdp(), target_policies(1, 10)[0]
    alone, mu = exact.assess(mdp, pi, pi), exact.design(mdp, pi, method)
    ratio = exact.assess(mdp, pi, mu).cost / alone.cost
    found = [evaluate(mdp, pi, mu, episodes=1000, seed=1000 + k) for k in range(runs)]
    after = [r.guard.switched_after for r in found if r.guard and r.guard.switched_after]
    paid = np.mean([r.cost.per_episode for r in found]) / alone.cost
    when = f"after {np.median(after):.0f} (median), at most {max(after)}" if after else "never"
    print(
        f"{method}, cost {ratio:.3f}: alarms in {len(after) / runs:.3f} of {runs} runs, {when}; "
        f"an episode cost {paid:.3f}",
        flush=True,
    )


def lognormal(deviation: float, runs: int) -> None:
    """Shares of false alarms."""
    alarms = 0
    for k in range(runs):
        normal = np.random.default_rng([3, k]).standard_normal(5000)
        weight = np.exp(deviation * normal - deviation**2 / 2)
        costs, guard = EpisodeCosts(np.ones(5000), weight, weight, weight), Guard()
        looks = (costs.select(slice(i, i + 25)) for i in range(0, 5000, 25))
        alarms += any(guard.add(part).tripped for part in looks)
    print(f"log-normal weights, {deviation:g}: {alarms / runs:.3f} of {runs} runs", flush=True)


def noticed(runs: int) -> None:
    """After how many episodes a policy that is too expensive is noticed, in looks of 50."""
    world, after = too_expensive(), []
    for k in range(runs):
        costs, guard = world.draw(np.random.default_rng([7, k]), 2000), Guard()
        looks = range(0, 2000, 50)
        trips = (i + 50 for i in looks if guard.add(costs.select(slice(i, i + 50))).tripped)
        after.append(next(trips, math.inf))
    print(f"{world.name}, cost {world.ratio:.3f}: noticed after {np.median(after):.0f} (median)")


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description="Measure the guard without a stated bound.")
    parser.add_argument("--runs", type=int, default=300)
    runs = parser.parse_args().runs
    gridworld("same-tilt", "scope", runs)
    gridworld("reward", "odi", runs)
    noticed(runs)
    for deviation in (0.5, 1.0, 1.5):
        lognormal(deviation, runs)


if __name__ == "__main__":
    main()

"""The noise of the certificate's cost difference, with and without a control variate.

Prints the standard deviation of D = cost - share * (the target's cost), relative to the target's
cost, for exact frontiers of Gridworlds at several shares of the cost: with weighted costs, with q^c
as control variate for the target's cost only, and for both costs as the certificate uses it.
"""

from __future__ import annotations

import argparse

import numpy as np

from scopeval import exact
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.simulate import summaries


def main() -> None:
    """Print one line for each share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=10)
    parser.add_argument("--worlds", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=20_000)
    given = parser.parse_args()
    shares = (1.0, 0.8, 0.6, 0.5)
    found = np.empty((given.worlds, len(shares), 3))
    for k in range(given.worlds):
        mdp = Gridworld(given.size, "same-tilt", seed=k).mdp()
        pi = target_policies(k + 1, given.size)[k]
        curve, q = exact.frontier(mdp, pi), exact.cost_values(mdp, pi).q
        own = exact.assess(mdp, pi, pi).cost
        for i, share in enumerate(shares):
            done = summaries(
                mdp, pi, curve.at(cost=share), cost_control=q, episodes=given.episodes, seed=1
            )
            plain = done.cost - share * done.weighted_cost
            target = done.cost - share * done.target_controlled
            both = done.own_controlled - share * done.target_controlled
            found[k, i] = [x.std() / own for x in (plain, target, both)]
    error = found.std(axis=0, ddof=1) / np.sqrt(given.worlds) if given.worlds > 1 else 0 * found[0]
    print("cost   weighted          q^c for the target  q^c for both")
    for i, share in enumerate(shares):
        mean = found[:, i].mean(axis=0)
        cells = [f"{m:.3f} +- {e:.3f}" for m, e in zip(mean, error[i], strict=True)]
        print(f"{share:<6} {cells[0]:<17} {cells[1]:<19} {cells[2]}")


if __name__ == "__main__":
    main()

"""A contextual bandit is an episode of one step: the same calls with ``horizon=1``.

A shop shows one of five offers to visitors of eight kinds. Offers differ in what they earn and in
how often they annoy (the cost). The logs are last month's, under other rules.

    python examples/contextual_bandit.py
"""

from __future__ import annotations

import numpy as np

from scopeval import TabularPolicy, Transitions, design, exact, simulate

KINDS, OFFERS = 8, 5


def shop(seed=0):
    """The true model, which `design` does not see: a finite MDP with one step."""
    rng = np.random.default_rng(seed)
    visitors = rng.dirichlet(np.ones(KINDS))
    earnings = rng.gamma(2.0, size=(KINDS, OFFERS)) * np.array([1.0, 1.0, 2.0, 4.0, 8.0])
    annoyance = rng.random((KINDS, OFFERS))
    gone = np.zeros((KINDS, OFFERS, KINDS))
    gone[..., 0] = 1.0  # the next state does not matter: the episode is over
    return exact.TabularMDP(
        visitors, gone, earnings, annoyance, horizon=1, reward_variance=0.1 * earnings**2
    )


def main():
    world = shop()
    rng = np.random.default_rng(1)
    old_rules = TabularPolicy(rng.dirichlet(np.ones(OFFERS), KINDS))
    new_rules = TabularPolicy(rng.dirichlet(np.ones(OFFERS), KINDS))

    seen = simulate.trajectories(world, old_rules, episodes=5000, seed=2)
    log = Transitions(
        t=np.zeros(5000, int),
        obs=seen.states[:, 0],
        action=seen.actions[:, 0],
        reward=seen.rewards[:, 0],
        cost=seen.costs[:, 0],
        next_obs=seen.states[:, 1],
        terminated=np.ones(5000, bool),
    )
    behavior = design(log, new_rules, horizon=1, method="scope")
    print(behavior.summary())

    own = exact.assess(world, new_rules, new_rules)
    found = exact.assess(world, new_rules, *behavior.table(KINDS))
    print(f"exact: variance {found.variance / own.variance:.3f}, ", end="")
    print(f"annoyance {found.cost / own.cost:.3f} of showing the new rules' own offers")
    return found.variance / own.variance, found.cost / own.cost


if __name__ == "__main__":
    main()

"""How well a mixture will answer, by episodes that are simulated in a model.

The sweep of `joint_design` predicts a design that runs alone. In a mixture of episodes the weights
of the policies depend on what has happened, and the variance of their contrasts is far less than
that: it is simulated, in the known MDP or in the one that the logs show.
"""

from __future__ import annotations

import numpy as np

from scopeval.arrays import Floats
from scopeval.collection.environments import open_environments
from scopeval.collection.simulated import TabularFleet
from scopeval.comparison.control import TableControls, controls_at
from scopeval.comparison.estimators import doubly_robust
from scopeval.comparison.joint_design import value_tables
from scopeval.comparison.policy_set import PolicySet
from scopeval.comparison.rollout import MixtureRollout
from scopeval.exact import TabularMDP
from scopeval.policies.adapters import TabularPolicy

__all__ = ["foreseen_variance"]

#: Simulated episodes: the variance is known to 5 to 10 %, and kinds of mixtures meet the same luck.
SIMULATED = 1000


def foreseen_variance(
    mdp: TabularMDP, policies: Floats, mu: Floats, shares: Floats, baseline: int
) -> float:
    """Variance of an episode's differences to the baseline (their sum), with b_k = q_k.

    Args:
        mdp: the model.
        policies: [K, T, S, A].
        mu: of the design, [T, S, A].
        shares: of the policies and the design, [K + 1].
        baseline: number of the policy that the others are compared with.
    """
    K = len(policies)
    both = PolicySet({f"policy {k}": TabularPolicy(pi) for k, pi in enumerate(policies)})
    both = both.with_design(TabularPolicy(mu))
    q = np.stack([value_tables(mdp, "reward", pi)[0] for pi in (*policies, mu)])
    with open_environments(TabularFleet(mdp, SIMULATED), cost="none") as pool:
        rollout = MixtureRollout(pool, both, horizon=mdp.horizon, seed=0)
        episodes = rollout.run(0, SIMULATED, shares)
    y = doubly_robust(episodes, mdp.gamma, *controls_at(TableControls(q), both, episodes))
    return float((y[:, :K] - y[:, [baseline]]).var(axis=0).sum())

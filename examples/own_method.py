"""A method of your own: halfway between the target policy and the least-variance policy.

A `Method` is a name, three choices, and optionally its own line 6 of Algorithm 1. Once registered,
`design`, `exact.design`, `evaluate`, saved files and the experiments take it by its name.
"""

import numpy as np

from scopeval import design, evaluate, exact
from scopeval.behavior.methods import Method, register
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies


def halfway(pi, second_moment, cost, budget):
    """Mu [B, A] at B states: rows must be distributions, others fall back to the target policy."""
    weight = pi * np.sqrt(second_moment)
    total = weight.sum(axis=1, keepdims=True)
    return 0.5 * pi + 0.5 * np.where(total > 0, weight / np.where(total > 0, total, 1), pi)


register(Method("halfway", control_variate=True, step=halfway))

mdp = Gridworld(size=5, seed=0).mdp()
policy = target_policies(1, size=5)[0]
behavior = design(gridworld_logs(mdp, episodes=500), policy, horizon=5, method="halfway")
print(evaluate(mdp, policy, behavior, episodes=1000).sentence)
print(f"exact  {exact.assess(mdp, policy, exact.design(mdp, policy, 'halfway')).value:.3f}")

"""An estimator of your own: PDIS with clipped ratios, and why scopeval does not offer it.

An estimator is a function of `Episodes` that returns one value per episode. Clipping reduces the
variance, but it adds bias: the mean of the values is no longer the policy's value. So do weighted
importance sampling ("wis") and fitted Q evaluation ("fqe"), which are offered as baselines.
"""

import numpy as np

from scopeval import Inference, TabularPolicy, collect, estimate, exact
from scopeval.envs.gridworld import Gridworld, target_policies


def clipped_pdis(episodes, largest=1.2):
    """G_t = min(rho_t, largest) (R_t + G_{t+1}), backwards in t."""
    ratios = np.minimum(episodes.ratios, largest)
    value = np.zeros(len(episodes))
    for t in reversed(range(episodes.horizon)):
        value = ratios[:, t] * (episodes.reward[:, t] + value)
    return value


mdp = Gridworld(size=5, seed=0).mdp()
policy = target_policies(1, size=5)[0]
uniform = TabularPolicy(np.full((25, 4), 0.25))  # the behavior policy of this example
episodes = collect(mdp, policy, uniform, episodes=2000)

print(f"{'exact':<26}{exact.assess(mdp, policy, policy).value:.3f}")
for estimator in ("pdis", "wis", "fqe", clipped_pdis):
    result = estimate(episodes, policy, inference=Inference(estimator=estimator))
    print(f"{result.estimator:<26}{result.interval}")

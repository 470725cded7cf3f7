"""An environment of your own: a machine that wears and may break.

Any Gymnasium environment works. Here observations are numbers of wear levels, so critics are tables
(for `Box` observations they would be networks). Episodes may end early, and the cost of a step has
its own key in `info`.
"""

import gymnasium
import numpy as np

from scopeval import Plant, Transitions, collect, design, evaluate


class Machine(gymnasium.Env):
    """Actions: rest; rare parts, which seldom succeed; plain parts, which cause wear."""

    observation_space = gymnasium.spaces.Discrete(8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        """A new machine."""
        super().reset(seed=seed)
        self.wear = 0
        return self.wear, {}

    def step(self, action):
        """One hour."""
        broken = bool(self.np_random.random() < (0.0, 0.002, 0.01)[action] * self.wear)
        earned = (0.0, 8.0 * (self.np_random.random() < 0.25), 1.0)[action]
        worn = int(self.np_random.random() < (0.0, 0.3, 0.8)[action])
        self.wear = max(self.wear - 2, 0) if action == 0 else min(self.wear + worn, 7)
        info = {"strain": (0.0, 0.5, 1.0)[action] + 5.0 * broken}
        return self.wear, float(earned), broken, False, info


def uniform(obs, t):
    """The old controller, as a function (obs, t) -> [B, A]."""
    return np.full((len(obs), 3), 1 / 3)


def new(obs, t):
    """The target policy: more rest with more wear; rare parts seldom."""
    rest = 0.1 + 0.08 * obs
    return np.stack([rest, 0.2 * (1 - rest), 0.8 * (1 - rest)], axis=1)


old = collect(Plant(Machine, cost="strain"), uniform, horizon=8, episodes=500)
log = Transitions(**old.transitions())
behavior = design(log, new, horizon=8, method="scope-dr")
print(behavior.summary())
print(evaluate(Plant(Machine, cost="strain"), new, behavior, episodes=300, seed=1))

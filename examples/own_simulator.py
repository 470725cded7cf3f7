"""A simulator instead of learned dynamics: a noisy pump keeps a tank filled.

No dynamics have to be learned: `simulate` returns where an action leads from any state. So a few
logged episodes are enough; they show where episodes start and which levels are usual. The plant
itself also leaks at random. The simulator is therefore slightly wrong, which costs some precision,
but it cannot bias the estimate.
"""

import gymnasium
import numpy as np

from scopeval import GaussianPolicy, Transitions, collect, design, evaluate
from scopeval.models.model_critic import Study
from scopeval.models.networks import Networks
from scopeval.models.simulator import Simulator


def simulate(obs, actions, t):
    """From levels and pumped amounts [B, 1] to next levels, rewards, costs, and episode ends."""
    level, pumped = obs[:, 0], actions[:, 0]
    after = 0.9 * level + 0.3 * pumped
    return after[:, None], -((after - 1.0) ** 2), pumped**2, after > 2.0


class Tank(gymnasium.Env):
    """The plant: the simulator's dynamics, and a leak."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 3.0, (1,))

    def reset(self, *, seed=None, options=None):
        """Nearly empty."""
        super().reset(seed=seed)
        self.level = np.array([0.2 * self.np_random.random()])
        return self.level, {}

    def step(self, action):
        """One hour."""
        obs, reward, cost, over = simulate(self.level[None], np.asarray(action)[None], 0)
        self.level = obs[0] - 0.02 * self.np_random.random()
        return self.level, float(reward[0]), bool(over[0]), False, {"cost": float(cost[0])}


def pump(gain: float) -> GaussianPolicy:
    """Fills the missing amount, with noise."""
    return GaussianPolicy(lambda obs, t: gain * (1.0 - obs), np.log([0.5]), low=[-1.0], high=[3.0])


def main():
    """Log a few episodes of another pump, design with the simulator, evaluate."""
    log = Transitions(**collect(Tank, pump(1.5), horizon=10, episodes=40).transitions())
    target = pump(1.0)
    known = Networks(dynamics=Simulator(simulate), paths=200, study=Study(paths=500, steps=500))
    behavior = design(log, target, horizon=10, method="scope-dr", learn=known)
    print(behavior.summary())
    result = evaluate(Tank, target, behavior, episodes=300, seed=1)
    print(result)
    return behavior, result


if __name__ == "__main__":
    main()

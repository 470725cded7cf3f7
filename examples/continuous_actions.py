"""Continuous actions: a Gaussian policy moves the joint of a robot arm to a mark.

The policy offers ten actions drawn from it; the behavior policy weighs them. A model of the world
is learned from logs of another controller, and critics are fitted on episodes simulated in it.
"""

import gymnasium
import numpy as np

from scopeval import GaussianPolicy, Transitions, collect, design, evaluate
from scopeval.models.networks import Networks
from scopeval.models.training import Training


class Joint(gymnasium.Env):
    """Observations: angle and speed. Reward: closeness to the mark. Cost: squared torque."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,))

    def reset(self, *, seed=None, options=None):
        """At rest, somewhere below the mark."""
        super().reset(seed=seed)
        self.angle, self.speed = -1.0 + 0.2 * self.np_random.standard_normal(), 0.0
        return np.array([self.angle, self.speed]), {}

    def step(self, action):
        """One time step; beyond the stop the episode is over."""
        torque = float(action[0])
        self.speed += 0.3 * (torque - 0.5 * self.speed + 0.3 * np.sin(self.angle))
        self.angle += 0.3 * self.speed
        reward = float(np.exp(-4.0 * self.angle**2))
        stopped = bool(abs(self.angle) > 2.0)
        return np.array([self.angle, self.speed]), reward, stopped, False, {"cost": torque**2}


def gaussian(gain: float, spread: float) -> GaussianPolicy:
    """Spring and damper, with noise of standard deviation `spread`."""
    return GaussianPolicy(
        lambda obs, t: -gain * obs[:, :1] - 0.6 * obs[:, 1:],
        np.log([spread]),
        space=Joint.action_space,
    )


def main():
    """Log another controller, design, evaluate."""
    old = collect(Joint, gaussian(0.6, 1.0), horizon=12, episodes=600)
    log = Transitions(**old.transitions())
    target = gaussian(1.0, 0.6)
    quick = Networks(training=Training(hidden=32, steps=1200, batch=256), paths=300)
    behavior = design(log, target, horizon=12, method="scope-dr", learn=quick)
    print(behavior.summary())
    result = evaluate(Joint, target, behavior, episodes=300, seed=1)
    print(result)
    return behavior, result


if __name__ == "__main__":
    main()

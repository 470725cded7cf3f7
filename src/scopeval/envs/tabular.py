"""Any finite MDP as a Gymnasium environment, with the random numbers of `scopeval.simulate`."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np

from scopeval.exact import TabularMDP
from scopeval.policies.drawing import draw_action

__all__ = ["TabularEnv"]


class TabularEnv(gymnasium.Env[np.int64, np.int64]):
    """A `TabularMDP` to step through; observations are state numbers, `info["cost"]` the cost.

    It uses its random numbers exactly as the compiled simulator does: one uniform for the first
    state; per step one for the next state and, where rewards are random, two for the reward's
    noise. The episode is truncated at the MDP's horizon.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium's own convention)

    def __init__(self, mdp: TabularMDP) -> None:
        self.mdp = mdp
        self.observation_space = gymnasium.spaces.Discrete(mdp.states)
        self.action_space = gymnasium.spaces.Discrete(mdp.actions)
        self._noisy = bool((mdp.reward_variance > 0).any())
        self._state = 0
        self._t = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Draw the first state."""
        super().reset(seed=seed)
        self._t = 0
        self._state = draw_action(self.mdp.initial, self.np_random.random())
        return np.int64(self._state), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Reward and cost of (s, a) and the next state."""
        a, s, t = int(action), self._state, self._t
        p = self.mdp.transition
        row = s * self.mdp.actions + a
        lo, hi = p.indptr[row], p.indptr[row + 1]
        chosen = draw_action(p.data[lo:hi], self.np_random.random())
        reward = float(self.mdp.at("reward", t)[s, a])
        if self._noisy:
            spread = math.sqrt(self.mdp.at("reward_variance", t)[s, a])
            # the kernel's order and the C library's functions: the same bits
            radius = math.sqrt(-2.0 * math.log(1.0 - self.np_random.random()))
            reward += spread * (radius * math.cos(2.0 * math.pi * self.np_random.random()))
        cost = float(self.mdp.at("cost", t)[s, a])
        if self.mdp.next_reward is not None:
            reward += float(self.mdp.next_reward[t % len(self.mdp.next_reward), lo + chosen])
        if self.mdp.next_cost is not None:
            cost += float(self.mdp.next_cost[t % len(self.mdp.next_cost), lo + chosen])
        self._state = int(p.indices[lo + chosen])
        self._t += 1
        over = self._t >= self.mdp.horizon
        return np.int64(self._state), reward, False, over, {"cost": cost}

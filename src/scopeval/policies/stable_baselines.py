"""Policies of Stable-Baselines3, by what they have; the library itself is not imported.

A model is asked for the distribution that it draws from in training: probabilities of numbered
actions, or a normal distribution that is clipped to the action space. Action values (DQN) become
the greedy policy, with a share of exploration if one is stated.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scopeval.arrays import Floats, is_number
from scopeval.errors import InputError
from scopeval.policies.gaussian import GaussianPolicy
from scopeval.policies.protocols import ContinuousPolicy, Observations, Policy, Time

__all__ = ["is_sb3", "sb3_policy"]


def is_sb3(source: object) -> bool:
    """Whether this is a model, or the policy of a model, of Stable-Baselines3."""
    return any(
        base.__module__.partition(".")[0] in ("stable_baselines3", "sb3_contrib")
        for base in type(source).__mro__
    )


def sb3_policy(model: Any, *, explore: float = 0.0, draws: int = 10) -> Policy | ContinuousPolicy:
    """The policy of a model of Stable-Baselines3.

    Args:
        model: PPO, A2C or another actor-critic over numbered actions or a box; DQN. Or its
            ``policy``. Observations must be as the model saw them: for a model that was trained
            behind `VecNormalize`, wrap the environment likewise.
        explore: share of the time in which DQN takes an action at random.
        draws: candidates of a continuous policy (see `GaussianPolicy`).

    Raises:
        InputError: no such policy, or one whose probabilities are not known.
    """
    network = getattr(model, "policy", model)
    if not (is_number(explore) and 0.0 <= explore <= 1.0):
        raise InputError(f"explore: got {explore!r}, expected a share between 0 and 1")
    space = getattr(network, "action_space", None)
    actions = getattr(space, "n", None)
    if hasattr(network, "q_net") and isinstance(actions, int | np.integer):
        return _Greedy(network, int(actions), float(explore))
    if explore:
        raise InputError(f"explore: got {explore!r}, but only DQN explores; leave it out")
    if not hasattr(network, "get_distribution"):
        raise InputError(
            f"policy: got {type(model).__name__}, whose probabilities of actions are not known; "
            "expected PPO, A2C or DQN; try a function (obs, t) that returns probabilities, or "
            "GaussianPolicy(mean, log_std, space=env.action_space)"
        )
    if isinstance(actions, int | np.integer):
        return _ActorCritic(network)
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    usual = type(getattr(network, "action_dist", None)).__name__ == "DiagGaussianDistribution"
    if low is None or high is None or np.ndim(low) != 1 or not usual:
        raise InputError(
            f"policy: got {type(model).__name__} over {space}, expected numbered actions, or a box "
            "with a plain normal distribution (use_sde=False, no squashing)"
        )
    gaussian = _Gaussian(network)
    return GaussianPolicy(gaussian.mean, gaussian.log_std, space=space, draws=draws)


class _Network:
    """Asks a network of Stable-Baselines3 without gradients, in evaluation mode."""

    def __init__(self, network: Any) -> None:
        self._network = network
        network.set_training_mode(False)

    def _tensor(self, obs: Observations) -> Any:
        return self._network.obs_to_tensor(np.asarray(obs))[0]

    def _distribution(self, obs: Observations) -> Any:
        import torch

        with torch.no_grad():
            return self._network.get_distribution(self._tensor(obs)).distribution

    def __repr__(self) -> str:
        return f"sb3_policy({type(self._network).__name__})"


class _ActorCritic(_Network):
    """PPO and A2C over numbered actions."""

    def probs(self, obs: Observations, t: Time) -> Floats:
        """Probabilities [B, A]; the softmax is taken in float64."""
        logits = self._distribution(obs).logits.double()
        return np.asarray(logits.softmax(dim=1).cpu().numpy())


class _Gaussian(_Network):
    """PPO and A2C over a box."""

    def mean(self, obs: Observations, t: Time) -> Floats:
        """Means [B, d]."""
        return np.asarray(self._distribution(obs).mean.double().cpu().numpy())

    def log_std(self, obs: Observations, t: Time) -> Floats:
        """Logarithm of the standard deviations [B, d]."""
        return np.asarray(self._distribution(obs).stddev.double().log().cpu().numpy())


class _Greedy(_Network):
    """DQN: the action of the largest value, but for a share of exploration."""

    def __init__(self, network: Any, actions: int, explore: float) -> None:
        super().__init__(network)
        self._actions, self._explore = actions, explore

    def probs(self, obs: Observations, t: Time) -> Floats:
        """Probabilities [B, A]."""
        import torch

        with torch.no_grad():
            best = self._network.q_net(self._tensor(obs)).argmax(dim=1).cpu().numpy()
        greedy = np.eye(self._actions)[best]
        return np.asarray(self._explore / self._actions + (1 - self._explore) * greedy)

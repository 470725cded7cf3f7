"""ROS on the robots: their policies as parametric families of `baselines.ros_autograd`.

In the protocol ``candidates`` actions are continuous: ROS draws from the moved normal itself and
needs no candidates. In ``bins`` they are finite: the bins' probabilities are a function of the
network's parameters, through the normal's distribution function.

The step size is the authors' for continuous actions, 0.1. For bins theirs would be 10 (CartPole, a
softmax network); on a validation policy of InvertedPendulum that ruined the first episodes (squared
error 19 times on-policy's after 10), and 1 was the best of 0.1, 1 and 10, so it is 1.
"""

from __future__ import annotations

import math

import torch
from torch.func import functional_call

from experiments.baselines.ros import RosRuns
from experiments.baselines.ros_autograd import FiniteFamily, GaussianFamily, Parameters, ros_fleet
from experiments.robots.bins import BINS, BinnedPolicy, BinnedRobots
from experiments.robots.env import HORIZON, Robots
from experiments.robots.policies import RobotPolicy
from scopeval._parallel import one_torch_thread
from scopeval.errors import InputError

__all__ = ["ALPHA", "family_of", "run_ros"]

#: Step size by protocol.
ALPHA = {"candidates": 0.1, "bins": 1.0}


def family_of(policy: RobotPolicy | BinnedPolicy) -> GaussianFamily | FiniteFamily:
    """A robot's policy as a function of its parameters."""
    if isinstance(policy, RobotPolicy):
        return GaussianFamily(policy.torch_module(), policy.low, policy.high)
    inside = policy.policy
    if not isinstance(inside, RobotPolicy):
        raise InputError(f"policy: got {inside!r}, expected a RobotPolicy: its network is needed")
    module = inside.torch_module()
    edges = torch.linspace(float(inside.low[0]), float(inside.high[0]), BINS + 1).double()[1:-1]
    drawn = policy.drawn

    def logits(theta: Parameters, obs: torch.Tensor) -> torch.Tensor:
        own = obs[: len(obs) - drawn]
        mean = functional_call(module, theta, (own[None],))[0, 0].double()
        z = (edges - mean) * torch.exp(-theta["log_std"][0].double())
        low, high = z[:-1], z[1:]
        far = low > 0  # on the side of the smaller tail, where nothing cancels
        low, high = torch.where(far, -high, low), torch.where(far, -low, high)
        below, upto = _log_normal(low), _log_normal(high)
        inner = upto + torch.log(-torch.expm1(below - upto))
        return torch.cat([_log_normal(z[:1]), inner, _log_normal(-z[-1:])])

    return FiniteFamily(module, logits)


def run_ros(
    robot: str, policy: RobotPolicy | BinnedPolicy, *, runs: int, episodes: int, seed: int
) -> RosRuns:
    """Independent runs of ROS with a robot's policy."""
    fleet = (
        BinnedRobots(robot, policy, runs)
        if isinstance(policy, BinnedPolicy)
        else Robots(robot, runs)
    )
    alpha = ALPHA["bins" if isinstance(policy, BinnedPolicy) else "candidates"]
    with one_torch_thread():  # the same bits on every machine
        return ros_fleet(
            fleet,
            family_of(policy),
            horizon=HORIZON,
            runs=runs,
            episodes=episodes,
            alpha=alpha,
            seed=seed,
        )


def _log_normal(z: torch.Tensor) -> torch.Tensor:
    """Logarithm of the normal distribution function; torch's own cannot be mapped."""
    left, right = z.clamp(max=0.0), z.clamp(min=0.0)
    root = math.sqrt(0.5)
    tail = torch.log(0.5 * torch.special.erfcx(-root * left)) - 0.5 * left * left
    return torch.where(z < 0, tail, torch.log1p(-0.5 * torch.special.erfc(root * right)))

"""A torch policy with other parameters than its own; the user's module is never changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from scopeval.policies.adapters import TorchPolicy
from scopeval.policies.protocols import Observations, Time

Parameters = dict[str, torch.Tensor]


class Reparametrized(torch.nn.Module):
    """Calls a module with the parameters given here (`torch.func.functional_call`)."""

    def __init__(self, module: torch.nn.Module, parameters: Parameters) -> None:
        super().__init__()
        self._of = (module,)  # in a tuple: not a submodule, so nothing registers or moves it
        self.values = parameters

    def forward(self, *inputs: Any) -> torch.Tensor:
        """The module's output under these parameters."""
        out: torch.Tensor = torch.func.functional_call(self._of[0], self.values, inputs)
        return out


def own_parameters(module: torch.nn.Module) -> Parameters:
    """A copy of theta_e; buffers are not parameters, and stay in the module."""
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def moved_parameters(theta: Parameters, gradient: Parameters, alpha: float) -> Parameters:
    """One step against a gradient, theta - alpha g; g may have a leading axis, for many runs."""
    return {
        name: (value.double() - alpha * gradient[name]).to(value.dtype)
        for name, value in theta.items()
    }


def with_parameters(policy: TorchPolicy, parameters: Parameters) -> TorchPolicy:
    """The policy pi_theta for other theta."""
    return TorchPolicy(Reparametrized(policy.module, parameters), with_time=policy.with_time)


def log_likelihood_gradient(
    policy: TorchPolicy,
    parameters: Parameters,
    obs: Observations,
    action: Any,
    t: Time,
    weight: Any,
) -> Parameters:
    """Gradient of sum_i weight_i log pi_theta(action_i | obs_i), at theta = `parameters`."""
    parameters = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    logits = with_parameters(policy, parameters).logits(obs, t)
    logs = torch.log_softmax(logits.double(), dim=-1)
    rows = torch.arange(len(logs))
    picked = logs[rows, torch.as_tensor(np.asarray(action, dtype=np.int64))]
    total = (torch.as_tensor(np.array(weight, dtype=np.float64)) * picked).sum()
    names = list(parameters)
    slopes = torch.autograd.grad(total, [parameters[n] for n in names], allow_unused=True)
    return {
        n: torch.zeros_like(parameters[n]).double() if g is None else g.double()
        for n, g in zip(names, slopes, strict=True)
    }

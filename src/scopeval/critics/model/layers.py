"""The small network that learns the dynamics and the return features.

    hidden = swish(swish(x w1 + b1) w2 + b2)
    output = hidden w3 + x skip + b3

The linear path `skip` lets the hidden layers learn only what is not linear. The same functions take
numpy arrays and torch tensors; compiled answers for a few rows are in `_fast_estimates_kernel`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.critics.model.step_model import Weights

__all__ = ["StackedLayers", "forward", "fresh_layers", "hidden_layers", "minimize", "outputs"]

#: Rows that pass a network together: what they need stays in the processor's cache.
BLOCK = 8192


class StackedLayers(NamedTuple):
    """The layers of several networks for compiled code: [networks, ...] each."""

    w1: Weights
    b1: Weights
    w2: Weights
    b2: Weights
    w3: Weights
    skip: Weights
    b3: Weights
    mean: Weights  # of the inputs
    scale: Weights  # of the inputs


def fresh_layers(
    inputs: int, hidden: int, outputs: int, rng: np.random.Generator
) -> dict[str, Weights]:
    """Layers before training; the linear path starts at zero."""

    def uniform(*shape: int) -> Weights:
        bound = 1.0 / np.sqrt(shape[0])
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    return {
        "w1": uniform(inputs, hidden),
        "b1": np.zeros(hidden, np.float32),
        "w2": uniform(hidden, hidden),
        "b2": np.zeros(hidden, np.float32),
        "w3": uniform(hidden, outputs),
        "skip": np.zeros((inputs, outputs), np.float32),
        "b3": np.zeros(outputs, np.float32),
    }


def hidden_layers(p: dict[str, Any], x: Any, drop: Callable[[Any], Any] | None = None) -> Any:
    """The second hidden layer [n, h] for inputs [n, i]; `drop` is applied after both layers."""
    first = swish(x @ p["w1"] + p["b1"])
    second = swish((first if drop is None else drop(first)) @ p["w2"] + p["b2"])
    return second if drop is None else drop(second)


def outputs(p: dict[str, Any], x: Any, hidden: Any) -> Any:
    """The outputs [n, o] for inputs [n, i] and their second hidden layer."""
    return hidden @ p["w3"] + x @ p["skip"] + p["b3"]


def forward(p: dict[str, Weights], x: Weights) -> Weights:
    """The outputs [n, o] for any number of inputs [n, i], in blocks."""
    out = np.empty((len(x), len(p["b3"])), np.float32)
    for i in range(0, len(x), BLOCK):
        part = x[i : i + BLOCK]
        out[i : i + BLOCK] = outputs(p, part, hidden_layers(p, part))
    return out


def swish(z: Any) -> Any:
    """Multiply z by a soft step: smooth, and much cheaper than one with an exponential."""
    if isinstance(z, np.ndarray):
        return _swish_array(z)
    return 0.5 * z * (1.0 + z / (1.0 + abs(z)))


def _swish_array(z: NDArray[Any]) -> NDArray[Any]:
    """The same in one new array: most of the time would go into temporary ones."""
    gate = np.abs(z)
    gate += 1.0
    np.divide(z, gate, out=gate)
    gate += 1.0
    gate *= z
    gate *= np.float32(0.5)
    return np.asarray(gate)


def minimize(
    layers: dict[str, Any],
    loss: Callable[[], Any],
    *,
    steps: int,
    rate: float,
    tick: Callable[[], None],
) -> None:
    """Adam on torch tensors, its rate falling along a cosine.

    Args:
        layers: the tensors to move.
        loss: draws a batch and returns its loss.
        steps: how many.
        rate: the first learning rate.
        tick: called after every step.
    """
    import torch

    adam = torch.optim.Adam(layers.values(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for _ in range(steps):
        now = loss()
        adam.zero_grad(set_to_none=True)
        now.backward()
        adam.step()
        schedule.step()
        tick()

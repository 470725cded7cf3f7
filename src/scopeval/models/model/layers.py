"""The small network that learns the dynamics and the return features.

    hidden = swish(swish(x w1 + b1) w2 + b2)
    output = hidden w3 + x skip + b3

The linear path `skip` lets the hidden layers learn only what is not linear. Compiled code trains it
(`fitting`) and evaluates it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import fan_out_rows
from scopeval.models.model.step_model import Weights

__all__ = ["GAIN", "LAYERS", "NETWORK", "forward", "fresh_layers", "hidden_layers"]

#: Blocks of rows that are worth a thread of their own.
BLOCKS_PER_THREAD = 128

#: Rows whose hidden layers are computed together, where there are more than twice as many.
HIDDEN_BLOCK = 25_000

#: How sharply fresh units bend. Edges (a pole that falls, a foot that lands) are found in a
#: fraction of the steps that units need which start soft and at the origin.
GAIN = 3.0

#: The layers in the order in which compiled code takes them.
LAYERS = ("w1", "b1", "w2", "b2", "w3", "skip", "b3")
#: All of a network: the layers, mean and scale of its inputs.
NETWORK = (*LAYERS, "mean", "scale")


def fresh_layers(
    inputs: int, hidden: int, outputs: int, rng: np.random.Generator, gain: float = GAIN
) -> dict[str, Weights]:
    """Layers before training; the linear path starts at zero.

    Args:
        inputs: number of them, in standard units.
        hidden: width of both hidden layers.
        outputs: number of them.
        rng: draws the weights.
        gain: how sharply the units of the first layer bend. 1: softly, and all at the origin.
    """

    def uniform(*shape: int) -> Weights:
        bound = 1.0 / np.sqrt(shape[0])
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    first = np.float32(gain) * uniform(inputs, hidden)
    away = np.float32(gain - 1.0)
    return {
        "w1": first,
        "b1": away * rng.uniform(-1.0, 1.0, hidden).astype(np.float32),
        "w2": uniform(hidden, hidden),
        "b2": np.zeros(hidden, np.float32),
        "w3": uniform(hidden, outputs),
        "skip": np.zeros((inputs, outputs), np.float32),
        "b3": np.zeros(outputs, np.float32),
    }


def hidden_layers(p: dict[str, Weights], x: Weights) -> Weights:
    """The second hidden layer [n, h] for inputs [n, i]; many rows in blocks, to save memory."""
    if len(x) > 2 * HIDDEN_BLOCK:
        out = np.empty((len(x), len(p["b2"])), np.float32)
        for some in (slice(i, i + HIDDEN_BLOCK) for i in range(0, len(x), HIDDEN_BLOCK)):
            out[some] = hidden_layers(p, x[some])
        return out
    return _swish(_swish(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"])


def forward(p: dict[str, Weights], x: Weights) -> Weights:
    """The outputs [n, o] for any number of inputs [n, i]."""
    from scopeval.models.model import _forward_kernel as kernel

    layers = [np.ascontiguousarray(p[name], np.float32) for name in LAYERS]
    given = np.ascontiguousarray(x, np.float32)
    out = np.empty((len(x), len(p["b3"])), np.float32)
    fan_out_rows(
        lambda start, stop: kernel.forward(given, *layers, start, stop, out),
        len(x),
        block=kernel.BLOCK,
        least=BLOCKS_PER_THREAD,
    )
    return out


def _swish(z: NDArray[Any]) -> NDArray[Any]:
    """Multiply z by a soft step: smooth, and much cheaper than one with an exponential."""
    gate = np.abs(z)
    gate += 1.0
    np.divide(z, gate, out=gate)
    gate += 1.0
    gate *= z
    gate *= np.float32(0.5)
    return np.asarray(gate)

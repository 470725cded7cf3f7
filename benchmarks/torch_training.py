"""The training of the model's networks by torch, as it was before compiled code; it is timed."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from scopeval._parallel import one_torch_thread
from scopeval.models.model.fitting import Examples
from scopeval.models.model.network import LAYERS, fresh_layers

__all__ = ["torch_step_seconds"]


def torch_step_seconds(
    given: Examples, hidden: int, batch: int, steps: int, repeats: int, rng: np.random.Generator
) -> float:
    """Processor seconds of one step: autograd and torch's own Adam. The best of some repeats.

    Args:
        given: what is learned from; without `counts` the error is squared.
        hidden: width of the hidden layers.
        batch: rows of a step.
        steps: how many are timed together.
        repeats: how often.
        rng: draws the batches.
    """
    import torch

    robust, ends = len(given.counts) > 0, len(given.end) > 0
    outputs = given.y.shape[1] + (1 if robust else 0)
    fresh = fresh_layers(given.x.shape[1], hidden, outputs, rng, 1.0)
    p = {name: torch.from_numpy(fresh[name]).requires_grad_() for name in LAYERS}
    x, y, counts, end = (torch.from_numpy(np.ascontiguousarray(part)) for part in given)
    adam = torch.optim.Adam(p.values(), lr=1e-2)
    usual: Any = torch.ones(y.shape[1])

    def swish(z: Any) -> Any:
        return 0.5 * z * (1.0 + z / (1.0 + abs(z)))

    def loss(pick: Any) -> Any:
        nonlocal usual
        hidden_units = swish(swish(x[pick] @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"])
        out = hidden_units @ p["w3"] + x[pick] @ p["skip"] + p["b3"]
        if not robust:
            return ((out - y[pick]) ** 2).mean()
        wrong = counts[pick] * (out[:, :-1] - y[pick])
        usual = 0.99 * usual + 0.01 * wrong.detach().abs().mean(dim=0)
        found: Any = 0.1 * (torch.sqrt(1.0 + (wrong / (usual + 1e-4)) ** 2) - 1.0).mean()
        if ends:
            found = found + 0.1 * torch.nn.functional.binary_cross_entropy_with_logits(
                out[:, -1], end[pick]
            )
        return found

    def train() -> float:
        began = time.process_time()
        for _ in range(steps):
            now = loss(torch.from_numpy(rng.integers(len(x), size=batch)))
            adam.zero_grad(set_to_none=True)
            now.backward()
            adam.step()
        return (time.process_time() - began) / steps

    with one_torch_thread():
        train()
        return min(train() for _ in range(repeats))

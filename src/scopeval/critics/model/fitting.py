"""Train a small network by compiled code, in pieces that can be interrupted."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from scopeval._parallel import one_blas_thread, stop_if_unwanted
from scopeval.arrays import Ints
from scopeval.critics.model.layers import LAYERS
from scopeval.critics.model.step_model import Weights

__all__ = ["Examples", "Schedule", "fit_layers"]

#: Steps of Adam in one compiled call: some ten milliseconds, after which Ctrl-C is noticed.
PIECE = 50


class Examples(NamedTuple):
    """What a network learns from; n rows."""

    x: Weights  # [n, i]
    y: Weights  # [n, o]; with `counts` one output less: the last one is the logit of an end
    counts: Weights  # like y, 0 where an output has no meaning; [0, 0]: the error is squared
    end: Weights  # [n] 1 where an episode ended; [0]: that is not learned


class Schedule(NamedTuple):
    """Steps of Adam, rows of each, the first rate and the share of hidden units left out."""

    steps: int
    batch: int
    rate: float
    dropout: float = 0.0


def fit_layers(
    layers: dict[str, Weights],
    examples: Examples,
    how: Schedule,
    rng: np.random.Generator,
    tick: Callable[[int], None] = lambda steps: None,
) -> dict[str, Weights]:
    """The layers after training; the rate of Adam falls along a cosine.

    Every row is used once before any is used again: with as many steps that learns a little more
    than rows that are drawn with replacement.

    Args:
        layers: before training; they are not changed.
        examples: to learn from.
        how: for how long.
        rng: draws the batches.
        tick: called with the number of steps just taken.
    """
    from scopeval.critics.model._training_kernel import train

    x, y, counts, end = (np.ascontiguousarray(part, np.float32) for part in examples)
    flat = np.concatenate([np.asarray(layers[name], np.float32).ravel() for name in LAYERS])
    moments = np.zeros((2, len(flat)), np.float32)
    usual = np.ones(y.shape[1], np.float32)  # running mean size of each output's error
    batches = _Batches(len(x), min(how.batch, len(x)), rng)
    hidden = len(layers["b1"])
    with one_blas_thread():
        for start in range(0, how.steps, PIECE):
            stop_if_unwanted()
            steps = min(PIECE, how.steps - start)
            train(
                x,
                y,
                counts,
                end,
                batches.draw(steps),
                flat,
                moments,
                usual,
                *_adam_factors(how, start, steps),
                hidden,
                how.dropout,
                int(rng.integers(2**62)),
            )
            tick(steps)
    return _unflattened(flat, layers)


def _adam_factors(how: Schedule, start: int, steps: int) -> tuple[Weights, Weights]:
    """The rate of each step over its correction of the first moment; 1 / that of the second."""
    step = np.arange(start, start + steps)
    rate = 0.5 * how.rate * (1.0 + np.cos(np.pi * step / how.steps))
    scale, over = rate / (1.0 - 0.9 ** (step + 1.0)), 1.0 / (1.0 - 0.999 ** (step + 1.0))
    return scale.astype(np.float32), over.astype(np.float32)


class _Batches:
    """Rows in random order, all of them before any comes again."""

    def __init__(self, rows: int, batch: int, rng: np.random.Generator) -> None:
        self.rows, self.batch, self.rng = rows, batch, rng
        self.left: Ints = np.empty(0, np.int64)

    def draw(self, steps: int) -> Ints:
        """The rows of some steps, [steps, batch]."""
        need = steps * self.batch
        parts, have = [self.left], len(self.left)
        while have < need:
            parts.append(self.rng.permutation(self.rows))
            have += self.rows
        every = np.concatenate(parts)
        self.left = every[need:]
        return np.ascontiguousarray(every[:need]).reshape(steps, self.batch)


def _unflattened(flat: Weights, like: dict[str, Weights]) -> dict[str, Weights]:
    """All weights in a row, as layers of these shapes."""
    found, at = {}, 0
    for name in LAYERS:
        size = like[name].size
        found[name] = flat[at : at + size].reshape(like[name].shape).copy()
        at += size
    return found

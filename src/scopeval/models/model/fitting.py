"""Train a small network by compiled code, in pieces that can be interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from scopeval._parallel import one_blas_thread, stop_if_unwanted
from scopeval.arrays import Floats, Ints
from scopeval.models.model.layers import LAYERS, forward
from scopeval.models.model.step_model import Weights

__all__ = ["Examples", "Schedule", "fit_layers"]

#: Steps of Adam in one compiled call: some ten milliseconds, after which Ctrl-C is noticed.
PIECE = 50

#: Held-out rows are asked this often in a training, the first time after `FIRST` of the steps.
ASKED, FIRST = 20, 0.25
#: If their error fell by less than `PROGRESS` in `PATIENCE` of the steps, training comes to its end
#: in `LAST` of the steps.
PROGRESS, PATIENCE, LAST = 0.03, 0.2, 0.1
#: Weight of the newest piece in the mean of the layers that is asked: single steps are too rough.
NEWEST = 0.15


class Examples(NamedTuple):
    """What a network learns from; n rows."""

    x: Weights  # [n, i]
    y: Weights  # [n, o]; with `counts` one output less: the last one is the logit of an end
    counts: Weights  # like y, 0 where an output has no meaning; [0, 0]: the error is squared
    end: Weights  # [n] 1 where an episode ended; [0]: that is not learned


class Schedule(NamedTuple):
    """Steps of Adam, rows of each, the first rate, the share of hidden units left out."""

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
    held_out: Examples | None = None,
    more: Iterator[Examples] | None = None,
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
        held_out: other rows. When their error does not fall any more, the rate falls to zero in
            the next few steps, and the others are left out.
        more: further examples, without end: when every row was used once, the next take their
            place.
    """
    made = _CompiledSteps(layers, examples, how.dropout)
    rows = len(examples.x)
    batches = _Batches(rows, min(how.batch, rows), rng)
    rates = _Rates(how)
    watch = None if held_out is None else _Watch(held_out, how.steps, layers)
    with one_blas_thread():
        for start in range(0, how.steps, PIECE):
            stop_if_unwanted()
            steps = min(PIECE, rates.end - start)
            if more is not None and start and len(batches.left) < steps * batches.batch:
                fresh = next(more)
                made.see(fresh)
                batches = _Batches(len(fresh.x), min(how.batch, len(fresh.x)), rng)
            picks, factors = batches.draw(steps), _adam_factors(rates, start, steps)
            made.take(picks, *factors, int(rng.integers(2**62)))
            tick(steps)
            if start + steps >= rates.end:
                break
            if watch is not None and watch.is_done(made.flat, start + steps):
                rates.finish(start + steps)
                tick(how.steps - rates.end)  # they are left out
                watch = None
    return _unflattened(made.flat, layers)


class _CompiledSteps:
    """Steps by compiled code on one core."""

    def __init__(self, layers: dict[str, Weights], examples: Examples, dropout: float) -> None:
        self.flat = np.concatenate(
            [np.asarray(layers[name], np.float32).ravel() for name in LAYERS]
        )
        self.see(examples)
        self._hidden, self._dropout = len(layers["b1"]), dropout
        self._moments = np.zeros((2, len(self.flat)), np.float32)
        self._usual = np.ones(self._examples.y.shape[1], np.float32)  # size of each output's error

    def take(self, picks: Ints, scale: Weights, over: Weights, seed: int) -> None:
        """Some steps: rows [steps, batch], factors of Adam [steps], seed of what is left out."""
        from scopeval.models.model._training_kernel import train

        weights = (self.flat, self._moments, self._usual)
        train(*self._examples, picks, *weights, scale, over, self._hidden, self._dropout, seed)

    def see(self, examples: Examples) -> None:
        """Go on with other examples."""
        self._examples = Examples(*(np.ascontiguousarray(part, np.float32) for part in examples))


class _Rates:
    """The rate of each step: it falls along a cosine; `finish` lets it fall to zero soon."""

    def __init__(self, how: Schedule) -> None:
        self.how, self.end = how, how.steps
        self._finishing: int | None = None

    def finish(self, step: int) -> None:
        """Come to the end soon, from this step on."""
        self._finishing = step
        self.end = min(step + max(int(LAST * self.how.steps), 1), self.how.steps)

    def at(self, step: Ints) -> Floats:
        """The rates of some steps."""
        usual = 0.5 * self.how.rate * (1.0 + np.cos(np.pi * step / self.how.steps))
        if self._finishing is None:
            return np.asarray(usual)
        since = (step - self._finishing) / (self.end - self._finishing)
        begun = 0.5 * self.how.rate * (1.0 + np.cos(np.pi * self._finishing / self.how.steps))
        return np.asarray(np.minimum(usual, 0.5 * begun * (1.0 + np.cos(np.pi * since))))


class _Watch:
    """Whether the error of held-out rows still falls."""

    def __init__(self, held_out: Examples, steps: int, like: dict[str, Weights]) -> None:
        self.held_out, self.like = held_out, like
        self.every = max(steps // ASKED, PIECE)
        self.next = max(int(FIRST * steps), self.every)
        self.back = max(round(PATIENCE * steps / self.every), 1)
        self.errors: list[float] = []
        self.mean: Weights | None = None

    def is_done(self, flat: Weights, step: int) -> bool:
        """Told the layers after each piece; True: the error does not fall any more."""
        if self.mean is None:
            self.mean = flat.copy()
        self.mean += np.float32(NEWEST) * (flat - self.mean)
        if step < self.next:
            return False
        self.next += self.every
        self.errors.append(_held_out_error(_unflattened(self.mean, self.like), self.held_out))
        if len(self.errors) <= self.back:
            return False
        before = min(self.errors[: -self.back])
        return not min(self.errors[-self.back :]) < (1.0 - PROGRESS) * before


def _held_out_error(layers: dict[str, Weights], rows: Examples) -> float:
    """Mean size of the errors, in units of the spread; with ends, also their cross-entropy."""
    out = forward(layers, rows.x)
    w = rows.y.shape[1]
    wrong = np.abs(out[:, :w] - rows.y)
    if not len(rows.counts):
        return float(np.mean(wrong))
    found = float(np.mean(wrong * rows.counts))
    if len(rows.end):
        logit = out[:, -1].astype(np.float64)
        found += float(np.mean(np.logaddexp(0.0, logit) - rows.end * logit))
    return found


def _adam_factors(rates: _Rates, start: int, steps: int) -> tuple[Weights, Weights]:
    """The rate of each step over its correction of the first moment; 1 / that of the second."""
    step = np.arange(start, start + steps)
    rate = rates.at(step)
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

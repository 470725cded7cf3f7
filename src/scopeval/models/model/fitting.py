"""Training of a small network: compiled steps of Adam, and then its last layer by regression.

The steps are taken in pieces that can be interrupted. Afterwards reward and cost are fitted to the
last hidden layer by least squares: there the mean is wanted, with rare large values in full. The
probability of an end is fitted by a logistic regression: ends are rare, and steps of few rows alone
would take long to find where they begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from scopeval._parallel import one_blas_thread, stop_if_unwanted
from scopeval.arrays import Bools, Floats, Ints
from scopeval.models.model.network import LAYERS, forward
from scopeval.models.model.step_model import Weights

__all__ = ["CERTAIN", "Examples", "Schedule", "fit_ends", "fit_layers", "fit_means"]

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
    schedule: Schedule,
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
        schedule: for how long.
        rng: draws the batches.
        tick: called with the number of steps just taken.
        held_out: other rows. When their error does not fall any more, the rate falls to zero in
            the next few steps, and the others are left out.
        more: further examples, without end: when every row was used once, the next take their
            place.
    """
    made = _CompiledSteps(layers, examples, schedule.dropout)
    rows = len(examples.x)
    batches = _Batches(rows, min(schedule.batch, rows), rng)
    rates = _Rates(schedule)
    watch = None if held_out is None else _Watch(held_out, schedule.steps, layers)
    with one_blas_thread():
        for start in range(0, schedule.steps, PIECE):
            stop_if_unwanted()
            steps = min(PIECE, rates.end - start)
            if more is not None and start and len(batches.left) < steps * batches.batch:
                fresh = next(more)
                made.see(fresh)
                batches = _Batches(len(fresh.x), min(schedule.batch, len(fresh.x)), rng)
            picks, factors = batches.draw(steps), _adam_factors(rates, start, steps)
            made.take(picks, *factors, int(rng.integers(2**62)))
            tick(steps)
            if start + steps >= rates.end:
                break
            if watch is not None and watch.is_done(made.flat, start + steps):
                rates.finish(start + steps)
                tick(schedule.steps - rates.end)  # they are left out
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

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.end = schedule, schedule.steps
        self._finishing: int | None = None

    def finish(self, step: int) -> None:
        """Come to the end soon, from this step on."""
        self._finishing = step
        self.end = min(step + max(int(LAST * self.schedule.steps), 1), self.schedule.steps)

    def at(self, step: Ints) -> Floats:
        """The rates of some steps."""
        usual = 0.5 * self.schedule.rate * (1.0 + np.cos(np.pi * step / self.schedule.steps))
        if self._finishing is None:
            return np.asarray(usual)
        since = (step - self._finishing) / (self.end - self._finishing)
        begun = (
            0.5 * self.schedule.rate * (1.0 + np.cos(np.pi * self._finishing / self.schedule.steps))
        )
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
    error = float(np.mean(wrong * rows.counts))
    if len(rows.end):
        logit = out[:, -1].astype(np.float64)
        error += float(np.mean(np.logaddexp(0.0, logit) - rows.end * logit))
    return error


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
    layers, at = {}, 0
    for name in LAYERS:
        size = like[name].size
        layers[name] = flat[at : at + size].reshape(like[name].shape).copy()
        at += size
    return layers


# -- the last layer --------------------------------------------------------------------------------


#: Logit that stands for "always" (and its negative for "never") where the logs show nothing else.
CERTAIN = 30.0

#: Penalty on leaving the weights of an end that training found, and most steps to better ones.
END_PENALTY, NEWTON_STEPS = 3e-4, 8

#: Most rows that are used all together.
ALL_ROWS = 50_000
#: Rows of a part of the least squares of longer logs.
MEAN_BLOCK = 25_000
#: Of longer logs the logistic regression draws about so many, and in a second round, by what the
#: first one found, as many again. A row is the likelier drawn, the more wrong the network is about
#: it, and never less likely than if it were wrong by `LEAST_WRONG`.
END_ROWS, ROUNDS, LEAST_WRONG = 20_000, 2, 0.1


def fit_means(weights: dict[str, Weights], hidden: Weights, x: Weights, y: Weights) -> None:
    """Fit reward and cost [n, 2] to the last hidden layer again, by least squares."""
    width = 1 + hidden.shape[1] + x.shape[1]
    gram, right = np.zeros((width, width)), np.zeros((width, y.shape[1]))
    step = len(x) if len(x) <= ALL_ROWS else MEAN_BLOCK
    for start in range(0, len(x), step):
        some = slice(start, start + step)
        inputs = np.column_stack([np.ones(len(x[some])), hidden[some], x[some]])
        gram += inputs.T @ inputs
        right += inputs.T @ y[some]
    gram[np.diag_indices_from(gram)] += 1e-3 * len(x)
    coefficients = np.linalg.solve(gram, right)
    at = slice(weights["b3"].size - 3, weights["b3"].size - 1)
    h = hidden.shape[1]
    weights["b3"][at], weights["w3"][:, at] = coefficients[0], coefficients[1 : 1 + h]
    weights["skip"][:, at] = coefficients[1 + h :]


def fit_ends(
    weights: dict[str, Weights],
    hidden: Weights,
    x: Weights,
    end: Bools,
    rng: np.random.Generator,
) -> None:
    """Fit the logit of an end [n] to the last hidden layer again, by logistic regression.

    Newton's method from the weights that training found, with a penalty on leaving them: the other
    half of the logs had 1.1 to 4 times less cross-entropy that way.

    Args:
        weights: of the network; those of its last output are replaced.
        hidden: [n, h] the last hidden layer.
        x: [n, i] the inputs.
        end: [n].
        rng: draws rows of long logs, each counted 1 / (its probability) times.
    """
    h = hidden.shape[1]
    start = np.concatenate([weights["b3"][-1:], weights["w3"][:, -1], weights["skip"][:, -1]])
    coefficients = start
    if len(x) <= ALL_ROWS:
        coefficients = _fitted_to(hidden, x, end, np.ones(len(x)), len(x), start, start)
    else:
        for _ in range(ROUNDS):
            probability = _sigmoid(
                hidden @ coefficients[1 : 1 + h] + x @ coefficients[1 + h :] + coefficients[0]
            )
            wrong = np.abs(probability - end) + LEAST_WRONG
            chance = np.minimum(END_ROWS * wrong / wrong.sum(), 1.0)
            some = np.flatnonzero(rng.random(len(x)) < chance)
            rows = hidden[some], x[some], end[some], 1.0 / chance[some]
            coefficients = _fitted_to(*rows, len(x), coefficients, start)
    weights["b3"][-1], weights["w3"][:, -1] = coefficients[0], coefficients[1 : 1 + h]
    weights["skip"][:, -1] = coefficients[1 + h :]


def _fitted_to(
    hidden: Weights,
    x: Weights,
    end: Bools,
    many: Floats,
    total: int,
    first: Floats,
    start: Floats,
) -> Floats:
    """`fit_ends` to rows that stand for `many` each, `total` in all."""
    inputs = np.column_stack([np.ones(len(x)), hidden, x])
    size = inputs.std(axis=0)
    size[0] = 1.0
    size = np.where(size > 1e-6, size, 1.0)
    inputs /= size
    return _logistic(inputs, end, many, total, first * size, start * size) / size


def _sigmoid(logit: Floats) -> Floats:
    """The probability of an end."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logit, -CERTAIN, CERTAIN))))


def _logistic(
    inputs: Floats, end: Bools, many: Floats, total: int, first: Floats, start: Floats
) -> Floats:
    """Coefficients of the logit of an end, from `first` on; leaving `start` is penalized."""
    penalty = np.full(len(start), END_PENALTY)
    penalty[0] = 0.0

    def loss(at: Floats) -> float:
        logit = inputs @ at
        entropy = np.logaddexp(0.0, logit) - end * logit
        return float(np.sum(many * entropy) / total + 0.5 * penalty @ (at - start) ** 2)

    here, now = first, loss(first)
    for _ in range(NEWTON_STEPS):
        probability = _sigmoid(inputs @ here)
        slope = inputs.T @ (many * (probability - end)) / total + penalty * (here - start)
        bends = probability * (1.0 - probability)
        curved = np.flatnonzero(bends > 1e-6)
        some = inputs[curved]
        bend = (some * (many * bends)[curved, None]).T @ some / total
        step = np.linalg.solve(bend + np.diag(penalty + 1e-9), slope)
        better = (k for k in (1.0, 0.5, 0.25, 0.125) if loss(here - k * step) < now)
        taken = next(better, 0.0)
        here, before = here - taken * step, now
        now = loss(here)
        if before - now <= 1e-4 * before:
            break
    return here

"""Small networks: their layers, their forward pass, and how they are trained.

    hidden = swish(swish(x w1 + b1) w2 + b2)
    output = hidden w3 + x skip + b3

The linear path `skip` lets the hidden layers learn only what is not linear. Training takes compiled
steps of Adam, in pieces that can be interrupted. Afterwards reward and cost are fitted to the
last hidden layer by least squares: there the mean is wanted, with rare large values in full. The
probability of an end is fitted by a logistic regression: ends are rare, and steps of few rows alone
would take long to find where they begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import fan_out_rows, one_blas_thread, stop_if_unwanted
from scopeval.arrays import Bools, Floats, Ints

__all__ = [
    "CERTAIN",
    "GAIN",
    "LAYERS",
    "NETWORK",
    "Examples",
    "Schedule",
    "Weights",
    "fit_ends",
    "fit_layers",
    "fit_means",
    "forward",
    "fresh_layers",
    "hidden_layers",
]

Weights = NDArray[np.float32]

#: Blocks of rows that are worth a thread of their own.
BLOCKS_PER_THREAD = 128

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
    """The second hidden layer [n, h] for inputs [n, i]: the outputs, were they these units."""
    units, inputs = len(p["b2"]), len(p["w1"])
    shown = {
        "w3": np.eye(units, dtype=np.float32),
        "skip": np.zeros((inputs, units), np.float32),
        "b3": np.zeros(units, np.float32),
    }
    return forward(p | shown, x)


def forward(p: dict[str, Weights], x: Weights) -> Weights:
    """The outputs [n, o] for any number of inputs [n, i]."""
    from scopeval.models import _layers_kernel as kernel

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


# -- training -------------------------------------------------------------------------------------


#: Steps of Adam in one compiled call: some ten milliseconds, after which Ctrl-C is noticed.
PIECE = 50


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
    more: Iterator[Examples] | None = None,
) -> dict[str, Weights]:
    """The layers after training; the rate of Adam falls to zero along a cosine.

    Every row is used once before any is used again: with as many steps that learns a little more
    than rows that are drawn with replacement.

    Args:
        layers: before training; they are not changed.
        examples: to learn from.
        schedule: for how long.
        rng: draws the batches.
        tick: called with the number of steps just taken.
        more: further examples, without end: when every row was used once, the next take their
            place.
    """
    from scopeval.models._layers_kernel import train

    flat = np.concatenate([np.asarray(layers[name], np.float32).ravel() for name in LAYERS])
    moments = np.zeros((2, len(flat)), np.float32)  # of Adam
    usual = np.ones(examples.y.shape[1], np.float32)  # size of each output's error
    given, left = _contiguous(examples), np.empty(0, np.int64)
    with one_blas_thread():
        for start in range(0, schedule.steps, PIECE):
            stop_if_unwanted()
            steps, batch = min(PIECE, schedule.steps - start), min(schedule.batch, len(given.x))
            if more is not None and start and len(left) < steps * batch:
                given, left = _contiguous(next(more)), np.empty(0, np.int64)
                batch = min(schedule.batch, len(given.x))
            picks, left = _batches(left, steps, batch, len(given.x), rng)
            factors = _adam_factors(schedule, np.arange(start, start + steps))
            seed = int(rng.integers(2**62))  # of the units that are left out
            weights = (flat, moments, usual)
            train(*given, picks, *weights, *factors, len(layers["b1"]), schedule.dropout, seed)
            tick(steps)
    return _unflattened(flat, layers)


def _contiguous(examples: Examples) -> Examples:
    return Examples(*(np.ascontiguousarray(part, np.float32) for part in examples))


def _batches(
    left: Ints, steps: int, batch: int, rows: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """The rows of some steps, [steps, batch], and those that are left.

    Rows come in random order, all of them before any comes again.
    """
    need, parts, have = steps * batch, [left], len(left)
    while have < need:
        parts.append(rng.permutation(rows))
        have += rows
    every = np.concatenate(parts)
    return np.ascontiguousarray(every[:need]).reshape(steps, batch), every[need:]


def _adam_factors(schedule: Schedule, step: Ints) -> tuple[Weights, Weights]:
    """The rate of each step over its correction of the first moment; 1 / that of the second."""
    rate = 0.5 * schedule.rate * (1.0 + np.cos(np.pi * step / schedule.steps))
    scale, over = rate / (1.0 - 0.9 ** (step + 1.0)), 1.0 / (1.0 - 0.999 ** (step + 1.0))
    return scale.astype(np.float32), over.astype(np.float32)


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

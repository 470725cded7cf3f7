"""Fit reward, cost and the end of an episode to the last hidden layer of a trained network.

Reward and cost by least squares: there the mean is wanted, with rare large values in full. The
probability of an end by a logistic regression: ends are rare, and steps of few rows alone would
take long to find where they begin.
"""

from __future__ import annotations

import numpy as np

from scopeval.arrays import Bools, Floats
from scopeval.models.model.step_model import Weights

__all__ = ["CERTAIN", "fit_ends", "fit_means"]

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
    found = np.linalg.solve(gram, right)
    at = slice(weights["b3"].size - 3, weights["b3"].size - 1)
    h = hidden.shape[1]
    weights["b3"][at], weights["w3"][:, at] = found[0], found[1 : 1 + h]
    weights["skip"][:, at] = found[1 + h :]


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
    found = start
    if len(x) <= ALL_ROWS:
        found = _fitted_to(hidden, x, end, np.ones(len(x)), len(x), start, start)
    else:
        for _ in range(ROUNDS):
            said = _said(hidden @ found[1 : 1 + h] + x @ found[1 + h :] + found[0])
            wrong = np.abs(said - end) + LEAST_WRONG
            chance = np.minimum(END_ROWS * wrong / wrong.sum(), 1.0)
            some = np.flatnonzero(rng.random(len(x)) < chance)
            rows = hidden[some], x[some], end[some], 1.0 / chance[some]
            found = _fitted_to(*rows, len(x), found, start)
    weights["b3"][-1], weights["w3"][:, -1] = found[0], found[1 : 1 + h]
    weights["skip"][:, -1] = found[1 + h :]


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


def _said(logit: Floats) -> Floats:
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
        said = _said(inputs @ here)
        slope = inputs.T @ (many * (said - end)) / total + penalty * (here - start)
        bends = said * (1.0 - said)
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

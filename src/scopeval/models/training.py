"""Train the networks of the dynamics on logged transitions.

Large errors of the next observation count by their size and not by their square, so that a rare
contact which nobody can predict does not spoil the fit elsewhere. Reward, cost and the probability
of an end are then fitted to the last layer again (`fitting`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import fan_out, one_blas_thread
from scopeval.arrays import Bools, Floats, check_whole
from scopeval.errors import InputError
from scopeval.models.dynamics import Encoder, Network
from scopeval.models.identities import identities_of
from scopeval.models.layers import (
    CERTAIN,
    GAIN,
    LAYERS,
    Examples,
    Schedule,
    Weights,
    fit_ends,
    fit_layers,
    fit_means,
    fresh_layers,
    hidden_layers,
)
from scopeval.models.rows import Rows

if TYPE_CHECKING:
    from scopeval.models.rows import StreamedRows

__all__ = ["WIDE", "Training", "learn_halves", "learn_network"]

#: Held-out errors that a network keeps to draw from.
ERRORS = 4096

#: How far beyond the logged range a predicted observation may be, in ranges.
SLACK = 0.05

#: Shares of the steps and of the rate for networks that were trained on a part of the rows already.
WARM_STEPS, WARM_RATE = 0.3, 0.5

#: A network is trained anew if its inputs or outputs have moved, or spread, by this factor.
MOVED = 2.0

#: Steps of Adam where a training does not say: so many times the root of the number of rows, and
#: at most so many. Short logs are learned by heart if they are seen too often.
STEPS_PER_ROOT, MOST_STEPS = 60.0, 10_000

#: Rows from which on fresh units bend as sharply as they ever do: edges that few rows suggest are
#: often not there.
SHARP_ROWS = 10_000


@dataclass(frozen=True)
class Training:
    """How a network of the dynamics is trained.

    Attributes:
        hidden: width of each of the two hidden layers.
        steps: steps of Adam, its rate falling along a cosine; None: fewer for short logs.
        batch: rows per step. Many steps of few rows learn more than few steps of many.
        rate: Adam's first learning rate.
        dropout: share of the hidden units that is left out, drawn anew at every step; see `WIDE`.
        gain: how sharply the units of the first layer bend before training (`fresh_layers`); None:
            less sharply for short logs.
    """

    hidden: int = 128
    steps: int | None = None
    batch: int = 128
    rate: float = 1.5e-2
    dropout: float = 0.0
    gain: float | None = None

    def __post_init__(self) -> None:
        for name in ("hidden", "steps", "batch"):
            value = getattr(self, name)
            if name != "steps" or value is not None:
                object.__setattr__(self, name, check_whole(name, value, 1))
        if not self.rate > 0.0:
            raise InputError(f"rate: got {self.rate!r}, expected a number > 0")
        if not 0.0 <= self.dropout < 1.0:
            raise InputError(f"dropout: got {self.dropout!r}, expected a number in [0, 1)")
        if self.gain is not None and not 0.0 < self.gain < np.inf:
            raise InputError(f"gain: got {self.gain!r}, expected a number > 0")

    def schedule(self, rows: int, *, warm: bool = False) -> Schedule:
        """Steps, batch and rate for so many rows; fewer and slower ones from a trained network."""
        steps = self.steps
        if steps is None:
            steps = int(min(STEPS_PER_ROOT * np.sqrt(rows), MOST_STEPS))
        if warm:
            steps = max(int(WARM_STEPS * steps), 1)
        rate = WARM_RATE * self.rate if warm else self.rate
        return Schedule(steps, self.batch, rate, self.dropout)

    def gain_for(self, rows: int) -> float:
        """The gain of fresh layers for so many rows."""
        if self.gain is not None:
            return self.gain
        return float(GAIN * np.clip((rows / SHARP_ROWS) ** 0.25, 1.0 / GAIN, 1.0))


#: Where errors stay large (contacts), this learns more from the same logs, in about ten times the
#: time. Smooth worlds lose by it. The held-out error decides: `Report.holdout`, "dynamics".
WIDE = Training(hidden=256, steps=20_000, batch=256, rate=5e-3, dropout=0.05, gain=1.0)


def learn_halves(
    halves: Sequence[Rows],
    encoder: Encoder,
    tried: Sequence[Training],
    seed: int,
    ticker: Callable[[int], Callable[[int], None]],
    start: Sequence[Network] | None = None,
    streamed: Sequence[StreamedRows] | None = None,
) -> list[Network]:
    """A network for each half of the logs; of several trainings, the one with the least error.

    Args:
        halves: the rows of each.
        encoder: of the inputs.
        tried: ways to train.
        seed: of everything random.
        ticker: makes, for a number of steps in all, what is called with the steps just taken.
        start: networks of earlier rows to go on from, one for each half.
        streamed: further rows of each half, on disk.
    """
    rows = sum(len(half) for half in halves)
    if min(len(half) for half in halves) < 4:
        raise InputError(f"logs: got {rows} rows, expected at least 8 for a model")
    warm = start is not None
    tick = ticker(
        sum(settings.schedule(len(half), warm=warm).steps for settings in tried for half in halves)
    )

    def learn(settings: Training, k: int) -> Network:
        begin = None if start is None else start[k]
        more = None if streamed is None else streamed[k]
        return learn_network(
            halves[k], halves[1 - k], encoder, settings, 2 * seed + k, tick, begin, more
        )

    each = [
        fan_out(partial(learn, settings), range(2))
        for settings in tried  # a recording of CUDA must not see another thread
    ]
    losses = [np.mean([network.loss for network in both]) for both in each]
    return each[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]


@one_blas_thread()  # all of it: what other threads do must not change the bits
def learn_network(
    rows: Rows,
    held_out: Rows,
    encoder: Encoder,
    settings: Training,
    seed: int,
    tick: Callable[[int], None] = lambda steps: None,
    start: Network | None = None,
    streamed: StreamedRows | None = None,
) -> Network:
    """Train a network on some rows, and measure its errors on others.

    Training that diverges is started again with a quarter of the rate.

    Args:
        rows: to learn from.
        held_out: rows that the network does not see.
        encoder: of its inputs.
        settings: width, steps and rate.
        seed: of the first weights, the batches and the errors that are kept.
        tick: called with the number of steps just taken.
        start: a network of some of these rows, from which training goes on; one that does not fit
            these rows any more is not used.
        streamed: further rows to learn from, on disk. Units, and what is fitted after training, are
            those of the rows in memory, which must be a random sample of all.
    """
    for _ in range(4):
        network = _trained(rows, held_out, encoder, settings, seed, tick, start, streamed)
        if all(np.isfinite(value).all() for value in network.weights.values()):
            return network
        settings = replace(settings, rate=settings.rate / 4.0)
    raise InputError(
        "logs: the dynamics cannot be learned, training diverges; expected observations and "
        "actions of moderate size, try scaling them, or a smaller Training(rate=...)"
    )


def _trained(
    rows: Rows,
    held_out: Rows,
    encoder: Encoder,
    settings: Training,
    seed: int,
    tick: Callable[[int], None],
    start: Network | None,
    streamed: StreamedRows | None,
) -> Network:
    rng = np.random.default_rng((seed, 21))
    problem, layers = _standardized(rows, encoder), None
    if start is not None and _still_fits(start, problem, settings):
        problem = _standardized(rows, encoder, _units_of(start))
        layers = {k: start.weights[k] for k in LAYERS}
    more = None if streamed is None else _standardized_buffers(streamed, encoder, problem)
    weights = _fitted(problem, settings, rng, tick, layers, more)
    units = problem.units
    weights |= {"mean": units.mean, "scale": units.scale}
    weights["centre"] = np.append(units.centre, 0.0).astype(np.float32)
    weights["spread"] = np.append(units.spread, 1.0).astype(np.float32)
    both = np.concatenate([np.asarray(rows.obs), np.asarray(rows.next_obs)])[:, encoder.predicted]
    low, high = both.min(axis=0), both.max(axis=0)
    room = SLACK * (high - low) + 1e-9
    nothing = np.zeros((1, len(low)))
    network = Network(encoder, weights, low - room, high + room, nothing, 0.0, float("nan"))
    network.identities = identities_of(rows, encoder.predicted)
    _measure_errors(network, held_out, units.spread, rng)
    return network


def _still_fits(start: Network, problem: _Problem, settings: Training) -> bool:
    """Whether a trained network can go on with these rows: its units are about theirs."""
    w = start.weights
    if w["w1"].shape != (problem.x.shape[1], settings.hidden):
        return False
    ended = bool(0 < problem.end.mean() < 1)
    if ended != bool(w["w3"][:, -1].any()):
        return False  # there was nothing to learn about ends, and now there is, or the reverse
    new = problem.units
    for centre, spread, old_centre, old_spread in (
        (new.mean, new.scale, w["mean"], w["scale"]),
        (new.centre, new.spread, w["centre"][:-1], w["spread"][:-1]),
    ):
        wider = np.maximum(spread / old_spread, old_spread / spread)
        if (wider > MOVED).any() or (np.abs(centre - old_centre) > MOVED * old_spread).any():
            return False
    return True


class _Units(NamedTuple):
    """Centers and sizes of the inputs, and of the outputs."""

    mean: Weights
    scale: Weights
    centre: Floats
    spread: Floats


def _units_of(network: Network) -> _Units:
    w = network.weights
    centre, spread = (w[name][:-1].astype(np.float64) for name in ("centre", "spread"))
    return _Units(w["mean"], w["scale"], centre, spread)


class _Problem(NamedTuple):
    """Rows in standard units; w entries of the observation, then reward and cost."""

    x: Weights  # [n, inputs]
    y: Weights  # [n, w + 2]
    counts: Weights  # [n, w + 2] 0 where an output has no meaning
    end: Bools  # [n]
    units: _Units

    def examples(self) -> Examples:
        """What a network learns from; ends only where some episodes end."""
        sometimes = bool(0 < self.end.mean() < 1)
        end = self.end.astype(np.float32) if sometimes else np.empty(0, np.float32)
        return Examples(self.x, self.y, self.counts, end)


def _standardized_buffers(
    streamed: StreamedRows, encoder: Encoder, like: _Problem
) -> Iterator[Examples]:
    """Rows from the disk in the units of those in memory."""
    ends = len(like.examples().end) > 0
    for rows in streamed.buffers():
        standardized = _standardized(rows, encoder, like.units)
        end = standardized.end.astype(np.float32) if ends else np.empty(0, np.float32)
        yield Examples(standardized.x, standardized.y, standardized.counts, end)


def _standardized(rows: Rows, encoder: Encoder, units: _Units | None = None) -> _Problem:
    """Rows in standard units: their own, or others."""
    x = encoder.inputs(np.asarray(rows.obs), rows.action, rows.t)
    y, end = _targets(rows, encoder)
    w = y.shape[1] - 2
    goes_on = rows.goes_on
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 1e-6, scale, 1.0).astype(np.float32)
    some = goes_on if goes_on.any() else np.ones(len(x), np.bool_)
    centre, spread = y.mean(axis=0), y.std(axis=0)
    centre[:w], spread[:w] = y[some, :w].mean(axis=0), y[some, :w].std(axis=0)
    spread = np.where(spread > 1e-9, spread, 1.0)
    if units is not None:
        mean, scale, centre, spread = units
    # without a next observation there is no loss there; reward, cost and end are learned
    counts = np.ones_like(y, dtype=np.float32)
    counts[~goes_on, :w] = 0.0
    return _Problem(
        x=((x - mean) / scale).astype(np.float32),
        y=((y - centre) / spread).astype(np.float32),
        counts=counts,
        end=end,
        units=_Units(mean.astype(np.float32), scale, centre, spread),
    )


def _fitted(
    problem: _Problem,
    settings: Training,
    rng: np.random.Generator,
    tick: Callable[[int], None],
    start: dict[str, Weights] | None = None,
    more: Iterator[Examples] | None = None,
) -> dict[str, Weights]:
    """The layers after training, from `start` on; reward, cost and end are fitted again."""
    x, y, examples = problem.x, problem.y, problem.examples()
    sometimes_ends = len(examples.end) > 0
    layers = start
    if layers is None:
        layers = fresh_layers(
            x.shape[1], settings.hidden, y.shape[1] + 1, rng, settings.gain_for(len(x))
        )
    schedule = settings.schedule(len(x), warm=start is not None)
    weights = fit_layers(layers, examples, schedule, rng, tick, more)
    last = hidden_layers(weights, x)
    if all(np.isfinite(value).all() for value in weights.values()):  # else `learn_network` sees it
        fit_means(weights, last, x, y[:, -2:])
        if sometimes_ends:
            fit_ends(weights, last, x, problem.end, rng)
    if not sometimes_ends:  # nothing to tell apart: as in the logs, always or never
        weights["w3"][:, -1], weights["skip"][:, -1] = 0.0, 0.0
        weights["b3"][-1] = CERTAIN if problem.end.all() else -CERTAIN
    return weights


def _measure_errors(network: Network, rows: Rows, spread: Floats, rng: np.random.Generator) -> None:
    """Measure the errors on held-out rows, and keep some of them in the network."""
    x = network.encoder.inputs(np.asarray(rows.obs), rows.action, rows.t)
    y, _ = _targets(rows, network.encoder)
    wrong = y - network.outputs(x)[:, :-1]
    goes_on = np.flatnonzero(rows.goes_on)
    w = wrong.shape[1] - 2
    network.reward_noise = float(np.mean(wrong[:, w] ** 2))
    if len(goes_on) and w:
        network.loss = float(np.mean((wrong[goes_on, :w] / spread[:w]) ** 2))
        _keep_errors(network, x[goes_on], wrong[goes_on, :w], spread[:w], rng)


def _keep_errors(
    network: Network, x: Weights, wrong: Floats, spread: Floats, rng: np.random.Generator
) -> None:
    """Learn where errors are large, and keep some errors in the order of their expected size."""
    some = rng.choice(len(x), min(len(x), 5 * ERRORS), replace=False)
    each = network.size_features(x[some])
    large = np.nan_to_num(np.log(np.abs(wrong[some] / spread).mean(axis=1) + 1e-6))
    gram = each.T @ each + 1e-3 * len(some) * np.eye(each.shape[1])
    network.size_weights = np.linalg.solve(gram, each.T @ large)
    kept = some[rng.integers(len(some), size=ERRORS)]
    expected = network.expected_size(x[kept])
    order = np.argsort(expected, kind="stable")
    network.expected_sizes, network.errors = expected[order], wrong[kept[order]]


def _targets(rows: Rows, encoder: Encoder) -> tuple[Floats, NDArray[np.bool_]]:
    """What is learned: change of the observation, reward, cost [n, w + 2]; the end [n]."""
    change = (np.asarray(rows.next_obs) - np.asarray(rows.obs))[:, encoder.predicted]
    return np.column_stack([change, rows.reward, rows.cost]), rows.alive == 0

"""A learned world: logs of vectors and the dynamics learned from them, for many designs.

    world = World.learn(logs)
    for target in targets:
        behavior = design(world, target, horizon=T)
    world = world.refit(more)      # later: a fraction of the first cost

The dynamics do not depend on the target policy, so they are learned once. Each row of the logs
belongs to one half for good: the networks of the halves never share a row, also after a refit, so
that cross-checks are as honest as those of a single design.

A world is saved in one file, checked, without pickle, as behavior policies are: shapes and sizes
are compared with each other and with limits before anything is made of the arrays.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopeval._archive import MAX_BYTES, Archive, Header, open_sealed, read_header, write_sealed
from scopeval._parallel import one_blas_thread
from scopeval._progress import Progress, count_steps, follow_phases
from scopeval.arrays import Ints, as_floats, check_whole
from scopeval.errors import InputError
from scopeval.logs.diagnose import Problem, examine
from scopeval.logs.stream import LoggedStream, sample_logs
from scopeval.logs.transitions import Transitions, not_a_log
from scopeval.models.dynamics import Dynamics, Encoder, Network
from scopeval.models.identities import identities_of
from scopeval.models.rows import (
    IN_MEMORY,
    Rows,
    StreamedRows,
    halved,
    halves_by_content,
    rows_to_learn,
)
from scopeval.models.saved_arrays import NETWORK, Layout, Sizes
from scopeval.models.training import Training, learn_halves

if TYPE_CHECKING:
    from typing import Self

__all__ = ["World"]


@dataclass(frozen=True, eq=False)
class World:
    """Logs, their halves, and the dynamics of each half. Make one by `learn` or `load`.

    Attributes:
        logged: the logs; of those on disk, a sample.
        fold: [n] the half, 0 or 1, of each row.
        dynamics: a network for each half.
        trainings: how they are trained.
        seed: of everything random.
        refits: how often it was refitted.
    """

    logged: Transitions
    fold: Ints
    dynamics: Dynamics
    trainings: tuple[Training, ...]
    seed: int
    refits: int = 0

    @classmethod
    @one_blas_thread()
    def learn(
        cls,
        logged: Transitions | LoggedStream,
        *,
        actions: int | None = None,
        embedding: ArrayLike | None = None,
        drawn: int = 0,
        horizon: int | None = None,
        training: Training | Sequence[Training] | None = None,
        seed: int = 0,
        progress: Progress | bool | None = None,
    ) -> Self:
        """Learn the dynamics from logs.

        Args:
            logged: the logs; observations are vectors. Logs on disk (`stream_logs`) may be larger
                than memory: networks are trained by rows from the disk in random order, and all
                else uses a random sample of `IN_MEMORY` rows.
            actions: number of actions of a finite set (default: as many as the logs show).
            embedding: [A, m] a vector for each action, as the target policies have it, if they do.
            drawn: how many last entries of an observation the target policies draw themselves.
            horizon: T, if the dynamics depend on time: for Networks(time_varying=True).
            training: settings of the networks; of several, those with the least held-out error.
            seed: of the halves and the networks.
            progress: called with (what, done, total); True: show it.

        Raises:
            InputError: state numbers, or other arguments that do not fit the logs.
            DataError: the logs contradict themselves.
        """
        if not isinstance(logged, Transitions | LoggedStream):
            raise not_a_log(logged, "logged")
        seed = check_whole("seed", seed, 0)
        if horizon is not None:
            horizon = check_whole("horizon", horizon, 1)
        trainings = (Training(),) if training is None else training
        trainings = (trainings,) if isinstance(trainings, Training) else tuple(trainings)
        streamed = None
        if isinstance(logged, LoggedStream):
            log = _sampled(logged, horizon, seed)
            fold = halves_by_content(log, seed)
            if logged.rows > IN_MEMORY:
                streamed = [StreamedRows(logged, half, seed) for half in range(2)]
        else:
            log = _examined(logged, horizon)
            fold = halved(len(log), np.random.default_rng((seed, 11)))
        encoder = _encoder(log, actions, embedding, drawn, horizon)
        with follow_phases(progress) as report:
            networks = _learned(log, fold, encoder, trainings, seed, report, streamed=streamed)
        return cls(log, fold, Dynamics(networks), trainings, seed)

    @one_blas_thread()
    def refit(
        self,
        more: Transitions,
        *,
        progress: Progress | bool | None = None,
    ) -> World:
        """The world after more logs, in about 0.4 of the time that learning it anew takes.

        Rows that it has already stay in their halves. Training goes on from the networks of this
        world; if the new logs are very different, it begins anew.

        Args:
            more: further logs.
            progress: as for `learn`.
        """
        if not isinstance(more, Transitions):
            raise not_a_log(more, "more")
        encoder = self.dynamics.encoder
        new = _examined(more, encoder.horizon or None)
        log = Transitions.concat([self.logged, new])
        _encoder(log, len(encoder.embedding) or None, None, 0, None)  # raises if it does not fit
        refits = self.refits + 1
        rng = np.random.default_rng((self.seed, 11, refits))
        fold = np.concatenate([self.fold, halved(len(new), rng, len(self.logged))])
        with follow_phases(progress) as report:
            networks = _learned(
                log, fold, encoder, self.trainings, self.seed, report, self.dynamics.learned
            )
        return replace(self, logged=log, fold=fold, dynamics=Dynamics(networks), refits=refits)

    @property
    def error(self) -> float:
        """Held-out error of the next observation, in units of the spread of its change."""
        losses = [network.loss for network in self.dynamics.learned if np.isfinite(network.loss)]
        return float(np.sqrt(np.mean(losses))) if losses else float("nan")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file, whole or not at all; `World.load` reads it. No pickle inside."""
        _write(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> World:
        """Bring a saved world back.

        Args:
            path: of the file.
            max_bytes: most bytes of memory that the file may ask for.

        Raises:
            DataError: not a file that `save` wrote, damaged, or too large.
        """
        return _read(path, max_bytes)

    def __repr__(self) -> str:
        return f"World({self.logged!r}, held-out error {self.error:.3g}, {self.refits} refits)"


def _examined(logged: Transitions, horizon: int | None) -> Transitions:
    """The log, if it does not contradict itself; copies count once."""
    if logged.discrete_obs:
        raise InputError(
            "logs: holds state numbers, and a World is learned from vectors; try "
            "design(logged, ...), which is quick for tables"
        )
    log, diagnosis = examine(logged, Problem(horizon))
    diagnosis.raise_errors("logged")
    return log.with_notes(diagnosis.warnings)


def _sampled(logged: LoggedStream, horizon: int | None, seed: int) -> Transitions:
    """A random sample of a log on disk; all of it is read once and checked."""
    first = next(logged.batches()).log
    if first.discrete_obs:
        return _examined(first, horizon)  # raises
    return _examined(sample_logs(logged, IN_MEMORY, seed), horizon)


def _encoder(
    logged: Transitions,
    actions: int | None,
    embedding: ArrayLike | None,
    drawn: int,
    horizon: int | None,
) -> Encoder:
    width = logged.obs.shape[1]
    drawn = check_whole("drawn", drawn, 0)
    if drawn >= width:
        raise InputError(f"drawn: got {drawn}, expected fewer than the {width} of an observation")
    predicted = np.ones(width, np.bool_)
    predicted[width - drawn :] = drawn == 0
    time = 0 if horizon is None else int(horizon)
    if not logged.discrete_actions:
        if actions is not None or embedding is not None:
            raise InputError("actions, embedding: the logs hold vectors of actions; leave them out")
        return Encoder(np.empty((0, logged.action.shape[1])), predicted, time)
    shown = int(logged.action.max()) + 1
    if embedding is not None:
        table = as_floats("embedding", embedding, ndim=(2,), axes=("action", "entry"))
    else:
        many = check_whole("actions", shown if actions is None else actions, 1)
        table = np.eye(many)
    if len(table) < shown or (actions is not None and len(table) != actions):
        raise InputError(
            f"actions: {len(table)}, but the logs hold action number {shown - 1}; expected at "
            f"least {shown}"
        )
    return Encoder(table, predicted, time)


def _learned(
    log: Transitions,
    fold: Ints,
    encoder: Encoder,
    trainings: tuple[Training, ...],
    seed: int,
    report: Progress,
    start: Sequence[Network] | None = None,
    streamed: Sequence[StreamedRows] | None = None,
) -> tuple[Network, ...]:
    ticker = partial(count_steps, report, "learning the dynamics")
    return tuple(
        learn_halves(halves_of(log, fold), encoder, trainings, seed, ticker, start, streamed)
    )


def halves_of(log: Transitions, fold: Ints) -> list[Rows]:
    """The rows of each half."""
    rows = rows_to_learn(log)
    return [rows.select(np.flatnonzero(fold == k)) for k in range(2)]


# -- worlds on disk -------------------------------------------------------------------------------


FORMAT = 1
#: Most bytes of the header, and most trainings in it.
LARGEST_HEADER, MOST_TRAININGS = 1 << 20, 16

#: The columns of the logs; n rows, d entries of an observation.
COLUMNS = {
    "t": Layout(np.int64, "n"),
    "obs": Layout(np.float64, "n d"),
    "reward": Layout(np.float64, "n"),
    "cost": Layout(np.float64, "n"),
    "next_obs": Layout(np.float64, "n d"),
    "terminated": Layout(np.bool_, "n"),
    "has_next": Layout(np.bool_, "n"),
    "fold": Layout(np.int64, "n"),
    "embedding": Layout(np.float64, "A m"),
    "predicted": Layout(np.bool_, "d"),
    "horizon": Layout(np.int64, ""),
}
#: What a network has beside `NETWORK`: its held-out errors, in the order of their expected size.
ERRORS = {
    "errors": Layout(np.float64, "kept w"),
    "expected_sizes": Layout(np.float64, "kept"),
    "size_weights": Layout(np.float64, "terms"),
    "judged": Layout(np.float64, "2"),
}


def _write(path: str | os.PathLike[str], world: World) -> None:
    """Write one file, whole or not at all."""
    log, encoder = world.logged, world.dynamics.encoder
    arrays: dict[str, NDArray[Any]] = {
        **log.stored_columns(),
        "fold": world.fold,
        "embedding": encoder.embedding,
        "predicted": encoder.predicted,
        "horizon": np.asarray(encoder.horizon, np.int64),
    }
    for i, network in enumerate(world.dynamics.learned):
        arrays_of_network: dict[str, NDArray[Any]] = {
            **network.weights,
            "low": network.low,
            "high": network.high,
            "errors": network.errors,
            "expected_sizes": network.expected_sizes,
            "size_weights": network.size_weights,
            "judged": np.array([network.reward_noise, network.loss]),
        }
        arrays |= {f"net{i}_{name}": value for name, value in arrays_of_network.items()}
    header = {
        "format": FORMAT,
        "seed": world.seed,
        "refits": world.refits,
        "notes": list(log.notes),
        "trainings": [asdict(training) for training in world.trainings],
    }
    write_sealed(path, json.dumps(header).encode(), arrays)


def _read(path: str | os.PathLike[str], max_bytes: int) -> World:
    """Read a file that `_write` wrote."""
    remedy = "expected a file written by World.save, try learning it anew"
    with open_sealed(path, max_bytes, what="a saved world", remedy=remedy) as archive:
        header = _header(archive)
        _check_shapes(archive.headers)
        arrays = {key: archive.read(key) for key in archive.headers if key != "header"}
        try:
            return _world(header, arrays)
        except InputError as error:  # columns or settings that the library refuses
            raise ValueError(f"{error}") from error


def _header(archive: Archive) -> dict[str, Any]:
    header = json.loads(read_header(archive, LARGEST_HEADER))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"format {header.get('format') if isinstance(header, dict) else header!r}")
    numbers = (header.get("seed"), header.get("refits"))
    if not all(type(n) is int and 0 <= n < 2**62 for n in numbers):
        raise ValueError(f"seed and refits {numbers}")
    notes, trainings = header.get("notes"), header.get("trainings")
    if not isinstance(notes, list) or not all(isinstance(text, str) for text in notes):
        raise ValueError("notes that are not text")
    if not isinstance(trainings, list) or not 1 <= len(trainings) <= MOST_TRAININGS:
        raise ValueError("trainings that are not a list of settings")
    return header


def _check_shapes(headers: Mapping[str, Header]) -> None:
    """See that the arrays fit each other; none has been read yet."""
    layouts = dict(COLUMNS)
    continuous = len(headers["embedding"].shape) == 2 and headers["embedding"].shape[0] == 0
    if "has_next" not in headers:  # every row has a successor
        del layouts["has_next"]
    layouts["action"] = Layout(np.float64, "n m") if continuous else Layout(np.int64, "n")
    for i in range(2):
        layouts |= {f"net{i}_{name}": layout for name, layout in (NETWORK | ERRORS).items()}
    names = set(headers) - {"header"}
    if names != set(layouts):
        missing, odd = sorted(set(layouts) - names), sorted(names - set(layouts))
        raise ValueError(f"arrays missing: {missing}, not expected: {odd}")
    sizes = Sizes()
    for name, layout in layouts.items():
        sizes.match(name, layout, headers[name])
    sizes.need("none may be 0", all(n > 0 for k, n in sizes.items() if k != "A"))
    sizes.need("outputs = w + 3", sizes["outputs"] == sizes["w"] + 3)
    sizes.need("inputs = d + m, or + 1", sizes["inputs"] - sizes["d"] - sizes["m"] in (0, 1))
    sizes.need("terms", sizes["terms"] in (1, 1 + 3 * sizes["inputs"]))


def _world(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> World:
    may_be_nan = {"net0_judged", "net1_judged"}
    for name, array in arrays.items():
        if array.dtype.kind == "f" and name not in may_be_nan and not np.isfinite(array).all():
            raise ValueError(f"array {name!r} holds numbers that are not finite")
    predicted, horizon = arrays["predicted"], int(arrays["horizon"])
    width, m = len(predicted), arrays["embedding"].shape[1]
    timed = arrays["net0_w1"].shape[0] - width - m
    if not 0 <= horizon < 2**31 or (horizon > 0) != bool(timed):
        raise ValueError(f"a horizon of {horizon}")
    if predicted.sum() != arrays["net0_low"].shape[0]:
        raise ValueError("networks of other entries of the observation")
    fold = arrays["fold"]
    if not np.isin(fold, (0, 1)).all() or len(np.unique(fold)) != 2:
        raise ValueError("halves that are not 0 and 1")
    log = Transitions(
        arrays["t"],
        arrays["obs"],
        arrays["action"],
        arrays["reward"],
        arrays["cost"],
        arrays["next_obs"],
        arrays["terminated"],
        header["notes"],
        arrays.get("has_next"),
    )
    embedding = arrays["embedding"]
    if len(embedding) and log.action.max() >= len(embedding):
        raise ValueError(f"action number {log.action.max()} of {len(embedding)}")
    encoder = Encoder(embedding, predicted, horizon)
    networks = tuple(_network(encoder, f"net{i}_", arrays) for i in range(2))
    for network, rows in zip(networks, halves_of(log, fold), strict=True):
        network.identities = identities_of(rows, predicted)
    trainings = tuple(Training(**_training(given)) for given in header["trainings"])
    return World(log, fold, Dynamics(networks), trainings, header["seed"], header["refits"])


def _network(encoder: Encoder, start: str, arrays: dict[str, NDArray[Any]]) -> Network:
    layers = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
    low, high = layers.pop("low"), layers.pop("high")
    errors, sizes, weights = (layers.pop(k) for k in ("errors", "expected_sizes", "size_weights"))
    noise, loss = layers.pop("judged")
    if not ((layers["scale"] > 0).all() and (layers["spread"] > 0).all()):
        raise ValueError("units that are not above 0")
    if not (low <= high).all() or not (np.diff(sizes) >= 0).all():
        raise ValueError("a range, or expected sizes, in the wrong order")
    if not 0 <= noise < np.inf or loss < 0 or np.isinf(loss):
        raise ValueError(f"held-out errors {noise}, {loss}")
    return Network(encoder, layers, low, high, errors, float(noise), float(loss), sizes, weights)


def _training(given: Any) -> dict[str, Any]:
    """The settings of a training, of the right types."""
    names = asdict(Training())
    if isinstance(given, dict):
        given = {"gain": 1.0} | given  # files of version 0.1.0 did not say
    if not isinstance(given, dict) or set(given) != set(names):
        raise ValueError(f"a training of {sorted(given) if isinstance(given, dict) else given!r}")
    whole = {"hidden": given["hidden"], "batch": given["batch"]}
    if given["steps"] is not None:
        whole["steps"] = given["steps"]
    real = {name: given[name] for name in ("rate", "dropout")}
    if given["gain"] is not None:
        real["gain"] = given["gain"]
    if not all(type(n) is int and n < 2**31 for n in whole.values()) or not all(
        type(x) in (int, float) and np.isfinite(x) for x in real.values()
    ):
        raise ValueError(f"a training of {given}")
    return given

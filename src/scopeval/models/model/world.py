"""A learned world: logs of vectors and the dynamics learned from them, for many designs.

    world = World.learn(logs)
    for target in targets:
        behavior = design(world, target, horizon=T)
    world = world.refit(more)      # later: a fraction of the first cost

The dynamics do not depend on the target policy, so they are learned once. Each row of the logs
belongs to one half for good: the networks of the halves never share a row, also after a refit, so
that cross-checks are as honest as those of a single design.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from scopeval._archive import MAX_BYTES
from scopeval._parallel import one_blas_thread
from scopeval._progress import Progress, count_steps, follow_phases
from scopeval.arrays import Ints, as_floats, check_whole
from scopeval.errors import InputError
from scopeval.logs.diagnose import Problem, examine
from scopeval.logs.stream import LoggedStream, sample_logs
from scopeval.logs.transitions import Transitions, not_a_log
from scopeval.models.model.network import Dynamics, Network
from scopeval.models.model.step_model import Encoder
from scopeval.models.model.training import Training, learn_halves
from scopeval.models.rows import (
    IN_MEMORY,
    Rows,
    StreamedRows,
    halved,
    halves_by_content,
    rows_to_learn,
)

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
            raise not_a_log(logged)
        check_whole("seed", seed, 0)
        if horizon is not None:
            check_whole("horizon", horizon, 1)
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
            raise not_a_log(more)
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
        from scopeval.models.model.world_file import write_world

        write_world(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> World:
        """Bring a saved world back.

        Args:
            path: of the file.
            max_bytes: most bytes of memory that the file may ask for.

        Raises:
            DataError: not a file that `save` wrote, damaged, or too large.
        """
        from scopeval.models.model.world_file import read_world

        return read_world(path, max_bytes)

    def __repr__(self) -> str:
        return f"World({self.logged!r}, held-out error {self.error:.3g}, {self.refits} refits)"


def _examined(logged: Transitions, horizon: int | None) -> Transitions:
    """The log, if it does not contradict itself; copies count once."""
    if logged.discrete_obs:
        raise InputError(
            "logged: holds state numbers, and a World is learned from vectors; try "
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
    check_whole("drawn", drawn, 0)
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
        many = shown if actions is None else actions
        check_whole("actions", many, 1)
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


def settings_of(training: Training) -> dict[str, Any]:
    """The settings of a training as they are written."""
    return {
        "hidden": training.hidden,
        "steps": training.steps,
        "batch": training.batch,
        "rate": training.rate,
        "dropout": training.dropout,
        "gain": training.gain,
    }

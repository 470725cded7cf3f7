"""A whole `evaluate` on workers beside the same in this process: an environment of 2 ms a step.

The step is a fixed amount of computation, so that it takes a core and not just time. Both results
are compared bit for bit. Starting the workers is part of what is timed.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.busy import MakeBusy, loops_of
from benchmarks.harness import Comparison, load_peer, not_installed
from scopeval import Plant, Workers
from scopeval._files import machine
from scopeval.arrays import check_whole
from scopeval.evaluation.evaluator import evaluate
from scopeval.evaluation.result import Evaluation

__all__ = ["Config", "run"]


@dataclass(frozen=True)
class Config:
    """What to measure."""

    milliseconds: float = 2.0
    """Of one step, on a core that does nothing else."""
    episodes: int = 192
    """Episodes of the evaluation."""
    horizon: int = 60
    """Steps of an episode."""
    workers: int = 2
    """How many."""
    backends: tuple[str, ...] = ("processes", "ray")
    """Which kinds."""
    seed: int = 0
    """Seed of the episodes."""

    def __post_init__(self) -> None:
        for name in ("episodes", "horizon", "workers"):
            check_whole(name, getattr(self, name), 1)


def run(config: Config) -> list[Comparison]:
    """One row for each backend."""
    make = MakeBusy(loops_of(config.milliseconds))
    alone = _timed(make, config, None)
    return [_row(make, config, backend, alone) for backend in config.backends]


class _Timed(NamedTuple):
    """Seconds, processor seconds of this process and of its workers, and the result."""

    seconds: float
    here: float
    workers: float
    result: Evaluation


def _row(make: MakeBusy, config: Config, backend: str, alone: _Timed) -> Comparison:
    steps = config.episodes * config.horizon
    name = f"evaluate, {config.workers} workers, {backend}"
    goal = 1.8 if backend == "processes" else None
    if backend == "ray" and load_peer("ray") is None:
        note = not_installed("ray")
        return Comparison(name, 0.0, None, unit="step", sense="faster", goal=goal, note=note)
    shared = _timed(make, config, backend)
    same = shared.result.to_dict() == alone.result.to_dict()
    note = (
        f"beside one process; {steps:,} steps of {config.milliseconds:g} ms, "
        f"{machine()['cores']} cores, the start of the workers included; "
        f"{'the same bits' if same else 'NOT THE SAME BITS'}"
    )
    if backend == "processes":  # Ray's own processes are not ours
        busiest = shared.here + shared.workers / config.workers
        note += f"; by processor time, were all cores free, {alone.here / busiest:.2f} times"
    ours, peer = shared.seconds / steps, alone.seconds / steps
    return Comparison(name, ours, peer, unit="step", sense="faster", goal=goal, note=note)


def _timed(make: MakeBusy, config: Config, backend: str | None) -> _Timed:
    began, before = time.perf_counter(), _processor()
    found = evaluate(
        Plant(make, workers=None if backend is None else Workers(config.workers, backend)),
        [[0.5, 0.5]],
        [[0.4, 0.6]],
        horizon=config.horizon,
        episodes=config.episodes,
        seed=config.seed,
    )
    here, workers = (a - b for a, b in zip(_processor(), before, strict=True))
    return _Timed(time.perf_counter() - began, here, workers, found)


def _processor() -> list[float]:
    """Processor seconds of this process, and of those that it has started and that have ended."""
    every = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return [one.ru_utime + one.ru_stime for one in every]

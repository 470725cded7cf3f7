"""Numbers of running work for experiment trackers: TensorBoard, MLflow, Weights & Biases, others.

A tracker is any object with ``log(step, values)``. None of them is a dependency; the page "In a
notebook" of the documentation has the few lines for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from scopeval._progress import show_progress
from scopeval.evaluation.stopping import Running

__all__ = ["Listener", "Tracker", "follow_batches"]


@runtime_checkable
class Tracker(Protocol):
    """Takes numbers by name."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take the numbers of one moment.

        Args:
            step: number of episodes done.
            values: finite numbers by name: "estimate", "low", "high", "cost", and others.
        """


#: What `evaluate` may call after every batch: a function, or a tracker.
Listener = Callable[[Running], None] | Tracker


def listener_of(progress: Listener | None) -> Callable[[Running], None] | None:
    """What to call after every batch, for a function, a tracker or nothing."""
    if not isinstance(progress, Tracker):
        return progress
    tracker = progress
    return lambda now: tracker.log(now.done, now.values())


@contextmanager
def follow_batches(
    progress: Listener | None, *, verbose: bool
) -> Iterator[Callable[[Running], None] | None]:
    """Yield what to call after every batch; None: nobody wants to know.

    Args:
        progress: a function or a tracker of the user's.
        verbose: whether progress is shown.
    """
    told = listener_of(progress)
    if not verbose:
        yield told
        return
    with show_progress("running episodes") as show:

        def both(now: Running) -> None:
            found = now.interval
            total = now.total or 0
            show(now.done, total, f"{now.done:,} episodes, value {found.estimate:.4g}")
            if told is not None:
                told(now)

        yield both

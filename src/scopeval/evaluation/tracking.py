"""Numbers of running work for experiment trackers: TensorBoard, MLflow, Weights & Biases, others.

A tracker is any object with ``log(step, values)``. None of them is a dependency; the page "In a
notebook" of the documentation has the few lines for each.
"""

from __future__ import annotations

import inspect
import logging
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol, runtime_checkable

from scopeval._progress import LINE_SECONDS, LOGGER, show_progress
from scopeval.errors import InputError
from scopeval.evaluation.loop import Running

__all__ = ["Listener", "Tracker", "follow_batches", "listener_of"]


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

_EXPECTED = (
    "a function of one argument, a `Running`, or a tracker: an object with log(step, values)"
)


def listener_of(listener: Listener, name: str = "progress") -> Callable[[Running], None]:
    """What to call with the numbers of a moment, for a function or a tracker.

    An exception in it must not end episodes that are paid for: the first one is a warning and is
    logged, and the next moment is told as if nothing had happened. Ctrl-C passes through.

    Args:
        listener: what the user gave.
        name: of the argument.

    Raises:
        InputError: it cannot be called so.
    """
    label, call = _checked(listener, name)
    failed = False

    def report(now: Running) -> None:
        nonlocal failed
        try:
            call(now)
        except Exception as error:  # the user's own code: anything may happen in it
            if failed:
                return
            failed = True
            text = (
                f"{name}: {label} raised {type(error).__name__}: {error}; expected it to take the "
                "numbers and to return. The work goes on, and it is called again. Try to call it "
                "by hand"
            )
            LOGGER.warning(text, exc_info=error)
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    return report


def _checked(listener: Any, name: str) -> tuple[str, Callable[[Running], None]]:
    """How to name it in messages, and how to call it."""
    if isinstance(listener, type):
        kind = listener.__name__
        raise InputError(f"{name}: got the class {kind}, expected an object of it; try {kind}(...)")
    log = getattr(listener, "log", None)
    if callable(log):
        label = f"{getattr(listener, '__name__', type(listener).__name__)}.log"
        _check_fits(name, label, log, 2)
        return label, lambda now: log(now.done, now.values())
    if not callable(listener):
        bar = ", or progress=True for a bar" if name == "progress" else ""
        raise InputError(f"{name}: got {listener!r:.60}, expected {_EXPECTED}; try print{bar}")
    label = getattr(listener, "__name__", type(listener).__name__)
    _check_fits(name, label, listener, 1)
    return label, listener


def _check_fits(name: str, label: str, call: Callable[..., Any], count: int) -> None:
    """It can be called with so many arguments, as far as its signature is known."""
    try:
        signature = inspect.signature(call)
    except ValueError:  # some functions that are written in C
        return
    try:
        signature.bind(*range(count))
    except TypeError as cause:
        raise InputError(f"{name}: got {label}{signature}, expected {_EXPECTED}") from cause


@contextmanager
def follow_batches(
    progress: Listener | bool | None,
) -> Iterator[Callable[[Running], None] | None]:
    """Yield what to call after every batch; None: nobody wants to know.

    Args:
        progress: a function or a tracker of the user's, or True: progress is shown; None: on a
            terminal it is.
    """
    progress = sys.stderr.isatty() if progress is None else progress
    calls: list[Callable[[Running], None]] = []
    if not isinstance(progress, bool):
        calls.append(listener_of(progress))
    with ExitStack() as open_now:
        if progress is True:
            show = open_now.enter_context(show_progress("running episodes"))
            calls.insert(0, lambda now: show(now.done, now.total or 0, _line(now)))
        if LOGGER.isEnabledFor(logging.INFO):
            calls.insert(0, open_now.enter_context(_logged()))

        def every(now: Running) -> None:
            for call in calls:
                call(now)

        yield every if calls else None


def _line(now: Running) -> str:
    """How far an evaluation is."""
    stage = "" if now.stage is None else f"stage {now.stage}: "
    error = f", standard error {now.error:.2g}" if math.isfinite(now.error) else ""
    return f"{stage}{now.done:,} episodes, value {now.interval.estimate:.4g}{error}"


@contextmanager
def _logged() -> Iterator[Callable[[Running], None]]:
    """Log the first batch of every stage, a batch every now and then, and the last."""
    stage: int | None = None
    due, waiting = -math.inf, ""

    def tell(now: Running) -> None:
        nonlocal stage, due, waiting
        moment = time.monotonic()
        if now.stage == stage and moment < due:
            waiting = _line(now)
            return
        stage, due, waiting = now.stage, moment + LINE_SECONDS, ""
        LOGGER.info(_line(now))

    yield tell
    if waiting:
        LOGGER.info(waiting)

"""Progress of long work: a bar on a terminal or in a notebook, lines elsewhere, and `logging`.

The logger is ``logging.getLogger("scopeval")``. It is quiet unless its level is INFO or lower and
the program has a handler for it, as after ``logging.basicConfig(level=logging.INFO)``.
"""

from __future__ import annotations

import html
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["LOGGER", "Progress", "Show", "count_steps", "follow_phases", "show_progress"]

LOGGER = logging.getLogger("scopeval")

#: Called with (what is being done, steps done, steps in all).
Progress = Callable[[str, int, int], None]

#: Called with (steps done, steps in all, what is being done).
Show = Callable[[int, int, str], None]

#: Seconds between two lines about the same work, where there is no terminal.
LINE_SECONDS = 30.0
#: Seconds between two changes of the bar in a notebook.
NOTEBOOK_SECONDS = 0.2


def count_steps(report: Progress | None, what: str, total: int) -> Callable[[int], None]:
    """Called with steps just taken, by any thread; reports how many there were of all."""
    lock, done = Lock(), 0

    def count(steps: int) -> None:
        nonlocal done
        with lock:
            done += steps
            if report is not None:
                report(what, min(done, total), total)

    return count


@contextmanager
def show_progress(what: str, console: Console | None = None) -> Iterator[Show]:
    """Show on stderr how work goes on.

    Args:
        what: is done first; a bar shows it at once.
        console: to print on (default: stderr).
    """
    from rich.console import Console as StandardConsole

    console = StandardConsole(stderr=True, highlight=False) if console is None else console
    if console.is_jupyter:
        with _notebook_line(what) as show:
            yield show
        return
    if not console.is_terminal:
        lines = _Lines(console)
        yield lines.show  # not yet `what`: an error in the first step is one line alone
        lines.finish()
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=None)

        def show(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield show


@contextmanager
def _notebook_line(what: str) -> Iterator[Show]:
    """A bar below the cell of a notebook, which is taken away at the end.

    Not by `rich`, which would need the package ipywidgets for it.
    """
    from IPython.display import HTML, display

    shown = display(HTML(_bar(what, 0, 0)), display_id=True)
    last = time.monotonic()

    def show(done: int, total: int, what: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now >= last + NOTEBOOK_SECONDS:  # every change is a message to the browser
            last = now
            shown.update(HTML(_bar(what, done, total)))

    try:
        yield show
    finally:
        shown.update(HTML(""))


def _bar(what: str, done: int, total: int) -> str:
    """A bar as HTML; it is indefinite where the total is not known."""
    share = f' value="{min(done / total, 1.0):.3f}"' if total else ""
    return f'<progress{share} style="width:12em"></progress> {html.escape(what)}'


class _Lines:
    """One line for each kind of work or stage, one now and then while it lasts, and the last."""

    def __init__(self, console: Console) -> None:
        self.console, self.phase, self.last = console, "", 0.0
        self.printed = self.waiting = ""

    def show(self, done: int, total: int, what: str) -> None:
        """Print a line if there is something new to say."""
        # other numbers are another line about the same work, but for the number of a stage
        phase = re.sub(r"(stage \d+)|[-+\d.,e]+", r"\1", what)
        now, share = time.monotonic(), f" ({done / total:.0%})" if total else ""
        if phase == self.phase and now < self.last + LINE_SECONDS:
            self.waiting = f"{what}{share}" if what != self.printed else ""
            return
        line = f"{what}{share}" if phase == self.phase else what
        self.phase, self.last, self.printed, self.waiting = phase, now, what, ""
        self._print(line)

    def finish(self) -> None:
        """Print how it ended, if that was not printed."""
        if self.waiting:
            self._print(self.waiting)

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)


@contextmanager
def follow_phases(progress: Progress | bool | None) -> Iterator[Progress]:
    """Yield what to call with (what, done, total): it logs, shows and passes on what it is told.

    Args:
        progress: the user's own function, or True: progress is shown.
    """
    call = progress if callable(progress) else None
    phase, began, over = "", 0.0, False

    def finish() -> None:
        seconds = time.perf_counter() - began
        if phase and seconds >= 1.0:
            LOGGER.info("%s: %.1f s", phase, seconds)

    def follow(show: Show | None) -> Progress:
        def told(what: str, done: int, total: int) -> None:
            nonlocal phase, began
            if what != phase and not over:
                finish()
                phase, began = what, time.perf_counter()
                LOGGER.info("%s: %s steps", what, f"{total:,}")
            if show is not None and not over:
                show(done, total, what)
            if call is not None:
                call(what, done, total)

        return told

    try:
        if progress is True:
            with show_progress("reading the logs") as show:
                yield follow(show)
        else:
            yield follow(None)
    finally:
        over = True  # a frontier goes on to call it when a point is asked for
        finish()

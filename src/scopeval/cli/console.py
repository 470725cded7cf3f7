"""How the commands speak: to whom, how wide, and what they say when something goes wrong."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from scopeval.errors import ScopevalError

__all__ = [
    "Commands",
    "closing",
    "columns",
    "command_of",
    "err",
    "out",
    "paragraph",
    "plus_minus",
    "progress_bar",
]

#: Text is set at most this wide.
WIDTH = 80


def out() -> Console:
    """Where results go: plain text unless it is a terminal."""
    return _narrow(Console(highlight=False))


def err() -> Console:
    """Where progress and errors go."""
    return _narrow(Console(stderr=True, highlight=False))


def _narrow(console: Console) -> Console:
    console.width = min(console.width, WIDTH)
    return console


class Commands(TyperGroup):
    """The root of the commands: what the library refuses becomes one line and exit status 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            err().print("interrupted")
            raise typer.Exit(130) from None
        except ScopevalError as error:
            if ctx.params.get("debug"):
                raise
            line = Text.assemble(("error:", "bold red"), " ", " ".join(str(error).split()))
            err().print(line, soft_wrap=True)
            raise typer.Exit(2) from None


def paragraph(console: Console, text: str) -> None:
    """Print running text, wrapped, exactly as it is."""
    console.print(textwrap.fill(text, console.width), markup=False, soft_wrap=True)


def closing(console: Console, command: str, footer: str, text: str) -> None:
    """Print how to read the tables above, the command to type again, and a last line."""
    paragraph(console, text)
    console.print(f"\n{command}", soft_wrap=True, markup=False)
    console.print(footer, soft_wrap=True, markup=False)


def columns(*headers: str) -> Table:
    """An empty table: the first column is text, the others are numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for k, header in enumerate(headers):
        table.add_column(
            header, justify="right" if k else "left", header_style="bold", no_wrap=k == 0
        )
    return table


def plus_minus(console: Console) -> str:
    """The sign, where the console can print it."""
    return "±" if console.encoding.lower().startswith("utf") else "+-"


def command_of(ctx: typer.Context, *, without: tuple[str, ...] = ()) -> str:
    """The command that was given, with every option spelled out, as one can type it again."""
    words = ["scopeval", *ctx.command_path.split()[1:]]
    for parameter in ctx.command.params:
        value = ctx.params.get(str(parameter.name))
        if parameter.name in without or value is None:
            continue
        option = parameter.opts[0]
        if isinstance(value, bool):
            words += [option] if value else []
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            words += [option, str(one)]
    return shlex.join(words)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on the terminal (nothing where there is none), fed by progress(done, total, what)."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = err()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(what, total=None)

        def progress(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield progress

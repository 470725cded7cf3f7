"""Printing: consoles, tables, progress bars, and errors as one line."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from scopeval._progress import Show, show_progress
from scopeval.errors import ScopevalError

if TYPE_CHECKING:
    from scopeval.report.page import Table

__all__ = [
    "Commands",
    "command_of",
    "err",
    "out",
    "paragraph",
    "print_line",
    "print_table",
    "progress_bar",
]

#: Most characters of a line.
WIDTH = 80


def out() -> Console:
    """The console for results: plain text unless it is a terminal."""
    return _narrow(Console(highlight=False))


def err() -> Console:
    """The console for progress and errors."""
    return _narrow(Console(stderr=True, highlight=False))


def _narrow(console: Console) -> Console:
    console.width = min(console.width, WIDTH)
    return console


class Commands(TyperGroup):
    """The root of the commands: an error of the library becomes one line and exit status 2."""

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
            text = " ".join(str(error).split())
            if "columns={" in text:  # what Python users write
                text += " (on the command line: --columns obs=NAME, --time NAME, --gap 11min)"
            line = Text.assemble(("error:", "bold red"), " ", text)
            err().print(line, soft_wrap=True)
            raise typer.Exit(2) from None


def print_line(console: Console, text: str) -> None:
    """Print text as it is: nothing in it is markup, and no line is broken."""
    console.print(text, markup=False, soft_wrap=True)


def paragraph(console: Console, text: str, indent: str = "") -> None:
    """Print text, wrapped at the width of the console; `indent` before all lines but the first."""
    text = _printable(console, text)
    print_line(console, textwrap.fill(text, console.width, subsequent_indent=indent))


def print_table(console: Console, table: Table) -> None:
    """Print the caption and the table; the first column is text, the others are numbers.

    A header is broken into lines where it is wider than its column, at blanks and soft hyphens.
    """
    if table.caption:
        console.print(Text(_printable(console, table.caption), style="bold"), soft_wrap=True)
    body = list(zip(*table.rows, strict=True)) or [()] * len(table.header)
    heads = [
        _broken(head, max(map(len, column), default=0))
        for head, column in zip(table.header, body, strict=True)
    ]
    height = max(map(len, heads))
    columns = [
        [*[""] * (height - len(head)), *head, *column]
        for head, column in zip(heads, body, strict=True)
    ]
    widths = [max(map(len, column)) for column in columns]
    gap = "  " if sum(widths) + 2 * len(widths) - 2 <= console.width else " "
    for number, row in enumerate(zip(*columns, strict=True)):
        numbers = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        text = gap.join([row[0].ljust(widths[0]), *numbers[1:]]).rstrip()
        style = "bold" if number < height else ""
        console.print(Text(_printable(console, text), style=style), soft_wrap=True)


def _broken(header: str, width: int) -> list[str]:
    """The lines of a header."""
    words: list[str] = []
    for word in header.split():
        first, hyphen, second = word.partition("\xad")
        if hyphen and len(first + second) > width:
            words += [f"{first}-", second]
        else:
            words.append(first + second)
    width = max(width, *map(len, words))
    return textwrap.wrap(" ".join(words), width, break_on_hyphens=False)


def _printable(console: Console, text: str) -> str:
    """The text without what the console's encoding lacks."""
    return text if console.encoding.lower().startswith("utf") else text.replace("±", "+-")


def command_of(ctx: typer.Context, *, without: tuple[str, ...] = ()) -> str:
    """The command that was given, with every option, ready to be typed again."""
    words = ["scopeval", *ctx.command_path.split()[1:]]
    for parameter in ctx.command.params:
        value = ctx.params.get(str(parameter.name))
        if parameter.name in without or value is None:
            continue
        option = parameter.opts[0]
        if isinstance(value, bool):  # the second name of a flag turns it off, such as --no-guard
            words += [option] if value else parameter.secondary_opts[:1]
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            words += [option, str(one)]
    return shlex.join(words)


@contextmanager
def progress_bar(what: str) -> Iterator[Show]:
    """A bar on a terminal, lines elsewhere; yields progress(done, total, what)."""
    with show_progress(what, err()) as show:
        yield show
